"""X in parts: where they come from, and how they come to the workers."""

import operator
import zlib
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.backends.dask import array_blocks as tasks
from klnmf.backends.dask.arrays import DaskArrayData, DistantView, UnreadDaskArray
from klnmf.backends.dask.cluster import Cluster
from klnmf.backends.dask.partition import Partition, cut_both
from klnmf.backends.dask.session import Parts, Session
from klnmf.data.cell_weights import CellWeights
from klnmf.data.not_counts import warn_of
from klnmf.data.observed_data import ObservedData
from klnmf.data.on_disk.matrix import OnDiskData, open_matrix
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import CountData, FitInput, InMemoryView, Piece
from klnmf.data.sums import NONZEROS_PER_PASS
from klnmf.data.validation import check_value_range
from klnmf.support.array_types import Array


def parts_of(data: FitInput, cluster: Cluster) -> Parts:
    """X in parts, from wherever it is."""
    if isinstance(data, UnreadDaskArray):
        return PartsOfDaskArray(data, cluster)
    assert isinstance(data, CountData)
    if isinstance(data, OnDiskData | ObservedData):
        return PartsOnDisk(data, cluster)
    return PartsInMemory(data, cluster)


class PartsInMemory:
    """X in this process: parts are sent, and sent again where they were lost."""

    def __init__(self, data: CountData, cluster: Cluster) -> None:
        self._data, self._cluster = data, cluster

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """See :class:`~klnmf.backends.dask.session.Parts`."""
        self._cuts = cut_both(self._data.view(0).indptr, self._data.view(1).indptr, shares)
        return self._cuts

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`~klnmf.backends.dask.session.Parts`."""
        rows = self._data.view(mode).whole().part(self._cuts[mode].rows(part))
        return self._cluster.scatter(rows, address)

    def release(self) -> None:
        """See :class:`~klnmf.backends.dask.session.Parts`: nothing is held."""

    def seen_from_driver(self, session: Session) -> CountData:
        """See :class:`~klnmf.backends.dask.session.Parts`."""
        return self._data


class PartsOnDisk(PartsInMemory):
    """X in a folder that the workers see too: each of them maps its rows."""

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`~klnmf.backends.dask.session.Parts`."""
        rows, stored, weights = self._cuts[mode].rows(part), self._data, None
        if isinstance(stored, ObservedData):
            weights, stored = stored.cell_weights[mode].rows(rows), stored.base
        assert isinstance(stored, OnDiskData)
        constraints = self._data.view(mode).row_constraints
        return self._cluster.submit(
            mapped_rows,
            stored.folder.resolve(),
            stored.fingerprint,
            mode,
            rows,
            weights,
            None if constraints is None else constraints.rows(rows),
            at=address,
        )


def mapped_rows(
    folder: Path,
    fingerprint: tuple[Any, ...],
    mode: int,
    rows: slice,
    weights: CellWeights | None,
    row_constraints: RowConstraints | None,
) -> InMemoryView:
    """Map some rows of a matrix on disk; where cells have weights or are missing, read them."""
    matrix = open_matrix(folder, verify=False)  # the driver has verified it
    if matrix.data.fingerprint != fingerprint:
        raise ValueError(
            f"{folder} holds another matrix on this worker than on the machine that called fit. "
            "The folder must be on storage that all of them share."
        )
    mapped = matrix.data.view(mode).part(rows)
    arrays = (mapped.indptr, mapped.indices, mapped.values)
    if weights is not None:
        arrays = weights.applied(*arrays)
    return InMemoryView(*arrays, mapped.n_columns, row_constraints)


