"""The verbs that are the same for every back-end whose factors are NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.data.sparse_data import CountData
from klnmf.data.sums import ROWS_PER_SUM, blocked_sum

Array = npt.NDArray[Any]


def penalised_powers(rows: Array, penalty_shares: Array) -> Array:
    """Entries of some rows and their squares, as the penalties count them: n × 2 × r."""
    entries = rows.astype(np.float64)
    return np.stack([entries, entries**2], axis=1) * penalty_shares[:, :, None]


class NumpyFactors:
    """Factors in this process's memory, C-contiguous, of the data's type."""

    data: CountData
    narrow_dtype: Any = None

    def upload(self, factor: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return np.array(factor, dtype=self.data.dtype, order="C")

    def download(self, factor: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return factor.astype(self.data.dtype, copy=False)

    def snapshot(self, array: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return array

    def restore(self, array: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return array

    def converted(self, factor: Array, dtype: Any) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return factor.astype(dtype)

    def copy(self, factor: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return factor.copy()

    def column_sums(self, factor: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return np.array([blocked_sum(column) for column in factor.T])

    def penalised_sums(self, mode: int, factor: Array) -> tuple[Array, Array]:
        """See :class:`~klnmf.backends.base.Backend`."""
        constraints = self.data.view(mode).row_constraints
        assert constraints is not None
        assert constraints.penalty_shares is not None
        sums = np.zeros((2, factor.shape[1]))
        for start in range(0, len(factor), ROWS_PER_SUM):
            rows = slice(start, start + ROWS_PER_SUM)
            sums += penalised_powers(factor[rows], constraints.penalty_shares[rows]).sum(axis=0)
        return sums[0], sums[1]

    def slopes(self, A: Array, l1: float) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return self.column_sums(A) + l1

    def scale_columns(self, factor: Array, scales: Array) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
        factor *= scales.astype(factor.dtype)

    def take_rows(self, factor: Array, rows: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        return factor[rows].astype(np.float64)

    def merge_columns(
        self,
        factor: Array,
        pair: tuple[int, int],
        weights: tuple[float, float],
        column: Array | None,
    ) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
        first, second = pair
        factor[:, first] = weights[0] * factor[:, first] + weights[1] * factor[:, second]
        factor[:, second] = 0.0 if column is None else column

    def count_zeros(self, factor: Array) -> int:
        """See :class:`~klnmf.backends.base.Backend`."""
        return int(np.count_nonzero(factor == 0))  # of booleans: numbers are counted one by one

    def dense_product(self, W: Array, H: Array) -> Array:
        """See :class:`~klnmf.backends.base.Backend`."""
        product: Array = W.astype(np.float64) @ H.T.astype(np.float64)
        return product

    def close(self) -> None:
        """See :class:`~klnmf.backends.base.Backend`."""
