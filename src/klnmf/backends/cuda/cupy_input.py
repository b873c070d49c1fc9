"""X that is on the device already: CuPy's matrices, taken as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import taken_rows
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import (
    CountData,
    DataConstraints,
    InMemoryData,
    InMemoryView,
    RowView,
    TransposedLater,
)
from klnmf.data.validation import check_value_range
from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property

# Values of a sum that are looked at together: bounds what a sum needs beside X.
VALUES_OF_SUM = 1 << 26


@dataclass(frozen=True)
class CupyView(RowView):
    """Rows whose columns and values are CuPy arrays; the host knows where each row begins."""

    indptr: Array
    columns: Any  # int32
    values: Any  # float32
    n_columns: int
    holds_whole_numbers: bool
    row_constraints: RowConstraints | None = None

    @cached_property
    def row_sums(self) -> Array:
        """See :class:`RowView`; sums of whole numbers are the same in any order."""
        import cupy as cp

        if not self.holds_whole_numbers:
            return self.whole().row_sums
        ends = cp.concatenate([cp.zeros(1), cp.cumsum(self.values, dtype=np.float64)])
        sums: Array = cp.diff(ends[cp.asarray(self.indptr)]).get()
        return sums

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`RowView`; these rows alone are copied to the host."""
        import cupy as cp

        indptr, places = taken_rows(self.indptr, rows)
        there = cp.asarray(places)
        return indptr, self.columns[there].get(), self.values[there].get()

    def whole(self) -> InMemoryView:
        """See :class:`RowView`."""
        arrays = (self.indptr, self.columns.get(), self.values.get())
        return InMemoryView(*arrays, self.n_columns, self.row_constraints)

    def transposed(self, row_constraints: RowConstraints | None) -> CupyView:
        """Return the columns as rows, by a stable sort on the device."""
        import cupy as cp

        lengths = cp.bincount(self.columns, minlength=self.n_columns).get()
        order = cp.argsort(self.columns, kind="stable")
        rows = row_numbers(self.indptr, len(self.values))[order]
        return replace(
            self,
            indptr=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            columns=rows,
            values=self.values[order],
            n_columns=self.n_rows,
            row_constraints=row_constraints,
        )


class CupyData(TransposedLater):
    """X on the device. Weighted cells and missing ones are applied on the host."""

    def __init__(
        self, by_rows: CupyView, of_rows: Sequence[RowConstraints | None] = (None, None)
    ) -> None:
        self.shape, self.dtype = (by_rows.n_rows, by_rows.n_columns), np.dtype(np.float32)
        self._by_rows = replace(by_rows, row_constraints=of_rows[0])
        self._constraints_of_columns = of_rows[1]

    @cached_property
    def divergence_constant(self) -> float:
        """See :class:`CountData`."""
        import cupy as cp

        total, values = 0.0, self._by_rows.values
        for start in range(0, len(values), VALUES_OF_SUM):
            v = values[start : start + VALUES_OF_SUM].astype(np.float64)
            total += float((v * cp.log(v) - v).sum())
        return total

    def constrained(self, constraints: DataConstraints) -> CountData:
        """See :class:`CountData`."""
        if constraints.cell_weights(0) is not None:
            return InMemoryData(self._by_rows.as_csr()).constrained(constraints)
        data = CupyData(self._by_rows, [constraints.row_constraints(mode) for mode in (0, 1)])
        data.constraints = constraints
        return data


class _Rows(NamedTuple):
    """Compressed rows on the device."""

    indptr: Any
    columns: Any
    values: Any


