"""From a fit to one with more components: what is known is kept, new components join it.

A new component is fitted to what the others explain worst, as a swap does (`klnmf.solvers.swaps`);
then all of them are improved together, and a swap may still lead out of a local optimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.solvers.base import Problem, State
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.swaps import Sample, draw_sample, propose_addition, propose_merge
from klnmf.sparse_data import SparseData

Array = npt.NDArray[Any]
Factors = tuple[Array, Array]  # W and H, both tall

# A fit has arrived when an iteration gains less than this share of the objective, and no swap
# helps.
ENOUGH = 1e-4
MOST_ITERATIONS = 100
# Trials of a swap in a row without success before there are no more. With fewer, a component that
# was missed makes the next rank look better than it is.
SWAP_FAILURES = 1
# Detours over one component more that a rank takes as long as they help.
MOST_DETOURS = 3


def one_component(data: SparseData) -> Factors:
    """Return the best fit with one component: row sums and column shares."""
    shares = data.view(1).row_sums / (data.total or 1.0)
    return _as_column(data.view(0).row_sums, data.dtype), _as_column(shares, data.dtype)


def _as_column(values: Array, dtype: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(values[:, None], dtype=dtype)


def grown(problem: Problem, factors: Factors, n_components: int, seed: list[int]) -> Factors:
    """Add components one at a time until there are this many, and a descent between two of them.

    Parameters
    ----------
    problem : Problem
        The data on a back-end.
    factors : pair of ndarray
        W and H; they are not changed.
    n_components : int
        How many there shall be.
    seed : list of int
        Seeds the choice of the new components.
    """
    generator = np.random.default_rng(seed)
    n_missing = n_components - factors[0].shape[1]
    for left in reversed(range(n_missing)):
        factors = _with_one_more(problem, factors, generator)
        if left:  # the next one is to find something else
            state_seed = int(generator.integers(2**31))
            factors, _ = descended(problem, factors, state_seed, max_iter=2, swap_failures=0)
    return factors


def _sampled(
    problem: Problem, factors: Factors, generator: np.random.Generator
) -> tuple[Sample, Array, Array, Array]:
    """Draw rows of X; returns them, both factors' rows that belong to them, and H's scales."""
    W, H = factors
    sample = draw_sample(problem.backend.data.view(0), W.shape[1] + 1, generator)
    sums = H.sum(axis=0, dtype=np.float64)
    scales = np.where(sums > 0, sums, 1.0)
    sampled_W = W[sample.rows].astype(np.float64) * scales
    return sample, sampled_W, H[sample.columns].astype(np.float64) / scales, scales


def _with_one_more(problem: Problem, factors: Factors, generator: np.random.Generator) -> Factors:
    W, H = factors
    columns = problem.backend.data.view(1)
    sample, sampled_W, sampled_H, _ = _sampled(problem, factors, generator)
    found = propose_addition(sample.X, sampled_W, sampled_H, generator)
    new = np.zeros(H.shape[0])
    if found is None:  # nothing is to be gained; the margins are as good as anything
        new[:] = columns.row_sums / (columns.row_sums.sum() or 1.0)
    else:
        new[sample.columns] = found
    # The new component waits for the first half-step to use it.
    grown_W = np.zeros((W.shape[0], W.shape[1] + 1), dtype=W.dtype)
    grown_W[:, :-1] = W
    grown_H = np.empty((H.shape[0], H.shape[1] + 1), dtype=H.dtype)
    grown_H[:, :-1], grown_H[:, -1] = H, new
    return grown_W, grown_H


def _with_one_less(problem: Problem, factors: Factors, generator: np.random.Generator) -> Factors:
    """Merge the two components that lose least by it."""
    W, H = factors
    sample, sampled_W, sampled_H, scales = _sampled(problem, factors, generator)
    masses = W.sum(axis=0, dtype=np.float64) * scales
    found = propose_merge(sample.X, sampled_W, sampled_H, masses)
    (first, second), (of_first, of_second) = found or ((0, 1), (0.5, 0.5))
    merged_W, merged_H = W * scales.astype(W.dtype), H / scales.astype(H.dtype)
    merged_W[:, first] += merged_W[:, second]
    merged_H[:, first] = of_first * merged_H[:, first] + of_second * merged_H[:, second]
    kept = [k for k in range(W.shape[1]) if k != second]
    return np.ascontiguousarray(merged_W[:, kept]), np.ascontiguousarray(merged_H[:, kept])


def detoured(problem: Problem, factors: Factors, objective: float, seed: list[int]) -> Factors:
    """Take a detour over one component more, and keep what it leads to if that is lower.

    A component that a fit has missed is found by the next rank; merging two of that one's then
    gives this rank a fit which its own path did not reach.
    """
    generator = np.random.default_rng([*seed, 2])
    for _ in range(MOST_DETOURS):
        more = _with_one_more(problem, factors, generator)
        more, _ = descended(problem, more, int(generator.integers(2**31)), swap_failures=0)
        fewer = _with_one_less(problem, more, generator)
        fewer, found = descended(problem, fewer, int(generator.integers(2**31)), swap_failures=0)
        if not found < objective * (1.0 - ENOUGH):
            break
        factors, objective = fewer, found
    return factors


def descended(
    problem: Problem,
    factors: Factors,
    seed: int,
    *,
    max_iter: int = MOST_ITERATIONS,
    swap_failures: int = SWAP_FAILURES,
) -> tuple[Factors, float]:
    """Improve a pair until it hardly moves; returns the new pair and its objective."""
    solver = SparseCoordinateDescent(opening=0, swap_failures=swap_failures)
    # Iteration 0 would be one without extrapolation, after an opening that a warm start skips.
    state = State([factor.copy() for factor in factors], seed, iteration=1, was_drawn=True)
    solver.prepare(problem, state)
    for _ in range(max_iter):
        solver.iterate(problem, state)
        state.iteration += 1
        if state.memory["gain"] < ENOUGH and state.memory["swap_failures_left"] == 0:
            break
    dtype = problem.backend.data.dtype
    W, H = (np.asarray(factor, dtype=dtype) for factor in state.factors)
    return (W, H), float(state.objective)
