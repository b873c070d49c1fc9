"""The one loop: which rule stops it, in which order the rules are asked, and what it records."""

from __future__ import annotations

import math
from typing import Any

import pytest

from klnmf.solvers.loop import (
    MET_PER_GAP,
    CallbackStop,
    MaxIterations,
    Run,
    SmallGain,
    SmallGap,
    StopRule,
)
from klnmf.solvers.row_solve import RowSolve
from strategies import random_case, srcd, start_run

CASE = random_case((40, 30), 4, seed=0, density=0.3)
LIMIT = MaxIterations(200)


def a_run(**settings: Any) -> Run:
    return start_run(CASE, srcd(**settings), was_drawn=True)


def test_the_rule_that_holds_is_returned() -> None:
    gap = SmallGap(0.01, RowSolve(1e-6))
    asked = CallbackStop(lambda record: bool(record["iteration"] == 3))
    assert a_run().until(gap, LIMIT) is gap
    assert a_run().until(gap, MaxIterations(2)) == MaxIterations(2)
    run = a_run()
    assert run.until(asked, gap, LIMIT) is asked
    assert run.state.iteration == len(run.history) == 3


def test_rules_are_asked_before_the_first_iteration_too() -> None:
    run = a_run()
    assert run.until(MaxIterations(0)) == MaxIterations(0)
    assert not run.history


@pytest.mark.parametrize("swap_failures", [0, 2])
def test_small_gains_stop_a_run_once_there_is_nothing_more_to_try(swap_failures: int) -> None:
    run = a_run(swap_failures=swap_failures, swap_gain=1e-2)
    rule = SmallGain(1e-3)
    assert run.until(rule, LIMIT) is rule
    assert run.gain < 1e-3
    assert not run.solver.has_more_to_try(run.state)
    before, last = (record["objective"] for record in run.history[-2:])
    assert run.gain == (before - last) / last
    gains = [
        (first["objective"] - second["objective"]) / second["objective"]
        for first, second in zip(run.history, run.history[1:], strict=False)
    ]
    if swap_failures == 0:
        assert all(gain >= 1e-3 for gain in gains[:-1])


def test_a_solver_that_has_more_to_try_is_not_stopped() -> None:
    run = a_run(swap_failures=3, swap_gain=-1.0)  # it never comes to the swaps
    run.until(MaxIterations(60))
    assert run.gain < 1e-3
    assert run.solver.has_more_to_try(run.state)
    assert not SmallGain(1e-3).holds(run)
    assert not SmallGap(0.1, RowSolve(1e-6)).holds(run)
    assert run.finish(RowSolve(1e-6), tol=0.1).converged  # were it not for that


def test_solvers_without_an_objective_of_their_own_can_be_stopped_by_gains() -> None:
    run = start_run(CASE, "mu")
    rule: StopRule = SmallGain(1e-3)
    assert run.until(rule, LIMIT) is rule
    assert all(math.isfinite(record["objective"]) for record in run.history)


def test_every_record_is_told_once_even_those_of_iterations_before_there_was_a_callback() -> None:
    run, told = a_run(), []
    run.until(MaxIterations(5))
    assert run.n_untold == 5
    run.until(CallbackStop(lambda record: bool(told.append(record["iteration"]))), MaxIterations(8))
    assert told == list(range(1, 9))
    assert run.n_untold == 0


def test_a_callback_that_stopped_a_run_is_asked_again() -> None:
    """A fit that is over, by its callback, does not go on when it is read from a file."""
    run, told = a_run(), []
    stop = CallbackStop(lambda record: told.append(record["iteration"]) or told[-1] >= 4)
    for _ in range(2):
        assert run.until(stop, LIMIT) is stop
    assert told == [1, 2, 3, 4, 4]


def test_a_full_evaluation_that_failed_is_not_repeated_at_once() -> None:
    run = a_run(swap_failures=0)
    run.until(MaxIterations(30))
    met = run.history[-1]["optimality_gap"]
    assert met == run.state.met.gap / run.state.objective
    tol = met / MET_PER_GAP  # where it is worth to look at the factors that would be returned
    rule = SmallGap(tol * 1.01, RowSolve(1e-6))
    assert not SmallGap(tol * 0.99, RowSolve(1e-6)).holds(run)
    assert run.solution is None  # the gap on the way was enough to tell
    run.solution = run.finish(RowSolve(1e-6), tol=0.0)  # which did not converge
    assert not rule.holds(run)
    assert run.next_check == 30 + 1 + 3
