"""Whether the files of a matrix hold what was written: read once, and then remembered.

A folder has a file ``verified.json`` with the state of each file when its checksum was last found
right. While the states are the same, the contents are: whoever writes to a file changes its times.
A copy has times of its own, and is read again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.data.on_disk.arrays import MappedArray
from klnmf.data.on_disk.layout import (
    HEADER,
    MODES,
    ROW_FILES,
    arrays_in,
    check_arrays,
    check_facts,
    sha256,
    write_json,
)
from klnmf.data.on_disk.measuring import measured_facts, row_sums
from klnmf.data.on_disk.views import Entries, MappedView, entries_of, open_view
from klnmf.data.validation import check_value_range
from klnmf.support.input_files import ReadError
from klnmf.support.untrusted_json import read_json

Array = npt.NDArray[Any]

STAMP = "verified.json"
# What is verified: a stamp of another number is from a version that verified something else.
VERIFIED = 2
# Entries that are looked at, at a time.
_ENTRIES = 1 << 20
# Sums may be rounded otherwise on another machine, and values were before they became float32.
_ROUNDING = 1e-6


def check_contents(folder: Path, header: dict[str, Any]) -> None:
    """Read every file: its checksum, and whether all of it is one matrix; remember the outcome.

    Checksums show what a disk or a copy has damaged. They do not show who wrote the files, and
    compiled code will follow what is in them.

    Raises
    ------
    ReadError
        With the name of the file that is damaged.
    """
    states = _states(folder, header)
    for name, about in header["files"].items():
        if sha256(folder / name) != about["sha256"]:
            raise _damaged(folder / name, "the file is not the one that was written (checksum)")
    facts = (tuple(header["shape"]), header["nonzeros"], np.dtype(header["dtype"]))
    views = [open_view(folder, mode, *facts) for mode in (0, 1)]
    keys = np.frombuffer(secrets.token_bytes(32), np.uint64) | np.uint64(1)
    checked = [_Checked(folder, mode, keys) for mode in (0, 1)]
    for view, entries in zip(views, checked, strict=True):
        entries.check(view)
        entries.check_sums(view)
    if checked[0].digest != checked[1].digest:
        raise _damaged(
            folder / "columns.indices.npy", "the columns do not have the entries of the rows"
        )
    _check_facts(folder, header, checked[0].facts | measured_facts(folder, views[0]))
    _check_range(folder, header)
    if states == _states(folder, header):
        remember(folder, header)


def check_rows(folder: Path, facts: dict[str, Any]) -> None:
    """Check the rows of a matrix that was half written, of which this is known.

    Raises
    ------
    ValueError, KeyError, TypeError
        If they are not the rows of such a matrix.
    """
    check_facts(facts)
    arrays = arrays_in(facts)
    check_arrays(folder, {name: arrays[name] for name in ROW_FILES})
    shape = tuple(facts["shape"])
    view = open_view(folder, 0, shape, facts["nonzeros"], np.dtype(facts["dtype"]))
    checked = _Checked(folder, 0, np.ones(4, np.uint64))
    checked.check(view)
    _check_facts(folder, facts, checked.facts)
    m = view.n_columns
    counts = np.zeros(m, dtype=np.int64)
    for entries in entries_of(view, _ENTRIES):
        counts += np.bincount(entries.columns, minlength=m)
    ends = MappedArray(folder / "columns.indptr.npy", "<i8", m + 1).read(0, m + 1)
    if ends[0] != 0 or not np.array_equal(np.diff(ends), counts):
        raise _damaged(folder / "columns.indptr.npy", "it is not that of the rows")


class _Checked:
    """Entries of one mode that make sense, and what they say of the matrix."""

    def __init__(self, folder: Path, mode: int, keys: Array) -> None:
        self.folder, self.mode, self.keys = folder, mode, keys
        self.digest = np.uint64(0)  # the same for the same entries in any order
        self.facts = {"smallest": np.inf, "largest": 0.0, "whole": True}

    def check(self, view: MappedView) -> None:
        """Go through all entries, some at a time."""
        check_indptr(self._file("indptr"), view)
        last = (-1, -1)
        for entries in entries_of(view, _ENTRIES):
            self._check_indices(entries, last, view.n_columns)
            self._check_values(entries.values)
            self._digest(entries)
            last = (int(entries.rows[-1]), int(entries.columns[-1]))
        if self.facts["smallest"] == np.inf:
            self.facts["smallest"] = 0.0  # of no entries
        self.facts["whole"] = self.facts["whole"] and self.facts["largest"] < 2**53

    def check_sums(self, view: MappedView) -> None:
        """Compare the sums of the rows with those that are stored."""
        sums = MappedArray(self._file("sums"), "<f8", view.n_rows).read(0, view.n_rows)
        if not np.allclose(sums, row_sums(view), rtol=_ROUNDING, atol=0):
            raise _damaged(self._file("sums"), "a sum is not that of the values")

    def _file(self, part: str) -> Path:
        return self.folder / f"{MODES[self.mode]}.{part}.npy"

    def _check_indices(self, entries: Entries, last: tuple[int, int], n_columns: int) -> None:
        rows, indices = entries.rows, entries.columns
        if indices.min() < 0 or indices.max() >= n_columns:
            problem = f"an index is not from 0 to {n_columns - 1:,}"
            raise _damaged(self._file("indices"), problem)
        rises = (indices[1:] > indices[:-1]) | (rows[1:] > rows[:-1])
        if not rises.all() or (int(rows[0]), int(indices[0])) <= last:
            raise _damaged(self._file("indices"), "the indices of a row do not rise")

    def _check_values(self, values: Array) -> None:
        smallest, largest = float(values.min()), float(values.max())
        if not (smallest > 0 and largest < np.inf):  # NaN neither
            raise _damaged(self._file("values"), "a value is not positive and finite")
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


def check_indptr(path: Path, view: MappedView) -> None:
    """Refuse places that lead out of the arrays: compiled code will follow them."""
    indptr, nnz = view.indptr, len(view.values)
    starts = range(0, len(indptr) - 1, _ENTRIES)
    rises = all((np.diff(indptr[s : s + _ENTRIES + 1]) >= 0).all() for s in starts)
    if indptr[0] != 0 or indptr[-1] != nnz or not rises:
        raise _damaged(path, f"it does not rise from 0 to the number of nonzeros, {nnz:,}")


def _check_facts(folder: Path, header: dict[str, Any], found: dict[str, Any]) -> None:
    """Compare what the header says of the values with what they are."""
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
            raise _damaged(folder / HEADER, f"{name} is {said}, and the values say {value}")


def _check_range(folder: Path, header: dict[str, Any]) -> None:
    """Refuse values that the arithmetic of a fit cannot hold."""
    smallest, largest, total = (float(header[name]) for name in ("smallest", "largest", "total"))
    try:
        check_value_range(smallest, largest, total, np.dtype(header["dtype"]))
    except ValueError as error:
        raise ReadError(folder / HEADER, str(error)) from error


def _damaged(path: Path, problem: str) -> ReadError:
    return ReadError(path, f"{problem}. Copy it again, or prepare the matrix again.")


def is_verified(folder: Path, header: dict[str, Any]) -> bool:
    """Whether the files are as they were when their contents were found right."""
    try:
        stamp = read_json(folder / STAMP)
    except (OSError, ValueError):
        return False
    return bool(stamp == _stamp(folder, header))


def remember(folder: Path, header: dict[str, Any]) -> None:
    """Write down that the contents are right; in a folder that is read-only, do not."""
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
    """Size and times of each file; nobody can set the last one, of any change, to what it was."""
    found = {name: os.stat(folder / name) for name in header["files"]}
    return {name: [s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in found.items()}
