"""X as solvers see it: what every kind of data has, and data in memory.

A fit sees X once per mode: by rows for W, by columns (the rows of Xᵀ) for H, and so on for the
modes of a tensor. A `RowView` is one mode; `CountData` is all of them, with the totals that solvers
need.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import taken_rows
from klnmf.data.cell_weights import CellWeights
from klnmf.data.passes import is_exact_in_float32, transposed
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sums import DivergenceConstant, blocked_sum, sums_of_rows
from klnmf.data.validation import check_values
from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property

# ---- one mode ------------------------------------------------------------------------------------

MOST_COLUMNS = np.iinfo(np.int32).max


def check_n_columns(n_columns: int) -> None:
    """Refuse rows of more columns than back-ends can number; those of Xᵀ have one per sample."""
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

    >>> column_numbers(np.array([0, 2], dtype=np.int64), 3)
    array([0, 2], dtype=int32)
    """
    check_n_columns(n_columns)
    return np.ascontiguousarray(indices, dtype=np.int32)


def at_cells(stacked: Array, indices: Array) -> Array:
    """Entries at some cells: of a column, or the products of one of each mode of a tensor.

    ``stacked`` has an entry for each column of a view, and ``indices`` are as in a `Piece`.

    >>> at_cells(np.array([2.0, 3.0, 5.0]), np.array([[0, 1], [2, 2]]))
    array([10., 15.])
    """
    if indices.ndim == 1:
        return np.asarray(stacked[indices])
    product: Array = stacked[indices[0]]
    for of_mode in indices[1:]:  # faster than a product over the short axis
        product *= stacked[of_mode]
    return product


class Piece(NamedTuple):
    """Some consecutive rows of a view, in CSR form.

    A nonzero of a matrix has one column. One of a tensor has one in each of the other modes, whose
    columns are numbered one mode after the other: ``indices`` are (d − 1) × nnz then.
    """

    rows: slice
    indptr: Array  # from 0
    indices: Array
    values: Array
    row_constraints: RowConstraints | None = None  # of these rows


class RowView(ABC):
    """One mode of the data, by rows."""

    indptr: Array  # int64, n_rows + 1; row i has indptr[i + 1] - indptr[i] nonzeros
    n_columns: int  # of all other modes
    row_constraints: RowConstraints | None
    n_threads: int = 1  # of passes over the rows

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of columns of the other modes; they sum to ``n_columns``."""
        return (self.n_columns,)

    def split(self, columns: Array) -> list[Array]:
        """Return the parts of an array that has an entry or a row for each column, by mode."""
        return np.split(columns, np.cumsum(self.sizes)[:-1])

    @cached_property
    def row_sums(self) -> Array:
        """Sum of each row, in float64."""
        sums = np.zeros(self.n_rows)
        for piece in self.pieces():
            read = piece.values.__getitem__
            sums[piece.rows] = sums_of_rows(piece.indptr, read, self.n_threads)
        return sums

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of nonzeros."""
        return int(self.indptr[-1])

    def pieces(self) -> Iterator[Piece]:
        """All rows, in the pieces in which a back-end goes over them."""
        return self.whole().pieces()

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return indptr, indices and values of these rows, without reading others."""
        return self.whole().take_rows(rows)

    @abstractmethod
    def whole(self) -> InMemoryView:
        """Return all rows at once, for code that needs more memory than X anyway."""

    def as_csr(self) -> sp.csr_array:
        """Return the view as a SciPy array that shares its values and indices."""
        return self.whole().as_csr()


@dataclass(frozen=True)
class InMemoryView(RowView):
    """Row i holds ``values[indptr[i]:indptr[i+1]]`` at ``indices``; memory maps do as well."""

    indptr: Array
    indices: Array  # int32, see column_numbers
    values: Array  # float32 or float64
    n_columns: int
    row_constraints: RowConstraints | None = None
    n_threads: int = 1

    def pieces(self) -> Iterator[Piece]:
        """See :class:`RowView`; here one piece."""
        arrays = (self.indptr, self.indices, self.values)
        yield Piece(slice(0, self.n_rows), *arrays, self.row_constraints)

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`RowView`."""
        indptr, places = taken_rows(self.indptr, rows)
        return indptr, self.indices[..., places], self.values[places]

    def whole(self) -> InMemoryView:
        """See :class:`RowView`."""
        return self

    def part(self, rows: slice) -> InMemoryView:
        """Return consecutive rows as a view that shares the memory of this one."""
        ends = self.indptr[rows.start : rows.stop + 1]
        entries = slice(int(ends[0]), int(ends[-1]))
        return InMemoryView(
            ends - ends[0],
            column_numbers(self.indices[..., entries], self.n_columns),
            self.values[entries],
            self.n_columns,
            None if self.row_constraints is None else self.row_constraints.rows(rows),
        )

    def transposed(self, row_constraints: RowConstraints | None = None) -> InMemoryView:
        """Return the columns as rows; the entries of each are in the order of the rows here."""
        if self.values.dtype not in (np.float32, np.float64):
            return view_of(sp.csr_array(self.as_csr().T), row_constraints, self.n_threads)
        check_n_columns(self.n_rows)
        matrix = (self.indptr, self.indices, self.values, self.n_columns)
        arrays = transposed(*matrix, self.n_threads)
        return InMemoryView(*arrays, self.n_rows, row_constraints, self.n_threads)

    def as_csr(self) -> sp.csr_array:
        """See :class:`RowView`."""
        indptr = self.indptr
        if len(self.values) <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)  # SciPy would widen the indices to match
        shape = (self.n_rows, self.n_columns)
        return sp.csr_array((self.values, self.indices, indptr), shape=shape)


