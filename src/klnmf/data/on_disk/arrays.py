"""Arrays on disk: written and read piece by piece."""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from klnmf.data.on_disk.layout import NPY_HEADER, npy_header
from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property
from klnmf.support.input_files import ReadError

_PAGE = mmap.PAGESIZE
_READ = 1 << 23  # bytes per read
BLOCK = 1 << 18  # entries that are converted at a time


class ArrayWriter:
    """An ``.npy`` file of a vector whose length is known only at the end."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), 0
        self._stream: BinaryIO = path.open("wb")
        self._stream.write(bytes(NPY_HEADER))

    def append(self, values: Array) -> None:
        """Write more entries."""
        self._stream.write(np.ascontiguousarray(values, dtype=self.dtype).view(np.uint8).data)
        self.length += len(values)

    def convert(self, dtype: npt.DTypeLike) -> None:
        """Rewrite all entries so far in another type, in pieces."""
        if np.dtype(dtype) == self.dtype:
            return
        self._stream.flush()
        written = ArrayWriter(self.path.with_name(f"{self.path.name}.wide"), dtype)
        with self.path.open("rb") as stream:
            stream.seek(NPY_HEADER)
            while len(values := np.fromfile(stream, self.dtype, BLOCK)):
                written.append(values)
        self._stream.close()
        written._stream.close()  # Windows renames no open file
        os.replace(written.path, self.path)
        self._stream, self.dtype = self.path.open("r+b"), written.dtype
        self._stream.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Complete the file, down to the disk."""
        if self._stream.closed:
            return
        self._stream.seek(0)
        self._stream.write(npy_header(self.dtype, self.length))
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MappedArray:
    """A vector in an ``.npy`` file, read piece by piece, or as a whole through a memory map.

    The file stays open: replacing it does not change what is read here.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, length: int) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), length
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)
        self._state = self._state_now()

    @cached_property
    def _map(self) -> mmap.mmap:
        mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_SEQUENTIAL"):
            mapped.madvise(mmap.MADV_SEQUENTIAL)  # the system reads further ahead
        return mapped

    @cached_property
    def mapped(self) -> Array:
        """All entries, read-only; pages of the file are read when they are used."""
        return np.frombuffer(self._map, self.dtype, self.length, NPY_HEADER)

    def __getitem__(self, places: slice) -> Array:
        return self.read(places.start, places.stop)

    def fetch(self, start: int, stop: int) -> None:
        """Read some entries into the map now, while other threads run."""
        self.check_unchanged()
        np.add.reduce(self.mapped[start:stop].view(np.uint8)[::_PAGE])  # a byte of each page

    def release(self, start: int, stop: int) -> None:
        """Free the memory of some entries; the system may keep them cached."""
        if hasattr(mmap, "MADV_DONTNEED") and stop > start:
            first = self._end(start) // _PAGE * _PAGE
            self._map.madvise(mmap.MADV_DONTNEED, first, self._end(stop) - first)

    def read(self, start: int, stop: int, target: Array | None = None) -> Array:
        """Return a copy of some entries; in ``target`` if it is given.

        Without the map, whose pages would stay in memory, where the system has ``preadv``.
        """
        target = np.empty(stop - start, self.dtype) if target is None else target
        rest, place = target.view(np.uint8).data, self._end(start)
        self.check_unchanged()
        if not hasattr(os, "preadv"):  # Windows
            target[:] = self.mapped[start:stop]
            return target
        while rest and (n_read := os.preadv(self._descriptor, [rest[:_READ]], place)):
            rest, place = rest[n_read:], place + n_read
        if rest:
            raise self._changed()
        return target

    def _end(self, n_entries: int) -> int:
        return NPY_HEADER + n_entries * self.dtype.itemsize

    def _state_now(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_size, found.st_mtime_ns

    def check_unchanged(self) -> None:
        """Refuse a file that was changed: to read a map beyond the end of its file kills Python."""
        if self._state_now() != self._state:
            raise self._changed()

    def _changed(self) -> ReadError:
        return ReadError(
            self.path, "the file has been changed since it was opened. Prepare the matrix again."
        )
