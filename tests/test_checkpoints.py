"""Checkpoints: a fit that was killed goes on to the bits of one that ran through."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from checkpoint_checks import (  # noqa: F401 (fixtures)
    COUNTS,
    PURE,
    Killed,
    assert_same_fit,
    checkpoint_path,
    content_of,
    each_checkpoint,
    kill_at,
    killed,
    model,
    no_waiting_for_the_disk,
    raise_killed,
    resumed_fit,
)
from klnmf.backends.cpu import CpuBackend
from klnmf.saved import checkpoints, periodic_file
from klnmf.saved.container import Container
from klnmf.solvers import SOLVERS, SparseCoordinateDescent
from klnmf.solvers.base import Problem, State
from klnmf.solvers.loop import Run
from klnmf.solvers.row_solve import RowSolve
from klnmf.solvers.swaps import Swap
from strategies import fit_quietly, same_bits, srcd

# ---- the same bits -------------------------------------------------------------------------------


@pytest.mark.parametrize("penalties", [{}, {"l1_W": 0.1, "l2_H": 0.2}], ids=["plain", "penalised"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", SOLVERS)
def test_killed_before_any_iteration(
    solver: str, dtype: type, penalties: dict[str, float], path: Path
) -> None:
    parameters = {"solver": solver, "dtype": dtype, **penalties}
    expected = fit_quietly(COUNTS, model=model(**parameters))
    for _ in each_checkpoint(path, COUNTS, **parameters):
        assert_same_fit(resumed_fit(path, COUNTS, **parameters), expected)


def test_killed_on_either_side_of_the_change_of_precision(path: Path) -> None:
    early = srcd(narrow_gain=0.01)
    parameters = {"dtype": np.float64, "max_iter": 12, "solver": early}
    expected = fit_quietly(COUNTS, model=model(**parameters))
    types = []
    for container in each_checkpoint(path, COUNTS, **parameters):
        types.append(container.arrays["W"].dtype.name)
        assert_same_fit(resumed_fit(path, COUNTS, **parameters), expected)
    assert types == sorted(types)
    assert set(types) == {"float32", "float64"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_killed_around_trials_of_swaps(
    dtype: type, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {"dtype": dtype, "max_iter": 12, "n_components": 6, "random_state": 6}
    parameters["solver"] = srcd(swap_gain=0.02)
    monkeypatch.setattr(Swap, "is_promising", True)  # so that some trials fail
    trials = []
    try_swap = SparseCoordinateDescent._try_swap

    def noted(self: Any, problem: Problem, state: State, swap: Swap) -> bool:
        trials.append(try_swap(self, problem, state, swap))
        return trials[-1]

    with monkeypatch.context() as patch:
        patch.setattr(SparseCoordinateDescent, "_try_swap", noted)
        expected = fit_quietly(PURE, model=model(**parameters))
    assert set(trials) == {True, False}  # one was kept, others were not
    for _ in each_checkpoint(path, PURE, **parameters):
        assert_same_fit(resumed_fit(path, PURE, **parameters), expected)


def test_trials_that_are_used_up_stay_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swap, "is_promising", True)  # else a failed trial may leave no trace
    hasty = srcd(swap_gain=0.02, swap_descents=1, swap_failures=1)
    parameters = {"max_iter": 12, "n_components": 6, "random_state": 0, "solver": hasty}
    expected = fit_quietly(PURE, model=model(**parameters))
    left = []
    for container in each_checkpoint(path, PURE, **parameters):
        left.append(container.content["memory"]["numbers"]["swap_failures_left"])
        assert_same_fit(resumed_fit(path, PURE, **parameters), expected)
    assert set(left) == {1, 0}


def test_killed_again_and_again(path: Path) -> None:
    expected = fit_quietly(COUNTS, model=model())
    for iteration in range(1, 9):
        killed(path, iteration)
        assert content_of(path).content["state"]["iteration"] == iteration - 1
    assert_same_fit(fit_quietly(COUNTS, model=model(path)), expected)


def test_a_fit_that_converges_stops_where_it_would_have(path: Path) -> None:
    parameters = {"tol": 3e-2, "max_iter": 500}
    expected = fit_quietly(COUNTS, model=model(**parameters))
    assert expected[1].converged_
    for _ in each_checkpoint(path, COUNTS, **parameters):
        assert_same_fit(resumed_fit(path, COUNTS, **parameters), expected)


def test_evaluations_in_full_are_not_brought_forward(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    finish = Run.finish

    def refused(self: Run, how: RowSolve, tol: float) -> Any:
        calls.append(self.state.iteration)
        solution = finish(self, how, tol)
        solution.converged = False
        return solution

    monkeypatch.setattr(Run, "finish", refused)
    parameters = {"tol": 10.0, "max_iter": 40}
    fit_quietly(COUNTS, model=model(**parameters))
    undisturbed = calls.copy()
    assert len(undisturbed) < 40
    for iteration in (12, 21, 33):
        calls.clear()
        killed(path, iteration, **parameters)
        before = [call for call in calls if call < iteration]
        calls.clear()
        fit_quietly(COUNTS, model=model(path, **parameters))
        assert before + calls == undisturbed
        path.unlink()


def test_a_start_of_ones_own(path: Path) -> None:
    generator = np.random.default_rng(0)
    start = {"W": generator.random((60, 3)), "H": generator.random((3, 40))}
    for given_start in (start, {"H": start["H"]}):
        W = model().set_params(max_iter=6)
        with pytest.warns(ConvergenceWarning):
            W.fit(COUNTS, **given_start)
        killed(path, 3, start=given_start)
        resumed = model(path, max_iter=6)
        with pytest.warns(ConvergenceWarning):
            resumed.fit(COUNTS, **given_start)
        assert same_bits(resumed.components_, W.components_)
        path.unlink()


def test_random_states_that_are_not_numbers(path: Path) -> None:
    expected = fit_quietly(COUNTS, model=model(random_state=np.random.RandomState(5)))
    killed(path, 4, random_state=np.random.RandomState(5))
    resumed = np.random.RandomState(5)
    assert_same_fit(fit_quietly(COUNTS, model=model(path, random_state=resumed)), expected)
    untouched = np.random.RandomState(5)
    untouched.randint(np.iinfo(np.int32).max)
    assert resumed.randint(1000) == untouched.randint(1000)  # as if the fit had started here
    path.unlink()

    killed(path, 4, random_state=None)
    seed = content_of(path).content["state"]["seed"]
    _, fit = fit_quietly(COUNTS, model=model(path, random_state=None))
    assert content_of(path).content["state"]["seed"] == seed
    assert fit.n_iter_ == 8


def test_the_memory_has_the_same_arrays_in_two_places_as_before(path: Path) -> None:
    """An array that is both a factor and the momentum's is one array after reading, too."""
    run = _captured_run(path)
    memory = run.state.memory["momentum"]
    for mode in (0, 1):
        for array, name in zip(memory.arrays(mode), ("solved", "previous"), strict=False):
            place = content_of(path).content["memory"]["arrays"][f"{name}_{'WH'[mode]}"]
            assert (place in ("W", "H")) == (array is run.state.factors[mode])
    assert memory.solved[1] is run.state.factors[1]


