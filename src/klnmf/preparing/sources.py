"""Where the entries of a matrix come from: files that are read in pieces, or a matrix in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.matrix_checks import checked_indptr, checked_matrix, csr_from_parts
from klnmf.data.sparse_data import row_ranges
from klnmf.preparing.sorting import Spool
from klnmf.readers.delimited import collect_delimited
from klnmf.readers.entries import EntryFile, docword, matrix_market
from klnmf.readers.hdf5 import Compressed, h5ad_parts
from klnmf.readers.matrix_files import (
    PathLike,
    names_beside,
    npy_header,
    npz_header,
    opened_npz,
    read_npy_header,
    vocabulary_of,
)
from klnmf.readers.parquet import collect_parquet
from klnmf.readers.table import CountTable
from klnmf.readers.triplets import TripletTable
from klnmf.support.input_files import ReadError

Array = npt.NDArray[Any]
Names = dict[str, Any]
Blocks = Callable[[int], Iterator[sp.csr_array]]  # of so many entries, rows in order
Fill = Callable[[Spool, int], "tuple[tuple[int, int], Names] | CountTable"]


@dataclass
class Source:
    """A matrix that comes in blocks of rows, or in entries of any order that fill a spool."""

    blocks: Blocks | None = None
    fill: Fill | None = None
    shape: tuple[int, int] = (0, 0)  # where there are blocks
    names: Names = field(default_factory=dict)
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))  # of values
    as_counts: bool = True  # whole numbers are counts, whatever their type
    open_features: bool = False  # see CountTable

    def transposed(self) -> Source:
        """Source with rows and columns exchanged; labels are of rows and are left out."""

        def fill(spool: Spool, limit: int) -> tuple[tuple[int, int], Names] | CountTable:
            if self.blocks is not None:
                shape, names = self.shape, self.names
                start = 0
                for block in self.blocks(limit):
                    rows = np.repeat(np.arange(block.shape[0]) + start, np.diff(block.indptr))
                    spool.add(block.indices, rows, block.data)
                    start += block.shape[0]
            else:
                assert self.fill is not None
                found = self.fill(_Swapped(spool), limit)
                if isinstance(found, CountTable):
                    return found.transposed()
                shape, names = found
            swapped = {"row_names": "column_names", "column_names": "row_names"}
            return shape[::-1], {swapped[k]: v for k, v in names.items() if k in swapped}

        return Source(
            fill=fill,
            dtype=self.dtype,
            as_counts=self.as_counts,
            open_features=self.open_features,
        )


class _Swapped(Spool):
    """Spool that takes columns for rows."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool

    def add(self, rows: Any, columns: Any, values: Any) -> None:
        self.spool.add(columns, rows, values)


def source_of_matrix(X: Any, names: Names, *, as_counts: bool) -> Source:
    """Source on a matrix that is in memory."""
    csr = sp.csr_array(checked_matrix(X))

    def blocks(limit: int) -> Iterator[sp.csr_array]:
        for start, stop in row_ranges(csr.indptr, limit):
            yield csr[start:stop]

    return Source(blocks, shape=csr.shape, names=names, dtype=csr.dtype, as_counts=as_counts)


def source_of_table(table: CountTable) -> Source:
    """Source on a table that is in memory."""
    names = {k: getattr(table, k) for k in ("row_names", "column_names", "labels")}
    source = source_of_matrix(table.X, names, as_counts=True)
    source.open_features = table.open_features
    return source


def stream(path: Path, format: str, options: dict[str, Any]) -> Source | None:
    """Source that reads a file in pieces; None where that file has to be read whole."""
    opener = _STREAMS.get(format)
    return None if opener is None else opener(path, **options)


def _compressed_blocks(
    path: Path,
    shape: tuple[int, int],
    indptr: Array,
    take: Callable[[int, int], tuple[Array, Array]],
    limit: int,
) -> Iterator[sp.csr_array]:
    """Blocks of compressed rows whose entries are taken in order."""
    try:
        indptr = checked_indptr({"indptr": indptr}, shape[0])
    except (TypeError, ValueError) as error:
        raise ReadError(path, f"the matrix is not valid: {error}") from error
    for start, stop in row_ranges(indptr, limit):
        first, last = int(indptr[start]), int(indptr[stop])
        indices, data = take(first, last)
        if len(indices) != last - first or len(data) != last - first:
            raise ReadError(path, "the file has fewer entries than it says: it is cut off.")
        parts = {"data": data, "indices": indices, "indptr": indptr[start : stop + 1] - first}
        try:
            block = csr_from_parts("csr", parts, (stop - start, shape[1]), "the matrix")
        except (TypeError, ValueError) as error:
            raise ReadError(path, str(error)) from error
        yield block


# ---- .npz ----------------------------------------------------------------------------------------


