"""Model files of strangers: a bad one gives an error and nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
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
from hypothesis import given, settings
from hypothesis import strategies as st

import klnmf
from klnmf import KLNMF, load_model
from klnmf.saved import SavedFileError, container
from klnmf.saved.container import Container, read_container, write_container
from klnmf.solvers import SparseCoordinateDescent
from saved_model_checks import COUNTS, assert_same_model, dense
from strategies import same_bits

VERSION_1 = Path(__file__).parent / "data" / "model-v1.klnmf"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.klnmf"


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


def components(header: str, data: bytes = b"") -> bytes:
    return with_array("components", npy(header, data))


def section(name: str, **changes: Any) -> bytes:
    return with_header(lambda header: header["content"][name].update(changes))


def swapped(first: str, second: str) -> bytes:
    members = members_of(good_bytes())
    return zipped({**members, first: members[second], second: members[first]})


def renamed_in_history(column: str) -> bytes:
    names = json.loads(members_of(good_bytes())["header.json"])["content"]["history"]
    return content(history=[f"not {name}" if name == column else name for name in names])


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
    "wrong number of iterations": lambda: section("fitted", n_iter_=1),
    "history without a column": lambda: renamed_in_history("seconds"),
    "wrong number of samples": lambda: section("samples", n_samples=10**15),
    "wrong number of features": lambda: section("fitted", n_features_in_=10**15),
    "huge shape": lambda: components(HUGE, b"abcd"),
    "negative shape": lambda: components(described("-3, -40"), bytes(480)),
    "many dimensions": lambda: components(described("1, " * 200, "|u1"), b"a"),
    "code in a shape": lambda: components(described("__import__('os'), ")),
    "integers": lambda: components(described("3, 40", "<i4"), bytes(480)),
    "negative entries": lambda: components(described("3, 40"), MINUS_ONES),
    "transposed": lambda: components(described("40, 3"), bytes(480)),
    "deep": lambda: zipped({**members_of(good_bytes()), "header.json": "[" * 200_000}),
    "deep metadata": lambda: content(metadata=json.loads("[" * 200 + "]" * 200)),
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
            with pytest.raises(SavedFileError, match="not a valid CSR matrix"):
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
