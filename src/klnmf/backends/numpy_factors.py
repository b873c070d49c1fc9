"""The verbs that are the same for every back-end whose factors are NumPy arrays."""

from functools import reduce
from typing import Any, ClassVar

import numpy as np

from klnmf.backends.base import Backend, Fixed
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sums import ROWS_PER_SUM, blocked_sum
from klnmf.support.array_types import Array


def weighted_powers(rows: Array, penalty_shares: Array) -> Array:
    """Entries of some rows and their squares, as the penalties count them: n × 2 × r."""
    entries = rows.astype(np.float64)
    return np.stack([entries, entries**2], axis=1) * penalty_shares[:, :, None]


# Products of sums, in units of the smallest number of their type, below which they count as 0.
VANISHED = 1e6


class NumpyFactors(Backend):
    """Factors are C-contiguous arrays in this process."""

    n_threads: int
    most_modes: ClassVar[int | None] = 8

    def upload(self, array: Any, mode: int, dtype: Any = None) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        if dtype is None:
            return np.array(array, dtype=self.data.dtype, order="C")
        return np.asarray(array, dtype=dtype, order="C")

    def download(self, factor: Array, rows: Array | None = None) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return factor if rows is None else factor[rows]

    def copy(self, factor: Array, dtype: Any = None) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return factor.astype(dtype or factor.dtype)

    @staticmethod
    def scaled(factor: Array, scales: Array, order: Array | None = None) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        result: Array = factor * scales.astype(factor.dtype)
        return result if order is None else np.ascontiguousarray(result[:, order])

    @staticmethod
    def merged(
        factor: Array, pair: tuple[int, int], weights: tuple[float, float], column: Array | None
    ) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        result, (first, second) = factor.copy(), pair
        result[:, first] = weights[0] * factor[:, first] + weights[1] * factor[:, second]
        result[:, second] = 0.0 if column is None else column
        return result

    def extrapolated(self, newest: Array, previous: Array, weight: float, keep: float) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        dtype = newest.dtype.type
        moved = newest + dtype(weight) * (newest - previous)
        return np.asarray(np.maximum(moved, dtype(keep) * newest))

    def column_sums(self, factor: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return np.array([blocked_sum(column) for column in factor.T])

    def column_squares(self, factor: Array) -> Array:
        """Column sums of the squares in float64, by blocks of rows."""
        return np.array([blocked_sum(column.astype(np.float64) ** 2) for column in factor.T])

    def sums_and_squares(self, mode: int, factor: Array) -> tuple[Array, Array]:
        """See :class:`~klnmf.backends.base.Backend`."""
        shares = (self.data.view(mode).row_constraints or RowConstraints()).penalty_shares
        if shares is None:
            return self.column_sums(factor), self.column_squares(factor)
        sums = np.zeros((2, factor.shape[1]))
        for start in range(0, len(factor), ROWS_PER_SUM):
            rows = slice(start, start + ROWS_PER_SUM)
            sums += weighted_powers(factor[rows], shares[rows]).sum(axis=0)
        return sums[0], sums[1]

    def count_zeros(self, factor: Array) -> int:
        """See :class:`~klnmf.backends.base.Backend`."""
        return int(np.count_nonzero(factor == 0))  # booleans: numbers are counted one by one

    def linear_part(self, fixed: Fixed) -> tuple[Array, Array]:
        """Return A and c of the row problems.

        A is the other factor or, of a tensor, the other factors one below the other: the row of A
        that a nonzero has is the product of one row of each.
        """
        A = fixed.factors[0] if len(fixed.factors) == 1 else np.concatenate(fixed.factors)
        if fixed.slopes is not None:
            return A, fixed.slopes
        slopes: Array = reduce(np.multiply, map(self.column_sums, fixed.factors))
        if len(fixed.factors) > 1:
            # Components whose products are hardly numbers any more would overflow in 1 / c.
            least = VANISHED * float(np.finfo(A.dtype).tiny)
            if slopes.min() < least:
                A[:, slopes < least] = slopes[slopes < least] = 0.0
        return A, slopes + fixed.l1
