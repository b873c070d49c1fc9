"""Writing the folder of a matrix, in bounded memory: rows, then from them columns, then the header.

The folder has another name until it is complete.
"""

import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import canonical
from klnmf.data.matrix_checks import refuse_wrong_counts
from klnmf.data.names import as_names, one_per_line, unique_features
from klnmf.data.observed_data import ValueFacts
from klnmf.data.on_disk.arrays import ArrayWriter
from klnmf.data.on_disk.layout import (
    FORMAT,
    HEADER,
    INDEX,
    MODES,
    NAME_FILES,
    VERSION,
    arrays_of,
    sha256,
    write_json,
)
from klnmf.data.on_disk.sorting import Tally, row_blocks, transposed_blocks
from klnmf.data.on_disk.verification import remember
from klnmf.data.on_disk.views import MappedRows, open_rows
from klnmf.data.sparse_data import check_n_columns
from klnmf.data.streams import CountStream
from klnmf.data.sums import blocked_sum
from klnmf.data.validation import EXACT_IN_FLOAT32, check_value_range, working_dtype
from klnmf.support.array_types import Array
from klnmf.support.input_files import ReadError
from klnmf.support.npy_headers import VECTOR_HEADER
from klnmf.support.whole_files import locked_folder, naming

_ENTRIES = 1 << 20  # that are measured at a time
_CHUNK = 1 << 22  # bytes that are read at a time


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make a folder under another name, which becomes ``target`` when the block ends.

    What another process is writing to is refused, and what one that was killed left is removed.
    """
    partial = target.with_name(f"{target.name}.partial")
    partial.mkdir(exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locked_folder(partial))
        except BlockingIOError:
            problem = f"{partial} is being written to by another process."
            raise FileExistsError(f"{problem} Wait for it, or choose another name.") from None
        try:
            for leftover in partial.iterdir():
                leftover.unlink()
            with naming(partial):
                yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        old = target.with_name(f"{target.name}.old")
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(target, old)
        os.rename(partial, target)
        shutil.rmtree(old, ignore_errors=True)


def write_rows(
    partial: Path, stream: CountStream, limit: int, dtype: Any, place: Path | None
) -> dict[str, Any]:
    """Write the rows, and where columns begin; return the facts. Errors name the file ``place``."""
    rows = RowsSeen(place)
    with ExitStack() as stack:
        indptr = stack.enter_context(ArrayWriter(partial / "rows.indptr.npy", "<i8"))
        indices = stack.enter_context(ArrayWriter(partial / "rows.indices.npy", INDEX))
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
        check_n_columns(max(shape))
        nonzeros = indices.length
        indptr.append(np.full(shape[0] - rows.done, nonzeros))
        target = rows.dtype(given, stream.as_counts, dtype)
        check_value_range(rows.smallest, rows.largest, rows.total, target)
        values.convert(target)
    with ArrayWriter(partial / "columns.indptr.npy", "<i8") as ends:
        ends.append(np.concatenate([[0], np.cumsum(rows.columns.counts(shape[1]))]))
    with _of_file(place):
        _write_names(partial, shape, about, str(place or "data"))
    return {
        "shape": list(shape),
        "nonzeros": nonzeros,
        "dtype": target.newbyteorder("<").str,
        "whole": rows.whole and rows.largest < 2**53,
        "smallest": rows.smallest if nonzeros else 0.0,
        "largest": rows.largest,
        "open_features": about.get("open_features", False),
    }


def _write_names(partial: Path, shape: tuple[int, int], about: dict[str, Any], whose: str) -> None:
    """Write the files of names and labels."""
    for what, file in NAME_FILES.items():
        mode = int(what == "column_names")
        names = as_names(about.get(what), shape[mode], what, ("row", "column")[mode])
        if names is not None:
            names = unique_features(names, whose) if mode == 1 else names
            (partial / file).write_bytes(one_per_line(names, what, ""))


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
    with (
        ArrayWriter(partial / "columns.indices.npy", INDEX) as indices,
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
    header |= facts | _measured(partial, open_rows(partial, 0, facts)) | {"files": files}
    write_json(partial / HEADER, header)
    remember(partial, header)


def _measured(folder: Path, stored: MappedRows) -> dict[str, Any]:
    """Return what a header says about the values, by the code that measures them in memory."""
    seen = ValueFacts()
    for start in range(0, stored.nnz, _ENTRIES):
        seen.add(stored.values.read(start, min(start + _ENTRIES, stored.nnz)))
    checksum = 0  # of the same matrix in memory, see CountData.fingerprint
    for part in ("indptr", "indices", "values"):
        with (folder / f"{MODES[0]}.{part}.npy").open("rb") as stream:
            stream.seek(VECTOR_HEADER)
            while piece := stream.read(_CHUNK):
                checksum = zlib.crc32(piece, checksum)
    return {
        "total": blocked_sum(stored.row_sums()),
        "divergence_constant": seen.constant.total,
        "exact_in_float32": stored.values.dtype == np.float64 and seen.is_exact,
        "checksum": checksum,
    }
