"""Files that once broke something.

Those that are best told by how they are made are made here; those that the fuzzer found are kept as
they are, in tests/data/broken.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.hdf5_changes import SYSTEM_FILE
from fuzz.seeds import Files, seeds_of
from fuzz.trees import members_of, zipped

BROKEN = Path(__file__).parents[1] / "data" / "broken"
DEEP = b"[" * 200_000
_MTX = b"%%MatrixMarket matrix coordinate real general\n2 3 2\n"


@cache
def odd_cases(kind: str) -> dict[str, Files]:
    """Odd files of one kind, by name."""
    return {name: make() for name, make in _ODD.get(kind, {}).items()}


def kept_cases(kind: str, folder: Path = BROKEN) -> dict[str, Files]:
    """Files of one kind that are kept in FOLDER/KIND/NAME.zip, by name."""
    paths = sorted((folder / kind).glob("*.zip"))
    return {path.stem: members_of(path.read_bytes()) for path in paths}


def _bomb(gigabytes: int) -> bytes:
    """A packed file that holds one line of so many gigabytes."""
    return gzip.compress(b"1" * (1 << 24), 9, mtime=0) * (64 * gigabytes)


# ---- matrices ------------------------------------------------------------------------------------


def _npz(**arrays: Any) -> Files:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return {"counts.npz": stream.getvalue()}


def _wild(kind: bytes, place: int) -> Files:
    """A compressed matrix whose indices lead out of it."""
    ends = np.array([0] + [200] * 10, np.int32)
    wild = np.full(200, place, np.int32)
    return _npz(format=kind, shape=[10, 10], data=np.ones(200), indices=wild, indptr=ends)


def _lying(kind: bytes) -> Files:
    """A compressed matrix whose rows end beyond its entries."""
    ends = np.array([0, 10**8, 3, 10**9], np.int32)
    indices = np.zeros(3, np.int32)
    return _npz(format=kind, shape=[3, 3], data=np.ones(3), indices=indices, indptr=ends)


def _wild_triplets() -> Files:
    wild = np.array([0, 10**9, -5], np.int32)
    return _npz(format=b"coo", shape=[3, 3], data=np.ones(3), row=wild, col=wild)


def _mtx(text: bytes) -> Callable[[], Files]:
    return lambda: {"counts.mtx": text}


def _uci(text: bytes) -> Files:
    return {**seeds_of("uci")[0], "docword.x.txt": text}


def _tenx(text: bytes) -> Files:
    return {**seeds_of("10x")[0], "matrix.mtx": text}


def _parquet(names: list[str], columns: list[Any], metadata: Any = None) -> Files:
    stream = io.BytesIO()
    table = pa.table(columns, names=names).replace_schema_metadata(metadata)
    pq.write_table(table, stream)
    return {"counts.parquet": stream.getvalue()}


# ---- HDF5 ----------------------------------------------------------------------------------------


def _hdf5(kind: str, name: str, change: Callable[[Any], None]) -> Callable[[], Files]:
    """A good file of one kind with one change."""

    def make() -> Files:
        stream = io.BytesIO(seeds_of(kind)[0][name])
        with h5py.File(stream, "r+") as file:
            change(file)
        return {name: stream.getvalue()}

    return make


def _dense(file: Any, place: str, **settings: Any) -> None:
    del file[place]
    dataset = file.create_dataset(place, **settings)
    dataset.attrs["encoding-type"], dataset.attrs["encoding-version"] = "array", "0.2.0"


def _unwritten(place: str, shape: tuple[int, ...]) -> Callable[[Any], None]:
    return lambda file: _dense(file, place, shape=shape, dtype="f4", chunks=True)


def _stored_elsewhere(place: str, shape: tuple[int, ...]) -> Callable[[Any], None]:
    external = [(SYSTEM_FILE, 0, h5py.h5f.UNLIMITED)]
    return lambda file: _dense(file, place, shape=shape, dtype="u1", external=external)


def _linked_elsewhere(place: str) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        del file[place]
        file[place] = h5py.ExternalLink("other.h5", "/X")

    return change


def _endless_entries(group: str) -> Callable[[Any], None]:
    """Entries that are declared and were never written."""

    def change(file: Any) -> None:
        for name in ("data", "indices"):
            kind = file[f"{group}/{name}"].dtype
            del file[f"{group}/{name}"]
            file.create_dataset(f"{group}/{name}", shape=(10**12,), dtype=kind, chunks=(10**6,))
        file[f"{group}/indptr"][-1] = (
            10**12 if file[f"{group}/indptr"].dtype.itemsize > 4 else 2**31 - 1
        )

    return change


# ---- klnmf's own files ---------------------------------------------------------------------------


def _with_header(kind: str, change: Callable[[Any], None]) -> Callable[[], Files]:
    """A good prepared folder with another header."""

    def make() -> Files:
        files = dict(seeds_of(kind)[0])
        header = json.loads(files["header.json"])
        change(header)
        return {**files, "header.json": json.dumps(header).encode()}

    return make


def _with_array(name: str, values: Callable[[Any], Any]) -> Callable[[], Files]:
    """A good prepared folder with other entries of one array, and the right checksum."""

    def make() -> Files:
        files = dict(seeds_of("prepared")[0])
        header = json.loads(files["header.json"])
        head, body = files[name][:128], files[name][128:]
        kind = head.split(b"'")[3].decode()
        files[name] = head + np.asarray(values(np.frombuffer(body, kind)), dtype=kind).tobytes()
        header["files"][name]["sha256"] = hashlib.sha256(files[name]).hexdigest()
        return {**files, "header.json": json.dumps(header).encode()}

    return make


def _deep_container(name: str) -> Callable[[], Files]:
    return lambda: {name: zipped([("header.json", DEEP)])}


_ODD: dict[str, dict[str, Callable[[], Files]]] = {
    "npz": {
        "csc with indices that lead out": lambda: _wild(b"csc", 50_000_000),
        "csc with negative indices": lambda: _wild(b"csc", -50_000_000),
        "csr with indices that lead out": lambda: _wild(b"csr", 50_000_000),
        "csc with ends that lead out": lambda: _lying(b"csc"),
        "csr with ends that lead out": lambda: _lying(b"csr"),
        "coo with indices that lead out": _wild_triplets,
    },
    "mtx": {
        "NUL after a number": _mtx(_MTX + b"1 1 1\x00\n2 1 1\n"),
        "decimal comma": _mtx(_MTX + b"1 1 1,5\n2 1 1\n"),
        "letters after a number": _mtx(_MTX + b"1 1 1ab\n2 1 1\n"),
        "huge size": _mtx(_MTX.replace(b"2 3", b"99999999999 99999999999") + b"1 1 1\n2 1 1\n"),
        "packed line of 3 GB": lambda: {"counts.mtx.gz": gzip.compress(_MTX) + _bomb(3)},
    },
    "10x": {"NUL after a number": lambda: _tenx(_MTX + b"1 1 1\x00\n2 1 1\n")},
    "csv": {"packed line of 3 GB": lambda: {"counts.csv.gz": _bomb(3)}},
    "uci": {
        "huge sizes": lambda: _uci(b"9" * 30 + b"\n" + b"9" * 30 + b"\n1\n1 1 1\n"),
        "size of 5000 digits": lambda: _uci(b"9" * 5000 + b"\n4\n1\n1 1 1\n"),
        "many documents": lambda: _uci(b"999999999999\n4\n1\n1 1 1\n"),
    },
    "jsonl": {
        "deep": lambda: {"counts.jsonl": DEEP},
        "deep text": lambda: {"counts.jsonl": b'{"text": ' + DEEP},
        "packed line of 3 GB": lambda: {"counts.jsonl.gz": _bomb(3)},
    },
    "parquet": {
        "repeated columns": lambda: _parquet(["a", "a"], [[1, 2], [3, 4]]),
        "no columns": lambda: _parquet([], []),
        "metadata that are a number": lambda: _parquet(["a"], [[-1]], {"pandas": "5"}),
        "metadata that are deep": lambda: _parquet(["a"], [[-1]], {"pandas": DEEP}),
        "times": lambda: _parquet(["a", "b"], [pa.array([1, 2], pa.timestamp("ns"))] * 2),
    },
    "h5ad": {
        "entries never written": _hdf5("h5ad", "counts.h5ad", _endless_entries("X")),
        "huge X never written": _hdf5("h5ad", "counts.h5ad", _unwritten("X", (10**9, 10**5))),
        "X in a system file": _hdf5("h5ad", "counts.h5ad", _stored_elsewhere("X", (3, 4))),
        "X in another file": _hdf5("h5ad", "counts.h5ad", _linked_elsewhere("X")),
    },
    "loom": {
        "huge matrix never written": _hdf5(
            "loom", "counts.loom", _unwritten("matrix", (10**9, 10**5))
        ),
        "matrix in a system file": _hdf5(
            "loom", "counts.loom", _stored_elsewhere("matrix", (4, 3))
        ),
        "matrix in another file": _hdf5("loom", "counts.loom", _linked_elsewhere("matrix")),
    },
    "10x-h5": {
        "entries never written": _hdf5("10x-h5", "counts.h5", _endless_entries("matrix")),
        "data in a system file": _hdf5(
            "10x-h5", "counts.h5", _stored_elsewhere("matrix/data", (4,))
        ),
        "data in another file": _hdf5("10x-h5", "counts.h5", _linked_elsewhere("matrix/data")),
    },
    "prepared": {
        "deep header": lambda: {**seeds_of("prepared")[0], "header.json": DEEP},
        "files that are a list": _with_header(
            "prepared", lambda h: h.update(files=list(h["files"]))
        ),
        "total of 400 digits": _with_header("prepared", lambda h: h.update(total=10**400)),
        "values that are not a number": _with_array("rows.values.npy", lambda v: v * np.nan),
        "indices that lead out": _with_array("rows.indices.npy", lambda v: v + 10**6),
    },
    "model": {"deep header": _deep_container("model.klnmf")},
    "fit-checkpoint": {"deep header": _deep_container("fit.checkpoint")},
    "rank-checkpoint": {"deep header": _deep_container("search.checkpoint")},
    "consensus-checkpoint": {"deep header": _deep_container("runs.checkpoint")},
    "consensus": {"deep header": _deep_container("consensus.klnmf")},
    "rank-selection": {"deep": lambda: {"ranks.json": DEEP}},
}
