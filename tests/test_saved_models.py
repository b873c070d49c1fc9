"""Model files: what is read is what was written, and a bad file gives an error and nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickle
import stat
import struct
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import klnmf
from klnmf import KLNMF, load_model
from klnmf.saved import SavedFileError, container
from klnmf.saved.container import Container, read_container, write_container
from klnmf.simulate import simulate_counts
from klnmf.solvers import SOLVERS, Solver, SparseCoordinateDescent
from klnmf.solvers.coordinate_descent import PaperCoordinateDescent
from klnmf.solvers.extrapolation import ExtrapolationWeights
from klnmf.solvers.multiplicative import MultiplicativeUpdates
from strategies import fit_quietly, same_bits

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=60, random_state=0).X
VERSION_1 = Path(__file__).parent / "data" / "model-v1.klnmf"
FITTED = ("n_iter_", "divergence_", "kkt_residual_", "converged_", "history_", "n_components_")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.klnmf"


def fitted(**parameters: Any) -> KLNMF:
    defaults = {"n_components": 3, "random_state": 0, "n_threads": 1, "max_iter": 5}
    return fit_quietly(COUNTS, **{**defaults, **parameters})[1]


def dense(matrix: Any) -> Any:
    return matrix.toarray() if sp.issparse(matrix) else matrix


def assert_same_model(found: KLNMF, expected: KLNMF) -> None:
    assert repr(found.get_params()) == repr(expected.get_params())
    assert type(found.components_) is type(expected.components_)
    assert same_bits(dense(found.components_), dense(expected.components_))
    for name in (*FITTED, "n_features_in_"):
        value, wanted = getattr(found, name), getattr(expected, name)
        assert type(value) is type(wanted), name
        assert value == wanted, name


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


@pytest.mark.parametrize(
    "solver",
    [
        SparseCoordinateDescent(opening=2, narrow_gain=math.inf, swap_failures=0),
        SparseCoordinateDescent(extrapolation=None),
        SparseCoordinateDescent(extrapolation=ExtrapolationWeights(first=1, growth=1.01)),
        PaperCoordinateDescent(break_test="signed", epsilon=1e-9),
        *(solver() for solver in SOLVERS.values()),
    ],
)
def test_solvers_keep_their_settings(solver: Solver, path: Path) -> None:
    model = fitted(solver=solver)
    model.save(path)
    assert KLNMF.load(path).solver == solver


def test_every_parameter_comes_back(path: Path) -> None:
    parameters = {
        "n_components": np.int64(2), "solver": "mu", "fixed_components": None, "init": "nndsvd",
        "n_init": 2, "l1_W": 0.1,
        "l2_W": 0.2, "l1_H": 0.3, "l2_H": np.float32(0.4), "max_iter": 7, "tol": 50.0,
        "n_threads": 2, "random_state": 3, "dtype": "float64", "sparse_output": np.True_,
        "warm_start": True, "backend": "cpu", "progress": False, "checkpoint_every": 5.0,
        "resume": False,
    }  # fmt: skip
    not_stored = {"callback": None, "checkpoint": None}
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
        callback=lambda record: False,
        checkpoint=tmp_path / "fit",
        warm_start=False,
    )
    model.save(path)
    saved = load_model(path)
    assert sorted(saved.not_stored) == ["callback", "checkpoint", "random_state"]
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
    assert saved.feature_names is saved.model.feature_names_in_
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
    model.save(path, W=W, sample_names=samples, feature_names=np.array(features), metadata=metadata)
    saved = load_model(path)
    assert type(saved.W) is type(W)
    assert same_bits(dense(saved.W), dense(W))
    assert list(saved.sample_names) == samples
    assert list(saved.feature_names) == features
    assert not hasattr(saved.model, "feature_names_in_")  # X had none
    assert saved.metadata == metadata
    assert saved.klnmf_version == klnmf.__version__
    assert_same_model(saved.model, model)


def test_extras_are_optional(path: Path) -> None:
    fitted().save(path)
    saved = load_model(path)
    assert (saved.W, saved.sample_names, saved.feature_names) == (None, None, None)
    assert saved.metadata == {}
    fitted().save(path, sample_names=["only", "names"])
    assert list(load_model(path).sample_names) == ["only", "names"]


def test_sparse_components_stay_sparse(path: Path) -> None:
    X = sp.block_diag([np.ones((5, 200), dtype=np.int32)] * 8, format="csr")
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

    model = KLNMF(3, random_state=0, callback=interrupt)
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
        ({"sample_names": "abc"}, TypeError, "got the one string 'abc'"),
        ({"feature_names": ["a"]}, ValueError, "has 1 names for 40"),
        ({"metadata": {"X": np.ones(3)}}, ValueError, "something that JSON holds"),
        ({"metadata": {"x": math.nan}}, ValueError, "something that JSON holds"),
        ({"metadata": {1: 2}}, ValueError, "keys are strings"),
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
    with pytest.raises(TypeError, match=r"OwnSolver.* is not one of klnmf's own"):
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
    assert model.solver == SparseCoordinateDescent(
        sweeps=3, extrapolation=ExtrapolationWeights(0.4)
    )
    assert (model.l1_W, model.dtype, model.sparse_output) == (0.25, np.float64, True)
    assert saved.not_stored == ["callback"]
    assert (model.n_iter_, model.converged_) == (9, True)
    assert [record["iteration"] for record in model.history_] == list(range(1, 10))
    assert model.history_[-1]["objective"] == pytest.approx(6.155, abs=1e-3)
    assert model.divergence_ == 1.4650204674681868
    assert model.kkt_residual_ == 2.6433006164021796e-06
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
        match=r"version 2 of the format \(klnmf 9.0 wrote it\).*Install a newer klnmf",
    ):
        KLNMF.load(path)


def test_an_older_file_without_a_new_parameter_gets_its_default(path: Path) -> None:
    fitted().save(path)
    old = read_container(path, "model")
    del old.content["parameters"]["tol"]
    write_container(path, old)
    assert KLNMF.load(path).tol == KLNMF().tol


# ---- files of strangers --------------------------------------------------------------------------


@cache
def good_bytes(sparse_output: bool = False) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model = KLNMF(3, random_state=0, n_threads=1, sparse_output=sparse_output, max_iter=200)
        model.set_params(solver=SparseCoordinateDescent())
        W = model.fit_transform(COUNTS)
        names = [f"sample {i}" for i in range(60)]
        model.save(path, W=W, sample_names=names, metadata={"a": [1, 2]})
        return path.read_bytes()


def load_bytes(data: bytes) -> klnmf.saved.models.SavedModel:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(data)
        return load_model(path)


@cache
def good_model(sparse_output: bool) -> klnmf.saved.models.SavedModel:
    return load_bytes(good_bytes(sparse_output))


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: Any, compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of these members, as if it were a model."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, data in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, data)
    return stream.getvalue()


def with_header(change: Any) -> bytes:
    members = members_of(good_bytes())
    header = json.loads(members["header.json"])
    change(header)
    return zipped({**members, "header.json": json.dumps(header)})


def npy(header: str, data: bytes = b"") -> bytes:
    encoded = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(encoded)) + encoded + data


def with_array(name: str, data: bytes) -> bytes:
    """A file with another array, whose checksum is right."""
    members = members_of(good_bytes())
    header = json.loads(members["header.json"])
    header["arrays"][name] = {"sha256": hashlib.sha256(data).hexdigest()}
    return zipped({**members, f"{name}.npy": data, "header.json": json.dumps(header)})


class Trap:
    """Leaves a trace if it is ever unpickled."""

    sprung = False

    def __reduce__(self) -> Any:
        return (_spring, ())


def _spring() -> None:
    Trap.sprung = True


def _pickled() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([Trap()], dtype=object), allow_pickle=True)
    return stream.getvalue()


def described(shape: str, dtype: str = "<f4") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}"


def content(**changes: Any) -> bytes:
    return with_header(lambda header: header["content"].update(changes))


def parameters(**changes: Any) -> bytes:
    return with_header(lambda header: header["content"]["parameters"].update(changes))


def solver_settings(**changes: Any) -> bytes:
    return with_header(
        lambda header: header["content"]["parameters"]["solver"]["settings"].update(changes)
    )


def components(header: str, data: bytes = b"") -> bytes:
    return with_array("components", npy(header, data))


def section(name: str, **changes: Any) -> bytes:
    return with_header(lambda header: header["content"][name].update(changes))


def swapped(first: str, second: str) -> bytes:
    members = members_of(good_bytes())
    return zipped({**members, first: members[second], second: members[first]})


HUGE = described("3, 4000000000000")
MINUS_ONES = np.full(120, -1, dtype="<f4").tobytes()
EVIL_FILES = {
    "nothing": lambda: b"",
    "text": lambda: b"components",
    "pickle": lambda: pickle.dumps(Trap()),
    "empty archive": lambda: zipped({}),
    "another archive": lambda: zipped({"word/document.xml": "<xml/>"}),
    "header that is no JSON": lambda: zipped({"header.json": "{"}),
    "header that is deep": lambda: zipped({"header.json": "[" * 1_000_000}),
    "header that is a list": lambda: zipped({"header.json": "[]"}),
    "header in another encoding": lambda: zipped({"header.json": b"\xff\xfe\xff"}),
    "header of another format": lambda: with_header(lambda h: h.update(format="other")),
    "header with NaN": lambda: with_header(lambda h: h.update(version=math.nan)),
    "version 0": lambda: with_header(lambda h: h.update(version=0)),
    "version true": lambda: with_header(lambda h: h.update(version=True)),
    "no arrays": lambda: with_header(lambda h: h.update(arrays=[])),
    "no content": lambda: with_header(lambda h: h.update(content=None)),
    "no writer": lambda: with_header(lambda h: h.update(klnmf=1)),
    "wrong checksum": lambda: with_header(lambda h: h["arrays"]["components"].update(sha256="0")),
    "no checksum": lambda: with_header(lambda h: h["arrays"].update(components=None)),
    "unknown estimator": lambda: content(estimator="SVC"),
    "metadata that are a list": lambda: content(metadata=[]),
    "unknown parameter": lambda: parameters(magic=1),
    "parameter out of range": lambda: parameters(n_components=-1),
    "a path": lambda: parameters(checkpoint="/etc/x"),
    "a callback": lambda: parameters(callback="print"),
    "unknown solver": lambda: parameters(solver={"solver": "os.system", "settings": {}}),
    "wrong type": lambda: parameters(dtype={"dtype": "object"}),
    "unknown setting": lambda: solver_settings(magic=1),
    "setting of a wrong type": lambda: solver_settings(narrow_gain="x"),
    "setting that is too large": lambda: solver_settings(narrow_gain=10**400),
    "setting out of range": lambda: solver_settings(sweeps=0),
    "wrong number of iterations": lambda: section("fitted", n_iter_=1),
    "wrong number of samples": lambda: section("samples", n_samples=10**15),
    "wrong number of features": lambda: section("fitted", n_features_in_=10**15),
    "huge shape": lambda: components(HUGE, b"abcd"),
    "negative shape": lambda: components(described("-3, -40"), bytes(480)),
    "many dimensions": lambda: components(described("1, " * 200, "|u1"), b"a"),
    "code in a shape": lambda: components(described("__import__('os'), ")),
    "integers": lambda: components(described("3, 40", "<i4"), bytes(480)),
    "negative entries": lambda: components(described("3, 40"), MINUS_ONES),
    "transposed": lambda: components(described("40, 3"), bytes(480)),
    "objects": lambda: with_array("components", _pickled()),
    "not NumPy": lambda: with_array("components", b"PK" * 100),
    "long header of an array": lambda: components(" " * 20_000),
    "compressed": lambda: zipped(members_of(good_bytes()), zipfile.ZIP_DEFLATED),
    "bomb": lambda: zipped(
        {**members_of(good_bytes()), "components.npy": npy(HUGE) + bytes(20_000_000)},
        zipfile.ZIP_DEFLATED,
    ),
    "bomb in the header": lambda: zipped({"header.json": " " * 4_000_000}, zipfile.ZIP_DEFLATED),
    "more members": lambda: zipped({**members_of(good_bytes()), "extra.npy": b"x"}),
    "swapped members": lambda: swapped("components.npy", "W.npy"),
    "swapped members of one shape": lambda: swapped("W.npy", "history.npy"),
}


def takes_little_memory(action: Callable[[], None], file_size: int) -> bool:
    """Whether the most that it takes at a time is in proportion to the file.

    What is allocated once in a process (modules, caches) is gone when it is tried again.
    """
    for _ in range(2):
        tracemalloc.start()
        try:
            action()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        if peak < 500_000 + 10 * file_size:
            return True
    return False


@pytest.mark.parametrize("kind", EVIL_FILES)
def test_a_file_of_a_stranger_gives_an_error(kind: str) -> None:
    data = EVIL_FILES[kind]()

    def load() -> None:
        with pytest.raises(SavedFileError):
            load_bytes(data)

    assert takes_little_memory(load, len(data))
    assert not Trap.sprung


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused() -> None:
    members = members_of(good_bytes())
    doubled = zipped([*members.items(), ("components.npy", members["components.npy"])])
    with pytest.raises(SavedFileError, match="same name"):
        load_bytes(doubled)


def test_members_that_share_their_bytes_are_refused() -> None:
    """A small file could claim any number of large arrays otherwise."""
    data = np.zeros((100, 1000), dtype="<f4")
    stream = io.BytesIO()
    np.save(stream, data)
    members = {f"a{i}.npy": b"" for i in range(50)}
    packed = bytearray(zipped({"a.npy": stream.getvalue(), **members, "header.json": b""}))
    with zipfile.ZipFile(io.BytesIO(bytes(packed))) as archive:
        entries = archive.infolist()
        for entry in entries:
            if entry.filename != "header.json":
                entry.header_offset = 0
                entry.file_size = entry.compress_size = len(stream.getvalue())
        with pytest.raises(SavedFileError, match="claim"):
            container._check_sizes(archive, len(packed))


@pytest.mark.parametrize("about", [{"compress_type": zipfile.ZIP_DEFLATED}, {"flag_bits": 1}])
def test_members_that_are_not_there_as_they_are_are_refused(about: dict[str, int]) -> None:
    """Even where the size does not tell: compressed without a gain, or encrypted."""
    data = good_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        container._check_sizes(archive, len(data))
        for name, value in about.items():
            setattr(archive.infolist()[0], name, value)
        with pytest.raises(SavedFileError, match="compressed or encrypted"):
            container._check_sizes(archive, len(data))


@pytest.mark.parametrize("part", ["indices", "indptr"])
def test_indices_of_a_sparse_matrix_are_checked(part: str) -> None:
    """SciPy would read and write wherever they point."""
    data = good_bytes(sparse_output=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(data)
        good = read_container(path, "model")
        name = f"components.{part}"
        array = good.arrays[name]
        for place, value in (
            (0, -1),
            (0, 2**30),
            (len(array) - 1, 2**30),
            (len(array) // 2, -(2**31)),
        ):
            bad = array.copy()
            bad[place] = value
            write_container(path, Container("model", good.content, {**good.arrays, name: bad}))
            with pytest.raises(SavedFileError, match="not a valid sparse matrix"):
                load_model(path)
        for bad in (array[:-1], array.astype(np.float64), array[None]):
            write_container(path, Container("model", good.content, {**good.arrays, name: bad}))
            with pytest.raises(SavedFileError):
                load_model(path)


def test_names_are_checked() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(good_bytes())
        good = read_container(path, "model")
        ends, text = good.arrays["sample_names.ends"], good.arrays["sample_names.text"]
        backwards = ends.copy()
        backwards[3] = 10**6
        for changed in (
            {"sample_names.ends": backwards},
            {"sample_names.ends": ends[:-1]},
            {"sample_names.ends": ends - 1},
            {"sample_names.text": text[:-1]},
            {"sample_names.text": np.full_like(text, 255)},
        ):
            write_container(path, Container("model", good.content, {**good.arrays, **changed}))
            with pytest.raises(SavedFileError, match="sample_names"):
                load_model(path)


# ---- fuzzing -------------------------------------------------------------------------------------


def refused_or_unchanged(data: bytes, sparse_output: bool) -> None:
    """What is loaded from damaged bytes is what was saved: some bytes of an archive say nothing."""
    expected = good_model(sparse_output)

    def load() -> None:
        with suppress(SavedFileError):  # and no other error
            found = load_bytes(data)
            assert_same_model(found.model, expected.model)
            assert same_bits(dense(found.W), dense(expected.W))
            assert list(found.sample_names) == list(expected.sample_names)
            assert found.metadata == expected.metadata

    assert takes_little_memory(load, len(data))


def places(sparse_output: bool) -> st.SearchStrategy[int]:
    """Places in the file; those of the directory, which is short, as often as all the others."""
    size = len(good_bytes(sparse_output))
    return st.integers(0, size - 1) | st.integers(size - 2500, size - 1)


def check_random_bytes(data: bytes) -> None:
    refused_or_unchanged(data, False)
    refused_or_unchanged(b"PK\x03\x04" + data, False)


def check_flips(data: st.DataObject, sparse_output: bool) -> None:
    damaged = bytearray(good_bytes(sparse_output))
    for place in data.draw(st.lists(places(sparse_output), min_size=1, max_size=4)):
        damaged[place] ^= data.draw(st.integers(1, 255))
    refused_or_unchanged(bytes(damaged), sparse_output)


def check_cuts(data: st.DataObject, sparse_output: bool) -> None:
    whole = good_bytes(sparse_output)
    start, end = sorted(data.draw(st.tuples(places(sparse_output), places(sparse_output))))
    with pytest.raises(SavedFileError):
        load_bytes(whole[:start])
    refused_or_unchanged(whole[:start] + whole[end:], sparse_output)
    refused_or_unchanged(whole[:end] + whole[start:], sparse_output)


def check_members(data: st.DataObject, sparse_output: bool) -> None:
    members = members_of(good_bytes(sparse_output))
    names = sorted(members)
    order = data.draw(st.permutations(names))
    shuffled = dict(zip(names, (members[name] for name in order), strict=True))
    refused_or_unchanged(zipped(shuffled), sparse_output)
    kept = data.draw(st.sets(st.sampled_from(names)))
    refused_or_unchanged(zipped({name: members[name] for name in kept}), sparse_output)


def _places_in(tree: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    return [place, *(inner for key in keys for inner in _places_in(tree[key], (*place, key)))]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["float", "solver", "dtype", "x"]), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def check_headers(data: st.DataObject) -> None:
    """A header that says anything else: the file is refused, or the model can be used."""
    members = members_of(good_bytes())
    header = json.loads(members["header.json"])
    place = data.draw(st.sampled_from([p for p in _places_in(header) if p]))
    target = header
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = data.draw(JSON)
    with suppress(SavedFileError):
        model = load_bytes(zipped({**members, "header.json": json.dumps(header)})).model
        model.set_params(n_threads=1, l1_W=0.0, l2_W=0.0, l1_H=0.0, l2_H=0.0, dtype=None)
        assert model.transform(COUNTS).shape == (60, 3)


def fuzz(check: Any, n_examples: int, **strategies: Any) -> None:
    settings(max_examples=n_examples, derandomize=n_examples <= 200)(given(**strategies)(check))()


FUZZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bytes": (check_random_bytes, {"data": st.binary(max_size=400)}),
    "flips": (check_flips, {"data": st.data(), "sparse_output": st.booleans()}),
    "cuts": (check_cuts, {"data": st.data(), "sparse_output": st.booleans()}),
    "members": (check_members, {"data": st.data(), "sparse_output": st.booleans()}),
    "headers": (check_headers, {"data": st.data()}),
}


@pytest.mark.parametrize("kind", FUZZERS)
def test_damage_is_noticed(kind: str) -> None:
    check, strategies = FUZZERS[kind]
    fuzz(check, 40, **strategies)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FUZZERS)
def test_damage_is_noticed_thoroughly(kind: str) -> None:
    check, strategies = FUZZERS[kind]
    fuzz(check, 1000, **strategies)
