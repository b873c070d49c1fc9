"""X in parts: where they come from, and how they come to the workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from klnmf.backends.dask.array_parts import PartsOfDaskArray
from klnmf.backends.dask.arrays import DaskArrayData
from klnmf.backends.dask.cluster import Cluster
from klnmf.backends.dask.partition import Partition, cut_both
from klnmf.backends.dask.session import Session
from klnmf.data.observed_cells import Observation
from klnmf.data.observed_data import ObservedOnDisk
from klnmf.data.on_disk.matrix import MappedData, open_matrix
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import RowView, SparseData, column_numbers

Array = npt.NDArray[Any]


class Parts(Protocol):
    """X in parts."""

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """Cut both modes into parts of these shares of the work."""

    def place(self, mode: int, part: int, address: str) -> Any:
        """Return a future of a part that is, or will be, on that worker."""

    def release(self) -> None:
        """Let go of what is on workers."""

    def seen_from_driver(self, session: Session) -> SparseData:
        """Return what solvers see of X."""


def parts_of(data: SparseData, cluster: Cluster) -> Parts:
    """X in parts, from wherever it is."""
    if isinstance(data, DaskArrayData):
        return PartsOfDaskArray(data, cluster)
    if isinstance(data, MappedData | ObservedOnDisk):
        return PartsOnDisk(data, cluster)
    return PartsInMemory(data, cluster)


def rows_of(view: RowView, rows: slice) -> RowView:
    """Return some rows of a view as a view of their own, which shares its memory."""
    ends = view.indptr[rows.start : rows.stop + 1]
    entries = slice(int(ends[0]), int(ends[-1]))
    return RowView(
        np.asarray(ends - ends[0]),
        column_numbers(view.indices[entries], view.n_columns),
        np.asarray(view.values[entries]),
        view.n_columns,
        None if view.terms is None else view.terms.rows(rows),
    )


class PartsInMemory:
    """X in this process: parts are sent, and sent again where they were lost."""

    def __init__(self, data: SparseData, cluster: Cluster) -> None:
        self._data, self._cluster = data, cluster

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """See :class:`Parts`."""
        self._cuts = cut_both(self._data.view(0).indptr, self._data.view(1).indptr, shares)
        return self._cuts

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`Parts`."""
        rows = rows_of(self._data.view(mode), self._cuts[mode].rows(part))
        return self._cluster.scatter(rows, address)

    def release(self) -> None:
        """See :class:`Parts`: nothing is held."""

    def seen_from_driver(self, session: Session) -> SparseData:
        """See :class:`Parts`."""
        return self._data


class PartsOnDisk:
    """X in a folder that the workers see too, each of them maps its rows."""

    def __init__(self, data: MappedData | ObservedOnDisk, cluster: Cluster) -> None:
        self._data, self._cluster = data, cluster

    def partitions(self, shares: list[float]) -> tuple[Partition, Partition]:
        """See :class:`Parts`."""
        self._cuts = cut_both(self._data.view(0).indptr, self._data.view(1).indptr, shares)
        return self._cuts

    def place(self, mode: int, part: int, address: str) -> Any:
        """See :class:`Parts`."""
        rows, terms = self._cuts[mode].rows(part), self._data.view(mode).terms
        stored, observation = self._data, None
        if isinstance(stored, ObservedOnDisk):
            observation, stored = stored.observations[mode].rows(rows), stored.base
        return self._cluster.submit(
            mapped_rows,
            stored.folder.resolve(),
            stored.fingerprint,
            mode,
            rows,
            observation,
            None if terms is None else terms.rows(rows),
            at=address,
        )

    def release(self) -> None:
        """See :class:`Parts`: nothing is held."""

    def seen_from_driver(self, session: Session) -> SparseData:
        """See :class:`Parts`."""
        return self._data


def mapped_rows(
    folder: Path,
    fingerprint: tuple[Any, ...],
    mode: int,
    rows: slice,
    observation: Observation | None,
    terms: RowConstraints | None,
) -> RowView:
    """Map some rows of a matrix on disk; where cells have weights or are missing, read them."""
    matrix = open_matrix(folder, verify=False)  # the driver has looked at it
    if matrix.data.fingerprint != fingerprint:
        raise ValueError(
            f"{folder} is another matrix on this worker than on the machine that called fit. The "
            "folder must be on storage that all of them share."
        )
    mapped = rows_of(matrix.data.view(mode), rows)
    if observation is not None:
        seen = observation.applied(mapped.indptr, mapped.indices, mapped.values)
        mapped = RowView(*seen, mapped.n_columns)
    return replace(mapped, terms=terms)
