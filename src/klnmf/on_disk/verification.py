"""Whether the files of a matrix hold what was written: read once, and then remembered.

A folder has a file ``verified.json`` with the state of each file when its checksum was last found
right. While the states are the same, the contents are: whoever writes to a file changes its times.
A copy has times of its own, and is read again.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.on_disk.layout import MODES, NPY_HEADER, arrays_of, chunks, write_json
from klnmf.readers.files import ReadError

STAMP = "verified.json"


def check_contents(folder: Path, header: dict[str, Any]) -> None:
    """Read every file: its checksum, and what compiled code will follow; remember the outcome.

    Raises
    ------
    ReadError
        With the name of the file that is damaged.
    """
    states = _states(folder, header)
    shape = tuple(header["shape"])
    arrays = arrays_of(shape, header["nonzeros"], np.dtype(header["dtype"]))
    for name, about in header["files"].items():
        dtype = arrays[name][0] if name in arrays else None
        checksum, problem, skipped = hashlib.sha256(), None, NPY_HEADER
        for piece in chunks(folder / name):
            checksum.update(piece)
            if problem is None and dtype is not None:
                problem = _problem(name, np.frombuffer(piece, dtype, offset=skipped), shape)
                skipped = 0
        if checksum.hexdigest() != about["sha256"]:
            problem = "the file is not the one that was written (checksum)"
        if problem is not None:
            raise ReadError(
                folder / name, f"{problem}. Copy it again, or prepare the matrix again."
            )
    if states == _states(folder, header):
        remember(folder, header)


def _problem(name: str, entries: npt.NDArray[Any], shape: tuple[int, ...]) -> str | None:
    """Say what is wrong with some entries of an array, or None."""
    mode, part, _ = name.split(".")
    if not len(entries):
        return None
    if part == "indices":
        n_columns = shape[1 - MODES.index(mode)]
        if entries.min() < 0 or entries.max() >= n_columns:
            return f"an index is not from 0 to {n_columns - 1:,}"
    if part == "values" and not (entries.min() > 0 and entries.max() < np.inf):
        return "a value is not positive and finite"
    return None


def is_verified(folder: Path, header: dict[str, Any]) -> bool:
    """Whether the files are as they were when their contents were found right."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
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
        "header": hashlib.sha256(text.encode()).hexdigest(),
        "states": _states(folder, header),
    }


def _states(folder: Path, header: dict[str, Any]) -> dict[str, list[int]]:
    """Size and times of each file; nobody can set the last one, of any change, to what it was."""
    found = {name: os.stat(folder / name) for name in header["files"]}
    return {name: [s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in found.items()}
