"""What workers do with the blocks of a Dask array: check, cut, transpose, sum."""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.cell_weights import CellWeights
from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.not_counts import transformation_of
from klnmf.data.passes import constant_of, is_exact_in_float32
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import InMemoryView, Piece, view_of
from klnmf.data.validation import check_counts
from klnmf.support.array_types import Array


class BlockFacts(NamedTuple):
    """What the driver wants to know of a block."""

    dtype: str
    least: float
    largest: float
    total: float
    is_exact: bool  # in float32
    lengths: Array  # of its rows
    transformation: str | None  # see klnmf.data.not_counts


def checked_block(
    blocks: list[Any], dtype: Any, name: str, first_row: int, missing: sp.csr_array | None = None
) -> sp.csr_array:
    """Check the blocks of some rows, side by side, and return them as one canonical matrix.

    The values in cells that are ``missing`` do not matter.
    """
    sparse = [b.to_scipy_sparse() if hasattr(b, "to_scipy_sparse") else b for b in blocks]
    block = sparse[0]
    if len(sparse) > 1:
        block = sp.hstack([sp.csr_array(checked_matrix(b)) for b in sparse], format="csr")
    return check_counts(
        block,
        dtype=dtype,
        name=name,
        first_row=first_row,
        takes_missing=True,
        missing=missing,
        estimator=name,
        ensure_min_samples=0,
    )


def facts_of_block(block: sp.csr_array) -> BlockFacts:
    """See :class:`BlockFacts`."""
    values = block.data
    return BlockFacts(
        dtype=block.dtype.name,
        least=float(values.min(initial=np.inf)),
        largest=float(values.max(initial=0.0)),
        total=float(values.sum(dtype=np.float64)),
        is_exact=is_exact_in_float32(values),
        lengths=np.diff(block.indptr),
        transformation=transformation_of(view_of(block)),
    )


def weighted_block(block: sp.csr_array, dtype: np.dtype[Any], weights: CellWeights) -> sp.csr_array:
    """Return a block as a fit sees it."""
    return weights.applied_to(block.astype(dtype))


def column_lengths(block: sp.csr_array) -> Array:
    """Nonzeros of each column."""
    return np.bincount(block.indices, minlength=block.shape[1])


def stacked_rows(
    pieces: list[tuple[sp.csr_array, int, int]],
    dtype: np.dtype[Any],
    n_columns: int,
    row_constraints: RowConstraints | None,
) -> InMemoryView:
    """Rows from several blocks: a range of rows from each."""
    rows = [sp.csr_array(block[start:stop]) for block, start, stop in pieces]
    empty = sp.csr_array((0, n_columns), dtype=dtype)
    stacked = sp.csr_array(sp.vstack([empty, *rows], format="csr"))
    stacked.sort_indices()
    return view_of(sp.csr_array(stacked.astype(dtype, copy=False)), row_constraints)


def by_columns(rows: InMemoryView) -> sp.csc_array:
    """Return a part of X by columns."""
    return sp.csc_array(rows.as_csr())


def picked_columns(part: sp.csc_array, start: int, stop: int) -> sp.csr_array:
    """Return some columns of a part of X, as rows."""
    ends = part.indptr[start : stop + 1]
    entries = slice(int(ends[0]), int(ends[-1]))
    return sp.csr_array(
        (part.data[entries], part.indices[entries], ends - ends[0]),
        shape=(stop - start, part.shape[0]),
    )


def joined_columns(
    pieces: list[sp.csr_array], row_constraints: RowConstraints | None
) -> InMemoryView:
    """Columns of X as rows, from the pieces of all parts, in order."""
    return view_of(sp.csr_array(sp.hstack(pieces, format="csr")), row_constraints)


def on_rows(function: Callable[[Piece], Any], view: InMemoryView, rows: slice) -> Any:
    """Apply a function to a part; ``rows`` are its rows of X."""
    return function(next(view.pieces())._replace(rows=rows))


def same(rows: InMemoryView) -> InMemoryView:
    """Return a part as it is: a task that brings it to another worker."""
    return rows


def values_between(rows: InMemoryView, start: int, stop: int) -> Array:
    """Return some of the values of a part."""
    return rows.values[start:stop]


def constant_of_pieces(pieces: list[Array]) -> float:
    """See :func:`klnmf.data.passes.constant_of`."""
    return constant_of(np.concatenate(pieces))


def checksum_with(rows: InMemoryView, name: str, before: int) -> int:
    """Checksum of the indices or values of a part after what has the checksum ``before``."""
    return zlib.crc32(getattr(rows, name).view(np.uint8).data, before)