def _npz(
    path: Path, *, row_names: PathLike | None = None, column_names: PathLike | None = None
) -> Source | None:
    with opened_npz(path) as archive:
        kind, shape = npz_header(path, archive)
        dtype, _ = npy_header(archive, "data")
    if kind not in ("csr", "csc"):
        return None
    names = names_beside(path, shape, ".npz", row_names, column_names)
    if kind == "csr":
        return Source(partial(_npz_blocks, path, shape), shape=shape, names=names, dtype=dtype)
    swapped = {"row_names": names.get("column_names"), "column_names": names.get("row_names")}
    by_columns = Source(
        partial(_npz_blocks, path, shape[::-1]), shape=shape[::-1], names=swapped, dtype=dtype
    ).transposed()
    return _with_labels(by_columns, names.get("labels"))


def _with_labels(source: Source, labels: Any) -> Source:
    """Source by columns, which knows labels of rows all the same."""
    inner = source.fill
    assert inner is not None

    def fill(spool: Spool, limit: int) -> tuple[tuple[int, int], Names] | CountTable:
        found = inner(spool, limit)
        assert not isinstance(found, CountTable)
        return found[0], found[1] | {"labels": labels}

    source.fill = fill
    return source


def _npz_blocks(path: Path, shape: tuple[int, int], limit: int) -> Iterator[sp.csr_array]:
    with opened_npz(path) as archive, ExitStack() as stack:
        indptr = archive["indptr"]
        members = [
            stack.enter_context(archive.zip.open(f"{name}.npy")) for name in ("indices", "data")
        ]
        (index_type, n_indices), (dtype, n_values) = map(read_npy_header, members)
        if len(n_indices) != 1 or n_indices != n_values:
            raise ReadError(path, f"indices have the shape {n_indices}, and values {n_values}.")

        def take(first: int, last: int) -> tuple[Array, Array]:
            found = [
                np.frombuffer(member.read((last - first) * kind.itemsize), kind)
                for member, kind in zip(members, (index_type, dtype), strict=True)
            ]
            return found[0], found[1]

        yield from _compressed_blocks(path, shape, indptr, take, limit)


# ---- text ----------------------------------------------------------------------------------------


def _entries(
    open_file: Callable[[Path], EntryFile], path: Path, suffix: str, *names: Any
) -> Source:
    """Source on a text with an entry a line."""
    file = open_file(path)

    def fill(spool: Spool, limit: int) -> tuple[tuple[int, int], Names]:
        for block in file.blocks():
            spool.add(*block)
        return file.shape, names_beside(path, file.shape, suffix, *names)

    return Source(fill=fill)


def _mtx(
    path: Path, *, row_names: PathLike | None = None, column_names: PathLike | None = None
) -> Source:
    return _entries(matrix_market, path, ".mtx", row_names, column_names)


def _uci(
    path: Path, *, row_names: PathLike | None = None, column_names: PathLike | None = None
) -> Source:
    words = vocabulary_of(path) if column_names is None else column_names
    return _entries(docword, path, ".txt", row_names, words)


def _triplets(collect: Callable[..., CountTable | None], path: Path, **options: Any) -> Source:
    def fill(spool: Spool, limit: int) -> tuple[tuple[int, int], Names] | CountTable:
        found = TripletTable(spool)
        table = collect(path, found, **options)
        if table is not None:
            return table
        rows, columns = found.rows.names(), found.columns.names()
        if not rows:
            raise ReadError(path, "there are no counts in this file.")
        return (len(rows), len(columns)), {"row_names": rows, "column_names": columns}

    return Source(fill=fill, open_features=True)


# ---- .h5ad ---------------------------------------------------------------------------------------


def _h5ad(path: Path, *, layer: str | None = None, labels: str | None = None) -> Source | None:
    with h5ad_parts(path, layer, labels) as parts:
        stored, names = parts.matrix, parts.names
        if not isinstance(stored, Compressed):
            return None
        dtype, shape, by_rows = stored.data.dtype, stored.shape, stored.form == "csr"

    def blocks(limit: int) -> Iterator[sp.csr_array]:
        with h5ad_parts(path, layer, None) as parts:
            stored = parts.matrix
            assert isinstance(stored, Compressed)
            yield from _compressed_blocks(
                path,
                shape if by_rows else shape[::-1],
                stored.indptr[:],
                lambda first, last: (stored.indices[first:last], stored.data[first:last]),
                limit,
            )

    if by_rows:
        return Source(blocks, shape=shape, names=names, dtype=dtype)
    swapped = {"row_names": names["column_names"], "column_names": names["row_names"]}
    by_columns = Source(blocks, shape=shape[::-1], names=swapped, dtype=dtype).transposed()
    return _with_labels(by_columns, names["labels"])


_STREAMS: dict[str, Callable[..., Source | None]] = {
    "npz": _npz,
    "mtx": _mtx,
    "uci": _uci,
    "h5ad": _h5ad,
    "csv": partial(_triplets, collect_delimited),
    "tsv": partial(_triplets, partial(collect_delimited, delimiter="\t")),
    "parquet": partial(_triplets, collect_parquet),
}
