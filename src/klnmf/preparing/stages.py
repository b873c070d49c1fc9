"""The stages of preparing a matrix: rows, then from them columns, then the header."""

from __future__ import annotations

import os
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.on_disk.arrays import ArrayWriter
from klnmf.data.on_disk.layout import (
    FORMAT,
    HEADER,
    MODES,
    NAME_FILES,
    ROW_FILES,
    VERSION,
    arrays_of,
    index_dtype,
    sha256,
    write_json,
)
from klnmf.data.on_disk.measuring import measured_facts, row_sums
from klnmf.data.on_disk.verification import remember
from klnmf.data.on_disk.views import MappedView, open_view
from klnmf.data.sparse_data import check_n_columns
from klnmf.data.validation import EXACT_IN_FLOAT32, check_value_range, working_dtype
from klnmf.preparing.sorting import Spool, transposed_blocks
from klnmf.preparing.sources import Source, source_of_table
from klnmf.readers import CountTable
from klnmf.readers.matrix_files import one_a_line
from klnmf.readers.table import first_wrong, type_of_sums, unique_features
from klnmf.support.input_files import ReadError

Array = npt.NDArray[Any]


def write_rows(partial: Path, source: Source, limit: int, dtype: Any, data: Any) -> dict[str, Any]:
    """Write the rows, and where the columns will begin; returns what is known of the matrix."""
    place = Path(data) if isinstance(data, str | os.PathLike) else None
    if source.dtype.kind not in "biuf":
        raise _wrong(place, f"Counts must be real numbers; got the type {source.dtype}.")
    if source.blocks is None:
        assert source.fill is not None
        spool = Spool(partial / "entries.spool")
        try:
            found = source.fill(spool, limit)
        finally:
            spool.close()
        if isinstance(found, CountTable):
            source = source_of_table(found)
        else:
            source.shape, source.names = found
            shape = source.shape
            source.blocks = lambda size: spool.row_blocks(shape, size)
    shape = source.shape
    if 0 in shape:
        raise ValueError(f"A matrix of {shape[0]} × {shape[1]} cannot be fitted: it is empty.")
    check_n_columns(shape[1])
    assert source.blocks is not None
    with ExitStack() as stack:
        indptr = stack.enter_context(ArrayWriter(partial / "rows.indptr.npy", "<i8"))
        indices = stack.enter_context(
            ArrayWriter(partial / "rows.indices.npy", index_dtype(shape[1]))
        )
        values = stack.enter_context(ArrayWriter(partial / "rows.values.npy", "<f4"))
        rows = RowsSeen(shape, place)
        indptr.append(np.zeros(1, np.int64))
        for block in source.blocks(limit):
            block = rows.checked(block)
            if values.dtype == np.float32 and not _is_exact(block.data):
                values.convert("<f8")
            indptr.append(block.indptr[1:].astype(np.int64) + indices.length)
            indices.append(block.indices)
            values.append(block.data)
        target = rows.dtype(source, dtype)
        check_value_range(rows.smallest, rows.largest, rows.total, target)
        values.convert(target)
        nonzeros = indices.length
    with ArrayWriter(partial / "columns.indptr.npy", "<i8") as ends:
        ends.append(np.concatenate([[0], np.cumsum(rows.column_counts)]))
    for leftover in partial.glob("*.spool"):
        leftover.unlink()
    files = list(ROW_FILES)
    for what, file in NAME_FILES.items():
        names = source.names.get(what)
        if names is not None:
            if what == "column_names":
                names = unique_features(names, str(place or "data"))
            (partial / file).write_bytes(one_a_line([str(name) for name in names], what))
            files.append(file)
    return {
        "shape": list(shape),
        "nonzeros": nonzeros,
        "dtype": target.newbyteorder("<").str,
        "whole": rows.whole and rows.largest < 2**53,
        "smallest": rows.smallest if nonzeros else 0.0,
        "largest": rows.largest,
        "open_features": source.open_features,
        "sizes": {name: (partial / name).stat().st_size for name in files},
    }


def _wrong(place: Path | None, message: str) -> ValueError:
    """Error of a file, where the data are one."""
    return ValueError(message) if place is None else ReadError(place, message)


def _is_exact(values: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float32), values))


