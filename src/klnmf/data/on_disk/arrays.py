"""Arrays on disk: written and read piece by piece."""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from klnmf.support.array_types import Array
from klnmf.support.input_files import ReadError
from klnmf.support.npy_headers import VECTOR_HEADER, vector_header

_PAGE = mmap.PAGESIZE
BLOCK = 1 << 18  # entries that are converted at a time


class ArrayWriter:
    """An ``.npy`` file of a vector whose length is known only at the end."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), 0
        self._stream: BinaryIO = path.open("wb")
        self._stream.write(bytes(VECTOR_HEADER))

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
            stream.seek(VECTOR_HEADER)
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
        self._stream.write(vector_header(self.dtype, self.length))
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MappedArray:
    """A vector in an ``.npy`` file, on a memory map.

    The file stays open: replacing it does not change what is read here.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, length: int) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), length
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)
        self._state = self._state_now()
        self._map = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_SEQUENTIAL"):
            self._map.madvise(mmap.MADV_SEQUENTIAL)  # the system reads further ahead
        # All entries, read-only; pages of the file are read when they are used.
        self.mapped = np.frombuffer(self._map, self.dtype, length, VECTOR_HEADER)

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

        Without the map, which reads ahead of scattered rows, where the system has ``preadv``.
        """
        self.check_unchanged()
        target = np.empty(stop - start, self.dtype) if target is None else target
        if not hasattr(os, "preadv"):  # Windows
            target[:] = self.mapped[start:stop]
            return target
        rest, place = target.view(np.uint8).data, self._end(start)
        while rest and (n_read := os.preadv(self._descriptor, [rest], place)):
            rest, place = rest[n_read:], place + n_read
        if rest:
            raise self._changed()
        return target

    def _end(self, n_entries: int) -> int:
        return VECTOR_HEADER + n_entries * self.dtype.itemsize

    def _state_now(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_size, found.st_mtime_ns

    def check_unchanged(self) -> None:
        """Refuse a file that was changed: to read a map beyond the end of its file kills Python."""
        if self._state_now() != self._state:
            raise self._changed()

    def _changed(self) -> ReadError:
        problem = "the file has been changed since it was opened."
        return ReadError(self.path, f"{problem} Prepare the matrix again.")
