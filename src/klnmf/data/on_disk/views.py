"""One mode of a matrix on disk: read in pieces, each one while the piece before is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.data.canonical import Entries
from klnmf.data.on_disk.arrays import MappedArray
from klnmf.data.on_disk.layout import MODES, arrays_of, damaged
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import InMemoryView, Piece, RowView
from klnmf.data.sums import row_ranges, sums_of_rows
from klnmf.support.array_types import Array


@dataclass(frozen=True)
class MappedRows:
    """The files of one mode: all that there is before the sums are known."""

    indptr: Array
    indices: MappedArray
    values: MappedArray
    n_columns: int

    @property
    def nnz(self) -> int:
        """Number of nonzeros, by the length of the files."""
        return self.values.length

    def row_sums(self) -> Array:
        """Sum of each row, in float64."""
        return sums_of_rows(self.indptr, lambda places: self.values.read(places.start, places.stop))

    def entries(self, limit: int) -> Iterator[Entries]:
        """All entries, row after row, at most ``limit`` at a time."""
        for start in range(0, self.nnz, limit):
            stop = min(start + limit, self.nnz)
            first = int(np.searchsorted(self.indptr, start, side="right")) - 1
            last = int(np.searchsorted(self.indptr, stop, side="left"))
            lengths = np.diff(np.clip(self.indptr[first : last + 1], start, stop))
            rows = np.repeat(np.arange(first, last), lengths)
            yield Entries(rows, self.indices.read(start, stop), self.values.read(start, stop))


def open_rows(folder: Path, mode: int, facts: dict[str, Any]) -> MappedRows:
    """Open the files of one mode in a folder, by the facts about the matrix.

    Offsets outside the arrays are refused: compiled code will follow them.
    """
    arrays, path = arrays_of(facts), folder / f"{MODES[mode]}.indptr.npy"
    indices, values = (
        MappedArray(folder / name, *arrays[name])
        for name in (f"{MODES[mode]}.{part}.npy" for part in ("indices", "values"))
    )
    indptr, nnz = np.load(path), facts["nonzeros"]
    if indptr[0] != 0 or indptr[-1] != nnz or (indptr[1:] < indptr[:-1]).any():
        raise damaged(path, f"it does not rise from 0 to the number of nonzeros, {nnz:,}")
    return MappedRows(indptr, indices, values, facts["shape"][1 - mode])


class MappedView(RowView):
    """One mode of a matrix on disk, read in pieces of ``piece_bytes``."""

    def __init__(
        self,
        stored: MappedRows,
        row_sums: Array,
        piece_bytes: int,
        row_constraints: RowConstraints | None = None,
    ) -> None:
        self.stored, self.row_sums, self._piece_bytes = stored, row_sums, piece_bytes
        self.indptr, self.n_columns = stored.indptr, stored.n_columns
        self.row_constraints = row_constraints

    def with_row_constraints(self, row_constraints: RowConstraints | None) -> MappedView:
        """Return a view on the same files with these constraints."""
        return MappedView(self.stored, self.row_sums, self._piece_bytes, row_constraints)

    def pieces(self) -> Iterator[Piece]:
        """See :class:`RowView`; a piece is read while the one before is used, then released."""
        arrays = (self.stored.indices, self.stored.values)
        size = sum(array.dtype.itemsize for array in arrays)
        ranges = list(row_ranges(self.indptr, max(1, self._piece_bytes // size)))
        if len(ranges) == 1:  # what is within the budget as a whole stays
            yield self._fetched(*ranges[0])
            return
        # Not joblib: it starts the next task when one ends, not when its result is used, and would
        # read on without limit.
        with ThreadPoolExecutor(1) as reader:
            upcoming = reader.submit(self._fetched, *ranges[0])
            for number, (start, stop) in enumerate(ranges, start=1):
                piece = upcoming.result()
                if number < len(ranges):
                    upcoming = reader.submit(self._fetched, *ranges[number])
                yield piece
                for array in arrays:
                    array.release(int(self.indptr[start]), int(self.indptr[stop]))

    def _fetched(self, start: int, stop: int) -> Piece:
        for array in (self.stored.indices, self.stored.values):
            array.fetch(int(self.indptr[start]), int(self.indptr[stop]))
        rows = slice(start, stop)
        return next(self.part(rows).pieces())._replace(rows=rows)

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`RowView`; rows that follow each other are read at once."""
        starts, ends = self.indptr[rows], self.indptr[rows + 1]
        indptr = np.concatenate([[0], np.cumsum(ends - starts)])
        arrays = (self.stored.indices, self.stored.values)
        taken = [np.empty(indptr[-1], array.dtype) for array in arrays]
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        for run in np.split(np.arange(len(rows)), breaks):
            if len(run):
                places = slice(indptr[run[0]], indptr[run[-1] + 1])
                for array, target in zip(arrays, taken, strict=True):
                    array.read(int(starts[run[0]]), int(ends[run[-1]]), target[places])
        return indptr, taken[0], taken[1]

    def part(self, rows: slice) -> InMemoryView:
        """Return consecutive rows on memory maps, whose pages are read when they are used."""
        arrays = (self.indptr, self.stored.indices.mapped, self.stored.values.mapped)
        return InMemoryView(*arrays, self.n_columns, self.row_constraints).part(rows)

    def whole(self) -> InMemoryView:
        """See :class:`RowView`; on memory maps."""
        return self.part(slice(0, self.n_rows))
