"""Extrapolation: pairs that would be worse are not kept, whether tested one by one or together."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from klnmf.backends.cpu import CpuBackend
from klnmf.data.sparse_data import InMemoryData
from klnmf.objective import NO_PENALTIES, Penalties, penalised_objective
from klnmf.solvers import SparseCoordinateDescent
from klnmf.solvers.base import Problem, State
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


class Factor:
    """An array that can be counted while it lives, and frozen."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype


class CountingBackend(CpuBackend):
    """Counts the factors of each mode that are alive."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.alive: weakref.WeakSet[Factor] = weakref.WeakSet()
        self.most = 0

    def _made(self, array: Any) -> Factor:
        factor = Factor(array)
        self.alive.add(factor)
        of_mode = sum(other.shape == factor.shape for other in self.alive)
        self.most = max(self.most, of_mode)
        return factor

    def upload(self, factor: Any) -> Any:
        return self._made(super().upload(factor))

    def copy(self, factor: Any) -> Any:
        return self._made(super().copy(factor.array))

    def extrapolated(self, newest: Any, previous: Any, *weights: Any) -> Any:
        return self._made(super().extrapolated(newest.array, previous.array, *weights))

    def scale_columns(self, factor: Any, scales: Any) -> None:
        super().scale_columns(factor.array, scales)

    def column_sums(self, factor: Any) -> Any:
        return super().column_sums(getattr(factor, "array", factor))

    def column_squares(self, factor: Any) -> Any:
        return super().column_squares(factor.array)

    def update_rows(self, mode: int, x: Any, A: Any, *problem: Any) -> Any:
        return super().update_rows(mode, x.array, A.array, *problem)

    def evaluate(self, mode: int, x: Any, A: Any, *problem: Any) -> Any:
        return super().evaluate(mode, x.array, A.array, *problem)


@pytest.mark.parametrize("weights", [ExtrapolationWeights(), BOLD], ids=["default", "bold"])
@pytest.mark.parametrize("penalties", [NO_PENALTIES, Penalties(l1_W=1.0, l1_H=2.0)])
def test_four_factors_of_a_mode_are_alive_at_most_and_those_kept_are_not_written_to(
    weights: ExtrapolationWeights, penalties: Penalties
) -> None:
    backend = CountingBackend(InMemoryData(CASE.X), 1)
    problem = Problem(backend, penalties)
    state = State(problem.upload([CASE.W, CASE.H]), seed=0)
    solver = SparseCoordinateDescent(extrapolation=weights, opening=0)
    solver.prepare(problem, state)
    for _ in range(12):
        momentum = state.memory["momentum"]
        held = [*state.factors, *momentum.arrays(0), *momentum.arrays(1)]
        for factor in held:
            factor.array.flags.writeable = False
        del held
        solver.iterate(problem, state)
        state.iteration += 1
    assert backend.most == 4
