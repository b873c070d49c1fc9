"""Whether the files of a matrix hold what was written: read once, and then recorded.

The file ``verified.json`` in the folder has the state of each file when its checksum was last
right. While the states are the same, so are the contents: writing to a file changes its times.
A copy has other times, and is read again.
"""

import hashlib
import json
import os
import secrets
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.data.on_disk.arrays import MappedArray
from klnmf.data.on_disk.layout import (
    HEADER,
    MODES,
    NPY_HEADER,
    ROW_FILES,
    arrays_of,
    check_arrays,
    check_facts,
    damaged,
    sha256,
    write_json,
)
from klnmf.data.on_disk.views import Entries, MappedRows, open_rows
from klnmf.data.passes import is_exact_in_float32
from klnmf.data.sums import DivergenceConstant, blocked_sum
from klnmf.data.validation import check_value_range
from klnmf.support.array_types import Array
from klnmf.support.input_files import ReadError
from klnmf.support.untrusted_json import read_json

STAMP = "verified.json"
# A stamp with another number is from a version that verified something else.
VERIFIED = 2
_ENTRIES = 1 << 20  # that are checked at a time
_CHUNK = 1 << 22  # bytes that are read at a time
# Sums may be rounded differently on another machine, and were taken before values became float32.
_ROUNDING = 1e-6


def check_contents(folder: Path, header: dict[str, Any]) -> None:
    """Read every file: its checksum, and whether all files are one matrix; record the outcome.

    Checksums show damage by a disk or a copy. They do not show who wrote the files, and compiled
    code will follow the indices in them. A ReadError names the file that is damaged.
    """
    states = _states(folder, header)
    for name, about in header["files"].items():
        if sha256(folder / name) != about["sha256"]:
            raise damaged(folder / name, "the file has changed since it was written (checksum)")
    modes = [open_rows(folder, mode, header) for mode in (0, 1)]
    keys = np.frombuffer(secrets.token_bytes(32), np.uint64) | np.uint64(1)
    checked = [_Checked(folder, mode, keys) for mode in (0, 1)]
    for stored, entries in zip(modes, checked, strict=True):
        entries.check(stored)
        entries.check_sums(stored)
    if checked[0].digest != checked[1].digest:
        problem = "the columns do not have the entries of the rows"
        raise damaged(folder / "columns.indices.npy", problem)
    _check_facts(folder, header, checked[0].facts | measured_facts(folder, modes[0]))
    _check_range(folder, header)
    if states == _states(folder, header):
        remember(folder, header)


def check_rows(folder: Path, facts: dict[str, Any]) -> None:
    """Check the rows of a matrix that was half written, against the facts about it."""
    check_facts(facts)
    arrays = arrays_of(facts)
    check_arrays(folder, {name: arrays[name] for name in ROW_FILES})
    stored = open_rows(folder, 0, facts)
    checked = _Checked(folder, 0, np.ones(4, np.uint64))
    checked.check(stored)
    _check_facts(folder, facts, checked.facts)
    m = stored.n_columns
    counts = np.zeros(m, dtype=np.int64)
    for entries in stored.entries(_ENTRIES):
        counts += np.bincount(entries.columns, minlength=m)
    ends = MappedArray(folder / "columns.indptr.npy", "<i8", m + 1).read(0, m + 1)
    if ends[0] != 0 or not np.array_equal(np.diff(ends), counts):
        raise damaged(folder / "columns.indptr.npy", "it does not belong to the rows")


class _Checked:
    """Checks of the entries of one mode, and facts about them."""

    def __init__(self, folder: Path, mode: int, keys: Array) -> None:
        self.folder, self.mode, self.keys = folder, mode, keys
        self.digest = np.uint64(0)  # the same for the same entries in any order
        self.facts = {"smallest": np.inf, "largest": 0.0, "whole": True}

    def check(self, stored: MappedRows) -> None:
        """Check all entries, some at a time."""
        check_indptr(self._file("indptr"), stored)
        last = (-1, -1)
        for entries in stored.entries(_ENTRIES):
            self._check_indices(entries, last, stored.n_columns)
            self._check_values(entries.values)
            self._digest(entries)
            last = (int(entries.rows[-1]), int(entries.columns[-1]))
        if self.facts["smallest"] == np.inf:
            self.facts["smallest"] = 0.0  # of no entries
        self.facts["whole"] = self.facts["whole"] and self.facts["largest"] < 2**53

    def check_sums(self, stored: MappedRows) -> None:
        """Compare the sums of the rows with those that are stored."""
        sums = MappedArray(self._file("sums"), "<f8", stored.n_rows).read(0, stored.n_rows)
        if not np.allclose(sums, stored.row_sums(), rtol=_ROUNDING, atol=0):
            raise damaged(self._file("sums"), "a sum differs from that of the values")

    def _file(self, part: str) -> Path:
        return self.folder / f"{MODES[self.mode]}.{part}.npy"

    def _check_indices(self, entries: Entries, last: tuple[int, int], n_columns: int) -> None:
        rows, indices = entries.rows, entries.columns
        if indices.min() < 0 or indices.max() >= n_columns:
            raise damaged(self._file("indices"), f"an index is not from 0 to {n_columns - 1:,}")
        rises = (indices[1:] > indices[:-1]) | (rows[1:] > rows[:-1])
        if not rises.all() or (int(rows[0]), int(indices[0])) <= last:
            raise damaged(self._file("indices"), "the indices of a row do not rise")

    def _check_values(self, values: Array) -> None:
        smallest, largest = float(values.min()), float(values.max())
        if not (smallest > 0 and largest < np.inf):  # NaN neither
            raise damaged(self._file("values"), "a value is not positive and finite")
        self.facts = {
            "smallest": min(self.facts["smallest"], smallest),
            "largest": max(self.facts["largest"], largest),
            "whole": self.facts["whole"] and bool((values == np.rint(values)).all()),
        }

    def _digest(self, entries: Entries) -> None:
        places = (entries.rows, entries.columns)
        rows, columns = places if self.mode == 0 else places[::-1]
        bits = entries.values.view(f"<u{entries.values.itemsize}")
        mixed = rows.astype(np.uint64) * self.keys[0]
        mixed += columns.astype(np.uint64) * self.keys[1]
        mixed += bits.astype(np.uint64) * self.keys[2]
        mixed ^= mixed >> np.uint64(32)
        mixed *= self.keys[3]
        mixed ^= mixed >> np.uint64(29)
        self.digest = np.add(self.digest, mixed.sum(dtype=np.uint64), dtype=np.uint64)


