"""A fit of a few rows of X, from which the fit of all of them goes on.

Which components a fit ends with is decided early and needs no more than a sample: H of a sample,
with W solved for, is within a few per cent of the end. So swaps of components are tried there,
where an iteration costs little, and the iterations on all of X only have to refine the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.backends.base import Solve
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.penalties import Penalties
from klnmf.data.dominant_samples import dominant_rows, with_dominant
from klnmf.data.tensor_data import counts_of, data_in_memory, restricted
from klnmf.solvers.base import Problem, State
from klnmf.solvers.initialization import ZeroRows, cover_cells, cover_columns
from klnmf.solvers.loop import MaxIterations, Run, SmallGain
from klnmf.support.array_types import Array

if TYPE_CHECKING:
    from klnmf.solvers.coordinate_descent import SparseCoordinateDescent

# The sample: this share of the nonzeros, within limits for each component.
SHARE = 1 / 4
LEAST_NONZEROS, MOST_NONZEROS = 5_000, 50_000
LEAST_ROWS = 32
# If it would be more than this share of X, X is its own sample.
LARGEST_SHARE = 1 / 2
# Columns with fewer nonzeros in it say little of the components, and most columns have fewer. Where
# all have, those with the most are used.
LEAST_IN_COLUMN = 3
MOST_ITERATIONS = 100
# W of all rows is refined by all the iterations that follow.
ROUGH_SOLVE = Solve(tolerance=0.01, rounds=4, relaxed=6, cold=True)


def drawn_rows(problem: Problem, n_components: int, generator: np.random.Generator) -> Array | None:
    """Draw the rows of a sample, dominant ones first; None where all of X is to be used.

    Cells that are missing and shares of penalties belong to all rows and columns of X.
    """
    data = problem.backend.data
    view = data.view(0)
    if any(data.row_constraints(mode) is not None for mode in range(len(data.shape))):
        return None
    least, most = n_components * LEAST_NONZEROS, n_components * MOST_NONZEROS
    rows = generator.permutation(np.flatnonzero(np.diff(view.indptr)))
    rows = with_dominant(rows, dominant_rows(view.row_sums, n_components))
    ends = np.cumsum(np.diff(view.indptr)[rows])
    n_rows = int(np.searchsorted(ends, np.clip(SHARE * view.nnz, least, most))) + 1
    n_rows = max(n_rows, LEAST_ROWS * n_components)
    if n_rows > len(rows) or ends[n_rows - 1] > LARGEST_SHARE * view.nnz:
        return None
    return np.sort(rows[:n_rows])


def fitted_on_rows(
    problem: Problem, state: State, rows: Array, solver: SparseCoordinateDescent
) -> list[Any]:
    """Return factors for all of X from a fit of these rows, which starts as the state does."""
    backend, data = problem.backend, problem.backend.data
    dtype = state.factors[0].dtype
    view = data.view(0)
    indptr, indices, values = view.take_rows(rows)
    lengths = view.split(np.bincount(indices.ravel(), minlength=view.n_columns))
    is_used = [of_mode >= min(LEAST_IN_COLUMN, of_mode.max()) for of_mode in lengths]
    taken = (indptr, indices, values.astype(dtype))
    sample = counts_of(restricted(taken, np.concatenate(is_used), view))
    X = data_in_memory(sample, view.n_threads)
    # All rows share the penalties of the other factors than W.
    share = X.total / data.total
    of_sample = (
        (first, *(share * other for other in others))
        for first, *others in (problem.penalties.l1, problem.penalties.l2)
    )
    sampled = Problem(backend.local(X, backend.n_threads), Penalties(*of_sample))
    parts = zip(state.factors, (rows, *map(np.flatnonzero, is_used)), strict=True)
    start = sampled.upload([backend.download(factor, chosen) for factor, chosen in parts])
    run = Run.started(sampled, solver, State(start, state.seed, was_drawn=True))
    run.until(SmallGain(solver.swap_gain), MaxIterations(MOST_ITERATIONS))
    others = []
    for mode, (factor, used) in enumerate(zip(run.state.factors[1:], is_used, strict=True), 1):
        H = np.zeros(state.factors[mode].shape, dtype)
        H[used] = sampled.backend.download(factor)
        cover_columns(H, data.view(mode))
        others.append(H)
    if len(others) > 1:
        cover_cells(Constraints(data.shape, others[0].shape[1]), [None, *others], data)
    nothing = ZeroRows(data.shape[0], others[0].shape[1], dtype)
    factors = [backend.upload(x, mode, dtype) for mode, x in enumerate([nothing, *others])]
    problem.update(0, factors, ROUGH_SOLVE)
    return factors
