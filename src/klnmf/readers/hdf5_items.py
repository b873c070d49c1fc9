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

from klnmf.support.caching import cached_property
from klnmf.support.descriptions import sizes_in_words
from klnmf.support.input_files import ReadError
from klnmf.support.optional_packages import require

# An array may be this large whatever the file holds: what was never written reads as zeros.
_SMALL = 1 << 26
# The most that gzip packs into a byte, and a little.
_BEST_COMPRESSION = 1100
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
        value = self._found.attrs.get(attribute)
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if value is not None and not isinstance(value, str):
            raise self.refuse(f"has an attribute {attribute!r} that is not a text.")
        return value

    def shape_in(self, attribute: str) -> tuple[int, int] | None:
        """Return an attribute that holds numbers of rows and columns, or None if it is absent."""
        value = self._found.attrs.get(attribute)
        if value is None:
            return None
        sizes = np.asarray(value)
        if sizes.shape != (2,) or sizes.dtype.kind not in "iu" or (sizes < 0).any():
            raise self.refuse(f"has an attribute {attribute!r} that is not rows and columns.")
        return int(sizes[0]), int(sizes[1])


class Group(_Item):
    """Group of an HDF5 file."""

    def names(self) -> list[str]:
        """Names of what is in it."""
        return list(self._found)

    def __contains__(self, name: str) -> bool:
        """Whether there is anything of this name; AnnData stores None as an array without shape."""
        return name in self._found and getattr(self._found[name], "shape", ()) is not None

    def item(self, name: str) -> Group | StoredArray:
        """Fetch what has this name."""
        h5py = require("h5py", "Reading HDF5 files")
        place = f"{self.place}/{name}" if self.place else name
        if name not in self._found:
            raise ReadError(self.path, f"it has no {place!r}.")
        found = self._found[name]
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
        """Fetch an array, of this shape if one is given."""
        found = self.item(name)
        if not isinstance(found, StoredArray):
            raise found.refuse("is a group where an array was expected.")
        if shape not in (None, found.shape):
            raise found.refuse(f"has the shape {found.shape}; expected {shape}.")
        return found


class StoredArray(_Item):
    """Data set of an HDF5 file; a slice of it is read when it is asked for."""

    def __init__(self, path: Path, place: str, found: Any) -> None:
        super().__init__(path, place, found)
        if found.shape is None:
            raise self.refuse("holds nothing.")
        self._check_stored()

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
        """All of it as names."""
        if len(self.shape) != 1:
            raise self.refuse(f"has the shape {self.shape}; expected a list.")
        if require("h5py", "Reading HDF5 files").check_string_dtype(self.dtype) is not None:
            return list(self._found.asstr(errors="replace")[:])
        if self.dtype.kind not in "biuf":
            raise self.refuse(f"holds entries of the type {self.dtype}; expected names.")
        return [str(value) for value in self[:]]

    def _check_stored(self) -> None:
        """Refuse an array that is far larger than what is stored of it can be, or is elsewhere."""
        h5z = require("h5py", "Reading HDF5 files").h5z
        size = math.prod(max(1, n) for n in self.shape) * self.dtype.itemsize
        stored = min(int(self._found.id.get_storage_size()), self.path.stat().st_size)
        creation = self._found.id.get_create_plist()
        if creation.get_external_count() or self._found.is_virtual:
            # Where the other files are missing, HDF5 reads zeros.
            problem = "is stored in other files, which are not read. Copy the data into this file."
            raise self.refuse(problem)
        if size > max(_SMALL, _BEST_COMPRESSION * stored):
            shape = sizes_in_words(self.shape)
            raise self.refuse(
                f"claims {shape} entries ({size:,} bytes), but {stored:,} bytes are stored: the "
                "file is incomplete or damaged."
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