def check_indptr(path: Path, stored: MappedRows) -> None:
    """Refuse offsets outside the arrays: compiled code will follow them."""
    indptr, nnz = stored.indptr, stored.nnz
    starts = range(0, len(indptr) - 1, _ENTRIES)
    rises = all((np.diff(indptr[s : s + _ENTRIES + 1]) >= 0).all() for s in starts)
    if indptr[0] != 0 or indptr[-1] != nnz or not rises:
        raise damaged(path, f"it does not rise from 0 to the number of nonzeros, {nnz:,}")


def measured_facts(folder: Path, stored: MappedRows) -> dict[str, Any]:
    """Return what a header says about the values, by the code that measures them in memory."""
    constant, is_exact = DivergenceConstant(), stored.values.dtype == np.float64
    for start in range(0, stored.nnz, _ENTRIES):
        values = stored.values.read(start, min(start + _ENTRIES, stored.nnz))
        constant.add(values)
        is_exact = is_exact and is_exact_in_float32(values)
    checksum = 0  # of the same matrix in memory, see CountData.fingerprint
    for part in ("indptr", "indices", "values"):
        with (folder / f"{MODES[0]}.{part}.npy").open("rb") as stream:
            stream.seek(NPY_HEADER)
            while piece := stream.read(_CHUNK):
                checksum = zlib.crc32(piece, checksum)
    return {
        "total": blocked_sum(stored.row_sums()),
        "divergence_constant": constant.total,
        "exact_in_float32": is_exact,
        "checksum": checksum,
    }


def _check_facts(folder: Path, header: dict[str, Any], found: dict[str, Any]) -> None:
    """Compare what the header says about the values with the values."""
    for name, value in found.items():
        said = header[name]
        if name == "whole":
            is_right = value or not said  # some were not before they became float32
        elif isinstance(value, float):
            # The constant is a sum in which terms cancel each other.
            size = found["total"] if name == "divergence_constant" else value
            is_right = abs(said - value) <= _ROUNDING * size
        else:
            is_right = said == value
        if not is_right:
            raise damaged(folder / HEADER, f"{name} is {said}, but the values say {value}")


def _check_range(folder: Path, header: dict[str, Any]) -> None:
    """Refuse values that the arithmetic of a fit cannot hold."""
    smallest, largest, total = (float(header[name]) for name in ("smallest", "largest", "total"))
    try:
        check_value_range(smallest, largest, total, np.dtype(header["dtype"]))
    except ValueError as error:
        raise ReadError(folder / HEADER, str(error)) from error


def is_verified(folder: Path, header: dict[str, Any]) -> bool:
    """Whether the files have not changed since their contents were verified."""
    try:
        stamp = read_json(folder / STAMP)
    except (OSError, ValueError):
        return False
    return bool(stamp == _stamp(folder, header))


def remember(folder: Path, header: dict[str, Any]) -> None:
    """Record that the contents are right, unless the folder is read-only."""
    with suppress(OSError):
        write_json(folder / STAMP, _stamp(folder, header))


def _stamp(folder: Path, header: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(header, sort_keys=True)
    return {
        "verified": VERIFIED,
        "header": hashlib.sha256(text.encode()).hexdigest(),
        "states": _states(folder, header),
    }


def _states(folder: Path, header: dict[str, Any]) -> dict[str, list[int]]:
    """Size and times of each file; the time of the last change cannot be set back."""
    found = {name: os.stat(folder / name) for name in header["files"]}
    return {name: [s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in found.items()}
