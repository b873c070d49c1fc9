"""The file format: a zip archive of a JSON header and uncompressed NumPy arrays.

docs/format.md describes it. Files may come from untrusted sources: no code in them is ever run, and
no more memory is allocated than the file has bytes.
"""

import hashlib
import io
import json
import math
import os
import struct
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.lib.format as npy

from klnmf.support.array_types import Array
from klnmf.support.npy_headers import read_npy_header
from klnmf.support.option_names import option
from klnmf.support.untrusted_json import parse_json
from klnmf.support.whole_files import writing

FORMAT = "klnmf"
VERSION = 1  # this version and all earlier ones can be read
HEADER = "header.json"
HEADER_LIMIT = 1 << 22  # bytes; long lists of names and numbers are stored as arrays
LONGEST_HEAD = 10_000  # of an array
CHUNK = 1 << 20
DTYPES = {"<f4", "<f8", "<i4", "<i8", "|u1"}

# Errors that the standard library may raise on damaged files.
DAMAGE = (
    zipfile.BadZipFile, EOFError, OSError, RuntimeError, ValueError, KeyError, IndexError,
    OverflowError, struct.error,
)  # fmt: skip


class SavedFileError(ValueError):
    """A file that is damaged, from a newer version, or of the wrong kind."""


@dataclass(frozen=True)
class Container:
    """The content of a file."""

    kind: str  # for example "model" or "checkpoint"
    content: dict[str, Any]  # JSON
    arrays: dict[str, Array]
    klnmf_version: str = version("klnmf")  # the version that wrote the file


# ---- writing -------------------------------------------------------------------------------------