class RowsSeen:
    """Blocks of rows in canonical form, and what has been seen in them."""

    def __init__(self, shape: tuple[int, int], place: Path | None) -> None:
        self.place = place
        self.column_counts = np.zeros(shape[1], dtype=np.int64)
        self.done = 0
        self.smallest, self.largest, self.total = float("inf"), 0.0, 0.0
        self.whole, self.were_canonical = True, True

    def checked(self, block: sp.csr_array) -> sp.csr_array:
        """Sorted, without duplicates and zeros; or an error with the place of the wrong value."""
        wrong = first_wrong(block.data)
        if wrong is not None:
            row = int(np.searchsorted(block.indptr, wrong, side="right")) - 1 + self.done
            message = (
                f"row {row}, column {block.indices[wrong]} holds {block.data[wrong]}; counts are "
                "finite numbers of 0 or more."
            )
            raise _wrong(self.place, message)
        if not block.has_canonical_format or not block.data.all():
            self.were_canonical = False
            arrays = (
                block.data.astype(type_of_sums(block.data)),
                block.indices.copy(),
                block.indptr.copy(),
            )
            block = sp.csr_array(arrays, shape=block.shape)
            block.sum_duplicates()
            block.eliminate_zeros()
        self.done += block.shape[0]
        if block.nnz:
            self.smallest = min(self.smallest, float(block.data.min()))
            self.largest = max(self.largest, float(block.data.max()))
            self.total += float(block.data.sum(dtype=np.float64))
            self.whole = self.whole and bool((block.data == np.rint(block.data)).all())
            self.column_counts += np.bincount(block.indices, minlength=len(self.column_counts))
        return block

    def dtype(self, source: Source, requested: Any) -> np.dtype[Any]:
        """Type that a fit in memory would compute in."""
        if requested is not None:
            return working_dtype(np.zeros(0), requested)
        given = source.dtype
        counts = self.whole and self.largest <= np.iinfo(np.int32).max
        if given.kind in "biu" or (source.as_counts and counts):
            return np.dtype(np.float32 if self.largest < EXACT_IN_FLOAT32 else np.float64)
        if source.as_counts and not self.were_canonical:
            return np.dtype(np.float64)  # sums were taken in it
        return np.dtype(np.float32 if given.itemsize <= 4 else np.float64)


# ---- columns and header --------------------------------------------------------------------------


def _view(partial: Path, facts: dict[str, Any], mode: int) -> MappedView:
    shape = tuple(facts["shape"])
    return open_view(partial, mode, shape, facts["nonzeros"], np.dtype(facts["dtype"]))


def write_columns(partial: Path, facts: dict[str, Any], limit: int) -> None:
    """Write the same entries column after column."""
    view = _view(partial, facts, 0)
    counts = np.diff(np.load(partial / "columns.indptr.npy", mmap_mode="r"))
    dtype = index_dtype(facts["shape"][0])
    for leftover in partial.glob("*.bucket"):
        leftover.unlink()
    with (
        ArrayWriter(partial / "columns.indices.npy", dtype) as indices,
        ArrayWriter(partial / "columns.values.npy", facts["dtype"]) as values,
    ):
        for rows, entries in transposed_blocks(view, counts, limit, partial):
            indices.append(rows)
            values.append(entries)


def write_header(partial: Path, facts: dict[str, Any]) -> None:
    """Write sums, then the header with the checksums of everything."""
    shape = tuple(facts["shape"])
    for mode, name in enumerate(MODES):
        with ArrayWriter(partial / f"{name}.sums.npy", "<f8") as sums:
            sums.append(row_sums(_view(partial, facts, mode)))
    known = measured_facts(partial, _view(partial, facts, 0))
    arrays = arrays_of(shape, facts["nonzeros"], np.dtype(facts["dtype"]))
    names = [*arrays, *(file for file in NAME_FILES.values() if (partial / file).exists())]
    files = {
        name: {"bytes": (partial / name).stat().st_size, "sha256": sha256(partial / name)}
        for name in names
    }
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "klnmf": version("klnmf")}
    content = {name: value for name, value in facts.items() if name != "sizes"}
    header = {**header, **content, **known, "files": files}
    write_json(partial / HEADER, header)
    remember(partial, header)
