"""One mode of a matrix on disk: gone over in pieces, each read while the one before is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from klnmf.data.on_disk.arrays import MappedArray
from klnmf.data.on_disk.layout import MODES, arrays_of
from klnmf.data.sparse_data import Piece, RowView, column_numbers, row_ranges

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MappedView(RowView):
    """One mode of a matrix on disk.

    ``indices`` and ``values`` are memory maps: their pages are read when they are used.
    """

    stored: tuple[MappedArray, MappedArray] = field(kw_only=True)  # indices and values
    piece_bytes: int = field(kw_only=True)

    def pieces(self) -> Iterator[Piece]:
        """All rows: a piece is being read while the one before is used, and is let go of then."""
        size = self.indices.itemsize + self.values.itemsize
        ranges = list(row_ranges(self.indptr, max(1, self.piece_bytes // size)))
        if len(ranges) == 1:  # what is within the budget as a whole stays
            yield self._fetched(*ranges[0])
            return
        with ThreadPoolExecutor(1) as reader:
            upcoming = reader.submit(self._fetched, *ranges[0])
            for number, (start, stop) in enumerate(ranges, start=1):
                piece = upcoming.result()
                if number < len(ranges):
                    upcoming = reader.submit(self._fetched, *ranges[number])
                yield piece
                for stored in self.stored:
                    stored.release(int(self.indptr[start]), int(self.indptr[stop]))

    def _fetched(self, start: int, stop: int) -> Piece:
        ends = self.indptr[start : stop + 1]
        first, last = int(ends[0]), int(ends[-1])
        for stored in self.stored:
            stored.fetch(first, last)
        places, rows = slice(first, last), slice(start, stop)
        terms = None if self.terms is None else self.terms.rows(rows)
        indices = column_numbers(self.indices[places], self.n_columns)
        return Piece(rows, ends - ends[0], indices, self.values[places], terms)

    def entries(self, first: int, last: int) -> tuple[Array, Array]:
        """Return indices and values of a range of entries, in memory of their own."""
        indices, values = (stored.read(first, last) for stored in self.stored)
        return indices, values

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`RowView`; rows that follow each other are read at once."""
        starts, ends = self.indptr[rows], self.indptr[rows + 1]
        indptr = np.concatenate([[0], np.cumsum(ends - starts)])
        taken = [np.empty(indptr[-1], array.dtype) for array in (self.indices, self.values)]
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        for run in np.split(np.arange(len(rows)), breaks):
            if len(run):
                places = slice(indptr[run[0]], indptr[run[-1] + 1])
                for stored, target in zip(self.stored, taken, strict=True):
                    stored.read(int(starts[run[0]]), int(ends[run[-1]]), target[places])
        return indptr, taken[0], taken[1]


def open_view(
    folder: Path,
    mode: int,
    shape: tuple[int, int],
    nonzeros: int,
    dtype: np.dtype[Any],
    *,
    piece_bytes: int = 1 << 26,
) -> MappedView:
    """View of one mode on the files of a folder."""
    arrays = arrays_of(shape, nonzeros, dtype)
    indptr, indices, values = (
        MappedArray(folder / name, *arrays[name])
        for name in (f"{MODES[mode]}.{part}.npy" for part in ("indptr", "indices", "values"))
    )
    return MappedView(
        indptr.read(0, indptr.length),
        indices.mapped,
        values.mapped,
        shape[1 - mode],
        stored=(indices, values),
        piece_bytes=piece_bytes,
    )


class Entries(NamedTuple):
    """Some entries of a matrix, in any order."""

    rows: Array
    columns: Array
    values: Array


def entries_of(view: MappedView, limit: int) -> Iterator[Entries]:
    """Entries of a view, row after row, at most ``limit`` at a time."""
    for start in range(0, len(view.values), limit):
        stop = min(start + limit, len(view.values))
        first = int(np.searchsorted(view.indptr, start, side="right")) - 1
        last = int(np.searchsorted(view.indptr, stop, side="left"))
        lengths = np.diff(np.clip(view.indptr[first : last + 1], start, stop))
        rows = np.repeat(np.arange(first, last), lengths)
        yield Entries(rows, *view.entries(start, stop))
