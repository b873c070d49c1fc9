"""A Dask array as X: as it is passed to a fit, and as solvers see it from the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import scipy.sparse as sp

from klnmf.backends.base import Backend, LazyInput, RowModel
from klnmf.backends.dask import blocks, kernels
from klnmf.backends.dask.kernels import Operation
from klnmf.backends.dask.session import Session
from klnmf.constraints.checks import missing_cells
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import (
    CountData,
    FindConstraints,
    InMemoryView,
    Piece,
    RowView,
)
from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property

if TYPE_CHECKING:
    from klnmf.backends.dask.parts import PartsOfDaskArray


@dataclass(frozen=True)
class UnreadDaskArray(LazyInput):
    """A Dask array that is to be fitted. Workers find out its shape and type as they check it."""

    backend: ClassVar[str] = "dask"
    refusal: ClassVar[str] = (
        "X is a Dask array, but here the counts must be in memory. Pass X.compute(), or some of "
        "its blocks. KLNMF(backend='dask') fits and transforms Dask arrays."
    )

    X: Any  # its blocks are dense, SciPy's, or have the method to_scipy_sparse
    dtype: Any  # to compute in, or None, as in check_counts
    name: str  # of the estimator, for messages
    missing: sp.csr_array | None = None  # cells whose values do not matter
    find_constraints: FindConstraints | None = None

    def __post_init__(self) -> None:
        if self.X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got a Dask array with {self.X.ndim}.")
        if np.isnan(self.X.shape[1]):
            raise ValueError(
                "The number of columns of the Dask array X is not known. Call "
                "X.compute_chunk_sizes(), or set the chunk sizes where the array is made."
            )

    def with_constraints(self, find: FindConstraints) -> UnreadDaskArray:
        """See :class:`~klnmf.data.sparse_data.FitInput`."""
        return replace(self, find_constraints=find)

    @classmethod
    def of(
        cls, X: Any, given: dict[str, Any], dtype: Any, name: str
    ) -> tuple[UnreadDaskArray, dict[str, Any]]:
        """See :class:`~klnmf.backends.base.LazyInput`."""
        given = blocks.constraints_on_driver(given, X)
        if given.get("missing") is not None:
            given["missing"] = missing_cells(X, given["missing"])
        return cls(X, dtype, name, given.get("missing")), given

    def transformed(self, model: RowModel, find: FindConstraints) -> Any:
        """See :class:`~klnmf.backends.base.LazyInput`."""
        # Not the type of one block: integers would have one or the other by their size.
        of_X = model.dtype if self.X.dtype.kind in "biu" else self.X.dtype
        dtype = np.dtype(self.dtype or of_X)
        constraints: Any = find(self.X.shape, dtype)
        return blocks.transformed_blocks(model, self.X, dtype, constraints)

    def factor_of_fit(self, backend: Backend, factor: Any) -> Any:
        """See :class:`~klnmf.backends.base.LazyInput`."""
        return blocks.blocks_of_factor(backend, factor, self.X)

    def output(self, model: RowModel, W: Any, constraints: Any) -> Any:
        """See :class:`~klnmf.backends.base.LazyInput`."""
        return blocks.output_blocks(model, self.X, W, constraints)


class DistantView(RowView):
    """One mode of data on workers; only the lengths and sums of the rows are on the driver."""

    def __init__(
        self,
        session: Session,
        mode: int,
        indptr: Array,
        n_columns: int,
        row_sums: Array,
        row_constraints: RowConstraints | None,
    ) -> None:
        self._session, self._mode = session, mode
        self.indptr, self.n_columns, self.row_sums = indptr, n_columns, row_sums
        self.row_constraints = row_constraints

    def whole(self) -> NoReturn:
        """See :class:`~klnmf.data.sparse_data.RowView`: refused."""
        raise TypeError(
            "X is a Dask array, and init='nndsvd' would bring all of it to one machine. Choose "
            "another init."
        )

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`~klnmf.data.sparse_data.RowView`."""
        look = Operation(self._mode, kernels.rows_of_data, settings=(np.sort(rows),))
        by_part = self._session.ask(look).values()
        order = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
        lengths = np.concatenate([np.diff(indptr) for indptr, _, _ in by_part])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        indices, values = (np.concatenate([taken[i] for taken in by_part]) for i in (1, 2))
        return InMemoryView(indptr, indices, values, self.n_columns).take_rows(order)


class DaskArrayData(CountData):
    """A Dask array whose parts are on workers."""

    def __init__(self, parts: PartsOfDaskArray, views: list[DistantView]) -> None:
        self._parts, self._views, self.constraints = parts, views, parts.constraints
        self.shape, self.dtype = parts.shape, parts.dtype
        self.is_exact_in_float32 = parts.is_exact_in_float32

    def view(self, mode: int) -> DistantView:
        """See :class:`CountData`."""
        return self._views[mode]

    def over_rows(self, function: Callable[[Piece], Any]) -> Iterator[Any]:
        """See :class:`CountData`."""
        return iter(self._parts.over_rows(function))

    @cached_property
    def divergence_constant(self) -> float:
        """See :class:`CountData`."""
        return self._parts.divergence_constant()

    @cached_property
    def fingerprint(self) -> tuple[Any, ...]:
        """See :class:`CountData`."""
        return (self.shape, self.nnz, self.dtype.str, self._parts.checksum())
