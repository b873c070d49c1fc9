"""Extrapolation: pairs that would be worse are not kept, whether tested one by one or together."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.sparse_data import InMemoryData
from klnmf.solvers import SparseCoordinateDescent
from klnmf.solvers.base import Problem, State
from klnmf.solvers.extrapolation import Momentum
from opaque_backend import OpaqueBackend, OpaqueFactor, seen
from strategies import objective_of, random_case, srcd, start_run

CASE = random_case((40, 30), 6, seed=1, density=0.3, spread=2.0)
# Far too bold: the first extrapolated iteration ends higher.
BOLD = {"FIRST": 50.0, "LARGEST": 50.0, "GROWTH": 1.0}


def objectives(solver: SparseCoordinateDescent, n_iterations: int) -> tuple[list[float], Momentum]:
    run = start_run(CASE, solver)
    found = []
    for _ in range(n_iterations):
        run.solver.iterate(run.problem, run.state)
        run.state.iteration += 1
        found.append(objective_of(CASE.X, run.state.factors))
        assert run.state.objective == pytest.approx(found[-1], rel=1e-12)
    return found, run.state.memory["momentum"]


def test_a_step_that_is_too_bold_is_undone() -> None:
    found, momentum = objectives(srcd(BOLD), 30)
    assert momentum.has_failed
    assert momentum.weight < BOLD["FIRST"]
    assert (np.diff(found) <= 1e-12 * CASE.total).all()


def test_before_the_first_failure_both_half_steps_are_judged_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the pairs are those of half-steps that are judged one by one."""
    careful = srcd({"FIRST": 0.1, "GROWTH": 1.0})
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


def test_where_values_cost_a_pass_there_is_one_in_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two after a failure: one that is not kept, and one of half-steps without extrapolation."""
    monkeypatch.setattr(CpuBackend, "values_cost_a_pass", True)
    counted: list[int] = []
    original = CpuBackend.update_rows

    def counting(self: CpuBackend, x: Any, fixed: Any, rule: Any) -> Any:
        counted.append(int(rule.gives_value))
        return original(self, x, fixed, rule)

    monkeypatch.setattr(CpuBackend, "update_rows", counting)
    found, momentum = objectives(srcd({"FIRST": 1.5, "LARGEST": 1.5}), 40)
    assert (np.diff(found) <= 1e-12 * CASE.total).all()
    assert momentum.has_failed
    by_step = np.array(counted[-60:])
    assert by_step[1::2].all()
    assert not by_step[::2].any()


class CountingBackend(OpaqueBackend):
    """Counts the factors of each mode that are alive."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.alive: weakref.WeakSet[OpaqueFactor] = weakref.WeakSet()
        self.most = 0

    def made(self, array: Any) -> OpaqueFactor:
        factor = super().made(array)
        self.alive.add(factor)
        self.most = max(self.most, sum(other.shape == factor.shape for other in self.alive))
        return factor


@pytest.mark.parametrize("weights", [{}, BOLD], ids=["default", "bold"])
@pytest.mark.parametrize("penalties", [NO_PENALTIES, Penalties.of_matrix(l1_W=1.0, l1_H=2.0)])
def test_four_factors_of_a_mode_are_alive_at_most_and_those_kept_are_not_written_to(
    weights: dict[str, float], penalties: Penalties
) -> None:
    backend = CountingBackend(InMemoryData(CASE.X), 1)
    problem = Problem(backend, penalties)
    state = State(problem.upload([CASE.W, CASE.H]), seed=0)
    solver = srcd(weights, opening=0)
    solver.prepare(problem, state)
    for _ in range(12):
        momentum = state.memory["momentum"]
        held = [*state.factors, *momentum.arrays(0), *momentum.arrays(1)]
        for factor in held:
            seen(factor).flags.writeable = False
        del held
        solver.iterate(problem, state)
        state.iteration += 1
    assert backend.most == 4
