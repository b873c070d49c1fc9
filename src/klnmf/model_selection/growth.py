"""Change the number of components of a fit, and keep the other components.

A new component is fitted to the data that the others explain worst, as in a swap
(`klnmf.solvers.swaps`). Then all components are improved together, and a swap may still leave a
local optimum. To remove a component, the two whose merger costs least are merged. Fits that come
from more components often end lower than those that come from fewer.
"""

from collections.abc import Callable

import numpy as np

from klnmf.data.sparse_data import CountData
from klnmf.solvers.base import Problem, State
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.loop import MaxIterations, Run, SmallGain
from klnmf.solvers.swaps import Sample, draw_sample, propose_addition, propose_merge
from klnmf.support.array_types import Array

Factors = tuple[Array, ...]  # W, H, ... by mode, all tall, downloaded from the back-end
ProblemOf = Callable[[int], Problem]  # by the number of components

# A descent ends when an iteration gains less than this share of the objective, and no swap helps.
ENOUGH = 1e-4
MOST_ITERATIONS = 100
# Failed swaps in a row after which no more are tried. More of them take longer and change little
# here, because each component was fitted to the data that the others explained worst.
SWAP_FAILURES = 1
# Number of new components that are compared on a sample; the best one is used.
CANDIDATES = 6


def one_component(data: CountData) -> Factors:
    """Return the best fit with one component: row sums and column shares."""
    sums, *others = (data.view(mode).row_sums for mode in range(len(data.shape)))
    margins = [sums, *(of_mode / (data.total or 1.0) for of_mode in others)]
    return tuple(np.ascontiguousarray(values[:, None], dtype=data.dtype) for values in margins)


def resized(problem: ProblemOf, factors: Factors, n_components: int, seed: list[int]) -> Factors:
    """Add components, or merge pairs of them, one at a time until there are ``n_components``.

    A short descent after each, except for the last, lets the next one find something else. The
    given factors are not changed, and fixed components keep their places: the first ones for H, the
    last ones for W. ``seed`` decides all random choices.
    """
    generator = np.random.default_rng(seed)
    n_new = n_components - factors[0].shape[1]
    change = _with_one_more if n_new > 0 else _with_one_less
    for left in reversed(range(abs(n_new))):
        factors = change(problem(factors[0].shape[1]), factors, generator)
        if left:
            state_seed, here = int(generator.integers(2**31)), problem(factors[0].shape[1])
            factors, _ = descended(here, factors, state_seed, max_iter=2, swap_failures=0)
    return factors


def _with_one_more(problem: Problem, factors: Factors, generator: np.random.Generator) -> Factors:
    (W, *others), data = factors, problem.backend.data
    sample = draw_sample(data.view(0), W.shape[1] + 1, generator)
    scales = [column_sums(H) for H in others]
    parts = (sample.X, *_sampled(sample, factors, scales))
    found = propose_addition(*parts, generator, CANDIDATES, sample.is_dominant)
    if found is None:  # nothing improves the fit, so use the column sums
        margins = [data.view(mode).row_sums for mode in range(1, len(factors))]
        new = [sums / (sums.sum() or 1.0) for sums in margins]
    else:
        new = data.view(0).split(sample.in_all(found, data.view(0)))
    place = W.shape[1] - int(problem.is_frozen(0, W.shape[1]).sum())
    # In W it is 0 until the first half-step uses it. Penalties need a usual scale.
    wider = [
        np.insert(H, place, column * scale.mean(), axis=1)
        for H, column, scale in zip(others, new, scales, strict=True)
    ]
    return (np.insert(W, place, 0, axis=1), *wider)


def _with_one_less(problem: Problem, factors: Factors, generator: np.random.Generator) -> Factors:
    W, *others = factors
    by_mode = [column_sums(H) for H in others]
    scales = np.prod(by_mode, axis=0)
    masses = W.sum(axis=0, dtype=np.float64) * scales
    sample = draw_sample(problem.backend.data.view(0), W.shape[1], generator)
    is_fixed = problem.is_frozen_anywhere(W.shape[1])
    found = propose_merge(sample.X, *_sampled(sample, factors, by_mode), masses, ~is_fixed)
    if found is None:  # the smallest two are as good as any
        order = np.argsort(np.where(is_fixed, np.inf, masses), kind="stable")
        j, k = sorted(int(place) for place in order[:2])
        total = masses[j] + masses[k]
        of_j = masses[j] / total if total > 0 else 0.5
        found = (j, k), (of_j, 1.0 - of_j)
    (j, k), (of_j, of_k) = found
    merged = [W.copy()]
    merged[0][:, j] = W[:, j] + W[:, k] * (scales[k] / scales[j])
    for H, scale in zip(others, by_mode, strict=True):
        merged.append(H.copy())
        merged[-1][:, j] = of_j * H[:, j] + of_k * H[:, k] * (scale[j] / scale[k])
    return tuple(np.delete(factor, k, axis=1) for factor in merged)


def column_sums(H: Array) -> Array:
    """Return the column sums of H, with 1 for columns of zeros."""
    sums = H.sum(axis=0, dtype=np.float64)
    return np.where(sums > 0, sums, 1.0)


def _sampled(sample: Sample, factors: Factors, scales: list[Array]) -> tuple[Array, Array]:
    """Rows of the factors that belong to a sample, in float64; the columns of H sum to 1."""
    W, *others = factors
    sampled_W = W[sample.rows].astype(np.float64) * np.prod(scales, axis=0)
    parts = zip(others, sample.columns, scales, strict=True)
    return sampled_W, np.concatenate([H[own].astype(np.float64) / scale for H, own, scale in parts])


class _Continuation(SparseCoordinateDescent):
    """From factors that are fitted already: no opening, not on a sample either."""

    opening = 0


def descended(
    problem: Problem,
    factors: Factors,
    seed: int,
    *,
    max_iter: int = MOST_ITERATIONS,
    swap_failures: int = SWAP_FAILURES,
) -> tuple[Factors, float]:
    """Improve factors until they hardly move; returns the new ones and their objective."""
    solver = _Continuation(swap_failures)
    # Iteration 0 would be one without extrapolation, after an opening.
    state = State(problem.upload(factors), seed, iteration=1, was_drawn=True)
    run = Run.started(problem, solver, state)
    run.until(SmallGain(ENOUGH), MaxIterations(state.iteration + max_iter))
    return tuple(problem.download(state.factors)), float(state.objective)
