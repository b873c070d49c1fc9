"""Counts that arrive in blocks of entries: the form between a file and whatever takes its counts.

`klnmf.readers.read_counts` collects a stream in memory, and `klnmf.prepare` writes it to a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import Entries, row_numbers
from klnmf.data.matrix_checks import check_indptr, csr_from_parts
from klnmf.data.sums import row_ranges
from klnmf.support.array_types import Array
from klnmf.support.input_files import ReadError

Shape = tuple[int, int]
_INT32 = np.dtype(np.int32)
Blocks = Callable[[int], Iterator[Entries]]


class Outline(NamedTuple):
    """What describes a matrix beside its entries."""

    shape: Shape
    about: dict[str, Any]  # names and labels: keyword arguments of CountTable
    dtype: np.dtype[Any] = np.dtype(np.float64)


@dataclass(frozen=True)
class CountStream:
    """Counts in blocks of entries, all of one type.

    ``blocks`` is called with about the largest number of entries of a block, ``outline`` after the
    last block: some files say how many rows they have only by ending.
    """

    blocks: Blocks
    outline: Callable[[], Outline]
    in_order: bool = False  # whether row numbers never decrease, from block to block either
    as_counts: bool = True  # whether whole numbers are counts, whatever their type
    hint: str = ""  # to add to the message if the counts are not valid

    def transposed(self) -> CountStream:
        """Stream with rows and columns exchanged; labels and ids are left out."""

        def outline() -> Outline:
            shape, about, dtype = self.outline()
            other = {"row_names": "column_names", "column_names": "row_names"}
            other["open_features"] = "open_features"
            about = {other[name]: value for name, value in about.items() if name in other}
            return Outline(shape[::-1], about, dtype)

        return replace(self, blocks=swapped(self.blocks), outline=outline, in_order=False)


# ---- from memory ---------------------------------------------------------------------------------


def stream_of_matrix(
    csr: sp.csr_array, about: dict[str, Any] | None = None, *, as_counts: bool = True
) -> CountStream:
    """Stream of a matrix in memory."""
    outline = Outline(csr.shape, about or {}, csr.dtype)
    return CountStream(
        lambda limit: _blocks_of(csr, limit), lambda: outline, in_order=True, as_counts=as_counts
    )


def _blocks_of(csr: sp.csr_array, limit: int) -> Iterator[Entries]:
    for start, stop in row_ranges(csr.indptr, limit):
        entries = slice(csr.indptr[start], csr.indptr[stop])
        rows = row_numbers(csr.indptr[start : stop + 1], start)
        yield Entries(rows, csr.indices[entries], csr.data[entries])


# ---- from compressed rows ------------------------------------------------------------------------


def compressed_blocks(
    path: Path,
    shape: Shape,
    indptr: Array,
    take: Callable[[int, int], tuple[Array, Array]],
    limit: int,
    name: str = "the matrix",
    form: str = "csr",
) -> Iterator[Entries]:
    """Blocks of whole rows of a CSR matrix in a file, or of a CSC matrix taken as its transpose.

    ``take`` reads the column numbers and the counts of a range of entries. It is called for one
    range after the other. Wrong arrays become a `ReadError`, in which ``name`` is the matrix.
    """
    try:
        yield from _checked_blocks(shape, indptr, take, limit)
    except (TypeError, ValueError) as error:
        problem = f"{name} is not a valid {form.upper()} matrix: {error.__cause__ or error}"
        raise ReadError(path, problem) from error


def _checked_blocks(
    shape: Shape, indptr: Array, take: Callable[[int, int], tuple[Array, Array]], limit: int
) -> Iterator[Entries]:
    check_indptr(indptr, shape[0])
    for start, stop in row_ranges(indptr, limit):
        first, last = int(indptr[start]), int(indptr[stop])
        indices, data = take(first, last)
        if len(indices) != last - first or len(data) != last - first:
            raise ValueError(f"indptr ends at {indptr[-1]:,}, beyond the entries. It is cut off.")
        parts = {"data": data, "indices": indices, "indptr": indptr[start : stop + 1] - first}
        rows = csr_from_parts("csr", parts, (stop - start, shape[1]))
        yield Entries(row_numbers(rows.indptr, start), rows.indices, rows.data)


def compressed_stream(blocks: Blocks, outline: Outline, form: str, hint: str = "") -> CountStream:
    """Stream of blocks of rows; those of a CSC matrix are blocks of its transpose."""
    is_csc = form == "csc"
    ordered = swapped(blocks) if is_csc else blocks
    return CountStream(ordered, lambda: outline, in_order=not is_csc, hint=hint)


def swapped(blocks: Blocks) -> Blocks:
    """Exchange rows and columns of all blocks."""
    return lambda limit: (Entries(columns, rows, counts) for rows, columns, counts in blocks(limit))


# ---- collecting ----------------------------------------------------------------------------------


class _GrowingArray:
    """Numbers, none below 0, in four bytes each as long as that holds them exactly."""

    def __init__(self) -> None:
        self._dtype, self._bytes = _INT32, bytearray()

    def extend(self, values: Array) -> None:
        if self._dtype == _INT32 and not _fit_int32(values):
            self._bytes = bytearray(self.array().astype(values.dtype).tobytes())
            self._dtype = values.dtype
        self._bytes += values.astype(self._dtype).tobytes()

    def array(self) -> Array:
        return np.frombuffer(self._bytes, self._dtype)


def _fit_int32(values: Array) -> bool:
    if not len(values):
        return True
    # NaN fails every comparison. In float32, 2³¹ is not above the largest number of int32.
    is_small = bool(values.min() >= 0 and values.max() < 2**31)
    return is_small and (values.dtype.kind != "f" or bool((values == np.rint(values)).all()))


def collected(blocks: Iterable[Entries], shape: Callable[[], Shape], in_order: bool = False) -> Any:
    """Sparse array of all entries, not summed; ``shape`` is called after the last block."""
    rows, columns, counts = _GrowingArray(), _GrowingArray(), _GrowingArray()
    lengths: list[tuple[int, Array]] = []  # first row of a block, and the entries per row
    for block in blocks:
        columns.extend(block.columns)
        counts.extend(block.values)
        if not in_order:
            rows.extend(block.rows)
        elif len(block.rows):
            lengths.append((int(block.rows[0]), np.bincount(block.rows - block.rows[0])))
    if not in_order:
        return sp.coo_array((counts.array(), (rows.array(), columns.array())), shape=shape())
    indptr = np.zeros(shape()[0] + 1, dtype=np.int64)
    for first, numbers in lengths:
        indptr[first + 1 : first + 1 + len(numbers)] += numbers
    np.cumsum(indptr, out=indptr)
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)  # or SciPy would widen the column numbers
    return sp.csr_array((counts.array(), columns.array(), indptr), shape=shape())
