"""The data as the solvers see it: one CSR view per mode, and the sums every solver needs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import xlogy

from klnmf.data.row_constraints import RowConstraints
from klnmf.support.caching import cached_property

Array = npt.NDArray[Any]

# Rows per partial sum. Every total is a sum of such blocks, by row number, so that its bits depend
# neither on threads nor on how rows are stored; blocks on disk and partitions are multiples of it.
ROWS_PER_SUM = 4096


def blocked_sum(values: Array) -> float:
    """Sum in float64 over blocks of ``ROWS_PER_SUM`` values, in order."""
    starts = np.arange(0, len(values), ROWS_PER_SUM)
    if len(starts) == 0:
        return 0.0
    return float(np.add.reduceat(np.asarray(values, dtype=np.float64), starts).sum())


# Nonzeros of which a pass over the data makes a float64 copy at a time.
NONZEROS_PER_PASS = 1 << 20


def row_ranges(indptr: Array, n_nonzeros: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, in order, of at most so many nonzeros, or of one row that has more.

    Examples
    --------
    >>> import numpy as np
    >>> list(row_ranges(np.array([0, 2, 3, 9, 9, 10]), 3))
    [(0, 2), (2, 3), (3, 5)]
    """
    start, n_rows = 0, len(indptr) - 1
    while start < n_rows:
        stop = int(np.searchsorted(indptr, indptr[start] + n_nonzeros, side="right")) - 1
        stop = min(max(stop, start + 1), n_rows)
        yield start, stop
        start = stop


def constant_of(values: Array) -> float:
    """Σ (v log v − v) of at most ``NONZEROS_PER_PASS`` values, of at least one."""
    weights: Array | float = 1.0
    if values.max() < 1 << 16:  # so casting is safe; most counts are few different numbers
        whole = values.astype(np.intp)  # what bincount counts
        if np.array_equal(whole, values):
            weights = np.bincount(whole)
            values = np.arange(len(weights))
    piece = values.astype(np.float64)
    return float(np.sum(weights * (xlogy(piece, piece) - piece)))


def is_exact_in_float32(values: Array) -> bool:
    """Whether values lose nothing in float32, as whole numbers do."""
    pieces = (values[start : start + (1 << 16)] for start in range(0, len(values), 1 << 16))
    with np.errstate(over="ignore"):
        return all(np.array_equal(piece, piece.astype(np.float32)) for piece in pieces)


MOST_COLUMNS = np.iinfo(np.int32).max


def check_n_columns(n_columns: int) -> None:
    """Refuse rows of more columns than back-ends can number.

    Raises
    ------
    ValueError
        If there are more than ``MOST_COLUMNS``. The rows of Xᵀ have a column for each sample.
    """
    if n_columns > MOST_COLUMNS:
        raise ValueError(
            f"A matrix with {n_columns:,} rows or columns is too large: at most {MOST_COLUMNS:,} "
            "of each are supported. Remove rows and columns without counts, or fit a part of the "
            "matrix."
        )


def column_numbers(indices: Array, n_columns: int) -> Array:
    """Return column numbers in the one type that back-ends take, int32.

    SciPy has wider ones where there are more than 2³¹ nonzeros, because there it widens both
    index arrays. Half the bytes of the indices is half the traffic.

    Examples
    --------
    >>> import numpy as np
    >>> column_numbers(np.array([0, 2], dtype=np.int64), 3)
    array([0, 2], dtype=int32)
    """
    check_n_columns(n_columns)
    return np.ascontiguousarray(indices, dtype=np.int32)


class Piece(NamedTuple):
    """Some rows of a view, one after the other, as a view of their own."""

    rows: slice
    indptr: Array  # from 0
    indices: Array
    values: Array
    terms: RowConstraints | None = None  # what these rows have of their own


@dataclass(frozen=True)
class RowView:
    """One mode of the data: row i holds ``values[indptr[i]:indptr[i+1]]`` at ``indices``."""

    indptr: Array  # int64, n_rows + 1
    indices: Array  # int32, see column_numbers
    values: Array  # float32 or float64
    n_columns: int
    terms: RowConstraints | None = None  # what the rows have of their own

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of nonzeros."""
        return int(self.indptr[-1])

    @cached_property
    def row_sums(self) -> Array:
        """Sum of each row, in float64."""
        sums = np.zeros(self.n_rows)
        for start, stop in row_ranges(self.indptr, NONZEROS_PER_PASS):
            ends = self.indptr[start : stop + 1]
            filled = np.flatnonzero(np.diff(ends))
            if len(filled):
                values = self.values[ends[0] : ends[-1]].astype(np.float64, copy=False)
                # From the start of a nonempty row to that of the next one.
                sums[start + filled] = np.add.reduceat(values, ends[filled] - ends[0])
        return sums

    def pieces(self) -> Iterator[Piece]:
        """All rows in the pieces in which a back-end is to go over them; here one."""
        rows = slice(0, self.n_rows)
        yield Piece(rows, self.indptr, self.indices, self.values, self.terms)

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return indptr, indices and values of these rows, and of nothing else."""
        starts, lengths = self.indptr[rows], np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1])
        return indptr, self.indices[places], self.values[places]

    def as_csr(self) -> sp.csr_array:
        """Return the view as a SciPy array that shares its values and indices."""
        indptr = self.indptr
        if len(self.values) <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)  # SciPy would widen the indices to match
        shape = (self.n_rows, self.n_columns)
        return sp.csr_array((self.values, self.indices, indptr), shape=shape)


