"""Counts in blocks of rows, with the rates x Aᵀ of their nonzeros, so that arrays stay small.

Of a tensor, A are the factors of the other modes, one below the other, and the row of A of a
nonzero is the product of one row of each.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import row_numbers
from klnmf.data.sparse_data import InMemoryView, at_cells, view_of
from klnmf.data.sums import row_ranges
from klnmf.support.array_types import Array, FloatArray

ENTRIES_AT_ONCE = 1 << 22  # numbers in a temporary array


class RowBlock(NamedTuple):
    """Some rows: their counts, and of each nonzero its row, its column's row of A and its rate."""

    rows: slice
    counts: InMemoryView
    row: Array  # from 0
    a: FloatArray
    y: FloatArray


def row_blocks(
    counts: sp.csr_array | InMemoryView,
    x: FloatArray,
    A: FloatArray,
    *,
    has_matrices: bool = False,
) -> Iterator[RowBlock]:
    """Yield blocks for arrays of nonzeros × r numbers, with matrices also rows × r × r."""
    r = x.shape[1]
    view = counts if isinstance(counts, InMemoryView) else view_of(counts)
    most_rows = max(1, ENTRIES_AT_ONCE // r**2) if has_matrices else len(x)
    for first, last in row_ranges(view.indptr, max(1, ENTRIES_AT_ONCE // r)):
        for start in range(first, last, most_rows):
            rows = slice(start, min(start + most_rows, last))
            part = view.part(rows)
            row = row_numbers(part.indptr)
            a = at_cells(A, part.indices)
            yield RowBlock(rows, part, row, a, np.einsum("pk,pk->p", x[rows][row], a))
