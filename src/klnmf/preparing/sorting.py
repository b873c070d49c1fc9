"""Sorting more entries than fit into memory: into buckets of keys first, then each by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.on_disk.views import Entries, MappedView, entries_of
from klnmf.data.sparse_data import row_ranges

Array = npt.NDArray[Any]


def record_dtype(shape: tuple[int, int], values: npt.DTypeLike) -> np.dtype[Any]:
    """How an entry lies in a temporary file."""
    index = "<i4" if max(shape) <= np.iinfo(np.int32).max else "<i8"
    return np.dtype([("row", index), ("column", index), ("value", np.dtype(values).str)])


class Buckets:
    """Files of entries, one for each range of keys with at most ``limit`` entries in all.

    Parameters
    ----------
    folder : Path
        Where the files go.
    key : {"row", "column"}
        What the entries are sorted by.
    counts : ndarray
        Entries of each key.
    limit : int
        Entries of a file at most, unless a single key has more.
    dtype : dtype
        Of the records.
    """

    def __init__(
        self, folder: Path, key: str, counts: Array, limit: int, dtype: np.dtype[Any]
    ) -> None:
        self.key, self.dtype = key, dtype
        ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.ranges = list(row_ranges(ends, limit))
        self._starts = np.array([start for start, _ in self.ranges])
        self.files = [folder / f"{key}.{number}.bucket" for number in range(len(self.ranges))]
        for file in self.files:
            file.write_bytes(b"")

    def add(self, entries: Entries) -> None:
        """Write entries to the files that they belong to, those of a file in their order."""
        keys = entries.rows if self.key == "row" else entries.columns
        bucket = np.searchsorted(self._starts, keys, side="right") - 1
        order = np.argsort(bucket, kind="stable")
        records = np.empty(len(order), dtype=self.dtype)
        for name, array in zip(("row", "column", "value"), entries, strict=True):
            records[name] = array[order]
        ends = np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=len(self.files)))])
        for number in np.flatnonzero(np.diff(ends)):
            with self.files[number].open("ab") as stream:  # closed again: there may be thousands
                stream.write(records[ends[number] : ends[number + 1]].view(np.uint8).data)

    def read(self, number: int) -> Array:
        """All records of a file, which is then removed."""
        records = np.fromfile(self.files[number], dtype=self.dtype)
        self.files[number].unlink()
        return records


class Spool:
    """Entries in the order in which they arrive, of a matrix whose size is not yet known."""

    def __init__(self, path: Path) -> None:
        self.path, self.n_entries = path, 0
        self.row_counts = np.zeros(0, dtype=np.int64)
        self.dtype = np.dtype([("row", "<i8"), ("column", "<i8"), ("value", "<f8")])
        self.n_columns = 0
        self._stream = path.open("wb")

    def add(self, rows: Any, columns: Any, values: Any) -> None:
        """Write a block of entries."""
        rows = np.asarray(rows, dtype=np.int64)
        if not len(rows):
            return
        records = np.empty(len(rows), dtype=self.dtype)
        records["row"], records["column"], records["value"] = rows, columns, values
        self._stream.write(records.view(np.uint8).data)
        found, counts = np.unique(rows, return_counts=True)
        if found[-1] >= len(self.row_counts):  # memory that nothing is written to costs nothing
            grown = np.zeros(max(found[-1] + 1, 2 * len(self.row_counts)), dtype=np.int64)
            grown[: len(self.row_counts)] = self.row_counts
            self.row_counts = grown
        self.row_counts[found] += counts
        self.n_entries += len(rows)
        self.n_columns = max(self.n_columns, int(records["column"].max()) + 1)

    def close(self) -> None:
        """Write what is still in memory."""
        self._stream.close()

    def row_blocks(self, shape: tuple[int, int], limit: int) -> Iterator[sp.csr_array]:
        """All rows in order, in blocks; entries of the same place are summed."""
        self.close()
        counts = np.zeros(shape[0], dtype=np.int64)
        counts[: len(self.row_counts)] = self.row_counts[: shape[0]]
        dtype = record_dtype(shape, np.float64)
        buckets = Buckets(self.path.parent, "row", counts, limit, dtype)
        with self.path.open("rb") as stream:
            while len(records := np.fromfile(stream, self.dtype, limit)):
                buckets.add(Entries(records["row"], records["column"], records["value"]))
        os.unlink(self.path)
        for number, (start, stop) in enumerate(buckets.ranges):
            records = buckets.read(number)
            places = (records["row"] - start, records["column"])
            block = sp.coo_array((records["value"], places), shape=(stop - start, shape[1]))
            yield sp.csr_array(block)


def transposed_blocks(
    view: MappedView, counts: Array, limit: int, folder: Path
) -> Iterator[tuple[Array, Array]]:
    """Entries of a matrix column after column: pieces of row numbers and of values.

    Parameters
    ----------
    view : MappedView
        The matrix by rows.
    counts : ndarray
        Nonzeros of each column.
    limit : int
        Entries in memory at a time.
    folder : Path
        For temporary files, which are as large as the matrix.
    """
    dtype = record_dtype((view.n_rows, view.n_columns), view.values.dtype)
    buckets = Buckets(folder, "column", counts, limit, dtype)
    for entries in entries_of(view, limit):
        buckets.add(entries)
    for number, (start, stop) in enumerate(buckets.ranges):
        if stop == start + 1:  # one column: in the order of its rows already, however long
            with buckets.files[number].open("rb") as stream:
                while len(records := np.fromfile(stream, dtype, limit)):
                    yield records["row"], records["value"]
            buckets.files[number].unlink()
            continue
        records = buckets.read(number)
        # Stable: the rows of a column stay in their order.
        order = np.argsort(records["column"], kind="stable")
        yield records["row"][order], records["value"][order]
