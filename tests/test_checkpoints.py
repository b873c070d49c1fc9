"""Checkpoints: a fit that was killed goes on to the bits of one that ran through."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from klnmf import KLNMF
from klnmf.backends.base import MultiplicativeRule
from klnmf.backends.cpu import CpuBackend
from klnmf.saved import SavedFileError, checkpoints, periodic_file
from klnmf.saved.container import Container, read_container, write_container
from klnmf.simulate import simulate_counts
from klnmf.solvers import SOLVERS, Solver, SparseCoordinateDescent
from klnmf.solvers.alternating import Run
from klnmf.solvers.base import Problem, State, alternate
from klnmf.solvers.swaps import Swap
from strategies import fit_quietly, same_bits

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=60, random_state=0).X
# Nearly pure samples: some swaps pay.
PURE = simulate_counts(
    120, 80, 6, concentration_W=0.05, concentration_H=0.05, counts_per_sample=100, random_state=1
).X


class Killed(BaseException):
    """Stands for a signal that nobody can catch."""


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda stream: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fit.checkpoint"


def model(path: Path | None = None, **parameters: Any) -> KLNMF:
    defaults = {"n_components": 3, "random_state": 0, "n_threads": 1, "tol": 0.0, "max_iter": 8}
    return KLNMF(checkpoint=path, **{**defaults, "checkpoint_every": 0.0, **parameters})


def kill_at(iteration: int, error: type[BaseException] = Killed) -> Any:
    """Callback that ends the fit after this iteration, before the next checkpoint."""

    def callback(record: dict[str, Any]) -> None:
        if record["iteration"] == iteration:
            raise error

    return callback


def killed(
    path: Path, iteration: int, X: Any = COUNTS, start: Any = None, **parameters: Any
) -> None:
    """Begin a fit and let it die."""
    with pytest.raises(Killed):
        model(path, callback=kill_at(iteration), **parameters).fit(X, **(start or {}))


def assert_same_fit(found: tuple[Any, KLNMF], expected: tuple[Any, KLNMF]) -> None:
    (W, fit), (expected_W, undisturbed) = found, expected
    assert same_bits(W, expected_W)
    assert same_bits(fit.components_, undisturbed.components_)
    for name in ("divergence_", "kkt_residual_", "converged_", "n_iter_"):
        assert getattr(fit, name) == getattr(undisturbed, name), name
    assert timeless(fit.history_) == timeless(undisturbed.history_)


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


def content_of(path: Path) -> Container:
    return read_container(path, "checkpoint")


# ---- the same bits -------------------------------------------------------------------------------


def each_checkpoint(path: Path, X: Any, **parameters: Any) -> Iterator[Container]:
    """Checkpoints before every iteration of one fit, each in its turn under the path."""
    copies: list[bytes] = []
    keep = model(path, callback=lambda record: copies.append(path.read_bytes()), **parameters)
    fit_quietly(X, model=keep)
    for number, copy in enumerate(copies):
        path.write_bytes(copy)
        container = content_of(path)
        assert container.content["state"]["iteration"] == number
        yield container


def resumed_fit(path: Path, X: Any, **parameters: Any) -> tuple[Any, KLNMF]:
    """Go on from what is there, without further checkpoints but the last."""
    return fit_quietly(X, model=model(path, resume=True, **{**parameters, "checkpoint_every": 1e9}))


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
    early = SparseCoordinateDescent(narrow_gain=0.01)
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
    parameters = {"dtype": dtype, "max_iter": 12, "n_components": 6, "random_state": 10}
    parameters["solver"] = SparseCoordinateDescent(swap_gain=0.02)
    trials = []
    try_swap = SparseCoordinateDescent._try_swap

    def noted(self: Any, problem: Problem, state: State) -> bool:
        trials.append(try_swap(self, problem, state))
        return trials[-1]

    with monkeypatch.context() as patch:
        patch.setattr(SparseCoordinateDescent, "_try_swap", noted)
        expected = fit_quietly(PURE, model=model(**parameters))
    assert set(trials) == {True, False}  # one was kept, others were not
    for _ in each_checkpoint(path, PURE, **parameters):
        assert_same_fit(resumed_fit(path, PURE, **parameters), expected)


def test_trials_that_are_used_up_stay_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swap, "is_promising", True)  # else a failed trial may leave no trace
    hasty = SparseCoordinateDescent(swap_gain=0.02, swap_descents=1, swap_failures=1)
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

    def refused(self: Run, tol: float) -> Any:
        calls.append(self.state.iteration)
        solution = finish(self, tol)
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
        UserWarning, match=r"could not be written \(no space left\). The work goes on"
    ):
        found = fit_quietly(COUNTS, model=model(path))
    assert n_writes == 9
    assert_same_fit(found, fit_quietly(COUNTS, model=model()))


def test_a_write_that_is_cut_off_leaves_the_checkpoint_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(path, 4)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", _raise_killed)
    with pytest.raises(Killed):
        model(path).fit(COUNTS)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def _raise_killed(*arguments: Any) -> None:
    raise Killed


# ---- going on ------------------------------------------------------------------------------------


def test_resume_says_whether_the_file_is_used(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*resume='auto'"):
        model(path, resume=True).fit(COUNTS)
    killed(path, 5)
    for resume, first in ((True, 5), ("auto", 5), (False, 1)):
        copy = path.read_bytes()
        asked: list[dict[str, Any]] = []
        fit_quietly(COUNTS, model=model(path, resume=resume, callback=asked.append))
        assert asked[0]["iteration"] == first
        path.write_bytes(copy)
    with pytest.raises(ValueError, match=r"resume=True needs .*checkpoint='PATH'"):
        model(resume=True).fit(COUNTS)


def test_a_fit_that_is_over_is_not_done_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for parameters in (
        {},
        {"tol": 1e-2, "max_iter": 500},
        {"callback": lambda r: r["iteration"] == 4},
    ):
        expected = fit_quietly(COUNTS, model=model(path, **parameters))
        with monkeypatch.context() as patch:
            patch.setattr(SparseCoordinateDescent, "iterate", _raise_killed)
            found = fit_quietly(COUNTS, model=model(path, **parameters))
        assert_same_fit(found, expected)
        path.unlink()


def test_a_fit_that_is_over_goes_on_with_more_iterations(path: Path) -> None:
    fit_quietly(COUNTS, model=model(path, max_iter=4))
    expected = fit_quietly(COUNTS, model=model(max_iter=12))
    assert_same_fit(fit_quietly(COUNTS, model=model(path, max_iter=12)), expected)
    with pytest.raises(SavedFileError, match="has done 12 iterations, more than max_iter=11"):
        model(path, max_iter=11).fit(COUNTS)


def test_a_fit_that_is_over_goes_on_with_a_smaller_tolerance(path: Path) -> None:
    first = fit_quietly(COUNTS, model=model(path, tol=1e-1, max_iter=500))[1]
    second = fit_quietly(COUNTS, model=model(path, tol=1e-3, max_iter=500))[1]
    assert second.converged_
    assert second.kkt_residual_ <= 1e-3
    assert second.n_iter_ > first.n_iter_
    whole = fit_quietly(COUNTS, model=model(tol=0.0, max_iter=second.n_iter_))[1]
    assert timeless(second.history_) == timeless(whole.history_)


def test_other_threads_and_output_are_not_another_fit(path: Path) -> None:
    expected = fit_quietly(COUNTS, model=model())
    killed(path, 4)
    other = model(path, n_threads=2, sparse_output=True, solver=SparseCoordinateDescent())
    W, fit = fit_quietly(COUNTS.toarray(), model=other)
    assert same_bits(W.toarray(), expected[0])
    assert same_bits(fit.components_.toarray(), expected[1].components_)


def test_a_clone_has_the_same_checkpoint(path: Path) -> None:
    assert clone(model(path)).checkpoint == path
    assert clone(KLNMF()).checkpoint is None


def test_warm_start_and_checkpoints_do_not_go_together(path: Path) -> None:
    with pytest.raises(ValueError, match="warm_start=True and checkpoint cannot be used together"):
        model(path, warm_start=True).fit(COUNTS)


@pytest.mark.parametrize(
    "bad", [{"checkpoint": 3}, {"checkpoint_every": -1.0}, {"resume": "maybe"}]
)
def test_parameters_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"The '{next(iter(bad))}' parameter"):
        KLNMF(**bad).fit(COUNTS)


def test_the_progress_bar_goes_on(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    killed(path, 7)
    fit_quietly(COUNTS, model=model(path, progress=True, max_iter=100, tol=0.05))
    assert " 6/100" in capfd.readouterr().err


# ---- what is refused -----------------------------------------------------------------------------

MORE = COUNTS.copy()
MORE.data[7] += 1


@pytest.mark.parametrize(
    ("X", "parameters", "message"),
    [
        (MORE, {}, r"checksum of X \(\d+ there, \d+ here\)"),
        (COUNTS[:59], {}, r"shape of X \(\[60, 40\] there, \[59, 40\] here\); nonzeros of X"),
        (COUNTS, {"dtype": np.float64}, "type of X"),
        (COUNTS, {"n_components": 4}, r"n_components \(3 there, 4 here\)"),
        (COUNTS, {"init": "random"}, r"init \(samples there, random here\)"),
        (COUNTS, {"l1_W": 0.5, "l1_H": 0.5}, r"l1_W \(0.0 there, 0.5 here\); l1_H"),
        (COUNTS, {"solver": "mu"}, "solver .*MultiplicativeUpdates"),
        (COUNTS, {"solver": SparseCoordinateDescent(sweeps=3)}, "solver .*sweeps=3"),
        (COUNTS, {"random_state": 1}, "seed"),
        (COUNTS, {"backend": "reference"}, r"backend \(cpu there, reference here\)"),
    ],
)
def test_the_checkpoint_of_another_fit_is_refused(
    X: Any, parameters: dict[str, Any], message: str, path: Path
) -> None:
    killed(path, 4)
    before = path.read_bytes()
    with pytest.raises(SavedFileError, match=f"belongs to another fit. It differs in: {message}"):
        model(path, **parameters).fit(X)
    assert path.read_bytes() == before


def test_the_checkpoint_of_another_start_is_refused(path: Path) -> None:
    H = np.random.default_rng(0).random((3, 40))
    killed(path, 4, start={"H": H})
    for start in (None, 2 * H):
        with pytest.raises(SavedFileError, match=r"differs in: checksums of the start \("):
            model(path).fit(COUNTS, H=start)
    with pytest.raises(ValueError, match="The start H must have shape"):
        model(path).fit(COUNTS, H=H.T)


def test_the_checkpoint_of_another_version_is_refused(path: Path) -> None:
    killed(path, 4)
    old = content_of(path)
    write_container(path, Container(old.kind, old.content, old.arrays, klnmf_version="0.0.1"))
    with pytest.raises(SavedFileError, match=r"version of klnmf \(0.0.1 there, "):
        model(path).fit(COUNTS)


def test_a_model_is_not_a_checkpoint_and_the_other_way_round(path: Path) -> None:
    fit_quietly(COUNTS, model=model())[1].save(path)
    with pytest.raises(SavedFileError, match="it holds a 'model', not a 'checkpoint'"):
        model(path).fit(COUNTS)
    path.unlink()
    killed(path, 4)
    with pytest.raises(SavedFileError, match="is the checkpoint of a fit, not a model"):
        KLNMF.load(path)


@dataclass(frozen=True)
class Forgetful(Solver):
    """Carries something along that it cannot store."""

    name: ClassVar[str] = "forgetful"
    rules: ClassVar[tuple[type, ...]] = (MultiplicativeRule,)
    never_rises: ClassVar[bool] = True

    def prepare(self, problem: Problem, state: State) -> None:
        state.memory["secret"] = 1

    def iterate(self, problem: Problem, state: State) -> None:
        alternate(problem, state, MultiplicativeRule())


def test_a_solver_that_cannot_store_its_memory_is_named(path: Path) -> None:
    fit_quietly(COUNTS, model=model(solver=Forgetful()))
    with pytest.raises(ValueError, match=r"solver='forgetful' carries \['secret'\] along"):
        model(path, solver=Forgetful()).fit(COUNTS)
    assert not path.exists()


# ---- files that nobody wrote ---------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_checkpoint_is_refused(share: float, path: Path) -> None:
    killed(path, 4)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(SavedFileError, match="damaged"):
        model(path).fit(COUNTS)


@pytest.mark.parametrize("solver", ["srcd", "bmme", "ccd"])
def test_arrays_that_do_not_fit_are_refused(solver: str, path: Path) -> None:
    """The core would read past their end."""
    killed(path, 4, solver=solver)
    good = content_of(path)
    for name, array in good.arrays.items():
        other_float = np.float32 if array.dtype == np.float64 else np.float64
        for bad in (array[:-1], array.astype(other_float), array.astype(np.int32), array.ravel()):
            write_container(path, Container(good.kind, good.content, {**good.arrays, name: bad}))
            with pytest.raises(SavedFileError):
                model(path, solver=solver).fit(COUNTS)
        rest = {other: good.arrays[other] for other in good.arrays if other != name}
        write_container(path, Container(good.kind, good.content, rest))
        with pytest.raises(SavedFileError):
            model(path, solver=solver).fit(COUNTS)


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("arrays", {"solved_W": "H"}),
        ("arrays", {"solved_W": "memory.none"}),
        ("arrays", {"solved_W": True}),
        ("arrays", {"secret": "W"}),
        ("numbers", {"weight": 1}),
        ("numbers", {"has_failed": 0}),
        ("numbers", {"swap_failures_left": 10**9}),
        ("numbers", {"secret": 1.0}),
    ],
)
def test_a_memory_that_no_solver_has_is_refused(
    section: str, changes: dict[str, Any], path: Path
) -> None:
    good = _good_checkpoint()
    changed = {**good.content["memory"][section], **changes}
    content = _replaced(good.content, ("memory", section), changed)
    arrays = {**good.arrays, "True": good.arrays["W"]}
    write_container(path, Container(good.kind, content, arrays))
    with pytest.raises(SavedFileError, match=r"solver's|trials of swaps"):
        model(path).fit(COUNTS)


def _places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    for key in tree if isinstance(tree, dict) else ():
        yield from _places(tree[key], (*place, key))


def _replaced(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    return {**tree, place[0]: _replaced(tree[place[0]], place[1:], value)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["W", "H", "history", "memory.solved_W", ""]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@cache
def _good_checkpoint() -> Container:
    with tempfile.TemporaryDirectory() as folder:
        killed(Path(folder) / "fit", 4)
        return content_of(Path(folder) / "fit")


@settings(max_examples=60)
@given(data=st.data())
def test_any_header_is_refused_or_fits(data: st.DataObject) -> None:
    good = _good_checkpoint()
    place = data.draw(st.sampled_from([*_places(good.content)][1:]))
    content = _replaced(good.content, place, data.draw(JSON))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit"
        write_container(path, Container(good.kind, content, good.arrays))
        with suppress(SavedFileError):  # and no other error
            W, fit = fit_quietly(COUNTS, model=model(path, max_iter=6))
            assert W.shape == (60, 3)
            assert fit.n_iter_ <= 6


# ---- real kills ----------------------------------------------------------------------------------

FIT_THE_BIBLE = """
    import sys
    import numpy as np
    from klnmf import KLNMF
    from klnmf.datasets import load_bible

    path, result = sys.argv[1:]
    X = load_bible().data.astype(np.float64)
    model = KLNMF(
        20, random_state=0, checkpoint=path or None, checkpoint_every=0.02, n_threads=1, tol=3e-3
    )
    W = model.fit_transform(X)
    np.savez(result, W=W, components=model.components_, divergence=model.divergence_)
