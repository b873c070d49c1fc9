"""One mode of a matrix on disk: gone over in pieces, each read while the one before is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.on_disk.arrays import StoredArray
from klnmf.on_disk.layout import MODES, arrays_of
from klnmf.sparse_data import Piece, RowView, row_ranges

Array = npt.NDArray[Any]
_ALIGNMENT = 64


class Buffers:
    """Memory that pieces are read into: one block, which a pass takes and the next one has."""

    def __init__(self) -> None:
        self._free: list[Array] = []

    @contextmanager
    def borrowed(self, size: int) -> Iterator[Array]:
        """Bytes of one's own; there are more of them where two passes run at the same time."""
        try:
            block = self._free.pop()
        except IndexError:
            block = np.empty(0, np.uint8)
        if len(block) < size:
            del block  # before there is a new one
            block = np.empty(size, np.uint8)
        try:
            yield block
        finally:
            if not self._free:
                self._free.append(block)


@dataclass(frozen=True)
class StoredView(RowView):
    """One mode of a matrix on disk.

    ``indices`` and ``values`` are memory maps, for what wants the matrix as a whole; a fit reads
    pieces and touches no map.
    """

    stored: tuple[StoredArray, StoredArray] = field(kw_only=True)  # indices and values
    piece_bytes: int = field(kw_only=True)
    buffers: Buffers = field(kw_only=True)

    @property
    def _entry_bytes(self) -> int:
        return self.indices.itemsize + self.values.itemsize

    @cached_property
    def _whole(self) -> tuple[Array, Array]:
        """All entries, where they are few: read once."""
        return self.entries(0, len(self.values))

    def pieces(self) -> Iterator[Piece]:
        """All rows: a piece is being read while the one before is used.

        The arrays of a piece are good until the next one is asked for.
        """
        if len(self.values) * self._entry_bytes <= self.piece_bytes:
            yield Piece(slice(0, self.n_rows), self.indptr, *self._whole)
            return
        ranges = list(row_ranges(self.indptr, max(1, self.piece_bytes // self._entry_bytes)))
        longest = max(int(self.indptr[stop] - self.indptr[start]) for start, stop in ranges)
        size = longest * self._entry_bytes + 2 * _ALIGNMENT
        size += -size % _ALIGNMENT
        with self.buffers.borrowed(2 * size) as block, ThreadPoolExecutor(1) as reader:
            halves = block[:size], block[size : 2 * size]
            upcoming = reader.submit(self._read, *ranges[0], halves[0])
            for number in range(1, len(ranges) + 1):
                piece = upcoming.result()
                if number < len(ranges):
                    upcoming = reader.submit(self._read, *ranges[number], halves[number % 2])
                yield piece

    def _read(self, start: int, stop: int, memory: Array) -> Piece:
        ends = self.indptr[start : stop + 1]
        indices, values = self.entries(int(ends[0]), int(ends[-1]), memory)
        return Piece(slice(start, stop), ends - ends[0], indices, values)

    def entries(self, first: int, last: int, memory: Array | None = None) -> tuple[Array, Array]:
        """Return indices and values of a range of entries, in memory."""
        if memory is None:
            indices, values = (stored.read(first, last) for stored in self.stored)
            return indices, values
        middle = (last - first) * self.indices.itemsize
        middle += -middle % _ALIGNMENT
        indices = self.stored[0].read(first, last, memory)
        return indices, self.stored[1].read(first, last, memory[middle:])

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`RowView`; rows that follow each other are read at once."""
        starts, lengths = self.indptr[rows], self.indptr[np.asarray(rows) + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        taken = [np.empty(indptr[-1], array.dtype) for array in (self.indices, self.values)]
        begins = np.flatnonzero(np.r_[True, starts[1:] != starts[:-1] + lengths[:-1]])
        for begin, end in zip(begins, np.r_[begins[1:], len(rows)], strict=True):
            size = int(indptr[end] - indptr[begin])
            first = int(starts[begin])
            for stored, target in zip(self.stored, taken, strict=True):
                entries = target[indptr[begin] : indptr[end]].view(np.uint8)
                stored.read(first, first + size, entries)
        return indptr, taken[0], taken[1]

    def release(self) -> None:
        """Take the pages of the maps out of this process's memory."""
        for stored in self.stored:
            stored.release()


def open_view(
    folder: Path,
    mode: int,
    shape: tuple[int, int],
    nonzeros: int,
    dtype: np.dtype[Any],
    *,
    piece_bytes: int = 1 << 26,
    buffers: Buffers | None = None,
) -> StoredView:
    """View of one mode on the files of a folder."""
    arrays = arrays_of(shape, nonzeros, dtype)
    indptr, indices, values = (
        StoredArray(folder / name, *arrays[name])
        for name in (f"{MODES[mode]}.{part}.npy" for part in ("indptr", "indices", "values"))
    )
    return StoredView(
        indptr.read(0, indptr.length),
        indices.mapped,
        values.mapped,
        shape[1 - mode],
        stored=(indices, values),
        piece_bytes=piece_bytes,
        buffers=buffers or Buffers(),
    )
