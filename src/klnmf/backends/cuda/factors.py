"""Factors on the device, and the verbs that look at nothing but factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from klnmf.backends.base import Backend
from klnmf.backends.cuda.device_data import DeviceData
from klnmf.backends.cuda.modules import RankClass, module
from klnmf.backends.cuda.rows import NULL
from klnmf.backends.cuda.transfer import send
from klnmf.support.array_types import Array

ROWS_OF_STRIP = 1024  # of column sums: fixed, so that these do not depend on the device
THREADS = 256


@dataclass(eq=False)
class CudaFactor:
    """A factor: rows of ``stride`` numbers, of which the first ``rank`` count and the rest is 0."""

    array: Any  # CuPy, float32
    rank: int
    rank_class: RankClass
    sums: Any = None  # column sums, sums of squares, numbers of zeros, if they are known

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and components."""
        return len(self.array), self.rank

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        return np.dtype(np.float32)

    def like(self, array: Any) -> CudaFactor:
        """Return a factor of the same rank with these entries."""
        return CudaFactor(array, self.rank, self.rank_class)

    def kernel(self, name: str) -> Any:
        """Return a kernel for factors like this one."""
        return module(self.rank_class, self.array.device.id).get_function(name)


def add_columns(factor: CudaFactor, shares: Any, l1: float, slopes: Any) -> Any:
    """Column sums, sums of squares and numbers of zeros, in float64 on the device, in fixed order.

    ``slopes`` becomes the sums plus ``l1``, if it is an array.
    """
    import cupy as cp

    (n_rows, _), stride = factor.shape, factor.rank_class.stride
    strips = max(1, -(-n_rows // ROWS_OF_STRIP))
    parts, sums = cp.empty((strips, 3, stride)), cp.empty((3, stride))
    settings = (np.int64(n_rows), np.int32(ROWS_OF_STRIP), shares, parts)
    grid = (strips, -(-stride // 32))
    factor.kernel("column_sums")(grid, (32, 8), (factor.array, *settings))
    ends = (np.int32(strips), np.int32(factor.rank), np.float64(l1), sums, slopes)
    factor.kernel("add_strips")((-(-3 * stride // THREADS),), (THREADS,), (parts, *ends))
    return sums


class CudaFactors(Backend):
    """Factors are `CudaFactor`: the verbs that are about nothing else."""

    data: DeviceData
    n_threads: int

    def upload(self, array: Any, mode: int, dtype: Any = None) -> CudaFactor:
        """See :class:`~klnmf.backends.base.Backend`; the array may be a description with `part`."""
        import cupy as cp

        (n_rows, rank), part_of = array.shape, getattr(array, "part", None)
        rank_class = RankClass.of(rank, max(self.data.shape))
        self.data.make_room(rank_class)
        there = cp.empty((n_rows, rank), dtype=np.float32)

        def fill(begin: int, end: int, out: Array) -> None:
            rows = slice(begin, end)
            out.reshape(-1, rank)[:] = np.asarray(array[rows] if part_of is None else part_of(rows))

        send(fill, there, rank, self.n_threads)
        target = cp.zeros((n_rows, rank_class.stride), dtype=np.float32)
        target[:, :rank] = there
        return CudaFactor(target, rank, rank_class)

    def download(self, factor: CudaFactor, rows: Array | None = None) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        import cupy as cp

        array = factor.array if rows is None else factor.array[cp.asarray(rows)]
        result: Array = cp.ascontiguousarray(array[:, : factor.rank]).get()
        return result

    def copy(self, factor: CudaFactor, dtype: Any = None) -> CudaFactor:
        """See :class:`~klnmf.backends.base.Backend`."""
        copied = factor.like(factor.array.copy())
        copied.sums = factor.sums
        return copied

    def scaled(self, factor: CudaFactor, scales: Array, order: Array | None = None) -> CudaFactor:
        """See :class:`~klnmf.backends.base.Backend`."""
        import cupy as cp

        padded = np.zeros(factor.rank_class.stride, dtype=np.float32)
        padded[: factor.rank] = scales
        array = factor.array * cp.asarray(padded)
        if order is not None:
            every = np.arange(len(padded))
            every[: factor.rank] = order
            array = cp.ascontiguousarray(array[:, cp.asarray(every)])
        return factor.like(array)

    def merged(
        self,
        factor: CudaFactor,
        pair: tuple[int, int],
        weights: tuple[float, float],
        column: Array | None,
    ) -> CudaFactor:
        """See :class:`~klnmf.backends.base.Backend`."""
        import cupy as cp

        (first, second), array = pair, factor.array.copy()
        both = (
            np.float32(weight) * factor.array[:, k] for weight, k in zip(weights, pair, strict=True)
        )
        array[:, first] = sum(both)
        array[:, second] = 0 if column is None else cp.asarray(column.astype(np.float32))
        return factor.like(array)

    def extrapolated(
        self, newest: CudaFactor, previous: CudaFactor, weight: float, keep: float
    ) -> CudaFactor:
        """See :class:`~klnmf.backends.base.Backend`."""
        import cupy as cp

        size, target = newest.array.size, cp.empty_like(newest.array)
        settings = (np.float32(weight), np.float32(keep), np.int64(size), target)
        grid = (-(-size // THREADS),)
        newest.kernel("extrapolate")(grid, (THREADS,), (newest.array, previous.array, *settings))
        return newest.like(target)

    def column_sums(self, factor: CudaFactor) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        sums: Array = self._sums(factor)[0]
        return sums

    def sums_and_squares(self, mode: int, factor: CudaFactor) -> tuple[Array, Array]:
        """See :class:`~klnmf.backends.base.Backend`."""
        rows = self.data.rows(mode)
        if rows.shares is NULL:
            sums = self._sums(factor)
        else:
            sums = add_columns(factor, rows.shares, 0.0, NULL).get()[:, : factor.rank]
        return sums[0], sums[1]

    def count_zeros(self, factor: CudaFactor) -> int:
        """See :class:`~klnmf.backends.base.Backend`."""
        return int(self._sums(factor)[2].sum())

    @staticmethod
    def _sums(factor: CudaFactor) -> Array:
        if factor.sums is None:
            factor.sums = add_columns(factor, NULL, 0.0, NULL)
        sums: Array = factor.sums.get()[:, : factor.rank]
        return sums
