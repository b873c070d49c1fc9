"""Sums over X that do not depend on threads or on how X is stored."""

from collections.abc import Callable, Iterator

import numpy as np

from klnmf.data.passes import constant_of, row_sums
from klnmf.support.array_types import Array

# Rows per partial sum. Every total is a sum of such blocks, by row number, so that it depends
# neither on threads nor on how rows are stored; blocks on disk and partitions are multiples of it.
ROWS_PER_SUM = 4096
# Nonzeros of which a pass over the data makes a float64 copy at a time.
NONZEROS_PER_PASS = 1 << 20


def blocked_sum(values: Array) -> float:
    """Sum in float64 over blocks of ``ROWS_PER_SUM`` values, in order."""
    starts = np.arange(0, len(values), ROWS_PER_SUM)
    if len(starts) == 0:
        return 0.0
    return float(np.add.reduceat(np.asarray(values, dtype=np.float64), starts).sum())


def row_ranges(indptr: Array, n_nonzeros: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, in order, with at most this many nonzeros, or one row that has more.

    >>> list(row_ranges(np.array([0, 2, 3, 9, 9, 10]), 3))
    [(0, 2), (2, 3), (3, 5)]
    """
    start, n_rows = 0, len(indptr) - 1
    while start < n_rows:
        stop = int(np.searchsorted(indptr, int(indptr[start]) + n_nonzeros, side="right")) - 1
        stop = min(max(stop, start + 1), n_rows)
        yield start, stop
        start = stop


def sums_of_rows(indptr: Array, read: Callable[[slice], Array], n_threads: int = 1) -> Array:
    """Sum of each row in float64, from values that are read a slice at a time."""
    sums = np.zeros(len(indptr) - 1)
    for start, stop in row_ranges(indptr, NONZEROS_PER_PASS * n_threads):
        ends = indptr[start : stop + 1]
        sums[start:stop] = row_sums(ends - ends[0], read(slice(ends[0], ends[-1])), n_threads)
    return sums


class DivergenceConstant:
    """Σ (v log v − v) of values that come in pieces: the same number for any pieces."""

    def __init__(self, n_threads: int = 1) -> None:
        self._n_threads, self._sum, self._waiting = n_threads, 0.0, np.zeros(0)

    def add(self, values: Array) -> None:
        """Take in the next values; no float64 copy is made of all of them."""
        values = np.concatenate([self._waiting, values]) if len(self._waiting) else values
        whole = len(values) // NONZEROS_PER_PASS * NONZEROS_PER_PASS
        for start in range(0, whole, NONZEROS_PER_PASS):
            self._sum += constant_of(values[start : start + NONZEROS_PER_PASS], self._n_threads)
        self._waiting = values[whole:]

    @property
    def total(self) -> float:
        """The sum over all values so far."""
        return self._sum + (constant_of(self._waiting) if len(self._waiting) else 0.0)
