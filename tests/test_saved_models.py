"""Model files: what is read is what was written, and a bad file gives an error and nothing else."""

from __future__ import annotations

import copy
import math
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import klnmf
from klnmf import KLNMF, RunOptions, load_model
from klnmf.saved import SavedFileError, container
from klnmf.saved.container import Container, read_container, write_container
from klnmf.solvers import SOLVERS, Solver
from klnmf.solvers.multiplicative import MultiplicativeUpdates
from saved_model_checks import COUNTS, assert_same_model, dense, fitted
from strategies import fit_quietly, make_model, same_bits

VERSION_1 = Path(__file__).parent / "data" / "model-v1.klnmf"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.klnmf"


# ---- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("penalties", [{}, {"l1_W": 0.1, "l2_H": 0.2}])
@pytest.mark.parametrize("sparse_output", [False, True])
@pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
@pytest.mark.parametrize("solver", SOLVERS)
def test_round_trip(
    solver: str, dtype: Any, sparse_output: bool, penalties: dict[str, float], path: Path
) -> None:
    model = fitted(solver=solver, dtype=dtype, sparse_output=sparse_output, **penalties)
    model.save(path)
    loaded = KLNMF.load(path)
    assert_same_model(loaded, model)
    assert same_bits(dense(loaded.transform(COUNTS)), dense(model.transform(COUNTS)))
    assert loaded.score(COUNTS) == model.score(COUNTS)
    assert list(loaded.get_feature_names_out()) == list(model.get_feature_names_out())


@pytest.mark.parametrize("solver", [solver() for solver in SOLVERS.values()])
def test_solvers_are_stored_by_name(solver: Solver, path: Path) -> None:
    model = fitted(solver=solver)
    model.save(path)
    assert KLNMF.load(path).solver == solver.name


def test_every_parameter_comes_back(path: Path) -> None:
    parameters = {
        "n_components": np.int64(2), "solver": "mu", "fixed_components": None, "init": "nndsvd",
        "n_init": 2, "l1_W": 0.1,
        "l2_W": 0.2, "l1_H": 0.3, "l2_H": np.float32(0.4), "max_iter": 7, "tol": 50.0,
        "n_threads": 2, "random_state": 3, "dtype": "float64", "sparse_output": np.True_,
        "warm_start": True, "backend": "cpu", "feature_weight": None, "zero_components": None,
    }  # fmt: skip
    not_stored = {"run": None}
    assert set(parameters) | set(not_stored) == set(KLNMF().get_params())
    KLNMF(**parameters).fit(COUNTS).save(path)
    loaded = KLNMF.load(path).get_params()
    assert loaded == {**parameters, **not_stored, "dtype": np.float64}
    assert type(loaded["n_components"]) is int
    assert type(loaded["l2_H"]) is float
    assert type(loaded["sparse_output"]) is bool


def test_what_is_not_stored_is_said(path: Path, tmp_path: Path) -> None:
    model = fitted(
        random_state=np.random.RandomState(0),
        run=RunOptions(callback=lambda record: False, checkpoint=tmp_path / "fit"),
        warm_start=False,
    )
    model.save(path)
    saved = load_model(path)
    assert sorted(saved.not_stored) == ["random_state", "run"]
    for name in saved.not_stored:
        assert getattr(saved.model, name) is None
    assert b"RandomState" not in path.read_bytes()
    fitted().save(path)
    assert load_model(path).not_stored == []


def test_a_loaded_model_can_be_fitted_and_goes_on_from_its_components(path: Path) -> None:
    model = fitted(warm_start=True, tol=0.0)
    model.save(path)
    loaded = fit_quietly(COUNTS, model=KLNMF.load(path))[1]
    assert loaded.history_[0]["iteration"] == 1
    assert loaded.divergence_ <= model.divergence_ * (1 + 1e-6)


def test_numbers_that_json_does_not_have(path: Path) -> None:
    model = fitted()
    model.divergence_, model.kkt_residual_ = math.inf, math.nan
    model.history_[0]["objective"] = math.inf
    model.history_[1]["objective"] = math.nan
    model.save(path)
    loaded = KLNMF.load(path)
    assert loaded.divergence_ == math.inf
    assert math.isnan(loaded.kkt_residual_)
    assert loaded.history_[0]["objective"] == math.inf
    assert math.isnan(loaded.history_[1]["objective"])


