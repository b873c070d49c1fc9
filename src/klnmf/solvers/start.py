"""The state that a fit begins with: drawn, given, or half given."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from klnmf.solvers.base import Problem, State
from klnmf.solvers.initialization import STARTS, cover_columns, cover_start
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.support.array_types import Array

# A factor that is solved for at the start need not be solved for exactly.
ROUGHLY = RowSolve(tolerance=0.01, rounds=4)


def start_state(
    problem: Problem,
    n_components: int,
    init: str,
    seed: int,
    given: Sequence[Array | None] = (None, None),
) -> State:
    """State of a fit before its first iteration.

    ``given`` are factors to start from, by mode, which may be written to. If only some of them are
    given, the others are solved for; if none is, ``init`` is a name in ``STARTS``. ``seed`` is that
    of the start and, later, of the order of the coordinates.
    """
    data, constraints = problem.backend.data, problem.constraints
    if all(factor is None for factor in given):
        start = STARTS[init](data, n_components, np.random.default_rng(seed))
        return State(_drawn(problem, *start), seed, was_drawn=True)
    factors: list[Any] = list(given)
    for mode, factor in enumerate(given):
        if factor is None:
            continue
        known = constraints.in_fit(mode, factor)
        if mode:
            cover_columns(known, data.view(mode))
            if constraints.has_known_entries:
                cover_start(constraints, constraints.imposed_on(mode, known), data)
        factors[mode] = problem.backend.upload(known, mode)
    for mode, factor in enumerate(factors):
        if factor is None:
            factors[mode] = solved_rows(problem, mode, factors, ROUGHLY)
    return State(factors, seed)


def _drawn(problem: Problem, W: Any, H: Array) -> list[Any]:
    """Return a start that was drawn, with the constraints imposed on it.

    A component that is fixed in one factor gets the scale in the other at which it has the mass
    that it was drawn with: that of all components.
    """
    backend, constraints = problem.backend, problem.constraints
    if not constraints.has_known_entries:
        return problem.upload([W, H])
    mass = backend.data.total / H.shape[1]
    is_frozen = [constraints.is_frozen(mode) for mode in (0, 1)]
    if is_frozen[0].any() or constraints.zeros[0] is not None:
        W = constraints.imposed_on(0, np.asarray(W))
        masses = W.sum(axis=0, dtype=np.float64) * H.sum(axis=0, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            scales = np.where(is_frozen[0] & (masses > 0), mass / masses, 1.0)
        H = H * scales.astype(H.dtype)
    drawn_sums = H.sum(axis=0, dtype=np.float64)
    H = constraints.imposed_on(1, np.array(H))
    sums = H.sum(axis=0, dtype=np.float64)
    factors = problem.upload([W, H])
    if is_frozen[1].any():
        with np.errstate(divide="ignore", invalid="ignore"):
            scales = np.where(is_frozen[1] & (sums > 0), drawn_sums / sums, 1.0)
        factors[0] = backend.scaled(factors[0], scales)
    return factors