"""


def _fit_the_bible(path: str, result: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(FIT_THE_BIBLE), path, str(result)]
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_process_that_is_killed_twenty_times_ends_with_the_same_bits(tmp_path: Path) -> None:
    undisturbed, resumed = tmp_path / "undisturbed.npz", tmp_path / "resumed.npz"
    started = time.monotonic()
    assert _fit_the_bible("", undisturbed).wait(timeout=300) == 0
    duration = time.monotonic() - started

    path = tmp_path / "bible.checkpoint"
    generator = random.Random(0)
    iterations = [0]
    n_kills = 0
    while n_kills < 20:
        process = _fit_the_bible(str(path), resumed)
        try:
            # Mostly while it starts or fits a little, so that twenty of them fit into one fit.
            process.wait(timeout=generator.uniform(0.0, 0.6 * duration))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            n_kills += 1
        else:  # it was quicker: from the beginning
            assert process.returncode == 0
            path.unlink()
            resumed.unlink()
        if path.exists():
            iterations.append(content_of(path).content["state"]["iteration"])
    assert len(set(iterations)) > 3  # the kills did not all come before the first iteration
    process = _fit_the_bible(str(path), resumed)
    assert process.wait(timeout=300) == 0
    with np.load(undisturbed) as expected, np.load(resumed) as found:
        for name in expected:
            assert same_bits(found[name], expected[name]), name
    assert {entry for entry in os.listdir(tmp_path) if "checkpoint" in entry} == {path.name}