def test_names_seen_in_fit(path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COUNTS.toarray(), columns=[f"word {j}" for j in range(40)])
    model = KLNMF(2, random_state=0, n_threads=1, max_iter=200).fit(frame)
    model.save(path)
    saved = load_model(path)
    np.testing.assert_array_equal(saved.model.feature_names_in_, model.feature_names_in_)
    assert saved.model.feature_names_in_.dtype == object
    np.testing.assert_array_equal(saved.feature_names, model.feature_names_in_)
    assert same_bits(saved.model.transform(frame), model.transform(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        saved.model.transform(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="those that were seen in fit"):
        model.save(path, feature_names=[str(j) for j in range(40)])


@pytest.mark.parametrize("sparse_output", [False, True])
def test_samples_names_and_metadata(sparse_output: bool, path: Path) -> None:
    model = KLNMF(3, random_state=0, n_threads=1, sparse_output=sparse_output)
    W = model.fit_transform(COUNTS)
    samples = ["", "zwei\nZeilen", "naïve", "雨", *(f"sample {i}" for i in range(56))]
    metadata = {"data": {"name": "simulated", "nnz": 5, "share": 0.1}, "notes": ["a", None, True]}
    features = [f"feature {j}" for j in range(40)]
    names = {"sample_names": samples, "feature_names": np.array(features)}
    years = {"year": [*range(60)]}
    model.save(path, W=W, **names, sample_metadata=years, metadata=metadata)
    saved = load_model(path)
    assert type(saved.W) is type(W)
    assert same_bits(dense(saved.W), dense(W))
    assert list(saved.sample_names) == samples
    assert list(saved.feature_names) == features
    assert not hasattr(saved.model, "feature_names_in_")  # X had none
    assert saved.metadata == metadata
    assert saved.klnmf_version == klnmf.__version__
    # What is shown does not grow with the data.
    text = f"SavedModel({saved.model!r}, with W of shape (60, 3), 60 sample_names, 40 feature_names"
    assert repr(saved) == f"{text}, sample_metadata year)"
    assert_same_model(saved.model, model)


def test_extras_are_optional(path: Path) -> None:
    fitted().save(path)
    saved = load_model(path)
    assert (saved.W, saved.sample_names, saved.feature_names) == (None, None, None)
    assert saved.metadata == {}
    fitted().save(path, sample_names=["only", "names"])
    assert list(load_model(path).sample_names) == ["only", "names"]


def test_sparse_components_stay_sparse(path: Path) -> None:
    X = sp.csr_array(np.kron(np.eye(8, dtype=np.int32), np.ones((5, 200), dtype=np.int32)))
    sizes = {}
    for sparse_output in (False, True):
        model = KLNMF(8, random_state=0, sparse_output=sparse_output, n_threads=1).fit(X)
        model.save(path)
        sizes[sparse_output] = path.stat().st_size
    assert sp.issparse(KLNMF.load(path).components_)
    assert sizes[True] < 0.5 * sizes[False]


def test_an_interrupted_fit_can_be_saved(path: Path) -> None:
    def interrupt(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    model = make_model(3, random_state=0, callback=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(COUNTS)
    model.save(path)
    loaded = KLNMF.load(path)
    assert same_bits(loaded.components_, model.components_)
    assert loaded.converged_ is False


# ---- what save refuses ---------------------------------------------------------------------------


class OwnSolver(MultiplicativeUpdates):
    """A solver of the user's."""


@pytest.mark.parametrize(
    ("extras", "error", "message"),
    [
        ({"W": np.ones((60, 4))}, ValueError, r"shape \(n_samples, 3\)"),
        ({"W": -np.ones((60, 3))}, ValueError, "smallest entry -1"),
        ({"W": np.full((60, 3), np.nan)}, ValueError, "NaN"),
        ({"W": np.ones((60, 3)), "sample_names": ["a"]}, ValueError, "has 1 names for 60"),
        ({"sample_names": "abc"}, TypeError, "must be a list of names; got 'abc'"),
        ({"feature_names": ["a"]}, ValueError, "has 1 names for 40"),
        ({"metadata": {"X": np.ones(3)}}, ValueError, "cannot be written as JSON"),
        ({"metadata": {"x": math.nan}}, ValueError, "cannot be written as JSON"),
        ({"metadata": {1: 2}}, ValueError, "strings as keys"),
        ({"metadata": ["a"]}, ValueError, "must be a dict"),
        ({"metadata": {"a": "x" * (1 << 24)}}, ValueError, "Store less metadata"),
    ],
)
def test_extras_that_a_file_cannot_hold(
    extras: dict[str, Any], error: type[Exception], message: str, path: Path
) -> None:
    with pytest.raises(error, match=message):
        fitted().save(path, **extras)
    assert os.listdir(path.parent) == []


def test_models_that_a_file_cannot_hold(path: Path) -> None:
    with pytest.raises(NotFittedError):
        KLNMF().save(path)
    with pytest.raises(TypeError, match=r"OwnSolver.* is not one of klnmf's solvers"):
        fitted(solver=OwnSolver()).save(path)
    model = fitted()
    model.components_[0, 0] = math.nan
    with pytest.raises(ValueError, match="negative or not finite"):
        model.save(path)
    assert os.listdir(path.parent) == []


# ---- how it is written ---------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted().save(path)
    before = path.read_bytes()
    for name in ("_write_array", "_entry"):
        with monkeypatch.context() as patch:
            patch.setattr(container, name, _full_disk)
            with pytest.raises(OSError, match="no space left"):
                fitted(random_state=1).save(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _full_disk)
        with pytest.raises(OSError, match="no space left"):
            fitted(random_state=1).save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def _full_disk(*arguments: Any, **how: Any) -> None:
    raise OSError("no space left")


def test_the_file_is_on_the_disk_before_it_gets_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(stream: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(stream).st_mode)
        events.append("sync folder" if is_folder else "sync file")
        fsync(stream)

    def replaced(part: Any, target: Any) -> None:
        events.append("replace")
        replace(part, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    fitted().save(path)
    assert events[:2] == ["sync file", "replace"]
    assert events[2:] == (["sync folder"] if os.name == "posix" else [])


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions and links")
def test_permissions_follow_the_umask_and_links_stay(path: Path) -> None:
    before = os.umask(0o027)
    try:
        fitted().save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link = path.with_name("link")
    link.symlink_to(path)
    fitted(n_components=2).save(link)
    assert link.is_symlink()
    assert KLNMF.load(path).n_components_ == 2


def test_the_same_model_is_the_same_bytes(path: Path) -> None:
    model = fitted()
    model.save(path)
    first = path.read_bytes()
    KLNMF.load(path).save(path)
    assert path.read_bytes() == first


def test_paths_may_be_strings(path: Path) -> None:
    fitted().save(str(path))
    assert KLNMF.load(str(path)).n_components_ == 3
    with pytest.raises(FileNotFoundError):
        KLNMF.load(path.with_name("other"))


# ---- versions ------------------------------------------------------------------------------------


def test_version_1_stays_readable() -> None:
    saved = load_model(VERSION_1)
    model = saved.model
    assert saved.klnmf_version == "0.1.0"
    assert model.solver == "srcd"  # with settings that are constants now
    assert (model.l1_W, model.dtype, model.sparse_output) == (0.25, np.float64, True)
    assert saved.not_stored == ["callback"]
    assert (model.n_iter_, model.converged_) == (9, True)
    assert [record["iteration"] for record in model.history_] == list(range(1, 10))
    assert model.history_[-1]["objective"] == pytest.approx(6.155, abs=1e-3)
    assert model.divergence_ == 1.4650204674681868
    assert model.kkt_residual_ == 2.6433006164021796e-06
    assert math.isnan(model.optimality_gap_)  # unknown to that version
    assert model.components_.toarray().tolist() == [
        [0.0, 2.3586861292978476, 2.9029983129819663],
        [3.8907141367084854, 0.22886553745344038, 0.0],
    ]
    assert saved.W.toarray().tolist() == [
        [0.18143273811705501, 2.059694678007257],
        [0.0, 2.059694678007257],
        [2.5400583336387705, 0.0],
        [2.5400583336387705, 0.0],
    ]
    assert list(saved.sample_names) == ["erste", "zweite", "dritte", "雨"]
    assert list(saved.feature_names) == ["a", "b", "c"]
    assert saved.metadata == {"about": "four samples", "numbers": [1, 2.5, None]}
    expected = model.inverse_transform(saved.W)
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(VERSION_1_X)), expected, atol=1e-4
    )


VERSION_1_X = np.array([[9, 0, 1], [8, 1, 0], [0, 7, 7], [0, 6, 8]])


def test_a_newer_version_gives_a_clear_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(container, "VERSION", 2)
        write_container(path, Container("model", {"new": "things"}, {}, klnmf_version="9.0"))
    with pytest.raises(
        SavedFileError,
        match=r"format version 2 \(written by klnmf 9.0\).*Install a newer klnmf",
    ):
        KLNMF.load(path)


def test_an_older_file_without_a_new_parameter_gets_its_default(path: Path) -> None:
    fitted().save(path)
    old = read_container(path, "model")
    del old.content["parameters"]["tol"]
    write_container(path, old)
    assert KLNMF.load(path).tol == KLNMF().tol


def test_what_is_loaded_behaves_as_the_model(tmp_path: Path) -> None:
    model = KLNMF(3, random_state=0).fit(COUNTS)
    model.save(tmp_path / "model.klnmf")
    saved = load_model(tmp_path / "model.klnmf")
    np.testing.assert_array_equal(saved.components_, model.components_)
    np.testing.assert_array_equal(saved.transform(COUNTS), model.transform(COUNTS))
    again = pickle.loads(pickle.dumps(saved))
    np.testing.assert_array_equal(copy.copy(again).components_, model.components_)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        saved.nothing_like_it  # noqa: B018