def checksum_of_sums(row_sums: Array, column_sums: Array) -> int:
    """Checksum of the sums of X, by which a fitted model knows the counts it was fitted to.

    Sums of whole numbers are exact, so that it does not depend on how X is stored, nor on its type.
    The order of the samples, and samples without counts, make no difference to a model or to this.
    """
    rows = np.sort(row_sums[row_sums > 0])
    both = np.concatenate([rows, column_sums]).astype("<f8")
    return zlib.crc32(both.view(np.uint8).data)


def view_of(matrix: sp.csr_array, terms: RowConstraints | None = None) -> RowView:
    """Return a canonical CSR array as a view that shares its memory where it can."""
    return RowView(
        indptr=np.ascontiguousarray(matrix.indptr, dtype=np.int64),
        indices=column_numbers(matrix.indices, matrix.shape[1]),
        values=np.ascontiguousarray(matrix.data),
        n_columns=matrix.shape[1],
        terms=terms,
    )


def counts_checksum(X: sp.csr_array) -> int:
    """Checksum as by :func:`checksum_of_sums` of a canonical CSR array, without its transpose."""
    columns = np.bincount(X.indices, weights=X.data, minlength=X.shape[1])
    return checksum_of_sums(view_of(X).row_sums, columns)


class SparseData:
    """X by rows and, when first asked for, by columns.

    Parameters
    ----------
    X : scipy.sparse.csr_array
        Canonical (sorted, no duplicates), positive values, float32 or float64: what
        :func:`klnmf.data.validation.check_counts` returns. It is not copied.
    terms : pair of RowConstraints or None
        What the row problems of W, and those of H, have of their own.
    """

    def __init__(
        self,
        X: sp.csr_array,
        terms: tuple[RowConstraints | None, RowConstraints | None] = (None, None),
    ) -> None:
        self.shape: tuple[int, int] = X.shape
        self.dtype: np.dtype[Any] = X.dtype
        self._by_rows = view_of(X, terms[0])
        self._terms_of_columns = terms[1]

    @cached_property
    def _by_columns(self) -> RowView:
        return view_of(sp.csr_array(self._by_rows.as_csr().T), self._terms_of_columns)

    # Whether shape and type are known before a back-end has the data.
    has_known_shape: bool = True

    def view(self, mode: int) -> RowView:
        """Rows of X for mode 0 (the row problems of W), of Xᵀ for mode 1 (those of H)."""
        return self._by_rows if mode == 0 else self._by_columns

    def over_rows(self, function: Callable[[Piece], Any]) -> Iterator[Any]:
        """Results of a function for pieces of X by rows that are all of it, where these are."""
        return map(function, self.view(0).pieces())

    @property
    def nnz(self) -> int:
        """Number of nonzeros of X."""
        return self._by_rows.nnz

    @cached_property
    def total(self) -> float:
        """Σ X."""
        return blocked_sum(self._by_rows.row_sums)

    @cached_property
    def is_exact_in_float32(self) -> bool:
        """Whether the values are float64 and lose nothing in float32, as whole numbers do."""
        return self.dtype == np.float64 and is_exact_in_float32(self._by_rows.values)

    @cached_property
    def divergence_constant(self) -> float:
        """Σ (X log X − X): the part of the divergence that does not depend on W and H."""
        pieces = range(0, self.nnz, NONZEROS_PER_PASS)  # no float64 copy of all the values
        values = self._by_rows.values
        return sum((constant_of(values[s : s + NONZEROS_PER_PASS]) for s in pieces), 0.0)

    def prepare(self) -> None:
        """Compute now what would otherwise be computed when it is first asked for."""
        _ = (self.view(1), self.total, self.divergence_constant)

    @cached_property
    def fingerprint(self) -> tuple[Any, ...]:
        """Return what a solver's state must agree with to belong to this data."""
        checksum = 0
        for array in (self._by_rows.indptr, self._by_rows.indices, self._by_rows.values):
            checksum = zlib.crc32(array.view(np.uint8).data, checksum)
        return (self.shape, self.nnz, self.dtype.str, checksum)

    @property
    def sums_checksum(self) -> int:
        """See :func:`checksum_of_sums`; the sums are there, since every start needs them."""
        return checksum_of_sums(self.view(0).row_sums, self.view(1).row_sums)
