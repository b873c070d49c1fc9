"""Extrapolation: pairs that would be worse are not kept, whether tested one by one or together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from klnmf.objective import NO_PENALTIES, penalised_objective
from klnmf.solvers import SparseCoordinateDescent
from klnmf.solvers.extrapolation import ExtrapolationWeights, Momentum
from strategies import random_case, start_run

CASE = random_case((40, 30), 6, seed=1, density=0.3, spread=2.0)
# Far too bold: the first extrapolated iteration ends higher.
BOLD = ExtrapolationWeights(first=50.0, largest=50.0, growth=1.0)


def objectives(solver: SparseCoordinateDescent, n_iterations: int) -> tuple[list[float], Momentum]:
    run = start_run(CASE, solver)
    found = []
    for _ in range(n_iterations):
        run.solver.iterate(run.problem, run.state)
        run.state.iteration += 1
        found.append(penalised_objective(CASE.X, *run.state.factors, NO_PENALTIES))
        assert run.state.objective == pytest.approx(found[-1], rel=1e-12)
    return found, run.state.memory["momentum"]


def test_a_step_that_is_too_bold_is_undone() -> None:
    found, momentum = objectives(SparseCoordinateDescent(extrapolation=BOLD), 30)
    assert momentum.has_failed
    assert momentum.weight < BOLD.first
    assert (np.diff(found) <= 1e-12 * CASE.total).all()


def test_before_the_first_failure_both_half_steps_are_judged_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the pairs are those of half-steps that are judged one by one."""
    careful = SparseCoordinateDescent(extrapolation=ExtrapolationWeights(first=0.1, growth=1.0))
    together, momentum = objectives(careful, 8)
    assert not momentum.has_failed
    counted: list[Any] = []
    original = Momentum.half_step

    def counting(self: Momentum, *arguments: Any) -> Any:
        counted.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(Momentum, "half_step", counting)
    objectives(careful, 8)
    assert len(counted) == 2  # those of the first descent, which has nothing to follow
    monkeypatch.setattr(Momentum, "_try_together", lambda *arguments: None)
    one_by_one, _ = objectives(careful, 8)
    assert len(counted) == 2 + 16
    assert one_by_one == together


def test_no_more_than_four_arrays_of_a_factor_are_alive() -> None:
    for weights in (ExtrapolationWeights(), BOLD):
        run = start_run(CASE, SparseCoordinateDescent(extrapolation=weights))
        for _ in range(12):
            run.solver.iterate(run.problem, run.state)
            run.state.iteration += 1
            momentum = run.state.memory["momentum"]
            for mode in (0, 1):
                held = [*momentum.arrays(mode), *momentum._spare[mode], run.state.factors[mode]]
                assert len({id(array) for array in held}) <= 4
