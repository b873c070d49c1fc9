"""Arrays on disk: written piece by piece, read through memory maps."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.on_disk.layout import NPY_HEADER, npy_header

Array = npt.NDArray[Any]
_PAGE = mmap.PAGESIZE
# Entries that are converted or copied at a time.
BLOCK = 1 << 18


class ArrayWriter:
    """An ``.npy`` file of a vector whose length is known when all of it is written."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path, self.dtype, self.length = path, np.dtype(dtype), 0
        self._stream = path.open("wb")
        self._stream.write(bytes(NPY_HEADER))

    def append(self, values: Array) -> None:
        """Write more entries."""
        np.ascontiguousarray(values, dtype=self.dtype).tofile(self._stream)
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
        os.replace(written.path, self.path)
        self._stream, self.dtype = written._stream, written.dtype

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
    """A vector in an ``.npy`` file, as a read-only array whose pages are read when they are used.

    Parameters
    ----------
    path : Path
        The file.
    dtype : dtype
        Type of its entries.
    length : int
        Number of entries.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, length: int) -> None:
        with path.open("rb") as stream:
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self.array: Array = np.frombuffer(self._map, dtype, length, NPY_HEADER)
        self.advise("SEQUENTIAL")

    def advise(self, advice: str, start: int = 0, stop: int | None = None) -> None:
        """Tell the system what becomes of some entries; no more than a hint, where it is known.

        WILLNEED: read them ahead. DONTNEED: take their pages out of this process's memory; the
        system may keep them cached.
        """
        option = getattr(mmap, f"MADV_{advice}", None)
        if option is None:
            return
        size, length = self.array.itemsize, len(self.array)
        first = (NPY_HEADER + start * size) // _PAGE * _PAGE if start else 0
        last = NPY_HEADER + (length if stop is None else stop) * size
        if last > first:
            self._map.madvise(option, first, min(last, len(self._map)) - first)
