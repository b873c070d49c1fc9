"""Groups and arrays of an HDF5 file, each checked as it is fetched.

A file from elsewhere may say anything: that an array has 1e12 entries, that a matrix is a text, or
that its numbers are in another file. Formats see an HDF5 file through these classes alone, and
whatever is wrong with it becomes a `ReadError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.readers.hdf5_heaps import check_heaps
from klnmf.support.caching import cached_property
from klnmf.support.input_files import ReadError, check_unpacked
from klnmf.support.optional_packages import require

# An array may be this large whatever the file holds: what was never written reads as zeros.
_SMALL = 1 << 26
# The most that gzip packs into a byte, and a little.
_BEST_COMPRESSION = 1100
# Nonzeros that a file may have whatever it holds, and the most that it packs into a byte: counts
# and their places are not as even as zeros are.
_FEW_NONZEROS = 1 << 24
_NONZEROS_PER_BYTE = 100
# HDF5 holds a chunk in memory as a whole.
_LARGEST_CHUNK = 1 << 30
# Strings that are read at a time. Many may share one place in the file, so that the length of all
# of them is checked after each block.
_STRINGS = 256
_SOFT_LINKS = 8
# What h5py raises for files that are damaged.
_DAMAGED = (OSError, RuntimeError, ValueError, TypeError, LookupError, OverflowError)


@contextmanager
def opened(path: Path) -> Iterator[Group]:
    """HDF5 file, for reading."""
    h5py = require("h5py", f"Reading {path.suffix} files")
    try:
        file = h5py.File(path, "r")
    except _DAMAGED as error:
        raise ReadError(path, f"this is not an HDF5 file, or it is cut off: {error}") from error
    with file:
        try:
            check_heaps(path, file.id.get_create_plist().get_sizes()[1])
            yield Group(path, "", file)
        except ReadError:
            raise
        except _DAMAGED as error:
            raise ReadError(path, f"the HDF5 file is damaged: {error}") from error


class _Item:
    """What groups and arrays have in common: a place in a file, and attributes."""

    def __init__(self, path: Path, place: str, found: Any) -> None:
        self.path, self.place, self._found = path, place, found

    def refuse(self, problem: str) -> ReadError:
        """Return an error about this place of the file."""
        return ReadError(self.path, f"{self.place or 'the file'} {problem}")

    def text(self, attribute: str) -> str | None:
        """Return an attribute that must be a string, or None if it is absent."""
        value = self._attribute(attribute)
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if value is not None and not isinstance(value, str):
            raise self.refuse(f"has an attribute {attribute!r} that is not a text.")
        return value

    def shape_in(self, attribute: str) -> tuple[int, int] | None:
        """Return an attribute that holds numbers of rows and columns, or None if it is absent."""
        value = self._attribute(attribute)
        if value is None:
            return None
        sizes = np.asarray(value)
        if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or (sizes < 0).any():
            raise self.refuse(f"has an attribute {attribute!r} that is not rows and columns.")
        return int(sizes[0]), int(sizes[1])

    def _attribute(self, name: str) -> Any:
        attributes = self._found.attrs
        if name not in attributes:
            return None
        shape = attributes.get_id(name).shape
        if shape is None or math.prod(shape) > 2:
            raise self.refuse(f"has an attribute {name!r} of the shape {shape}.")
        return attributes[name]


class Group(_Item):
    """Group of an HDF5 file."""

    def names(self) -> list[str]:
        """Names of what is in it."""
        return list(self._found)

    def __contains__(self, name: str) -> bool:
        """Whether there is anything of this name; AnnData stores None as an array without shape."""
        return _has(self._found, name) and not _is_null(self._found, name)

    def item(self, name: str) -> Group | StoredArray:
        """Fetch what has this name; it must lie in this file."""
        h5py = require("h5py", "Reading HDF5 files")
        place = f"{self.place}/{name}" if self.place else name
        found = self._followed(name)
        if isinstance(found, h5py.Dataset):
            return StoredArray(self.path, place, found)
        if isinstance(found, h5py.Group):
            return Group(self.path, place, found)
        raise ReadError(self.path, f"{place} is neither an array nor a group.")

    def group(self, name: str) -> Group:
        """Fetch a group."""
        found = self.item(name)
        if not isinstance(found, Group):
            raise found.refuse("is an array where a group was expected.")
        return found

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> StoredArray:
        """Fetch an array, of this shape or else as large as what is stored of it may be."""
        found = self.item(name)
        if not isinstance(found, StoredArray):
            raise found.refuse("is a group where an array was expected.")
        if shape is None:
            found.check_stored()
        elif found.shape != shape:
            raise found.refuse(f"has the shape {found.shape}; expected {shape}.")
        return found

    def _followed(self, name: str) -> Any:
        """Item behind hard and soft links; what leads to another file is refused."""
        h5py = require("h5py", "Reading HDF5 files")
        parent, parts, n_links = self._found, name.split("/"), 0
        while parts:
            part = parts.pop(0)
            where = f"{parent.name}/{part}".strip("/")
            if not isinstance(parent, h5py.Group) or not _has(parent, part):
                raise ReadError(self.path, f"it has no {where!r}.")
            link = parent.get(part, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                other = f"another file ({link.filename})"
                problem = f"{where} is a link to {other}, which is not followed."
                raise ReadError(self.path, f"{problem} Copy the data into this file.")
            if not isinstance(link, h5py.SoftLink):
                parent = parent[part]
                continue
            n_links += 1
            if n_links > _SOFT_LINKS:
                raise ReadError(self.path, f"{where} is a link that leads nowhere.")
            parent = parent.file if link.path.startswith("/") else parent
            parts = [p for p in link.path.split("/") if p not in ("", ".")] + parts
        return parent


class StoredArray(_Item):
    """Data set of an HDF5 file; a slice of it is read when it is asked for."""

    def __init__(self, path: Path, place: str, found: Any) -> None:
        super().__init__(path, place, found)
        if found.shape is None:
            raise self.refuse("holds nothing.")
        self._check_is_here()

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, as the file says."""
        return tuple(int(size) for size in self._found.shape)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        dtype: np.dtype[Any] = self._found.dtype
        return dtype

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of the pieces that can be read without touching others."""
        return tuple(self._found.chunks or (1,) * len(self.shape))

    @cached_property
    def stored(self) -> int:
        """Bytes that it takes in the file."""
        return min(int(self._found.id.get_storage_size()), self.path.stat().st_size)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places: Any) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self._found[places]
        return found

    def numbers(self, kinds: str = "biuf") -> npt.NDArray[Any]:
        """All of it: numbers of these kinds, in one dimension."""
        self.check_numbers(1, kinds)
        return self[:]

    def check_numbers(self, n_dimensions: int, kinds: str = "biuf") -> None:
        """Refuse anything but numbers of these kinds with this number of dimensions."""
        if self.dtype.kind not in kinds:
            wanted = "numbers" if "f" in kinds else "whole numbers"
            raise self.refuse(f"holds entries of the type {self.dtype}; expected {wanted}.")
        if len(self.shape) != n_dimensions:
            raise self.refuse(f"has the shape {self.shape}; expected {n_dimensions} dimensions.")

    def strings(self) -> list[str]:
        """All of it as names; of a table, the first column."""
        source, dtype = self._found, self.dtype
        if dtype.names is not None:
            source, dtype = source.fields(dtype.names[0]), dtype[0]
        h5py = require("h5py", "Reading HDF5 files")
        kind = h5py.check_string_dtype(dtype)
        if dtype.kind not in "biufS" and kind is None:
            raise self.refuse(f"holds entries of the type {dtype}; expected names.")
        self.check_list()
        n_bytes = self.path.stat().st_size
        if dtype.kind == "S":
            check_unpacked(self.path, n_bytes, len(self) * dtype.itemsize)
        room = n_bytes if dtype.kind == "O" else math.inf
        names: list[str] = []
        for start in range(0, len(self), _STRINGS):
            block = [_text(value) for value in source[start : start + _STRINGS]]
            room -= sum(map(len, block))
            if room < 0:
                raise self.refuse("holds more text than the whole file: the file is damaged.")
            names += block
        return names

    def check_list(self) -> None:
        """Refuse anything but a list with one entry for a sample or feature."""
        if len(self.shape) != 1:
            raise self.refuse(f"has the shape {self.shape}; expected a list.")
        # Every sample and feature has a name and a place in the matrix, which take some bytes.
        if len(self) > self.path.stat().st_size:
            raise self.refuse(
                f"claims {len(self):,} entries, more than the file has bytes: the file is "
                "incomplete or damaged."
            )

    def check_stored(self) -> None:
        """Refuse an array that is far larger than what is stored of it can be."""
        size = math.prod(max(1, n) for n in self.shape) * self.dtype.itemsize
        if size > max(_SMALL, _BEST_COMPRESSION * self.stored):
            shape = " × ".join(f"{n:,}" for n in self.shape)
            raise self.refuse(
                f"claims {shape} entries ({size:,} bytes), but {self.stored:,} bytes are stored: "
                "the file is incomplete or damaged."
            )

    def _check_is_here(self) -> None:
        """Refuse entries that are in other files, and those that nothing here can unpack."""
        h5z = require("h5py", "Reading HDF5 files").h5z
        creation = self._found.id.get_create_plist()
        if creation.get_external_count() or self._found.is_virtual:
            raise self.refuse(
                "is stored in other files, which are not read. Copy the data into this file."
            )
        for number in range(creation.get_nfilters()):
            code, _, _, name = creation.get_filter(number)
            if not h5z.filter_avail(code):
                label = name.decode("utf-8", "replace") or "without a name"
                raise self.refuse(
                    f"is compressed by the HDF5 filter {code} ({label}), which is not installed. "
                    "If the package hdf5plugin has it, import hdf5plugin first; or write the file "
                    "again with gzip."
                )
        if self._found.chunks is not None:
            chunk = math.prod(self._found.chunks) * self.dtype.itemsize
            if chunk > _LARGEST_CHUNK:
                raise self.refuse(
                    f"is stored in pieces of {chunk:,} bytes; up to {_LARGEST_CHUNK:,} are read. "
                    "Write the file again with smaller chunks."
                )


def check_nonzeros(number: int, *arrays: StoredArray) -> None:
    """Refuse more nonzeros than these arrays can hold in the bytes that are stored."""
    stored = sum(array.stored for array in arrays)
    if number > max(_FEW_NONZEROS, _NONZEROS_PER_BYTE * stored):
        raise arrays[0].refuse(
            f"has at least {number:,} nonzeros, but {stored:,} bytes are stored: the file is "
            "incomplete or damaged."
        )


def _has(group: Any, name: str) -> bool:
    """Whether a group has a link of this name, wherever that leads; "." is the group itself."""
    return name not in ("", ".") and name in group


def _is_null(group: Any, name: str) -> bool:
    h5py = require("h5py", "Reading HDF5 files")
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        return False  # where it leads is looked at when it is fetched
    found = group[name]
    return isinstance(found, h5py.Dataset) and found.shape is None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