# ---- of a Dask array ----------------------------------------------------------------------------


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

    def _facts(self) -> list[tasks.BlockFacts]:
        return self._results([self._submit(tasks.facts_of_block, block) for block in self._blocks])

    def _weigh_blocks(self, weights: CellWeights) -> None:
        ends = np.cumsum([0, *self._heights])
        self._blocks = [
            self._submit(tasks.weighted_block, block, self.dtype, weights.rows(slice(start, stop)))
            for block, start, stop in zip(self._blocks, ends[:-1], ends[1:], strict=True)
        ]

    def _column_lengths(self) -> Array:
        counts = [self._submit(tasks.column_lengths, block) for block in self._blocks]
        total = reduce(partial(self._submit, operator.add), counts)
        lengths: Array = self._results([total])[0]
        return lengths

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """See :class:`~klnmf.backends.dask.session.Parts`."""
        self._cuts = cut_both(self._indptr[0], self._indptr[1], shares)
        return self._cuts

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`~klnmf.backends.dask.session.Parts`."""
        before = self._placed.get((mode, part))
        if before is not None:  # Dask does again what was lost
            future = self._submit(tasks.same, before, at=address)
        elif mode == 0:
            rows = self._cuts[0].rows(part)
            args = (self._pieces(rows), self.dtype, self.shape[1])
            future = self._submit(
                tasks.stacked_rows, *args, self._constraints_of(0, rows), at=address
            )
        else:
            future = self._columns(self._cuts[1].rows(part), address)
        self._placed[mode, part] = future
        return future

    def release(self) -> None:
        """See :class:`~klnmf.backends.dask.session.Parts`."""
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
            self._by_columns = [self._submit(tasks.by_columns, rows) for rows in self._in_order(0)]
        bounds = (columns.start, columns.stop)
        pieces = [self._submit(tasks.picked_columns, part, *bounds) for part in self._by_columns]
        return self._submit(
            tasks.joined_columns, pieces, self._constraints_of(1, columns), at=address
        )

    def _constraints_of(self, mode: int, rows: slice) -> RowConstraints | None:
        constraints = self._row_constraints[mode]
        return None if constraints is None else constraints.rows(rows)

    def seen_from_driver(self, session: Session) -> DaskArrayData:
        """See :class:`~klnmf.backends.dask.session.Parts`."""
        self._blocks, self._by_columns = [], []  # Dask knows how to make them again
        views = []
        for mode, indptr in enumerate(self._indptr):
            sums = self._results(
                [
                    self._submit(operator.attrgetter("row_sums"), part)
                    for part in self._in_order(mode)
                ]
            )
            facts = (self.shape[1 - mode], np.concatenate(sums), self._row_constraints[mode])
            views.append(DistantView(session, mode, indptr, *facts))
        return DaskArrayData(self, views)

    def over_rows(self, function: Callable[[Piece], Any]) -> list[Any]:
        """Return the results of a function for the parts of X by rows."""
        cut = self._cuts[0]
        parts = [part for part in range(cut.n_parts) if cut.size(part)]
        return self._results(
            [self._submit(tasks.on_rows, function, self._placed[0, p], cut.rows(p)) for p in parts]
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
                self._submit(
                    tasks.values_between, part, max(start, low) - low, min(stop, high) - low
                )
                for part, low, high in zip(self._in_order(0), ends[:-1], ends[1:], strict=True)
                if max(start, low) < min(stop, high)
            ]
            sums.append(self._submit(tasks.constant_of_pieces, pieces))
        return sum(self._results(sums), 0.0)

    def checksum(self) -> int:
        """Return the checksum in :attr:`CountData.fingerprint`."""
        checksum: Any = zlib.crc32(self._indptr[0].view(np.uint8).data)
        for name in ("indices", "values"):
            for part in self._in_order(0):
                checksum = self._submit(tasks.checksum_with, part, name, checksum)
        return int(self._results([checksum])[0])


def _checks(source: UnreadDaskArray) -> list[Any]:
    """Tasks that check the blocks of the array, row of blocks after row of blocks."""
    import dask

    heights = [0 if np.isnan(size) else int(size) for size in source.X.chunks[0]]
    ends = np.concatenate([[0], np.cumsum(heights)])
    check = dask.delayed(tasks.checked_block, pure=False)
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
