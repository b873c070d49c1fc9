"""The state that a fit begins with: drawn, given, or half given."""

from typing import Any

import numpy as np

from klnmf.constraints.constraints import Constraints
from klnmf.data.validation import check_start
from klnmf.solvers.base import Problem, State
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.starts.initialization import STARTS, cover_columns, cover_start
from klnmf.support.array_types import Array

# A factor that is solved for at the start need not be solved for exactly.
ROUGHLY = RowSolve(tolerance=0.01, rounds=4)


def start_state(
    problem: Problem, n_components: int, init: str, seed: int, W: Any = None, H: Any = None
) -> State:
    """State of a fit before its first iteration.

    ``init`` is a name in ``STARTS``, used if neither W nor H (as in ``components_``) is given. If
    one of them is given, the other is solved for. ``seed`` is that of the start and, later, of the
    order of the coordinates.
    """
    data, upload, constraints = problem.backend.data, problem.backend.upload, problem.constraints
    n, m = data.shape
    if W is None and H is None:
        start = STARTS[init](data, n_components, np.random.default_rng(seed))
        drawn = (
            [upload(x) for x in start]
            if constraints is None
            else _drawn(problem, constraints, *start)
        )
        return State(drawn, seed, was_drawn=True)
    factors: list[Any] = [None, None]
    if W is not None:
        given = check_start(W, "W", (n, n_components), data.dtype)
        factors[0] = upload(given if constraints is None else constraints.in_fit(0, given))
    if H is not None:
        components = check_start(H, "H", (n_components, m), data.dtype).T
        if constraints is not None:
            components = constraints.in_fit(1, components)
        cover_columns(components, data.view(1))
        if constraints is not None:
            cover_start(constraints, constraints.imposed_on(1, components), data)
        factors[1] = upload(components)
    for mode, factor in enumerate(factors):
        if factor is None:
            factors[mode] = solved_rows(problem, mode, factors, ROUGHLY)
    return State(factors, seed)


def _drawn(problem: Problem, constraints: Constraints, W: Any, H: Array) -> list[Any]:
    """Return a start that was drawn, with the constraints imposed on it.

    A component that is fixed in one factor gets the scale in the other at which it has the mass
    that it was drawn with: that of all components.
    """
    backend, n_components = problem.backend, H.shape[1]
    mass = backend.data.total / n_components
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
    factors = [backend.upload(W), backend.upload(H)]
    if is_frozen[1].any():
        with np.errstate(divide="ignore", invalid="ignore"):
            scales = np.where(is_frozen[1] & (sums > 0), drawn_sums / sums, 1.0)
        factors[0] = backend.scaled(factors[0], scales)
    return factors