def write_container(path: Path, container: Container) -> None:
    """Write a file; if that fails, an existing file stays as it was."""
    with writing(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        checksums = {
            name: {"sha256": _write_array(archive, name, array)}
            for name, array in container.arrays.items()
        }
        header = {
            "format": FORMAT,
            "version": VERSION,
            "kind": container.kind,
            "klnmf": container.klnmf_version,
            "arrays": checksums,
            "content": container.content,
        }
        encoded = json.dumps(header, allow_nan=False, indent=1).encode()
        if len(encoded) > HEADER_LIMIT:
            raise ValueError(
                f"The header of {path} would have {len(encoded):,} bytes; the limit is "
                f"{HEADER_LIMIT:,}. Store less metadata."
            )
        archive.writestr(_entry(HEADER), encoded)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # with a fixed date, so that equal content gives equal files
    entry.external_attr = 0o644 << 16
    return entry


def _write_array(archive: zipfile.ZipFile, name: str, array: Array) -> str:
    """Write one array; returns its checksum."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    if array.dtype.str not in DTYPES:
        raise TypeError(f"{name} has the type {array.dtype}, which cannot be saved.")
    is_large = array.nbytes > zipfile.ZIP64_LIMIT - LONGEST_HEAD
    head = io.BytesIO()
    npy.write_array_header_1_0(head, npy.header_data_from_array_1_0(array))
    entries = array.reshape(-1).view(np.uint8).data
    with archive.open(_entry(f"{name}.npy"), "w", force_zip64=is_large) as stream:
        stream.write(head.getvalue())
        stream.write(entries)
    return _checksum(head.getvalue(), entries)


def _checksum(head: bytes, entries: Any) -> str:
    """Return the checksum of a member."""
    checksum = hashlib.sha256(head)
    checksum.update(entries)
    return checksum.hexdigest()


# ---- reading -------------------------------------------------------------------------------------


def read_container(path: Path, kind: str) -> Container:
    """Read a file of one kind, or raise a SavedFileError, or an OSError if it cannot be opened."""
    if path.exists() and not path.is_file():
        raise SavedFileError(f"{path} is not a file.")
    with path.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                return _read(archive, os.fstat(stream.fileno()).st_size, kind)
        except SavedFileError as error:
            raise SavedFileError(f"{path} cannot be read: {error}") from None
        except DAMAGE as error:
            raise SavedFileError(
                f"{path} is not a file saved by klnmf, or it is damaged ({error})."
            ) from error


def kind_of(path: Path) -> str | None:
    """Kind of a file saved by klnmf, from its header alone; None for any other file."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            return str(_read_header(archive, entries).get("kind"))
    except DAMAGE:
        return None


def _read(archive: zipfile.ZipFile, size: int, kind: str) -> Container:
    entries = {entry.filename: entry for entry in archive.infolist()}
    header = _read_header(archive, entries)
    _check_sizes(archive, size)
    if header.get("kind") != kind:
        raise SavedFileError(_wrong_kind(header.get("kind"), kind))
    arrays, content, writer = (header.get(name) for name in ("arrays", "content", "klnmf"))
    if not (isinstance(arrays, dict) and isinstance(content, dict) and isinstance(writer, str)):
        raise SavedFileError("its header does not have arrays, content or the version of klnmf.")
    if {f"{name}.npy" for name in arrays} | {HEADER} != set(entries):
        raise SavedFileError("its arrays are not those that its header lists.")
    loaded = {}
    for name, about in arrays.items():
        array, checksum = _read_array(archive, entries[f"{name}.npy"])
        if not isinstance(about, dict) or about.get("sha256") != checksum:
            raise SavedFileError(f"the checksum of the array {name!r} is wrong.")
        loaded[name] = array
    return Container(kind, content, loaded, writer)


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse compressed members, and members that claim more bytes than the file has."""
    entries = archive.infolist()
    for entry in entries:
        _check_stored(entry)
    claimed = sum(entry.file_size for entry in entries)
    if claimed > size:
        raise SavedFileError(f"its members claim {claimed:,} bytes, but it has {size:,}.")
    if len({entry.filename for entry in entries}) < len(entries):
        raise SavedFileError("two of its members have the same name.")


def _check_stored(entry: zipfile.ZipInfo) -> None:
    is_stored = entry.compress_type == zipfile.ZIP_STORED and entry.flag_bits & 1 == 0
    if not is_stored or entry.compress_size != entry.file_size:
        raise SavedFileError(f"its member {entry.filename!r} is compressed or encrypted.")


def _read_header(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> dict[str, Any]:
    if HEADER not in entries or entries[HEADER].file_size > HEADER_LIMIT:
        raise SavedFileError(f"it has no {HEADER} of at most {HEADER_LIMIT:,} bytes.")
    _check_stored(entries[HEADER])
    header = parse_json(archive.read(HEADER), parse_constant=_refuse_constant)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise SavedFileError(f"its {HEADER} is not that of a klnmf file.")
    number = header.get("version")
    if type(number) is not int or number < 1:
        raise SavedFileError(f"its format version {number!r} is invalid.")
    if number > VERSION:
        raise SavedFileError(
            f"it has format version {number} (written by klnmf {header.get('klnmf')}). klnmf "
            f"{version('klnmf')} reads versions up to {VERSION}. Install a newer klnmf."
        )
    return header


def _refuse_constant(name: str) -> None:
    raise SavedFileError(f"its {HEADER} has {name}, which is not JSON.")


def _wrong_kind(found: Any, wanted: str) -> str:
    if found == "checkpoint":
        return (
            "it is the checkpoint of an interrupted fit, not a model. To resume the fit, use the "
            f"same data and parameters with {option('checkpoint', 'PATH')}."
        )
    return f"it holds a {found!r}, not a {wanted!r}."


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[Array, str]:
    """Read an array of the size of its member, and its checksum."""
    with archive.open(entry) as stream:
        dtype, shape, is_fortran = read_npy_header(stream)
        if dtype.str not in DTYPES or is_fortran:
            raise SavedFileError(f"{entry.filename} has a type or order that klnmf does not read.")
        n_read, n_bytes = stream.tell(), math.prod(shape) * dtype.itemsize
        if n_read + n_bytes != entry.file_size:
            raise SavedFileError(
                f"{entry.filename} claims the shape {shape}, {n_bytes:,} bytes, but has "
                f"{entry.file_size - n_read:,}."
            )
        stream.seek(0)
        head = stream.read(n_read)
        array = np.empty(shape, dtype)
        target = array.reshape(-1).view(np.uint8).data
        for start in range(0, n_bytes, CHUNK):
            piece = target[start : start + CHUNK]
            piece[:] = stream.read(len(piece))  # an error if there are fewer
    native = array.astype(dtype.newbyteorder("="), copy=False)
    return native, _checksum(head, target)