def _captured_run(path: Path) -> Run:
    runs: list[Run] = []
    original = checkpoints.Checkpoint.resumed

    def captured(*arguments: Any) -> Run:
        runs.append(original(*arguments))
        raise Killed

    killed(path, 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints.Checkpoint, "resumed", captured)
        with pytest.raises(Killed):
            model(path).fit(COUNTS)
    return runs[0]


# ---- Ctrl-C --------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_interrupt_between_iterations_loses_nothing(solver: str, path: Path) -> None:
    expected = fit_quietly(COUNTS, model=model(solver=solver))
    for iteration in range(1, 9):
        seldom = model(
            path,
            solver=solver,
            callback=kill_at(iteration, KeyboardInterrupt),
            checkpoint_every=1e9,
        )
        with pytest.raises(KeyboardInterrupt):
            seldom.fit(COUNTS)
        assert seldom.n_iter_ == content_of(path).content["state"]["iteration"] == iteration
        asked: list[dict[str, Any]] = []
        resumed = model(path, solver=solver, callback=asked.append)
        assert_same_fit(fit_quietly(COUNTS, model=resumed), expected)
        # The callback that was interrupted did not say whether to stop: it is asked again.
        assert [record["iteration"] for record in asked] == list(range(iteration, 9))
        path.unlink()


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    # Where the tests run in the background, the shell has set SIGINT to be ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _press_in_half_step(monkeypatch: pytest.MonkeyPatch, numbers: set[int]) -> list[int]:
    """Press Ctrl-C in the half-steps of these numbers; returns a list that counts them."""
    calls: list[int] = []
    update_rows = CpuBackend.update_rows

    def pressed(self: Any, *arguments: Any) -> Any:
        totals = update_rows(self, *arguments)
        calls.append(len(calls))
        if calls[-1] in numbers:
            os.kill(os.getpid(), signal.SIGINT)
        return totals

    monkeypatch.setattr(CpuBackend, "update_rows", pressed)
    return calls


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
@pytest.mark.usefixtures("default_interrupts")
def test_an_interrupt_within_an_iteration_waits_for_its_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fit_quietly(COUNTS, model=model(solver="mu"))
    with monkeypatch.context() as patch:
        calls = _press_in_half_step(patch, {4})  # the first of the third iteration
        seldom = model(path, solver="mu", checkpoint_every=1e9)
        with pytest.raises(KeyboardInterrupt):
            seldom.fit(COUNTS)
    assert len(calls) == 6
    assert seldom.n_iter_ == content_of(path).content["state"]["iteration"] == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_same_fit(fit_quietly(COUNTS, model=model(path, solver="mu")), expected)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
