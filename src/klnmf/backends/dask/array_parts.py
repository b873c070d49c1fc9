"""Parts of a Dask array on the workers, as the driver asks for them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.backends.dask.array_blocks import (
    BlockFacts,
    added,
    by_columns,
    checked_block,
    checksums_of,
    column_lengths,
    constant_of_pieces,
    facts_of_block,
    joined_columns,
    observed_block,
    on_rows,
    picked_columns,
    same,
    stacked_rows,
    sums_of,
    values_between,
)
from klnmf.backends.dask.arrays import DaskArrayData, DistantView
from klnmf.backends.dask.checksums import joined_checksum
from klnmf.backends.dask.cluster import Cluster
from klnmf.backends.dask.partition import Partition, cut_both
from klnmf.backends.dask.session import Session
from klnmf.count_data import warn_of
from klnmf.row_terms import RowTerms
from klnmf.sparse_data import (
    NONZEROS_PER_PASS,
    Piece,
    SparseData,
)
from klnmf.validation import check_value_range

Array = npt.NDArray[Any]


class PartsOfDaskArray:
    """X as the Dask array of somebody: its tasks can be done again, and so can ours after them."""

    def __init__(self, data: DaskArrayData, cluster: Cluster) -> None:
        self._data, self._cluster, self._submit = data, cluster, cluster.submit
        self._session: Session | None = None
        X = data.X
        blocks = self._checked_blocks()
        facts = self._facts(blocks)
        warn_of(max(facts, key=lambda fact: fact.lengths.sum()).transformation)
        self._heights = [len(fact.lengths) for fact in facts]
        dtype = np.dtype(max((fact.dtype for fact in facts), key=lambda name: np.dtype(name)))
        if data.find_known is not None:
            data.known = data.find_known((sum(self._heights), int(X.shape[1])), dtype)
        self._observe = None if data.known is None else data.known.observation(0)
        if self._observe is not None:
            blocks = self._observed_blocks(blocks, dtype)
            facts = self._facts(blocks)
        check_value_range(
            min(fact.least for fact in facts),
            max(fact.largest for fact in facts),
            sum(fact.total for fact in facts),
            dtype,
        )
        lengths = np.concatenate([fact.lengths for fact in facts])
        counts = [self._submit(column_lengths, block) for block in blocks]
        while len(counts) > 1:
            pairs = zip(counts[::2], counts[1::2], strict=False)
            rest = counts[-1:] if len(counts) % 2 else []
            counts = [self._submit(added, *pair) for pair in pairs] + rest
        known, penalties = data.known, data.penalties
        terms = [None if known is None else known.row_terms(mode, penalties) for mode in (0, 1)]
        self._views = (
            DistantView(0, lengths, int(X.shape[1]), terms[0]),
            DistantView(1, cluster.results(counts)[0], len(lengths), terms[1]),
        )
        is_exact = dtype == np.float64 and all(fact.is_exact for fact in facts)
        data.describe(dtype, self._views, is_exact)
        # What the parts are made from, while they are made.
        self._blocks, self._by_columns = blocks, list[Any]()
        self._placed: dict[tuple[int, int], Any] = {}
        self._homes: dict[int, str] = {}

    def _checked_blocks(self) -> list[Any]:
        import dask

        data, rows_of_blocks = self._data, self._data.X.to_delayed()
        heights = [0 if np.isnan(size) else int(size) for size in data.X.chunks[0]]
        first_rows = np.concatenate([[0], np.cumsum(heights)])
        check = dask.delayed(checked_block, pure=False)
        return self._cluster.compute(
            [
                check(
                    list(blocks),
                    data.wanted_dtype,
                    data.name,
                    int(first),
                    None if data.missing is None else data.missing[int(first) : int(stop)],
                )
                for blocks, first, stop in zip(
                    rows_of_blocks, first_rows[:-1], first_rows[1:], strict=True
                )
            ]
        )

    def _observed_blocks(self, blocks: list[Any], dtype: np.dtype[Any]) -> list[Any]:
        assert self._observe is not None
        ends = np.cumsum([0, *self._heights])
        return [
            self._submit(observed_block, block, dtype, self._observe.rows(slice(start, stop)))
            for block, start, stop in zip(blocks, ends[:-1], ends[1:], strict=True)
        ]

    def _facts(self, blocks: list[Any]) -> list[BlockFacts]:
        return self._cluster.results([self._submit(facts_of_block, block) for block in blocks])

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
            rows = self._cuts[0].rows(part)
            args = (self._pieces(rows), self._data.dtype, self._data.shape[1])
            future = self._submit(stacked_rows, *args, self._terms(0, rows), at=address)
        else:
            future = self._columns(self._cuts[1].rows(part), address)
        self._placed[mode, part] = future
        return future

    def settle(self) -> None:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._blocks, self._by_columns = [], []  # Dask knows how to make them again

    def forget(self) -> None:
        """See :class:`~klnmf.backends.dask.data.Parts`.

        Tasks that were to be done on a worker are not done by one that comes after all were lost.
        """
        self.settle()
        self._placed.clear()

    def _pieces(self, rows: slice) -> list[tuple[Any, int, int]]:
        """Blocks that have some of the rows, and which."""
        if not self._blocks:
            self._blocks = self._checked_blocks()
            if self._observe is not None:
                self._blocks = self._observed_blocks(self._blocks, self._data.dtype)
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
        return self._submit(joined_columns, pieces, self._terms(1, columns), at=address)

    def _terms(self, mode: int, rows: slice) -> RowTerms | None:
        terms = self._views[mode].terms
        return None if terms is None else terms.rows(rows)

    def seen_from_driver(self, session: Session) -> SparseData:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._session = session
        for mode, view in enumerate(self._views):
            view.know(session, np.concatenate(self._of_parts(mode, sums_of)))
        self._data.parts = self
        return self._data

    def over_rows(self, function: Callable[[Piece], Any]) -> list[Any]:
        """Return what a function says of the parts of X by rows."""
        cut = self._cuts[0]
        parts = [part for part in range(cut.n_parts) if cut.size(part)]
        return self._results(
            lambda: [
                self._submit(on_rows, function, self._placed[0, part], cut.rows(part))
                for part in parts
            ]
        )

    def _results(self, submit_all: Callable[[], list[Any]]) -> list[Any]:
        """Results of tasks on parts, which are done again wherever the parts are by then."""
        assert self._session is not None
        return self._session.results(submit_all)

    def _of_parts(self, mode: int, function: Callable[..., Any]) -> list[Any]:
        return self._results(
            lambda: [self._submit(function, part) for part in self._in_order(mode)]
        )

    def _in_order(self, mode: int) -> list[Any]:
        return [self._placed[mode, part] for part in range(self._cuts[mode].n_parts)]

    def divergence_constant(self) -> float:
        """Return what :class:`SparseData` has under this name, from passes over the same values."""
        return sum(self._results(self._constants), 0.0)

    def _constants(self) -> list[Any]:
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
        return sums

    def checksum(self) -> int:
        """Return the checksum of X as :class:`SparseData` has it in its fingerprint."""
        indptr = self._views[0].indptr
        checksum = zlib.crc32(np.ascontiguousarray(indptr).view(np.uint8).data)
        by_part = self._of_parts(0, checksums_of)
        for which in (0, 1):
            for sums in by_part:
                checksum = joined_checksum(checksum, *sums[which])
        return checksum
