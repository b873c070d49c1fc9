"""A tensor as solvers see it: counts with a coordinate in each of d modes, by the rows of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import row_numbers
from klnmf.data.passes import is_exact_in_float32, rows_of_mode
from klnmf.data.row_constraints import Pattern, RowConstraints
from klnmf.data.sparse_data import CountData, DataConstraints, InMemoryData, InMemoryView, RowView
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.validation import check_values
from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property

# Products of shares of this size leave some room above the smallest float32, 1e-38.
SMALLEST_PRODUCT = 1e-28


def is_float32_enough(X: SparseTensor) -> bool:
    """Whether products of an entry of each factor are numbers in float32.

    Entries of factors are as small as the share that the smallest slice of a mode has of all
    counts. The products of a matrix are those of two numbers, which its checks allow for.
    """
    if X.ndim == 2 or not X.nnz:
        return True
    if (float(X.values.min()) / X.total) ** X.ndim >= SMALLEST_PRODUCT:  # no slice has less
        return True
    margins = [X.margin(mode) for mode in range(X.ndim)]
    product = np.prod([margin[margin > 0].min() / X.total for margin in margins])
    return bool(product >= SMALLEST_PRODUCT)


@dataclass(frozen=True)
class TensorView(InMemoryView):
    """One mode of a tensor; the columns of the other modes are numbered one after the other."""

    sizes: tuple[int, ...] = ()


class TensorData(CountData):
    """A `SparseTensor`, which is not copied, by the rows of each mode at their first use.

    With two modes it is a matrix: views, sums and checksums are those of `InMemoryData`.
    """

    def __init__(
        self,
        X: SparseTensor,
        row_constraints: Sequence[RowConstraints | None] = (),
        n_threads: int = 1,
    ) -> None:
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.mode_names, self.labels = X.mode_names, X.labels
        self._row_constraints = row_constraints or (None,) * X.ndim
        self._n_threads = n_threads
        self._views: dict[int, TensorView] = {}

    def view(self, mode: int) -> TensorView:
        """See :class:`CountData`."""
        if mode not in self._views:
            arrays = (self.X.coords, self.X.values, mode, self.shape, self._n_threads)
            indptr, indices, values = rows_of_mode(*arrays)
            sizes = self.shape[:mode] + self.shape[mode + 1 :]
            self._views[mode] = TensorView(
                indptr,
                indices if len(sizes) > 1 else indices[0],
                values,
                sum(sizes),
                self._row_constraints[mode],
                self._n_threads,
                sizes,
            )
        return self._views[mode]

    @cached_property
    def is_exact_in_float32(self) -> bool:
        """See :class:`CountData`: whether factors in float32 are good enough for a while."""
        view = self.view(0)
        is_exact = self.dtype == np.float64 and is_exact_in_float32(view.values, view.n_threads)
        return is_exact and is_float32_enough(self.X)

    def constrained(self, constraints: DataConstraints) -> TensorData:
        """See :class:`CountData`."""
        coords, values = self.X.coords, self.X.values
        if constraints.missing is not None:
            is_seen = ~_is_in(self.X, constraints.missing)
            coords, values = coords[:, is_seen], values[is_seen]
        weights: Any = 1.0
        for places, of_mode in zip(coords, constraints.weights, strict=True):
            if of_mode is not None:
                weights = weights * of_mode[places]
        if np.ndim(weights):
            values = (values * weights).astype(values.dtype)
            kept = weights != 0
            coords, values = coords[:, kept], values[kept]
            check_values(values)
        is_same = values is self.X.values
        X = self.X if is_same else SparseTensor(coords, values, self.shape)
        of_rows = [constraints.row_constraints(mode) for mode in range(len(self.shape))]
        data = TensorData(X, of_rows, self._n_threads)
        if is_same:  # what was sorted stays so
            data._views = {
                mode: replace(view, row_constraints=of_rows[mode])
                for mode, view in self._views.items()
            }
        data.constraints = constraints
        data.mode_names, data.labels = self.mode_names, self.labels
        return data


def _is_in(X: SparseTensor, cells: SparseTensor) -> Array:
    """By nonzero of X, whether its cell is one of these."""
    coords = np.concatenate([cells.coords, X.coords], axis=1)
    order = np.lexsort(coords[::-1])  # stable: the cells come before the nonzeros
    follows = np.zeros(len(order), dtype=bool)
    ordered = coords[:, order]
    follows[1:] = (ordered[:, 1:] == ordered[:, :-1]).all(axis=0)
    found = np.empty(len(order), dtype=bool)
    found[order] = follows
    return found[cells.nnz :]


def pattern_of_mode(cells: SparseTensor, mode: int) -> Pattern:
    """Return cells of a tensor by the rows of a mode."""
    starts, columns, _ = rows_of_mode(cells.coords, cells.values, mode, cells.shape)
    return Pattern(starts, (columns if len(columns) > 1 else columns[0]).astype(np.int64))


# ---- parts of data with any number of modes ------------------------------------------------------


def restricted(taken: tuple[Array, Array, Array], is_used: Array, view: RowView) -> InMemoryView:
    """Return rows that a view has ``taken``, as a view of the columns ``is_used`` alone.

    A nonzero stays where all its columns do.
    """
    indptr, indices, values = taken
    kept: Array = is_used[indices]
    if indices.ndim > 1:
        kept = np.logical_and.reduce(kept)
    places, numbers = np.flatnonzero(kept), (np.cumsum(is_used) - 1).astype(np.int32)
    sizes = tuple(int(np.count_nonzero(part)) for part in view.split(is_used))
    ends = np.searchsorted(places, indptr).astype(indptr.dtype)
    arrays = (ends, numbers[indices[..., places]], values[places])
    return TensorView(*arrays, sum(sizes), n_threads=view.n_threads, sizes=sizes)


def data_in_memory(X: sp.csr_array | SparseTensor, n_threads: int = 1) -> CountData:
    """Return a checked matrix or tensor as data."""
    kind = TensorData if isinstance(X, SparseTensor) else InMemoryData
    return kind(X, n_threads=n_threads)


def rows_in_memory(data: CountData, rows: Array) -> sp.csr_array | SparseTensor:
    """Return some rows of the first mode as a matrix or a tensor."""
    view = data.view(0)
    return counts_of(TensorView(*view.take_rows(rows), view.n_columns, sizes=view.sizes))


def counts_of(view: InMemoryView) -> sp.csr_array | SparseTensor:
    """Return the matrix or tensor whose first view is given."""
    if len(view.sizes) == 1:
        return view.as_csr()
    offsets = np.cumsum([0, *view.sizes[:-1]])
    coords = np.stack([row_numbers(view.indptr), *(view.indices - offsets[:, None])])
    return SparseTensor(coords, view.values, (view.n_rows, *view.sizes))