def view_of(
    matrix: sp.csr_array, row_constraints: RowConstraints | None = None, n_threads: int = 1
) -> InMemoryView:
    """Return a canonical CSR array as a view that shares its memory where it can."""
    return InMemoryView(
        indptr=np.ascontiguousarray(matrix.indptr, dtype=np.int64),
        indices=column_numbers(matrix.indices, matrix.shape[1]),
        values=np.ascontiguousarray(matrix.data),
        n_columns=matrix.shape[1],
        row_constraints=row_constraints,
        n_threads=n_threads,
    )


# ---- all modes -----------------------------------------------------------------------------------


def checksum_of_sums(row_sums: Array, *sums_of_others: Array) -> int:
    """Checksum of the sums of X, by which a fitted model recognises the counts of its fit.

    Sums of whole numbers are exact, so that it does not depend on how X is stored, nor on its type.
    The order of the samples, and samples without counts, make no difference to a model or to this.
    """
    rows = np.sort(row_sums[row_sums > 0])
    everything = np.concatenate([rows, *sums_of_others]).astype("<f8")
    return zlib.crc32(everything.view(np.uint8).data)


def counts_checksum(X: sp.csr_array) -> int:
    """Checksum as by :func:`checksum_of_sums` of a canonical CSR array, without its transpose."""
    columns = np.bincount(X.indices, weights=X.data, minlength=X.shape[1])
    return checksum_of_sums(view_of(X).row_sums, columns)


class DataConstraints(Protocol):
    """What data need of the constraints of a fit, see ``klnmf.constraints``."""

    @property
    def weights(self) -> tuple[Array | None, ...]:
        """Weights of the rows of each mode."""

    @property
    def missing(self) -> Any:
        """Cells that were not observed, as a matrix or a tensor; None: there are none."""

    @property
    def checksum(self) -> int | None:
        """Checksum of all constraints; None: there are none."""

    def cell_weights(self, mode: int) -> CellWeights | None:
        """How the cells of X enter, by the rows of a mode; None: unchanged."""

    def row_constraints(self, mode: int) -> RowConstraints | None:
        """Return the constraints on the row problems of a mode."""


# From shape and type of the data to the constraints.
FindConstraints = Callable[[tuple[int, ...], np.dtype[Any]], DataConstraints]


class FitInput(ABC):
    """What a back-end is made from: `CountData`, or counts that workers have yet to read."""

    @abstractmethod
    def with_constraints(self, find: FindConstraints) -> FitInput:
        """Return the data as a fit sees them; ``find`` is called once shape and type are known."""


