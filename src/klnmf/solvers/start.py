"""The state that a fit begins with: drawn, given, or half given."""

from __future__ import annotations

from typing import Any

import numpy as np

from klnmf.initialization import STARTS, cover_columns
from klnmf.solvers.alternating import RowSolve, solved_rows
from klnmf.solvers.base import Problem, State
from klnmf.validation import check_start

# A factor that is solved for at the start need not be solved for exactly.
ROUGHLY = RowSolve(tolerance=0.01, rounds=4)


def start_state(
    problem: Problem, n_components: int, init: str, seed: int, W: Any = None, H: Any = None
) -> State:
    """State of a fit before its first iteration.

    Parameters
    ----------
    problem : Problem
        The data on a back-end.
    n_components : int
        Number of components.
    init : str
        A name in ``STARTS``, used if neither W nor H is given.
    seed : int
        Of the start and, later, of the order of the coordinates.
    W : array-like of shape (n_samples, n_components), optional
        Given start; where one of W and H is missing it is solved for from the other.
    H : array-like of shape (n_components, n_features), optional
        Given start, as in ``components_``.
    """
    data, upload = problem.backend.data, problem.backend.upload
    n, m = data.shape
    if W is None and H is None:
        start = STARTS[init](data, n_components, np.random.default_rng(seed))
        return State(factors=[upload(factor) for factor in start], seed=seed, was_drawn=True)
    factors: list[Any] = [None, None]
    if W is not None:
        factors[0] = upload(check_start(W, "W", (n, n_components), data.dtype))
    if H is not None:
        components = check_start(H, "H", (n_components, m), data.dtype).T
        cover_columns(components, data.view(1))
        factors[1] = upload(components)
    state = State(factors=factors, seed=seed)
    for mode, given in enumerate((W, H)):
        if given is None:
            state.factors[mode] = solved_rows(problem, mode, state.factors[1 - mode], ROUGHLY)
    return state
