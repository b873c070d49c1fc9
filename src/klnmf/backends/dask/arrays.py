"""A Dask array as X, as solvers see it from the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.backends.dask import kernels
from klnmf.backends.dask.operations import Look
from klnmf.backends.dask.session import Session
from klnmf.constraints.constraints import Constraints
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import (
    Piece,
    RowView,
    SparseData,
)
from klnmf.objective import NO_PENALTIES
from klnmf.support.caching import cached_property

if TYPE_CHECKING:
    from klnmf.backends.dask.array_parts import PartsOfDaskArray

Array = npt.NDArray[Any]


class DaskArrayData(SparseData):
    """What solvers see of a Dask array; nothing is known of it before it is on workers.

    Parameters
    ----------
    X : dask.array.Array
        Its blocks are dense, SciPy's, or have the method ``to_scipy_sparse``.
    dtype : None, float32 or float64
        Type to compute in, as in :func:`klnmf.data.validation.check_counts`.
    name : str
        Who asks, for the messages.
    missing : CSR array, default=None
        Cells whose values must not reach the checks.
    """

    def __init__(self, X: Any, dtype: Any, name: str, missing: sp.csr_array | None = None) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got a Dask array with {X.ndim}.")
        if np.isnan(X.shape[1]):
            raise ValueError(
                "The number of columns of the Dask array X is not known; call "
                "X.compute_chunk_sizes(), or say it where the array is made."
            )
        self.X, self.wanted_dtype, self.name, self.missing = X, dtype, name, missing
        self.parts: PartsOfDaskArray | None = None  # once they are on workers
        # What is known, for this shape and type, once these are known.
        self.find_known: Callable[[tuple[int, int], np.dtype[Any]], Constraints | None] | None = (
            None
        )
        self.known: Constraints | None = None
        self.penalties = NO_PENALTIES

    has_known_shape = False  # nor type, before it is on workers

    def over_rows(self, function: Callable[[Piece], Any]) -> Iterator[Any]:
        """See :class:`SparseData`."""
        assert self.parts is not None
        return iter(self.parts.over_rows(function))

    @cached_property
    def divergence_constant(self) -> float:
        """See :class:`SparseData`."""
        assert self.parts is not None
        return self.parts.divergence_constant()

    @cached_property
    def fingerprint(self) -> tuple[Any, ...]:
        """See :class:`SparseData`."""
        assert self.parts is not None
        return (self.shape, self.nnz, self.dtype.str, self.parts.checksum())

    def describe(
        self, dtype: np.dtype[Any], views: tuple[RowView, RowView], is_exact: bool
    ) -> None:
        """Set what is known now."""
        self.shape = (views[0].n_rows, views[1].n_rows)
        self.dtype = dtype
        self._by_rows, self._by_columns = views
        self.is_exact_in_float32 = is_exact


class DistantView(RowView):
    """One mode of data that are elsewhere: lengths and sums of the rows are here, all else is not.

    Parameters
    ----------
    mode : int
        0 for rows, 1 for columns.
    lengths : ndarray
        Nonzeros of each row.
    n_columns : int
        Columns of the mode.
    terms : RowConstraints or None
        What the rows have of their own.
    """

    def __init__(
        self, mode: int, lengths: Array, n_columns: int, terms: RowConstraints | None = None
    ) -> None:
        object.__setattr__(self, "mode", mode)
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "indptr", np.concatenate([[0], np.cumsum(lengths)]))
        object.__setattr__(self, "n_columns", n_columns)

    def know(self, session: Session | None = None, row_sums: Array | None = None) -> None:
        """Set what was not known when the view was made."""
        if session is not None:
            self.__dict__["session"] = session
        if row_sums is not None:
            self.__dict__["row_sums"] = row_sums  # where the cached property would keep it

    def __getattr__(self, name: str) -> Any:
        if name in ("indices", "values"):
            raise TypeError(
                "X is a Dask array, and this would bring all of it to one machine. (init='nndsvd' "
                "does; the other starts do not.)"
            )
        raise AttributeError(name)

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`RowView`."""
        session: Session = self.__dict__["session"]
        mode: int = self.__dict__["mode"]
        look = Look(mode, kernels.rows_of_data, settings=(np.sort(rows),))
        by_part = session.ask([look])[0].values()
        order = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
        lengths = np.concatenate([np.diff(indptr) for indptr, _, _ in by_part])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        indices, values = (np.concatenate([taken[i] for taken in by_part]) for i in (1, 2))
        return RowView(indptr, indices, values, self.n_columns).take_rows(order)
