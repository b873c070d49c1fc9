"""Sparse tensors for tests: their nonzeros, views by mode, and the matrices they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import CountData, InMemoryData, InMemoryView

Array = np.ndarray


def view_of_mode(
    coords: Array,
    values: Array,
    mode: int,
    shape: Sequence[int],
    row_constraints: RowConstraints | None = None,
) -> InMemoryView:
    """The nonzeros by the rows of a mode, in the order of the other modes."""
    others = [other for other in range(len(shape)) if other != mode]
    sizes = [shape[other] for other in others]
    order = np.lexsort([*coords[others[::-1]], coords[mode]])
    counts = np.bincount(coords[mode], minlength=shape[mode])
    offsets = np.cumsum([0, *sizes[:-1]])[:, np.newaxis]
    return InMemoryView(
        np.concatenate([[0], np.cumsum(counts)]),
        np.ascontiguousarray(coords[others][:, order] + offsets, dtype=np.int32),
        np.ascontiguousarray(values[order]),
        sum(sizes),
        row_constraints,
    )


class TensorData(CountData):
    """A tensor by its nonzeros, with constraints on the rows of some modes."""

    def __init__(
        self,
        coords: Array,
        values: Array,
        shape: Sequence[int],
        row_constraints: dict[int, RowConstraints] | None = None,
    ) -> None:
        self.shape, self.dtype = tuple(shape), values.dtype
        of_mode = row_constraints or {}
        self._views = [
            view_of_mode(coords, values, mode, shape, of_mode.get(mode))
            for mode in range(len(shape))
        ]

    def view(self, mode: int) -> InMemoryView:
        return self._views[mode]


class TensorCase(NamedTuple):
    coords: Array
    values: Array
    factors: list[Array]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.factors))

    @property
    def total(self) -> float:
        return float(self.values.sum(dtype=np.float64))

    def data(self, row_constraints: dict[int, RowConstraints] | None = None) -> TensorData:
        return TensorData(self.coords, self.values, self.shape, row_constraints)

    def others(self, mode: int) -> tuple[Array, ...]:
        return tuple(factor for other, factor in enumerate(self.factors) if other != mode)


def tensor_case(
    lengths: Sequence[int],
    sizes: Sequence[int],
    rank: int,
    dtype: Any,
    *,
    values_dtype: Any = None,
    seed: int = 0,
    zeros: float = 0.2,
) -> TensorCase:
    """Rows of mode 0 with so many nonzeros; the other modes have these sizes.

    Values and factors are log-normal. A share of the entries of factors is 0, none of the first
    component, so that every nonzero is covered.
    """
    generator = np.random.default_rng(seed)
    n_cells = int(np.prod(sizes))
    cells = [generator.choice(n_cells, length, replace=False) for length in lengths]
    others = np.unravel_index(np.concatenate([*cells, np.zeros(0, int)]), sizes)
    coords = np.array([np.repeat(np.arange(len(lengths)), lengths), *others], dtype=np.int32)
    values = np.exp(generator.normal(size=coords.shape[1])).astype(values_dtype or dtype)

    def factor(n_rows: int) -> Array:
        entries = np.exp(0.7 * generator.normal(size=(n_rows, rank)))
        dropped = generator.random((n_rows, rank)) < zeros
        dropped[:, 0] = False
        return np.where(dropped, 0, entries).astype(dtype)

    return TensorCase(coords, values, [factor(size) for size in (len(lengths), *sizes)])


def materialised(view: InMemoryView, others: Sequence[Array]) -> tuple[InMemoryData, Array]:
    """A matrix with a column for each nonzero, and its factor: the product of their rows."""
    A = np.multiply.reduce(np.concatenate(others)[np.atleast_2d(view.indices)], axis=0)
    nnz = len(view.values)
    X = sp.csr_array((view.values, np.arange(nnz), view.indptr), shape=(view.n_rows, max(nnz, 1)))
    terms = view.row_constraints
    return InMemoryData(X, (terms, None)), A if nnz else np.ones((1, others[0].shape[1]), A.dtype)
