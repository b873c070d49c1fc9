"""Checkpoints that are gone on from: what fits, what is refused, and real kills."""

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

from checkpoint_checks import (  # noqa: F401 (fixtures)
    COUNTS,
    assert_same_fit,
    checkpoint_path,
    content_of,
    killed,
    model,
    no_waiting_for_the_disk,
    raise_killed,
    timeless,
)
from klnmf import KLNMF, RunOptions
from klnmf.backends.base import Multiply
from klnmf.saved import SavedFileError, periodic_file
from klnmf.saved.container import Container, write_container
from klnmf.solvers import Solver, SparseCoordinateDescent
from klnmf.solvers.base import Problem, State, alternate
from strategies import fit_quietly, same_bits

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
            patch.setattr(SparseCoordinateDescent, "iterate", raise_killed)
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
    assert second.optimality_gap_ <= 1e-3
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


@pytest.mark.parametrize("solver", ["srcd", "bmme"])
def test_a_file_written_by_an_older_version_goes_on_to_the_same_result(
    solver: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is the only difference that is refused (see below), so it is made the same."""
    parameters = {"solver": solver, "l1_W": 0.1, "l2_H": 0.2}
    expected = fit_quietly(COUNTS, model=model(**parameters))
    killed(path, 6, **parameters)
    new = content_of(path)
    path.write_bytes((Path(__file__).parent / "data" / f"{solver}-v1.checkpoint").read_bytes())
    old = content_of(path)
    assert (new.content.keys(), new.arrays.keys()) == (old.content.keys(), old.arrays.keys())
    monkeypatch.setattr(periodic_file, "version", lambda _: old.klnmf_version)
    found = fit_quietly(COUNTS, model=model(path, resume=True, **parameters))
    np.testing.assert_allclose(found[1].components_, expected[1].components_, rtol=1e-3, atol=1e-6)
    names = [name for name in old.arrays if name != "history"]
    if all(same_bits(new.arrays[name], old.arrays[name]) for name in names):
        # Other instruction sets round differently, from the first iteration on.
        for record in [*found[1].history_, *expected[1].history_]:
            del record["optimality_gap"]  # unknown to the older version
        for of_file, here in zip(found[1].history_, expected[1].history_, strict=True):
            for name in ("objective", "divergence"):  # the older version added them up otherwise
                assert of_file.pop(name) == pytest.approx(here.pop(name), rel=1e-13)
        assert_same_fit(found, expected)


def test_a_clone_has_the_same_checkpoint(path: Path) -> None:
    assert clone(model(path)).run.checkpoint == path
    assert clone(KLNMF()).run is None


def test_warm_start_and_checkpoints_do_not_go_together(path: Path) -> None:
    with pytest.raises(ValueError, match="warm_start=True and checkpoint cannot be used together"):
        model(path, warm_start=True).fit(COUNTS)


@pytest.mark.parametrize(
    "bad", [{"checkpoint": 3}, {"checkpoint_every": -1.0}, {"resume": "maybe"}]
)
def test_parameters_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"The '{next(iter(bad))}' parameter of RunOptions"):
        KLNMF(run=RunOptions(**bad)).fit(COUNTS)


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
        (COUNTS, {"solver": SparseCoordinateDescent(swap_failures=1)}, "solver .*swap_failures=1"),
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
    with pytest.raises(
        SavedFileError, match="is the checkpoint of an interrupted fit, not a model"
    ):
        KLNMF.load(path)


@dataclass(frozen=True)
class Forgetful(Solver):
    """Carries something along that it cannot store."""

    name: ClassVar[str] = "forgetful"
    rules: ClassVar[frozenset[type]] = frozenset({Multiply})
    never_rises: ClassVar[bool] = True

    def prepare(self, problem: Problem, state: State) -> None:
        state.memory["secret"] = 1

    def iterate(self, problem: Problem, state: State) -> None:
        alternate(problem, state, Multiply())


def test_a_solver_that_cannot_store_its_memory_is_named(path: Path) -> None:
    fit_quietly(COUNTS, model=model(solver=Forgetful()))
    with pytest.raises(
        ValueError, match=r"solver='forgetful' keeps \['secret'\] between iterations"
    ):
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
        integers = np.nan_to_num(array).astype(np.int32)
        for bad in (array[:-1], array.astype(other_float), integers, array.ravel()):
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
        ("numbers", {"weight": {"float": "nan"}}),
        ("numbers", {"weight": 1e6}),
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


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("name", ["W", "H", "memory.previous_W"])
def test_factors_that_are_none_are_refused(name: str, value: float, path: Path) -> None:
    good = _good_checkpoint()
    array = good.arrays[name].copy()
    array[1, 1] = value
    write_container(path, Container(good.kind, good.content, {**good.arrays, name: array}))
    with pytest.raises(SavedFileError, match=f"{name} has entries that are negative or not finite"):
        model(path).fit(COUNTS)


def test_a_history_with_other_columns_is_refused(path: Path) -> None:
    good = _good_checkpoint()
    columns = ["iteration", *(f"x{i}" for i in range(len(good.content["history"]) - 1))]
    content = {**good.content, "history": columns}
    write_container(path, Container(good.kind, content, good.arrays))
    with pytest.raises(SavedFileError, match="the records of its history are"):
        model(path).fit(COUNTS)


def test_numbers_that_64_bits_do_not_hold_are_refused(path: Path) -> None:
    good = _good_checkpoint()
    content = _replaced(good.content, ("state", "iteration"), 10**400)
    write_container(path, Container(good.kind, content, good.arrays))
    with pytest.raises(SavedFileError, match=r"iteration must be from 0 to 2\^63 - 1, got 1000"):
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
    from klnmf import KLNMF, RunOptions
    from klnmf.datasets import load_bible

    path, result = sys.argv[1:]
    X = load_bible().data.astype(np.float64)
    model = KLNMF(
        20,
        random_state=0,
        n_threads=1,
        max_iter=1000,
        tol=1e-6,
        run=RunOptions(checkpoint=path or None, checkpoint_every=0.02),
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
    # Where starting takes long, the first twenty may come before much is done.
    while n_kills < 20 or (len(set(iterations)) <= 3 and n_kills < 60):
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
    seen = [entry for entry in os.listdir(tmp_path) if not entry.startswith(".")]
    assert [entry for entry in seen if "checkpoint" in entry] == [path.name]
