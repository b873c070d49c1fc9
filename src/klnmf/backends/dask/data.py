"""X in parts: where they come from, and how they come to the workers."""

from pathlib import Path
from typing import Any, Protocol

from klnmf.backends.dask.array_parts import PartsOfDaskArray
from klnmf.backends.dask.arrays import UnreadDaskArray
from klnmf.backends.dask.cluster import Cluster
from klnmf.backends.dask.partition import Partition, cut_both
from klnmf.backends.dask.session import Session
from klnmf.data.cell_weights import CellWeights
from klnmf.data.observed_data import ObservedData
from klnmf.data.on_disk.matrix import OnDiskData, open_matrix
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import CountData, FitInput, InMemoryView


class Parts(Protocol):
    """X in parts."""

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """Cut both modes into parts of these shares of the work."""

    def place(self, mode: int, part: int, address: str) -> Any:
        """Return a future of a part that is, or will be, on that worker."""

    def release(self) -> None:
        """Let go of what is on workers."""

    def seen_from_driver(self, session: Session) -> CountData:
        """Return what solvers see of X."""


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
        """See :class:`Parts`."""
        self._cuts = cut_both(self._data.view(0).indptr, self._data.view(1).indptr, shares)
        return self._cuts

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`Parts`."""
        rows = self._data.view(mode).whole().part(self._cuts[mode].rows(part))
        return self._cluster.scatter(rows, address)

    def release(self) -> None:
        """See :class:`Parts`: nothing is held."""

    def seen_from_driver(self, session: Session) -> CountData:
        """See :class:`Parts`."""
        return self._data


class PartsOnDisk(PartsInMemory):
    """X in a folder that the workers see too: each of them maps its rows."""

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`Parts`."""
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