@pytest.mark.usefixtures("default_interrupts")
@pytest.mark.parametrize(("numbers", "with_path"), [({4, 5}, True), ({4}, False)])
def test_the_second_interrupt_does_not_wait(
    numbers: set[int], with_path: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the first, where there is no checkpoint."""
    expected = fit_quietly(COUNTS, model=model(solver="mu"))
    with monkeypatch.context() as patch:
        calls = _press_in_half_step(patch, numbers)
        fit = model(path if with_path else None, solver="mu", checkpoint_every=1e9)
        with pytest.raises(KeyboardInterrupt):
            fit.fit(COUNTS)
    assert len(calls) == max(numbers) + 1
    assert fit.n_iter_ == 2  # the third iteration is not whole
    assert path.exists() == with_path
    if with_path:  # what is there is older, and right
        assert content_of(path).content["state"]["iteration"] == 0
        assert_same_fit(fit_quietly(COUNTS, model=model(path, solver="mu")), expected)


# ---- when it is written --------------------------------------------------------------------------


def _count_writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    iterations: list[int] = []
    write = periodic_file.write_container

    def counted(path: Path, container: Container, **how: Any) -> None:
        iterations.append(container.content["state"]["iteration"])
        write(path, container, **how)

    monkeypatch.setattr(periodic_file, "write_container", counted)
    return iterations


def test_written_at_the_start_at_the_end_and_every_so_often(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = _count_writes(monkeypatch)
    fit_quietly(COUNTS, model=model(path, checkpoint_every=1e9))
    assert written == [0, 8]
    written.clear()
    fit_quietly(COUNTS, model=model(path, resume=False))
    assert written == [*range(8), 8]
    written.clear()
    clock = iter(np.arange(0.0, 1e4, 10.0))  # every look at it is ten seconds later
    monkeypatch.setattr(periodic_file.time, "monotonic", lambda: float(next(clock)))
    fit_quietly(COUNTS, model=model(path, resume=False, checkpoint_every=25.0))
    assert written == [0, 3, 6, 8]


def test_checkpoints_change_no_bit(path: Path) -> None:
    expected = fit_quietly(COUNTS, model=model())
    assert_same_fit(fit_quietly(COUNTS, model=model(path)), expected)
    assert sorted(os.listdir(path.parent)) == [path.name]


def test_a_path_that_cannot_be_written_to_is_an_error_before_any_work(tmp_path: Path) -> None:
    asked: list[Any] = []
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere to write fit to"):
        model(tmp_path / "nowhere" / "fit", callback=asked.append).fit(COUNTS)
    assert not asked


def test_a_later_write_that_fails_is_a_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, n_writes = periodic_file.write_container, 0

    def fails(*arguments: Any, **how: Any) -> None:
        nonlocal n_writes
        n_writes += 1
        if n_writes == 3:
            raise OSError("no space left")
        write(*arguments, **how)

    monkeypatch.setattr(periodic_file, "write_container", fails)
    with pytest.warns(
        UserWarning, match=r"could not be written \(no space left\). The work continues"
    ):
        found = fit_quietly(COUNTS, model=model(path))
    assert n_writes == 9
    assert_same_fit(found, fit_quietly(COUNTS, model=model()))


def test_a_write_that_is_cut_off_leaves_the_checkpoint_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(path, 4)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", raise_killed)
    with pytest.raises(Killed):
        model(path).fit(COUNTS)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
