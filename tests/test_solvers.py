"""How the solvers move: what the promises about their results do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from klnmf.objective import Penalties
from strategies import PENALTY_SETS, Case, random_case, start_run

Array = np.ndarray


def test_extrapolation_leaves_no_entry_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """It might be the last cover of a nonzero."""
    run = start_run(random_case((40, 30), 4, seed=0, density=0.3))
    backend, n_calls = run.problem.backend, 0

    def checked(newest: Array, previous: Array, weight: float, keep: float) -> Array:
        nonlocal n_calls
        moved = original(newest, previous, weight, keep)
        n_calls += 1
        assert (moved[newest > 0] > 0).all()
        return moved

    original = backend.extrapolated
    monkeypatch.setattr(backend, "extrapolated", checked)
    for _ in range(30):
        run.solver.iterate(run.problem, run.state)
        run.state.iteration += 1
    assert n_calls >= 30


@pytest.mark.parametrize(
    "weights",
    [
        PENALTY_SETS["all"],
        Penalties.of_matrix(l1_W=1.0, l1_H=2.0),
        Penalties.of_matrix(l2_W=3.0, l1_H=0.1),
    ],
    ids=["all", "l1", "l2 and l1"],
)
def test_components_are_brought_to_their_best_scale(weights: Penalties) -> None:
    case = random_case((40, 30), 4, seed=1, zeros=0.0)
    run = start_run(Case(case.X, case.W * 1e9, case.H / 1e9), penalties=weights)
    backend, state = run.problem.backend, run.state
    for _ in range(6):  # the opening and the descent
        run.solver.iterate(run.problem, state)
        state.iteration += 1
        measured = [backend.sums_and_squares(mode, x) for mode, x in enumerate(state.factors)]
        sums, squares = zip(*measured, strict=True)
        np.testing.assert_allclose(weights.best_scales(sums, squares), 1, rtol=1e-6)


def multiplicative_update(X: Array, x: Array, A: Array) -> Array:
    return x * ((X / (x @ A.T)) @ A) / A.sum(axis=0)


def test_extrapolated_updates_follow_their_formula() -> None:
    """Nesterov's weights on the positive part of the last change, then a multiplicative update."""
    case = random_case((12, 9), 3, seed=2, zeros=0.0, density=1.1)
    X, run = case.X.toarray(), start_run(case, "bmme")
    factors: list[Any] = [case.W, case.H]
    previous, t = list(factors), 1.0
    for _ in range(6):
        run.solver.iterate(run.problem, run.state)
        run.state.iteration += 1
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        weight, t = (t - 1) / t_next, t_next
        for mode, view in ((0, X), (1, X.T)):
            moved = factors[mode] + weight * np.maximum(factors[mode] - previous[mode], 0)
            previous[mode] = factors[mode]
            factors[mode] = multiplicative_update(view, moved, factors[1 - mode])
            np.testing.assert_allclose(run.state.factors[mode], factors[mode], rtol=1e-10)
