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
from klnmf.data.not_counts import warn_of
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import (
    NONZEROS_PER_PASS,
    Piece,
    SparseData,
)
from klnmf.data.validation import check_value_range

Array = npt.NDArray[Any]


class PartsOfDaskArray:
    """X as the Dask array of somebody: its tasks can be done again, and so can ours after them."""

    def __init__(self, data: DaskArrayData, cluster: Cluster) -> None:
        import dask

        self._data = data
        self._submit, self._results = cluster.submit, cluster.results
        X = data.X
        heights = [0 if np.isnan(size) else int(size) for size in X.chunks[0]]
        first_rows = np.concatenate([[0], np.cumsum(heights)])
        rows_of_blocks = X.to_delayed()
        check = dask.delayed(checked_block, pure=False)
        self._blocks: list[Any] = cluster.compute(
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
        facts = self._facts()
        warn_of(max(facts, key=lambda fact: fact.lengths.sum()).transformation)
        dtype = np.dtype(max((fact.dtype for fact in facts), key=lambda name: np.dtype(name)))
        if data.find_known is not None:
            n_rows = sum(len(fact.lengths) for fact in facts)
            data.known = data.find_known((n_rows, int(X.shape[1])), dtype)
        observation = None if data.known is None else data.known.observation(0)
        if observation is not None:
            ends = np.cumsum([0, *(len(fact.lengths) for fact in facts)])
            self._blocks = [
                self._submit(observed_block, block, dtype, observation.rows(slice(start, stop)))
                for block, start, stop in zip(self._blocks, ends[:-1], ends[1:], strict=True)
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
        known, penalties = data.known, data.penalties
        terms = [
            None if known is None else known.row_constraints(mode, penalties) for mode in (0, 1)
        ]
        self._views = (
            DistantView(0, lengths, int(X.shape[1]), terms[0]),
            DistantView(1, self._results(counts)[0], len(lengths), terms[1]),
        )
        self._heights = [len(fact.lengths) for fact in facts]
        is_exact = dtype == np.float64 and all(fact.is_exact for fact in facts)
        data.describe(dtype, self._views, is_exact)
        self._placed: dict[tuple[int, int], Any] = {}
        self._by_columns: list[Any] = []
        self._homes: dict[int, str] = {}

    def _facts(self) -> list[BlockFacts]:
        return self._results([self._submit(facts_of_block, block) for block in self._blocks])

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

    def release(self) -> None:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._blocks, self._by_columns = [], []
        self._placed.clear()

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
        return self._submit(joined_columns, pieces, self._terms(1, columns), at=address)

    def _terms(self, mode: int, rows: slice) -> RowConstraints | None:
        terms = self._views[mode].terms
        return None if terms is None else terms.rows(rows)

    def seen_from_driver(self, session: Session) -> SparseData:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._blocks, self._by_columns = [], []  # Dask knows how to make them again
        for mode, view in enumerate(self._views):
            sums = [self._submit(sums_of, part) for part in self._in_order(mode)]
            view.know(session, np.concatenate(self._results(sums)))
        self._data.parts = self
        return self._data

    def over_rows(self, function: Callable[[Piece], Any]) -> list[Any]:
        """Return what a function says of the parts of X by rows."""
        cut = self._cuts[0]
        parts = [part for part in range(cut.n_parts) if cut.size(part)]
        return self._results(
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
        return sum(self._results(sums), 0.0)

    def checksum(self) -> int:
        """Return the checksum of X as :class:`SparseData` has it in its fingerprint."""
        indptr = self._views[0].indptr
        checksum = zlib.crc32(np.ascontiguousarray(indptr).view(np.uint8).data)
        by_part = self._results([self._submit(checksums_of, x) for x in self._in_order(0)])
        for which in (0, 1):
            for sums in by_part:
                checksum = joined_checksum(checksum, *sums[which])
        return checksum
