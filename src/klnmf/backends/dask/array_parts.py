"""Parts of a Dask array on the workers, as the driver asks for them."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

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
    on_rows,
    picked_columns,
    same,
    stacked_rows,
    sums_of,
    values_between,
    weighted_block,
)
from klnmf.backends.dask.arrays import DaskArrayData, DistantView, UnreadDaskArray
from klnmf.backends.dask.checksums import joined_checksum
from klnmf.backends.dask.cluster import Cluster
from klnmf.backends.dask.partition import Partition, cut_both
from klnmf.backends.dask.session import Session
from klnmf.data.cell_weights import CellWeights
from klnmf.data.not_counts import warn_of
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import Piece
from klnmf.data.sums import NONZEROS_PER_PASS
from klnmf.data.validation import check_value_range
from klnmf.support.array_types import Array


class PartsOfDaskArray:
    """X as a Dask array: Dask repeats its tasks, and ours after them, where parts are lost."""

    def __init__(self, source: UnreadDaskArray, cluster: Cluster) -> None:
        self._submit, self._results = cluster.submit, cluster.results
        self._blocks: list[Any] = cluster.compute(_checks(source))
        facts = self._facts()
        warn_of(max(facts, key=lambda fact: fact.lengths.sum()).transformation)
        self._heights = [len(fact.lengths) for fact in facts]
        self.shape = (sum(self._heights), int(source.X.shape[1]))
        self.dtype = np.dtype(max((fact.dtype for fact in facts), key=np.dtype))
        self.constraints = None
        if source.find_constraints is not None:
            self.constraints = source.find_constraints(self.shape, self.dtype)
        weights = None if self.constraints is None else self.constraints.cell_weights(0)
        if weights is not None:
            self._weigh_blocks(weights)
            facts = self._facts()
        check_value_range(
            min(fact.least for fact in facts),
            max(fact.largest for fact in facts),
            sum(fact.total for fact in facts),
            self.dtype,
        )
        self.is_exact_in_float32 = self.dtype == np.float64 and all(fact.is_exact for fact in facts)
        lengths = (np.concatenate([fact.lengths for fact in facts]), self._column_lengths())
        self._indptr = [np.concatenate([[0], np.cumsum(of_mode)]) for of_mode in lengths]
        self._row_constraints = [
            None if self.constraints is None else self.constraints.row_constraints(mode)
            for mode in (0, 1)
        ]
        self._placed: dict[tuple[int, int], Any] = {}
        self._by_columns: list[Any] = []
        self._homes: dict[int, str] = {}

    def _facts(self) -> list[BlockFacts]:
        return self._results([self._submit(facts_of_block, block) for block in self._blocks])

    def _weigh_blocks(self, weights: CellWeights) -> None:
        ends = np.cumsum([0, *self._heights])
        self._blocks = [
            self._submit(weighted_block, block, self.dtype, weights.rows(slice(start, stop)))
            for block, start, stop in zip(self._blocks, ends[:-1], ends[1:], strict=True)
        ]

    def _column_lengths(self) -> Array:
        counts = [self._submit(column_lengths, block) for block in self._blocks]
        while len(counts) > 1:
            pairs = zip(counts[::2], counts[1::2], strict=False)
            rest = counts[-1:] if len(counts) % 2 else []
            counts = [self._submit(added, *pair) for pair in pairs] + rest
        lengths: Array = self._results(counts)[0]
        return lengths

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._cuts = cut_both(self._indptr[0], self._indptr[1], shares)
        return self._cuts

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._homes[part] = address
        before = self._placed.get((mode, part))
        if before is not None:  # Dask does again what was lost
            future = self._submit(same, before, at=address)
        elif mode == 0:
            rows = self._cuts[0].rows(part)
            args = (self._pieces(rows), self.dtype, self.shape[1])
            future = self._submit(stacked_rows, *args, self._constraints_of(0, rows), at=address)
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
        return self._submit(joined_columns, pieces, self._constraints_of(1, columns), at=address)

    def _constraints_of(self, mode: int, rows: slice) -> RowConstraints | None:
        constraints = self._row_constraints[mode]
        return None if constraints is None else constraints.rows(rows)

    def seen_from_driver(self, session: Session) -> DaskArrayData:
        """See :class:`~klnmf.backends.dask.data.Parts`."""
        self._blocks, self._by_columns = [], []  # Dask knows how to make them again
        views = []
        for mode, indptr in enumerate(self._indptr):
            sums = self._results([self._submit(sums_of, part) for part in self._in_order(mode)])
            facts = (self.shape[1 - mode], np.concatenate(sums), self._row_constraints[mode])
            views.append(DistantView(session, mode, indptr, *facts))
        return DaskArrayData(self, views)

    def over_rows(self, function: Callable[[Piece], Any]) -> list[Any]:
        """Return the results of a function for the parts of X by rows."""
        cut = self._cuts[0]
        parts = [part for part in range(cut.n_parts) if cut.size(part)]
        return self._results(
            [self._submit(on_rows, function, self._placed[0, p], cut.rows(p)) for p in parts]
        )

    def _in_order(self, mode: int) -> list[Any]:
        return [self._placed[mode, part] for part in range(self._cuts[mode].n_parts)]

    def divergence_constant(self) -> float:
        """Return :attr:`CountData.divergence_constant`, from passes over the same values."""
        indptr, bounds = self._indptr[0], self._cuts[0].bounds
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
        """Return the checksum in :attr:`CountData.fingerprint`."""
        checksum = zlib.crc32(self._indptr[0].view(np.uint8).data)
        by_part = self._results([self._submit(checksums_of, x) for x in self._in_order(0)])
        for which in (0, 1):
            for sums in by_part:
                checksum = joined_checksum(checksum, *sums[which])
        return checksum


def _checks(source: UnreadDaskArray) -> list[Any]:
    """Tasks that check the blocks of the array, row of blocks after row of blocks."""
    import dask

    heights = [0 if np.isnan(size) else int(size) for size in source.X.chunks[0]]
    ends = np.concatenate([[0], np.cumsum(heights)])
    check = dask.delayed(checked_block, pure=False)
    return [
        check(
            list(blocks),
            source.dtype,
            source.name,
            int(first),
            None if source.missing is None else source.missing[int(first) : int(stop)],
        )
        for blocks, first, stop in zip(source.X.to_delayed(), ends[:-1], ends[1:], strict=True)
    ]
