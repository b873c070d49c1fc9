"""A consensus in files: its runs while it goes on, and its result."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klnmf import KLNMF, RunOptions, load_model
from klnmf.model_selection import Consensus, consensus
from klnmf.model_selection import consensus_runs as module
from klnmf.model_selection.consensus_result import NullAgreement
from klnmf.model_selection.work_files import EndOfRun
from klnmf.objective import kl_divergence
from klnmf.saved import SavedFileError
from klnmf.saved.container import Container, read_container, write_container
from klnmf.simulate import simulate_counts

PLANTED = simulate_counts(120, 60, 4, counts_per_sample=300, random_state=0)
X = PLANTED.X


@pytest.fixture(scope="module", name="found")
def consensus_of_planted_counts() -> Consensus:
    return consensus(X, 4, n_runs=8, random_state=3)


def assert_same(first: Consensus, second: Consensus) -> None:
    for field in fields(Consensus):
        if field.name != "null":
            np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))
    assert (first.null is None) == (second.null is None)
    if first.null is not None and second.null is not None:
        for field in fields(NullAgreement):
            one, other = (getattr(null, field.name) for null in (first.null, second.null))
            np.testing.assert_array_equal(one, other)


# ---- the result ----------------------------------------------------------------------------------


def test_loaded_consensus_is_the_one_that_was_saved(found: Consensus, tmp_path: Path) -> None:
    found.save(tmp_path / "c.klnmf")
    loaded = Consensus.load(tmp_path / "c.klnmf")
    assert_same(found, loaded)
    assert loaded.spectra.dtype == np.float32
    assert str(loaded) == str(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stability": np.zeros(3)}, r"stability has the shape \(3,\), not \(4,\)"),
        ({"W": np.zeros((5, 3))}, r"W has the shape \(5, 3\), not \(5, 4\)"),
        ({"W": np.full((5, 4), np.nan)}, "W has entries that are negative or not finite"),
        ({"labels": np.full(32, 4)}, "the labels must be from -1 to 3"),
        ({"labels": np.zeros(32)}, "'labels' must be 1-D and int32 or int64; it is float64"),
        ({"divergence": "low"}, "content.divergence must be a number"),
    ],
)
def test_file_that_does_not_add_up_is_refused(
    found: Consensus, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.klnmf"
    found.save(path)
    whole = read_container(path, "consensus")
    content = whole.content | {name: change[name] for name in change if name in whole.content}
    arrays = whole.arrays | {name: change[name] for name in change if name in whole.arrays}
    write_container(path, Container("consensus", content, arrays))
    with pytest.raises(SavedFileError, match=message):
        Consensus.load(path)


def test_model_and_consensus_are_not_taken_for_each_other(found: Consensus, tmp_path: Path) -> None:
    found.save(tmp_path / "c.klnmf")
    found.to_model().save(tmp_path / "m.klnmf")
    with pytest.raises(SavedFileError, match="consensus"):
        load_model(tmp_path / "c.klnmf")
    with pytest.raises(SavedFileError, match="model"):
        Consensus.load(tmp_path / "m.klnmf")


def test_model_of_a_consensus_transforms_and_is_saved(found: Consensus, tmp_path: Path) -> None:
    model = found.to_model()
    np.testing.assert_array_equal(model.components_, found.components)
    assert model.divergence_ == pytest.approx(kl_divergence(X, found.W, found.components), 1e-5)
    np.testing.assert_allclose(model.transform(X), found.W, atol=0.02 * found.W.max())
    model.save(tmp_path / "m.klnmf", W=found.W)
    loaded = KLNMF.load(tmp_path / "m.klnmf")
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.n_iter_ == 0
    assert not loaded.converged_  # medians are no optimum
    assert found.optimality_gap > loaded.tol
    assert not np.shares_memory(model.components_, found.components)


# ---- its runs ------------------------------------------------------------------------------------


class KilledError(Exception):
    """Stands for whatever ends a process."""


def killed_after(n_done: int, run: RunOptions, **arguments: Any) -> None:
    """Begin a consensus that ends when this many runs are done."""

    def callback(record: dict[str, Any]) -> None:
        if record["n_done"] == n_done:
            raise KilledError

    with pytest.raises(KilledError):
        consensus(X, 4, run=run.set_params(callback=callback), n_jobs=1, **arguments)


def test_killed_consensus_goes_on_to_the_same_result(
    found: Consensus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs"
    killed_after(
        3,
        n_runs=8,
        random_state=3,
        run=RunOptions(checkpoint=path, checkpoint_every=1e9),
    )
    done: list[int] = []
    original = module.restarted

    def counted(*arguments: Any) -> EndOfRun:
        _, run, *null = arguments[-1]
        done.append(100 * len(null) + run)
        return original(*arguments)

    monkeypatch.setattr(module, "restarted", counted)
    assert_same(found, consensus(X, 4, n_runs=8, random_state=3, run=RunOptions(checkpoint=path)))
    assert sorted(done) == [3, 4, 5, 6, 7, *range(100, 108)]
    killed_after(8 + 3, n_runs=8, random_state=3, run=RunOptions(checkpoint=tmp_path / "in null"))
    done.clear()
    assert_same(
        found,
        consensus(X, 4, n_runs=8, random_state=3, run=RunOptions(checkpoint=tmp_path / "in null")),
    )
    assert sorted(done) == [103, 104, 105, 106, 107]
    # All runs are in the file now: another threshold needs no new one, more runs only those.
    done.clear()
    strict = consensus(
        X, 4, n_runs=8, random_state=3, run=RunOptions(checkpoint=path), density_threshold=0.4
    )
    assert strict.density_threshold == 0.4
    assert done == []
    more = consensus(X, 4, n_runs=10, random_state=3, run=RunOptions(checkpoint=path))
    assert sorted(done) == [8, 9, 108, 109]
    np.testing.assert_array_equal(more.run_objectives[:8], found.run_objectives)
    fewer = consensus(X, 4, n_runs=6, run=RunOptions(checkpoint=path))  # with the seed of the file
    np.testing.assert_array_equal(fewer.run_objectives, found.run_objectives[:6])


def test_runs_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    consensus(X, 3, n_runs=3, random_state=0, run=RunOptions(checkpoint=path))
    with pytest.raises(SavedFileError, match="another consensus") as raised:
        consensus(
            X[:100], 4, n_runs=3, random_state=1, init="random", run=RunOptions(checkpoint=path)
        )
    for name in ("shape of X", "checksum of X", "n_components (3 there, 4 here)", "init", "seed"):
        assert name in str(raised.value)
    anew = consensus(
        X,
        4,
        n_runs=3,
        random_state=0,
        run=RunOptions(checkpoint=path, resume=False),
    )
    assert anew.components.shape == (4, 60)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        consensus(
            X,
            4,
            n_runs=3,
            run=RunOptions(checkpoint=tmp_path / "other", resume=True),
        )
    with pytest.raises(ValueError, match="pass checkpoint='PATH'"):
        consensus(X, 4, n_runs=3, run=RunOptions(resume=True))


def test_damaged_runs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    consensus(X, 3, n_runs=3, random_state=0, run=RunOptions(checkpoint=path))
    whole = read_container(path, "consensus runs")
    spectra = whole.arrays["spectra"]
    for damaged in (spectra[:-1], -spectra, np.full_like(spectra, np.nan)):
        arrays = whole.arrays | {"spectra": damaged}
        write_container(path, Container("consensus runs", whole.content, arrays))
        with pytest.raises(
            SavedFileError, match=r"spectra has (the shape|entries that are negative)"
        ):
            consensus(X, 3, n_runs=3, random_state=0, run=RunOptions(checkpoint=path))


def test_place_that_cannot_be_written_to_is_an_error_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> EndOfRun:
        raise AssertionError("a run was begun")

    monkeypatch.setattr(module, "restarted", never)
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        consensus(X, 3, n_runs=3, run=RunOptions(checkpoint=tmp_path / "nowhere" / "runs"))


def test_callback_hears_of_every_run(found: Consensus) -> None:
    records: list[dict[str, Any]] = []
    consensus(X, 4, n_runs=8, random_state=3, run=RunOptions(callback=records.append))
    runs = [record["run"] + 100 * record["is_null"] for record in records]
    assert sorted(runs) == [*range(8), *range(100, 108)]
    assert [record["n_done"] for record in records] == list(range(1, 17))
    for record in records[:8]:
        assert record["objective"] == found.run_objectives[record["run"]]
    assert records[-1]["seconds_left"] == 0


def test_runs_are_in_single_precision_unless_asked_otherwise(found: Consensus) -> None:
    wide = consensus(X.astype(np.float64), 4, n_runs=8, random_state=3)
    assert_same(found, wide)
    double = consensus(X, 4, n_runs=8, random_state=3, dtype=np.float64)
    assert not np.array_equal(found.components, double.components)
    np.testing.assert_allclose(found.components, double.components, atol=2e-3)


def test_files_of_older_versions_have_no_null(found: Consensus, tmp_path: Path) -> None:
    path = tmp_path / "c.klnmf"
    found.save(path)
    whole = read_container(path, "consensus")
    assert "null" in whole.content
    new = ("W_sums", *(name for name in whole.arrays if name.startswith("null_")))
    arrays = {name: array for name, array in whole.arrays.items() if name not in new}
    content = {name: value for name, value in whole.content.items() if name != "null"}
    write_container(path, Container("consensus", content, arrays))
    old = Consensus.load(path)
    assert old.null is None
    assert np.isnan(old.table()["null_silhouette"]).all()
    np.testing.assert_array_equal(old.components, found.components)
    np.testing.assert_allclose(old.to_model().W_sums_, found.W.sum(axis=0))
    checkpoint = tmp_path / "runs"
    consensus(X, 4, n_runs=8, n_null_runs=0, random_state=3, run=RunOptions(checkpoint=checkpoint))
    runs = read_container(checkpoint, "consensus runs")
    arrays = {name: array for name, array in runs.arrays.items() if not name.startswith("null_")}
    write_container(checkpoint, Container("consensus runs", runs.content, arrays))
    assert_same(
        found, consensus(X, 4, n_runs=8, random_state=3, run=RunOptions(checkpoint=checkpoint))
    )
