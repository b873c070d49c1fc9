"""The folder of a prepared matrix: its files, its header, and quick checks; see docs/format.md."""

import hashlib
import json
import re
import sys
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError
from klnmf.support.npy_headers import VECTOR_HEADER, vector_header
from klnmf.support.option_names import option
from klnmf.support.untrusted_json import read_json
from klnmf.support.whole_files import writing

FORMAT = "klnmf-matrix"
VERSION = 1
HEADER = "header.json"
HEADER_LIMIT = 1 << 20
MODES = ("rows", "columns")
INDEX = np.dtype("<i4")  # of rows and columns; larger matrices cannot be fitted
NAME_FILES = {
    "row_names": "row_names.txt",
    "column_names": "column_names.txt",
    "labels": "labels.txt",
}


def arrays_of(facts: dict[str, Any]) -> dict[str, tuple[np.dtype[Any], int]]:
    """Type and length of each array, by the name of its file, from the facts about a matrix."""
    shape, nonzeros, dtype = facts["shape"], facts["nonzeros"], np.dtype(facts["dtype"])
    arrays: dict[str, tuple[np.dtype[Any], int]] = {}
    for mode, name in enumerate(MODES):
        arrays[f"{name}.indptr.npy"] = (np.dtype("<i8"), shape[mode] + 1)
        arrays[f"{name}.indices.npy"] = (INDEX, nonzeros)
        arrays[f"{name}.values.npy"] = (dtype, nonzeros)
        arrays[f"{name}.sums.npy"] = (np.dtype("<f8"), shape[mode])
    return arrays


def sha256(path: Path) -> str:
    """Checksum of a whole file, as the command ``sha256sum`` prints it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a small file, whole or not at all."""
    with writing(path, "w") as stream:
        json.dump(content, stream, indent=1, allow_nan=False)


def is_prepared(path: Path) -> bool:
    """Whether this looks like the folder of a prepared matrix."""
    try:
        header = read_json(path / HEADER, HEADER_LIMIT)
    except (OSError, ValueError):
        return False
    return isinstance(header, dict) and header.get("format") == FORMAT


def read_header(folder: Path) -> dict[str, Any]:
    """Header of a prepared matrix; a ReadError if it is missing, damaged or of a newer version."""
    path = folder / HEADER
    if not path.is_file():
        hint = ""
        if folder.with_name(f"{folder.name}.partial").is_dir() and not folder.exists():
            hint = f" {folder.name}.partial exists: `klnmf prepare` was interrupted, run it again."
        problem = f"this folder was not written by `klnmf prepare`: it has no {HEADER}.{hint}"
        raise ReadError(folder, problem)
    try:
        header = read_json(path, HEADER_LIMIT)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        number = header["version"]
        if type(number) is not int or number < 1:
            raise ValueError(f"its version is {number!r}")
        if number > VERSION:
            problem = f"version {number} of the format; this klnmf reads versions up to {VERSION}."
            way_out = "Install a newer klnmf, or prepare the matrix again."
            raise ReadError(path, f"{problem} {way_out}")
        _check_fields(header)
    except ReadError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        problem = f"the header is damaged ({error}). Prepare the matrix again."
        raise ReadError(path, problem) from error
    return header


def damaged(path: Path, problem: str) -> ReadError:
    """Return the error of a file that does not hold what was written."""
    return ReadError(path, f"{problem}. Copy it again, or prepare the matrix again.")


def _check_fields(header: dict[str, Any]) -> None:
    """Check the types of what the header says."""
    n, m = header["shape"]
    sizes = [n, m, header["nonzeros"]]
    if any(type(size) is not int or size < 0 for size in sizes) or not n or not m:
        raise ValueError("shape or nonzeros are not sizes")
    if header["dtype"] not in ("<f4", "<f8"):
        raise ValueError(f"dtype is {header['dtype']!r}")
    for name in ("total", "divergence_constant", "checksum"):
        if type(header[name]) not in (int, float) or not abs(header[name]) <= sys.float_info.max:
            raise ValueError(f"{name} is not a finite number")
    for name in ("whole", "open_features", "exact_in_float32"):
        if type(header[name]) is not bool:
            raise ValueError(f"{name} is neither true nor false")
    arrays = arrays_of(header)
    possible = {*arrays, *NAME_FILES.values()}
    if type(header["files"]) is not dict or not set(arrays) <= set(header["files"]) <= possible:
        raise ValueError("it does not list the files of a matrix")
    for about in header["files"].values():
        if type(about["bytes"]) is not int or type(about["sha256"]) is not str:
            raise ValueError("a file has no size or checksum")


def check_files(folder: Path, header: dict[str, Any]) -> None:
    """Check size and beginning of each file against the header, in no time for any size."""
    for name, about in header["files"].items():
        path = folder / name
        if not path.is_file():
            raise ReadError(path, "this file of the matrix is missing. Prepare the matrix again.")
        found = path.stat().st_size
        if found != about["bytes"]:
            cut = "cut off" if found < about["bytes"] else "too long"
            problem = f"the file is {cut}: {found:,} bytes, but the header says {about['bytes']:,}"
            raise damaged(path, problem)
    for name, (dtype, length) in arrays_of(header).items():
        with (folder / name).open("rb") as stream:
            start, found = stream.read(VECTOR_HEADER), header["files"][name]["bytes"]
        if start != vector_header(dtype, length) or found != len(start) + length * dtype.itemsize:
            problem = f"it is not an array of {length:,} numbers of the type {dtype.name}"
            way_out = "Prepare the matrix again."
            raise ReadError(folder / name, f"{problem}, as the header says. {way_out}")


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_bytes(size: str | int, *, least: int = 1 << 20) -> int:
    """Return a number of bytes, given as a whole number or with a unit: "512M", "2G", "1.5 GB".

    >>> parse_bytes("2G") == 2 * 1024**3
    True
    >>> parse_bytes("512 MB")
    536870912
    """
    is_size = isinstance(size, str | Integral) and not isinstance(size, bool)
    text = str(size).upper() if is_size else ""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", text)
    if found is None:
        raise ValueError(
            f"{option('memory')} must be a number of bytes, or a size such as '2G'; got "
            f"{described(size)}."
        )
    number = int(float(found[1]) * _UNITS[found[2]])
    if number < least:
        raise ValueError(
            f"{option('memory')} must be at least {least:,} bytes; got {described(size)}."
        )
    return number
