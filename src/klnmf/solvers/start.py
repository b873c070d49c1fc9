"""The state that a fit begins with: drawn, given, or half given."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from klnmf.solvers.base import Problem, State
from klnmf.solvers.initialization import STARTS, cover_cells, cover_columns
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.support.array_types import Array

# A factor that is solved for at the start need not be solved for exactly.
ROUGHLY = RowSolve(tolerance=0.01, rounds=4)


def start_state(
    problem: Problem,
    n_components: int,
    init: str,
    seed: int,
    given: Sequence[Array | None] = (),
) -> State:
    """State of a fit before its first iteration.

    ``given`` are factors to start from, by mode, which may be written to. If only some of them are
    given, the others are solved for; if none is, ``init`` is a name in ``STARTS``. ``seed`` is that
    of the start and, later, of the order of the coordinates.
    """
    data, constraints = problem.backend.data, problem.constraints
    if all(factor is None for factor in given):
        start = STARTS[init](data, n_components, np.random.default_rng(seed))
        return State(_drawn(problem, start), seed, was_drawn=True)
    known = [
        None if factor is None else constraints.in_fit(mode, factor)
        for mode, factor in enumerate(given)
    ]
    for mode, factor in enumerate(known):
        if mode and factor is not None:
            cover_columns(factor, data.view(mode))
            constraints.imposed_on(mode, factor)
    if constraints.has_known_entries or len(known) > 2:
        cover_cells(replace(constraints, n_components=n_components), known, data)
    upload = problem.backend.upload
    factors = [None if x is None else upload(x, mode) for mode, x in enumerate(known)]
    for mode, factor in enumerate(factors):
        if factor is None:
            factors[mode] = solved_rows(problem, mode, factors, ROUGHLY)
    return State(factors, seed)


def _drawn(problem: Problem, start: list[Any]) -> list[Any]:
    """Return a start that was drawn, with the constraints imposed on it.

    A component that is fixed in one factor gets the scale in another at which it has the mass that
    it was drawn with: that of all components.
    """
    backend, constraints = problem.backend, problem.constraints
    if not constraints.has_known_entries:
        return problem.upload(start)
    W, *others = start
    r = others[0].shape[1]
    is_frozen = constraints.is_frozen(0)
    if is_frozen.any() or constraints.zeros[0] is not None:
        W = constraints.imposed_on(0, np.asarray(W))
        masses = np.prod([x.sum(axis=0, dtype=np.float64) for x in (W, *others)], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            scales = np.where(is_frozen & (masses > 0), backend.data.total / r / masses, 1.0)
        others[0] = others[0] * scales.astype(others[0].dtype)
    scales = np.ones(r)
    for mode, H in enumerate(others, 1):
        drawn = H.sum(axis=0, dtype=np.float64)
        others[mode - 1] = H = constraints.imposed_on(mode, np.array(H))
        sums, is_frozen = H.sum(axis=0, dtype=np.float64), constraints.is_frozen(mode)
        with np.errstate(divide="ignore", invalid="ignore"):
            scales *= np.where(is_frozen & (sums > 0), drawn / sums, 1.0)
    factors = problem.upload([W, *others])
    if (scales != 1.0).any():
        factors[0] = backend.scaled(factors[0], scales)
    return factors