def data_of(X: Any, dtype: Any) -> CupyData | None:
    """X from where it is; None if something about it has to be looked at on the host.

    That is everything that the checks of X may have to say something about, and what they would
    mend: entries that are stored twice or out of order, zeros, and values that float32 does not
    hold.
    """
    import cupyx.scipy.sparse as csp

    if X.ndim != 2 or min(X.shape) == 0 or X.dtype.kind not in "bf" or dtype not in _NARROW:
        return None
    if not csp.issparse(X):
        X = csp.csr_matrix(X)
    if X.format not in ("csr", "csc", "coo") or not X.nnz:
        return None
    rows = _compressed(X)
    if rows is None or not _is_canonical(rows, X.shape):
        return None
    values = rows.values.astype(np.float32, copy=False)
    if not _are_counts(values) or (dtype is None and bool((values != rows.values).any())):
        return None
    is_whole = bool((values == values.round()).all()) and float(values.sum(dtype="f8")) < 2.0**53
    indptr = rows.indptr.get().astype(np.int64)
    return CupyData(CupyView(indptr, rows.columns, values, X.shape[1], is_whole))


_NARROW = (None, "float32", np.float32, np.dtype(np.float32))


def _compressed(X: Any) -> _Rows | None:
    """Entries of a matrix by rows, their columns rising; None: its parts do not fit together."""
    import cupy as cp

    n, m = X.shape
    if X.format == "csr":
        return _Rows(X.indptr, X.indices.astype(np.int32, copy=False), X.data)
    if X.format == "csc":
        if not _is_valid(_Rows(X.indptr, X.indices, X.data), (m, n)):
            return None
        rows, columns = X.indices, row_numbers(X.indptr.get(), len(X.data))
    else:
        rows, columns = X.row, X.col
        ends = [(int(part.min()), int(part.max())) for part in (rows, columns)]
        if min(low for low, _ in ends) < 0 or ends[0][1] >= n or ends[1][1] >= m:
            return None
    order = cp.argsort(rows.astype(np.int64) * m + columns, kind="stable")
    starts = cp.concatenate([cp.zeros(1, np.int64), cp.cumsum(cp.bincount(rows, minlength=n))])
    return _Rows(starts, columns[order].astype(np.int32, copy=False), X.data[order])


def row_numbers(indptr: Array, nnz: int) -> Any:
    """Row of every entry, on the device."""
    import cupy as cp

    marks, starts = cp.zeros(nnz, dtype=np.int32), indptr[1:-1]
    # Several rows may begin at one place, if some are empty; those at the end begin nowhere.
    places, counts = np.unique(starts[starts < nnz], return_counts=True)
    marks[cp.asarray(places)] = cp.asarray(counts.astype(np.int32))
    return cp.cumsum(marks, dtype=np.int32)


def _is_valid(rows: _Rows, shape: tuple[int, int]) -> bool:
    """Whether the parts of compressed rows fit together."""
    indptr = rows.indptr.get()
    if len(indptr) != shape[0] + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        return False
    if not indptr[-1] == len(rows.columns) == len(rows.values):
        return False
    return bool(int(rows.columns.min()) >= 0 and int(rows.columns.max()) < shape[1])


def _is_canonical(rows: _Rows, shape: tuple[int, int]) -> bool:
    """Whether the columns of each row rise."""
    import cupy as cp

    if not _is_valid(rows, shape):
        return False
    rises = rows.columns[1:] > rows.columns[:-1]
    begins = rows.indptr[1:-1]
    rises[begins[(begins > 0) & (begins < len(rows.columns))] - 1] = True
    return bool(cp.all(rises))


def _are_counts(values: Any) -> bool:
    """Whether values need no word: positive, finite and in the range of float32."""
    least, largest = float(values.min()), float(values.max())
    if not (least > 0 and largest < np.inf):
        return False
    try:
        check_value_range(least, largest, float(values.sum(dtype="f8")), np.dtype(np.float32))
    except ValueError:
        return False
    return True


def on_device(W: Any) -> Any:
    """Return a result where X was: a CuPy array, or a matrix of CuPy's."""
    import cupy as cp
    import cupyx.scipy.sparse as csp

    return csp.csr_matrix(sp.csr_matrix(W)) if sp.issparse(W) else cp.asarray(W)
