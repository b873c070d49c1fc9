"""From a fit to one with more components, or with fewer: what is known is kept.

A new component is fitted to what the others explain worst, as a swap does (`klnmf.solvers.swaps`);
then all of them are improved together, and a swap may still lead out of a local optimum. The way
back merges the two components that lose least by it. A fit that has had too many components to
choose from often ends lower than one that has had too few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.data.sparse_data import SparseData
from klnmf.solvers.base import Problem, State
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.loop import MaxIterations, Run, SmallGain
from klnmf.solvers.swaps import Sample, draw_sample, propose_addition, propose_merge

Array = npt.NDArray[Any]
Factors = tuple[Array, Array]  # W and H, both tall

# A fit has arrived when an iteration gains less than this share of the objective, and no swap
# helps.
ENOUGH = 1e-4
MOST_ITERATIONS = 100
# Trials of a swap in a row without success before there are no more; more of them take longer and
# change little here, where every component was fitted to what the others had missed.
SWAP_FAILURES = 1
# New components that are compared on a sample, of which the best joins the others.
CANDIDATES = 6


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


def _with_one_more(problem: Problem, factors: Factors, generator: np.random.Generator) -> Factors:
    W, H = factors
    columns = problem.backend.data.view(1)
    sample = draw_sample(problem.backend.data.view(0), W.shape[1] + 1, generator)
    scales = _column_sums(H)
    found = propose_addition(sample.X, *_sampled(sample, factors, scales), generator, CANDIDATES)
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


def shrunk(problem: Problem, factors: Factors, n_components: int, seed: list[int]) -> Factors:
    """Merge components, two at a time, until there are this many, and a descent between merges.

    The arguments are those of `grown`.
    """
    generator = np.random.default_rng(seed)
    n_merges = factors[0].shape[1] - n_components
    for left in reversed(range(n_merges)):
        factors = _with_one_less(problem, factors, generator)
        if left:
            state_seed = int(generator.integers(2**31))
            factors, _ = descended(problem, factors, state_seed, max_iter=2, swap_failures=0)
    return factors


def _with_one_less(problem: Problem, factors: Factors, generator: np.random.Generator) -> Factors:
    W, H = factors
    scales = _column_sums(H)
    masses = W.sum(axis=0, dtype=np.float64) * scales
    sample = draw_sample(problem.backend.data.view(0), W.shape[1], generator)
    found = propose_merge(sample.X, *_sampled(sample, factors, scales), masses)
    if found is None:  # the smallest two are as good as any
        j, k = (int(place) for place in np.argsort(masses, kind="stable")[:2])
        total = masses[j] + masses[k]
        of_j = masses[j] / total if total > 0 else 0.5
        found = (j, k), (of_j, 1.0 - of_j)
    (j, k), (of_j, of_k) = found
    wide_W, wide_H = W * scales, H / scales
    wide_W[:, j] += wide_W[:, k]
    wide_H[:, j] = of_j * wide_H[:, j] + of_k * wide_H[:, k]
    kept = np.arange(W.shape[1]) != k
    return (
        np.ascontiguousarray(wide_W[:, kept], dtype=W.dtype),
        np.ascontiguousarray(wide_H[:, kept], dtype=H.dtype),
    )


def _column_sums(H: Array) -> Array:
    """Column sums of H, 1 where there is nothing to scale."""
    sums = H.sum(axis=0, dtype=np.float64)
    return np.where(sums > 0, sums, 1.0)


def _sampled(sample: Sample, factors: Factors, scales: Array) -> Factors:
    """Rows of the factors that belong to a sample, in float64; the columns of H sum to 1."""
    W, H = factors
    sampled_W = W[sample.rows].astype(np.float64) * scales
    return sampled_W, H[sample.columns].astype(np.float64) / scales


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
    run = Run.started(problem, solver, state)
    run.until(SmallGain(ENOUGH), MaxIterations(state.iteration + max_iter))
    dtype = problem.backend.data.dtype
    W, H = (np.asarray(factor, dtype=dtype) for factor in state.factors)
    return (W, H), float(state.objective)
