"""The stages of preparing a matrix: rows, then from them columns, then the header."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import canonical
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
from klnmf.data.on_disk.verification import measured_facts, remember
from klnmf.data.on_disk.views import open_rows
from klnmf.data.sparse_data import check_n_columns
from klnmf.data.validation import EXACT_IN_FLOAT32, check_value_range, working_dtype
from klnmf.preparing.sorting import Tally, row_blocks, transposed_blocks
from klnmf.readers.matrix_files import one_per_line
from klnmf.readers.streams import CountStream
from klnmf.readers.table import as_names, refuse_wrong_counts, unique_features
from klnmf.support.array_types import Array
from klnmf.support.input_files import ReadError


def write_rows(
    partial: Path, stream: CountStream, limit: int, dtype: Any, place: Path | None
) -> dict[str, Any]:
    """Write the rows, and where columns begin; return the facts. Errors name the file ``place``."""
    rows = RowsSeen(place)
    with ExitStack() as stack:
        indptr = stack.enter_context(ArrayWriter(partial / "rows.indptr.npy", "<i8"))
        indices = stack.enter_context(ArrayWriter(partial / "rows.indices.npy", "<i4"))
        values = stack.enter_context(ArrayWriter(partial / "rows.values.npy", "<f4"))
        indptr.append(np.zeros(1, np.int64))
        for block in row_blocks(stream, limit, partial):
            block = rows.checked(block)
            if values.dtype == np.float32 and not _is_exact(block.data):
                values.convert("<f8")
            indptr.append(block.indptr[1:].astype(np.int64) + indices.length)
            indices.append(block.indices)
            values.append(block.data)
        shape, about, given = stream.outline()
        if 0 in shape:
            raise ValueError(f"A matrix of {shape[0]} × {shape[1]} cannot be fitted: it is empty.")
        check_n_columns(shape[1])
        nonzeros = indices.length
        indptr.append(np.full(shape[0] - rows.done, nonzeros))
        target = rows.dtype(given, stream.as_counts, dtype)
        check_value_range(rows.smallest, rows.largest, rows.total, target)
        values.convert(target)
    with ArrayWriter(partial / "columns.indptr.npy", "<i8") as ends:
        ends.append(np.concatenate([[0], np.cumsum(rows.columns.counts(shape[1]))]))
    with _of_file(place):
        files = [*ROW_FILES, *_write_names(partial, shape, about, str(place or "data"))]
    return {
        "shape": list(shape),
        "nonzeros": nonzeros,
        "dtype": target.newbyteorder("<").str,
        "whole": rows.whole and rows.largest < 2**53,
        "smallest": rows.smallest if nonzeros else 0.0,
        "largest": rows.largest,
        "open_features": about.get("open_features", False),
        "sizes": {name: (partial / name).stat().st_size for name in files},
    }


def _write_names(
    partial: Path, shape: tuple[int, int], about: dict[str, Any], whose: str
) -> list[str]:
    """Write the files of names and labels; return their names."""
    files = []
    for what, file in NAME_FILES.items():
        mode = int(what == "column_names")
        names = as_names(about.get(what), shape[mode], what, ("row", "column")[mode])
        if names is not None:
            names = unique_features(names, whose) if mode == 1 else names
            (partial / file).write_bytes(one_per_line(names, what, ""))
            files.append(file)
    return files


@contextmanager
def _of_file(place: Path | None) -> Iterator[None]:
    """Let errors in the data name the file that they come from, if any."""
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error)) if place is None else ReadError(place, str(error)) from error


def _is_exact(values: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float32), values))


class RowsSeen:
    """Blocks of rows in canonical form, and what has been seen in them."""

    def __init__(self, place: Path | None) -> None:
        self.place = place
        self.columns = Tally()
        self.done = 0
        self.smallest, self.largest, self.total = float("inf"), 0.0, 0.0
        self.whole, self.were_canonical = True, True

    def checked(self, block: sp.csr_array) -> sp.csr_array:
        """Sorted, without duplicates and zeros; or an error with the place of the wrong value."""
        with _of_file(self.place):
            refuse_wrong_counts(block, first_row=self.done)
        given, block = block, canonical(block)
        self.were_canonical = self.were_canonical and block is given
        self.done += block.shape[0]
        check_n_columns(block.shape[1])
        if block.nnz:
            self.smallest = min(self.smallest, float(block.data.min()))
            self.largest = max(self.largest, float(block.data.max()))
            self.total += float(block.data.sum(dtype=np.float64))
            self.whole = self.whole and bool((block.data == np.rint(block.data)).all())
            self.columns.add(block.indices)
        return block

    def dtype(self, given: np.dtype[Any], as_counts: bool, requested: Any) -> np.dtype[Any]:
        """Type that a fit in memory would compute in."""
        if requested is not None:
            return working_dtype(np.zeros(0), requested)
        counts = self.whole and self.largest <= np.iinfo(np.int32).max
        if given.kind in "biu" or (as_counts and counts):
            return np.dtype(np.float32 if self.largest < EXACT_IN_FLOAT32 else np.float64)
        if as_counts and not self.were_canonical:
            return np.dtype(np.float64)  # sums were taken in it
        return np.dtype(np.float32 if given.itemsize <= 4 else np.float64)


# ---- columns and header --------------------------------------------------------------------------


def write_columns(partial: Path, facts: dict[str, Any], limit: int) -> None:
    """Write the same entries column after column."""
    stored = open_rows(partial, 0, facts)
    counts = np.diff(np.load(partial / "columns.indptr.npy", mmap_mode="r"))
    dtype = index_dtype(facts["shape"][0])
    for leftover in partial.glob("*.bucket"):
        leftover.unlink()
    with (
        ArrayWriter(partial / "columns.indices.npy", dtype) as indices,
        ArrayWriter(partial / "columns.values.npy", facts["dtype"]) as values,
    ):
        for rows, entries in transposed_blocks(stored, counts, limit, partial):
            indices.append(rows)
            values.append(entries)


def write_header(partial: Path, facts: dict[str, Any]) -> None:
    """Write sums, then the header with the checksums of everything."""
    for mode, name in enumerate(MODES):
        with ArrayWriter(partial / f"{name}.sums.npy", "<f8") as sums:
            sums.append(open_rows(partial, mode, facts).row_sums())
    names = [
        *arrays_of(facts),
        *(name for name in NAME_FILES.values() if (partial / name).exists()),
    ]
    files = {
        name: {"bytes": (partial / name).stat().st_size, "sha256": sha256(partial / name)}
        for name in names
    }
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "klnmf": version("klnmf")}
    header |= {name: value for name, value in facts.items() if name != "sizes"}
    header |= measured_facts(partial, open_rows(partial, 0, facts)) | {"files": files}
    write_json(partial / HEADER, header)
    remember(partial, header)
