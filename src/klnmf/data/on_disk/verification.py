"""Whether the files of a matrix hold what was written: read once, and then recorded.

The file ``verified.json`` in the folder has the state of each file when its checksum was last
right. While the states are the same, so are the contents: writing to a file changes its times.
A copy has other times, and is read again.
"""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from klnmf.data.canonical import Entries
from klnmf.data.on_disk.layout import MODES, damaged, sha256, write_json
from klnmf.data.on_disk.views import MappedRows, open_rows
from klnmf.data.validation import VALUE_RANGE
from klnmf.support.untrusted_json import read_json

STAMP = "verified.json"
# A stamp with another number is from a version that verified something else.
VERIFIED = 2
_ENTRIES = 1 << 20  # that are checked at a time


def check_contents(folder: Path, header: dict[str, Any]) -> None:
    """Read every file: its checksum, indices and values; record the outcome.

    Checksums show damage by a disk or a copy. They do not show who wrote the files, and compiled
    code will follow the indices in them. A ReadError names the file that is damaged.
    """
    states = _states(folder, header)
    for name, about in header["files"].items():
        if sha256(folder / name) != about["sha256"]:
            raise damaged(folder / name, "the file has changed since it was written (checksum)")
    for mode, name in enumerate(MODES):
        _check_entries(folder, name, open_rows(folder, mode, header))
    if states == _states(folder, header):
        remember(folder, header)


def _check_entries(folder: Path, mode: str, stored: MappedRows) -> None:
    """Check all entries of one mode, some at a time."""
    last = (-1, -1)
    for entries in stored.entries(_ENTRIES):
        _check_indices(folder / f"{mode}.indices.npy", entries, last, stored.n_columns)
        smallest, largest = entries.values.min(), entries.values.max()
        low, high = VALUE_RANGE[entries.values.dtype.name]
        if not (smallest >= low and largest <= high):  # NaN neither
            wanted = f"a value is not from {low:g} to {high:g}"
            raise damaged(folder / f"{mode}.values.npy", wanted)
        last = (int(entries.rows[-1]), int(entries.columns[-1]))


def _check_indices(path: Path, entries: Entries, last: tuple[int, int], n_columns: int) -> None:
    rows, indices = entries.rows, entries.columns
    if indices.min() < 0 or indices.max() >= n_columns:
        raise damaged(path, f"an index is not from 0 to {n_columns - 1:,}")
    rises = (indices[1:] > indices[:-1]) | (rows[1:] > rows[:-1])
    if not rises.all() or (int(rows[0]), int(indices[0])) <= last:
        raise damaged(path, "the indices of a row do not rise")


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
