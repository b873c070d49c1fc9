"""A Dask array as X: its blocks are checked, cut and transposed on the workers."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.backends.dask.checksums import joined_checksum
from klnmf.backends.dask.operations import TakeData
from klnmf.backends.dask.partition import Partition, cut_both
from klnmf.backends.dask.session import Session
from klnmf.known import Known
from klnmf.objective import NO_PENALTIES
from klnmf.observation import Observation
from klnmf.row_terms import RowTerms
from klnmf.sparse_data import (
    NONZEROS_PER_PASS,
    Piece,
    RowView,
    SparseData,
    constant_of,
    is_exact_in_float32,
    view_of,
)
from klnmf.validation import check_counts, check_value_range

Array = npt.NDArray[Any]


def is_dask_array(X: Any) -> bool:
    """Whether X is one; without an import of Dask, which somebody who has one did already."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(X, module.Array)


class DaskArrayData(SparseData):
    """What solvers see of a Dask array; nothing is known of it before it is on workers.

    Parameters
    ----------
    X : dask.array.Array
        Its blocks are dense, SciPy's, or have the method ``to_scipy_sparse``.
    dtype : None, float32 or float64
        Type to compute in, as in :func:`klnmf.validation.check_counts`.
    name : str
        Who asks, for the messages.
    """

    def __init__(self, X: Any, dtype: Any, name: str) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got a Dask array with {X.ndim}.")
        if np.isnan(X.shape[1]):
            raise ValueError(
                "The number of columns of the Dask array X is not known; call "
                "X.compute_chunk_sizes(), or say it where the array is made."
            )
        self.X, self.wanted_dtype, self.name = X, dtype, name
        self.parts: PartsOfDaskArray | None = None  # once they are on workers
        # What is known of the features, for this shape and type, once these are known.
        self.find_known: Callable[[tuple[int, int], np.dtype[Any]], Known | None] | None = None
        self.known: Known | None = None
        self.penalties = NO_PENALTIES

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
    terms : RowTerms or None
        What the rows have of their own.
    """

    def __init__(
        self, mode: int, lengths: Array, n_columns: int, terms: RowTerms | None = None
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
        by_part = session.ask([TakeData(mode, np.sort(rows))])[0].values()
        order = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
        lengths = np.concatenate([np.diff(indptr) for indptr, _, _ in by_part])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        indices, values = (np.concatenate([taken[i] for taken in by_part]) for i in (1, 2))
        return RowView(indptr, indices, values, self.n_columns).take_rows(order)


# ---- on the workers ------------------------------------------------------------------------------


class BlockFacts(NamedTuple):
    """What the driver wants to know of a block."""

    dtype: str
    least: float
    largest: float
    total: float
    is_exact: bool  # in float32
    lengths: Array  # of its rows


def checked_block(blocks: list[Any], dtype: Any, name: str, first_row: int) -> sp.csr_array:
    """Check the blocks of some rows, side by side, and return them as one canonical matrix."""
    from sklearn.utils import check_array

    sparse = [b.to_scipy_sparse() if hasattr(b, "to_scipy_sparse") else b for b in blocks]
    block = sparse[0]
    if len(sparse) > 1:
        block = sp.hstack([sp.csr_array(b) for b in sparse], format="csr")
    block = check_array(
        block, accept_sparse="csr", input_name="X", estimator=name, ensure_min_samples=0
    )
    return check_counts(block, dtype=dtype, name=name, first_row=first_row)


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
    )


def observed_block(
    block: sp.csr_array, dtype: np.dtype[Any], observation: Observation
) -> sp.csr_array:
    """Return a block as a fit sees it."""
    values = block.data.astype(dtype)
    indptr, indices, values = observation.applied(block.indptr, block.indices, values)
    return sp.csr_array((values, indices, indptr), shape=block.shape)


def column_lengths(block: sp.csr_array) -> Array:
    """Nonzeros of each column."""
    return np.bincount(block.indices, minlength=block.shape[1])


def added(first: Array, second: Array) -> Array:
    """Sum of two arrays."""
    total: Array = first + second
    return total


def stacked_rows(
    pieces: list[tuple[sp.csr_array, int, int]], dtype: np.dtype[Any], n_columns: int
) -> RowView:
    """Rows from several blocks, of each from one row to another."""
    rows = [sp.csr_array(block[start:stop]) for block, start, stop in pieces]
    empty = sp.csr_array((0, n_columns), dtype=dtype)
    stacked = sp.csr_array(sp.vstack([empty, *rows], format="csr"))
    stacked.sort_indices()
    return view_of(sp.csr_array(stacked.astype(dtype, copy=False)))


def by_columns(rows: RowView) -> sp.csc_array:
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


def joined_columns(pieces: list[sp.csr_array], terms: RowTerms | None) -> RowView:
    """Columns of X as rows, from the pieces of all parts, in order."""
    return view_of(sp.csr_array(sp.hstack(pieces, format="csr")), terms)


def on_rows(function: Callable[[Piece], Any], view: RowView, rows: slice) -> Any:
    """Apply a function to a part; ``rows`` are its rows of X."""
    return function(next(view.pieces())._replace(rows=rows))


def sums_of(rows: RowView) -> Array:
    """Sum of each row."""
    return rows.row_sums


def same(rows: RowView) -> RowView:
    """Return a part as it is: a task that brings it to another worker."""
    return rows


def values_between(rows: RowView, start: int, stop: int) -> Array:
    """Return some of the values of a part."""
    return rows.values[start:stop]


def constant_of_pieces(pieces: list[Array]) -> float:
    """See :func:`klnmf.sparse_data.constant_of`."""
    return constant_of(np.concatenate(pieces))


def checksums_of(rows: RowView) -> list[tuple[int, int]]:
    """Checksum and length in bytes of the indices and of the values."""
    return [(zlib.crc32(a.view(np.uint8).data), a.nbytes) for a in (rows.indices, rows.values)]


# ---- on the driver -------------------------------------------------------------------------------


class PartsOfDaskArray:
    """X as the Dask array of somebody: its tasks can be done again, and so can ours after them."""

    def __init__(self, data: DaskArrayData, client: Any) -> None:
        import dask

        self._data, self._client = data, client
        X = data.X
        heights = [0 if np.isnan(size) else int(size) for size in X.chunks[0]]
        first_rows = np.concatenate([[0], np.cumsum(heights)])
        rows_of_blocks = X.to_delayed()
        check = dask.delayed(checked_block, pure=False)
        self._blocks: list[Any] = client.compute(
            [
                check(list(blocks), data.wanted_dtype, data.name, int(first_row))
                for blocks, first_row in zip(rows_of_blocks, first_rows, strict=False)
            ]
        )
        facts = self._facts()
        dtype = np.dtype(max((fact.dtype for fact in facts), key=lambda name: np.dtype(name)))
        if data.find_known is not None:
            n_rows = sum(len(fact.lengths) for fact in facts)
            data.known = data.find_known((n_rows, int(X.shape[1])), dtype)
        observation = None if data.known is None else data.known.observation(0)
        if observation is not None:
            self._blocks = [
                self._submit(observed_block, block, dtype, observation) for block in self._blocks
            ]
            facts = self._facts()
        check_value_range(
            min(fact.least for fact in facts),
            max(fact.largest for fact in facts),
            sum(fact.total for fact in facts),
            dtype,
        )
        lengths = np.concatenate([fact.lengths for fact in facts])
        counts = [self._submit(column_lengths, block) for block in self._blocks]
        while len(counts) > 1:
            pairs = zip(counts[::2], counts[1::2], strict=False)
            rest = counts[-1:] if len(counts) % 2 else []
            counts = [self._submit(added, *pair) for pair in pairs] + rest
        terms = None if data.known is None else data.known.row_terms(1, data.penalties)
        self._views = (
            DistantView(0, lengths, int(X.shape[1])),
            DistantView(1, self._gathered(counts)[0], len(lengths), terms),
        )
        self._heights = [len(fact.lengths) for fact in facts]
        is_exact = dtype == np.float64 and all(fact.is_exact for fact in facts)
        data.describe(dtype, self._views, is_exact)
        self._placed: dict[tuple[int, int], Any] = {}
        self._by_columns: list[Any] = []
        self._homes: dict[int, str] = {}

    def _facts(self) -> list[BlockFacts]:
        return self._gathered([self._submit(facts_of_block, block) for block in self._blocks])

    def _submit(self, function: Any, *args: Any, at: str | None = None) -> Any:
        """Submit a task, to a worker if it is still there then."""
        where = {} if at is None else {"workers": [at], "allow_other_workers": True}
        return self._client.submit(function, *args, pure=False, **where)

    def _gathered(self, futures: list[Any]) -> list[Any]:
        gathered: list[Any] = self._client.gather(futures)
        return gathered

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._cuts = cut_both(self._views[0].indptr, self._views[1].indptr, shares)
        return self._cuts

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._homes[part] = address
        before = self._placed.get((mode, part))
        if before is not None:  # Dask does again what was lost
            future = self._submit(same, before, at=address)
        elif mode == 0:
            pieces = self._pieces(self._cuts[0].rows(part))
            args = (pieces, self._data.dtype, self._data.shape[1])
            future = self._submit(stacked_rows, *args, at=address)
        else:
            future = self._columns(self._cuts[1].rows(part), address)
        self._placed[mode, part] = future
        return future

    def _pieces(self, rows: slice) -> list[tuple[Any, int, int]]:
        """Blocks that have some of the rows, and which."""
        pieces, begin = [], 0
        for block, height in zip(self._blocks, self._heights, strict=True):
            start, stop = max(rows.start - begin, 0), min(rows.stop - begin, height)
            if start < stop:
                pieces.append((block, start, stop))
            begin += height
        return pieces

    def _columns(self, columns: slice, address: str) -> Any:
        if not self._by_columns:
            n_parts = self._cuts[0].n_parts
            self._by_columns = [
                self._submit(by_columns, self._placed[0, part], at=self._homes[part])
                for part in range(n_parts)
            ]
        bounds = (columns.start, columns.stop)
        pieces = [
            self._submit(picked_columns, by_column, *bounds, at=self._homes[part])
            for part, by_column in enumerate(self._by_columns)
        ]
        terms = self._views[1].terms
        own_terms = None if terms is None else terms.rows(columns)
        return self._submit(joined_columns, pieces, own_terms, at=address)

    def seen_from_driver(self, session: Session) -> SparseData:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._blocks, self._by_columns = [], []  # Dask knows how to make them again
        for mode, view in enumerate(self._views):
            sums = [self._submit(sums_of, part) for part in self._in_order(mode)]
            view.know(session, np.concatenate(self._gathered(sums)))
        self._data.parts = self
        return self._data

    def over_rows(self, function: Callable[[Piece], Any]) -> list[Any]:
        """Return what a function says of the parts of X by rows."""
        cut = self._cuts[0]
        parts = [part for part in range(cut.n_parts) if cut.size(part)]
        return self._gathered(
            [self._submit(on_rows, function, self._placed[0, p], cut.rows(p)) for p in parts]
        )

    def _in_order(self, mode: int) -> list[Any]:
        return [self._placed[mode, part] for part in range(self._cuts[mode].n_parts)]

    def divergence_constant(self) -> float:
        """Return what :class:`SparseData` has under this name, from passes over the same values."""
        indptr, bounds = self._views[0].indptr, self._cuts[0].bounds
        ends = [int(indptr[bound]) for bound in bounds]
        sums: list[Any] = []
        for start in range(0, ends[-1], NONZEROS_PER_PASS):
            stop = min(start + NONZEROS_PER_PASS, ends[-1])
            pieces = [
                self._submit(values_between, part, max(start, low) - low, min(stop, high) - low)
                for part, low, high in zip(self._in_order(0), ends[:-1], ends[1:], strict=True)
                if max(start, low) < min(stop, high)
            ]
            sums.append(self._submit(constant_of_pieces, pieces))
        return sum(self._gathered(sums), 0.0)

    def checksum(self) -> int:
        """Return the checksum of X as :class:`SparseData` has it in its fingerprint."""
        indptr = self._views[0].indptr
        checksum = zlib.crc32(np.ascontiguousarray(indptr).view(np.uint8).data)
        by_part = self._gathered([self._submit(checksums_of, x) for x in self._in_order(0)])
        for which in (0, 1):
            for sums in by_part:
                checksum = joined_checksum(checksum, *sums[which])
        return checksum
