"""Sorting more entries than fit into memory: into buckets of keys first, then each by itself."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.canonical import Entries
from klnmf.data.on_disk.layout import INDEX
from klnmf.data.on_disk.views import MappedRows
from klnmf.data.sparse_data import check_n_columns
from klnmf.data.streams import CountStream
from klnmf.data.sums import row_ranges
from klnmf.support.array_types import Array


def record_dtype(values: npt.DTypeLike) -> np.dtype[Any]:
    """How an entry lies in a temporary file."""
    return np.dtype([("row", INDEX), ("column", INDEX), ("value", np.dtype(values).str)])


def _records(entries: Entries, dtype: np.dtype[Any], order: Any = slice(None)) -> Array:
    records = np.empty(len(entries.rows), dtype=dtype)
    for name, values in zip(("row", "column", "value"), entries, strict=True):
        records[name] = values[order]
    return records


def _bucketed(
    entries: Iterable[Entries], key: str, counts: Array, limit: int, dtype: Any, folder: Path
) -> Iterator[tuple[int, int, Path]]:
    """Write entries to a temporary file for each range of keys, and give one after the other.

    A file has at most ``limit`` entries, unless a single key has more; ``counts`` says how many
    each key has. Entries of a file keep their order.
    """
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    ranges = list(row_ranges(ends, limit))
    starts = np.array([start for start, _ in ranges])
    files = [folder / f"{key}.{number}.bucket" for number in range(len(ranges))]
    for file in files:
        file.write_bytes(b"")
    for block in entries:
        keys = block.rows if key == "row" else block.columns
        bucket = np.searchsorted(starts, keys, side="right") - 1
        records = _records(block, dtype, np.argsort(bucket, kind="stable"))
        ends = np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=len(files)))])
        for number in np.flatnonzero(np.diff(ends)):
            with files[number].open("ab") as stream:  # closed again: there may be thousands
                stream.write(records[ends[number] : ends[number + 1]].view(np.uint8).data)
    for (start, stop), file in zip(ranges, files, strict=True):
        yield start, stop, file
        file.unlink()


def _pieces(file: Path, dtype: np.dtype[Any], limit: int) -> Iterator[Entries]:
    """Entries of a temporary file in their order, at most ``limit`` at a time."""
    with file.open("rb") as stream:
        while len(records := np.fromfile(stream, dtype, limit)):
            yield Entries(records["row"], records["column"], records["value"])


class Tally:
    """How often each number has come up."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.int64)

    def add(self, numbers: Array) -> None:
        """Count some more."""
        found = np.bincount(numbers, minlength=len(self._counts))
        found[: len(self._counts)] += self._counts
        self._counts = found

    def counts(self, size: int) -> Array:
        """Return the counts of the numbers from 0 to ``size - 1``."""
        counts = np.zeros(size, dtype=np.int64)
        counts[: len(self._counts)] = self._counts[:size]
        return counts


def row_blocks(stream: CountStream, limit: int, folder: Path) -> Iterator[sp.csr_array]:
    """All rows of a stream in order, in blocks; those at the end without entries may be left out.

    A stream that is not in order goes through temporary files in ``folder``, which are as large as
    the matrix.
    """
    if stream.in_order:
        # A block, the rows made of it and their canonical form are in memory at the same time.
        yield from _whole_rows(stream.blocks(max(1, limit // 4)))
        return
    spool, tally, dtype = folder / "entries.spool", Tally(), record_dtype(np.float64)
    with spool.open("wb") as file:
        for block in stream.blocks(limit):
            check_n_columns(1 + int(max(block.rows.max(initial=0), block.columns.max(initial=0))))
            file.write(_records(block, dtype).view(np.uint8).data)
            tally.add(block.rows)
    shape = stream.outline().shape
    entries = _pieces(spool, dtype, limit)
    counts = tally.counts(shape[0])
    for start, stop, bucket in _bucketed(entries, "row", counts, limit, dtype, folder):
        spool.unlink(missing_ok=True)  # all of it is in the buckets now
        records = np.fromfile(bucket, dtype)
        places = (records["row"] - start, records["column"])
        yield sp.csr_array((records["value"], places), shape=(stop - start, shape[1]))


def _whole_rows(blocks: Iterator[Entries]) -> Iterator[sp.csr_array]:
    """Rows that are complete: the last row of a block may go on in the next one."""
    pieces: list[Entries] = []
    done = 0
    for block in blocks:
        if not len(block.rows):
            continue
        cut = int(np.searchsorted(block.rows, block.rows[-1]))
        if cut or (pieces and pieces[-1].rows[-1] != block.rows[0]):
            complete = _csr([*pieces, Entries(*(part[:cut] for part in block))], done)
            yield complete
            pieces, done = [], done + complete.shape[0]
        pieces.append(Entries(*(part[cut:] for part in block)))
    if pieces:
        yield _csr(pieces, done)


def _csr(pieces: list[Entries], done: int) -> sp.csr_array:
    """Rows from ``done`` on, of entries in the order of their rows."""
    rows, columns, counts = map(np.concatenate, zip(*pieces, strict=True))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows - done))])
    shape = len(indptr) - 1, int(columns.max()) + 1
    return sp.csr_array((counts, columns, indptr), shape=shape)


def transposed_blocks(
    stored: MappedRows, counts: Array, limit: int, folder: Path
) -> Iterator[tuple[Array, Array]]:
    """Row numbers and values, column after column; ``counts`` has the nonzeros of each."""
    dtype = record_dtype(stored.values.dtype)
    entries = stored.entries(limit)
    for start, stop, bucket in _bucketed(entries, "column", counts, limit, dtype, folder):
        if stop == start + 1:  # one column: in the order of its rows already, however long
            for rows, _, values in _pieces(bucket, dtype, limit):
                yield rows, values
            continue
        records = np.fromfile(bucket, dtype)
        # Stable: the rows of a column stay in their order.
        order = np.argsort(records["column"], kind="stable")
        yield records["row"][order], records["value"][order]