class CountData(FitInput):
    """X as solvers see it, by modes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    constraints: DataConstraints | None = None  # None: these are not the data of a fit

    @abstractmethod
    def view(self, mode: int) -> RowView:
        """Rows of X for mode 0 (the row problems of W), of Xᵀ for mode 1 (those of H), ..."""

    def row_constraints(self, mode: int) -> RowConstraints | None:
        """Return the constraints on the rows of a mode."""
        return self.view(mode).row_constraints

    @cached_property
    def total(self) -> float:
        """Σ X."""
        return blocked_sum(self.view(0).row_sums)

    @cached_property
    def is_exact_in_float32(self) -> bool:
        """Whether the values are float64 and lose nothing in float32, as whole numbers do."""
        view = self.view(0)
        return self.dtype == np.float64 and all(
            is_exact_in_float32(piece.values, view.n_threads) for piece in view.pieces()
        )

    @cached_property
    def divergence_constant(self) -> float:
        """Σ (X log X − X): the part of the divergence that does not depend on the factors."""
        constant = DivergenceConstant(self.view(0).n_threads)
        for piece in self.view(0).pieces():
            constant.add(piece.values)
        return constant.total

    @cached_property
    def fingerprint(self) -> tuple[Any, ...]:
        """Return what a solver's state must agree with to belong to this data."""
        whole, checksum = self.view(0).whole(), 0
        for array in (whole.indptr, whole.indices, whole.values):
            checksum = zlib.crc32(array.view(np.uint8).data, checksum)
        return (self.shape, self.nnz, self.dtype.str, checksum)

    @property
    def nnz(self) -> int:
        """Number of nonzeros of X."""
        return self.view(0).nnz

    @property
    def sums_checksum(self) -> int:
        """See :func:`checksum_of_sums`; every start needs the sums anyway."""
        return checksum_of_sums(*(self.view(mode).row_sums for mode in range(len(self.shape))))

    def over_rows(self, function: Callable[[Piece], Any]) -> Iterator[Any]:
        """Results of a function for each piece of X by rows, computed where the piece is."""
        return map(function, self.view(0).pieces())

    def prepare(self) -> None:
        """Compute now what would otherwise be computed at the first use."""
        _ = ([self.view(mode) for mode in range(len(self.shape))], self.total)
        _ = self.divergence_constant

    def with_constraints(self, find: FindConstraints) -> CountData:
        """See :class:`FitInput`."""
        return self.constrained(find(self.shape, self.dtype))

    def constrained(self, constraints: DataConstraints) -> CountData:
        """Return the data as a fit with these constraints sees them."""
        raise TypeError(f"{type(self).__name__} has its constraints already.")


class TransposedLater(CountData):
    """X by rows and, at the first use, by columns."""

    _by_rows: Any  # views of one kind
    _constraints_of_columns: RowConstraints | None

    @cached_property
    def _by_columns(self) -> Any:
        return self._by_rows.transposed(self._constraints_of_columns)

    def view(self, mode: int) -> Any:
        """See :class:`CountData`."""
        return self._by_columns if mode else self._by_rows

    def row_constraints(self, mode: int) -> RowConstraints | None:
        """See :class:`CountData`; X is not transposed for it."""
        return self._constraints_of_columns if mode else self._by_rows.row_constraints


class InMemoryData(TransposedLater):
    """X from `check_counts`, which is not copied, by rows and, at the first use, by columns.

    Passes over it run on ``n_threads`` threads, with the same results for any number.
    """

    def __init__(
        self,
        X: sp.csr_array,
        row_constraints: Sequence[RowConstraints | None] = (None, None),
        n_threads: int = 1,
    ) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._by_rows = view_of(X, row_constraints[0], n_threads)
        self._constraints_of_columns = row_constraints[1]

    def constrained(self, constraints: DataConstraints) -> InMemoryData:
        """See :class:`CountData`."""
        X, weights = self._by_rows.as_csr(), constraints.cell_weights(0)
        if weights is not None:
            X = weights.applied_to(X)
            check_values(X.data)
        of_rows = [constraints.row_constraints(mode) for mode in range(len(self.shape))]
        data = InMemoryData(X, of_rows, self._by_rows.n_threads)
        data.constraints = constraints
        return data
