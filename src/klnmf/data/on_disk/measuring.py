"""Sums over a matrix on disk that every fit needs, by the code that takes them in memory."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy.typing as npt

from klnmf.data.on_disk.arrays import MappedArray
from klnmf.data.on_disk.layout import MODES, NPY_HEADER, chunks
from klnmf.data.on_disk.views import MappedView
from klnmf.data.sparse_data import RowView, SparseData

Array = npt.NDArray[Any]


class _ReadWhenSliced:
    """Values on disk for code that goes over slices of an array: only these are in memory."""

    def __init__(self, stored: MappedArray) -> None:
        self._stored = stored

    def __len__(self) -> int:
        return self._stored.length

    def __getitem__(self, places: slice) -> Array:
        start, stop, _ = places.indices(len(self))
        return self._stored.read(start, stop)


class _Measured(SparseData):
    """The same sums as of a matrix in memory, taken by the same code."""

    def __init__(self, view: MappedView, shape: tuple[int, int]) -> None:
        self.shape, self.dtype = shape, view.values.dtype
        values: Any = _ReadWhenSliced(view.stored[1])
        self._by_rows = RowView(view.indptr, view.indices, values, view.n_columns)


def row_sums(view: MappedView) -> Array:
    """Return the sums of the rows of one mode."""
    return _Measured(view, (view.n_rows, view.n_columns)).view(0).row_sums


def measured_facts(folder: Path, by_rows: MappedView) -> dict[str, Any]:
    """Return what a header says of the values."""
    measured = _Measured(by_rows, (by_rows.n_rows, by_rows.n_columns))
    return {
        "total": measured.total,
        "divergence_constant": measured.divergence_constant,
        "exact_in_float32": measured.is_exact_in_float32,
        "checksum": _fingerprint(folder),
    }


def _fingerprint(folder: Path) -> int:
    """Checksum that :attr:`SparseData.fingerprint` of the same matrix in memory has."""
    checksum = 0
    for part in ("indptr", "indices", "values"):
        skipped = NPY_HEADER
        for piece in chunks(folder / f"{MODES[0]}.{part}.npy"):
            checksum = zlib.crc32(piece[skipped:], checksum)
            skipped = 0
    return checksum
