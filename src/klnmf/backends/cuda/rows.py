"""One mode of the data on the device: nonzeros, the tasks of warps, and the terms of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from klnmf.backends.cuda.cupy_input import CupyView
from klnmf.data.row_constraints import Pattern, RowConstraints
from klnmf.data.sparse_data import Piece, RowView
from klnmf.support.array_types import Array

NULL = np.uint64(0)  # a pointer to nothing
# Nonzeros of a task at most: longer rows are cut into pieces. Rows begin at multiples of ALIGNED.
# So sums have an order that depends on the row alone: not on the device, nor on other rows.
PIECE, ALIGNED = 8192, 4
PADDING = 64  # nonzeros that may be read beyond the last


def row_starts(lengths: Array) -> Array:
    """Where rows begin on the device, and where the last one ends.

    >>> row_starts(np.array([5, 0, 4])).tolist()
    [0, 8, 8, 12]
    """
    rounded = -(-lengths // ALIGNED) * ALIGNED
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(rounded, dtype=np.int64)])


SPREAD = """
extern "C" __global__ void spread_rows(int n_rows, const long long* from, const long long* to,
                                       const int* columns, const float* values,
                                       int* to_columns, float* to_values) {
    const int row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= n_rows)
        return;
    const long long begin = from[row], length = from[row + 1] - begin, target = to[row];
    for (long long i = threadIdx.x & 31; i < length; i += 32) {
        to_columns[target + i] = columns[begin + i];
        to_values[target + i] = values[begin + i];
    }
}
"""


class Tasks(NamedTuple):
    """Rows, or pieces of long rows: nonzeros [begin, end) of a row."""

    row: Array
    begin: Array
    end: Array
    slot: Array  # of a piece; -1: a whole row
    long_rows: Array
    first_slots: Array  # of the long rows, and one more

    @classmethod
    def of(cls, lengths: Array, longest: int) -> Tasks:
        """Cut rows into tasks: pieces first, then whole rows by falling length.

        >>> Tasks.of(np.array([2, 0, 41]), 40).begin.tolist()
        [4, 20, 0, 4]
        """
        starts = row_starts(lengths)
        long_rows = np.flatnonzero(lengths > longest)
        counts = -(-lengths[long_rows] // (longest - 16))
        first = np.concatenate([[0], np.cumsum(counts)])
        of_piece = np.repeat(np.arange(len(long_rows)), counts)
        number = np.arange(first[-1]) - first[of_piece]
        row = long_rows[of_piece]

        def cut(number: Array) -> Array:
            within: Array = number * lengths[row] // counts[of_piece] // 16 * 16
            return np.where(number == counts[of_piece], lengths[row], within)

        begin, end = starts[row] + cut(number), starts[row] + cut(number + 1)
        short = np.flatnonzero(lengths <= longest)
        short = short[np.argsort(-lengths[short], kind="stable")]
        return cls(
            np.concatenate([row, short]).astype(np.int32),
            np.concatenate([begin, starts[short]]).astype(np.int64),
            np.concatenate([end, starts[short] + lengths[short]]).astype(np.int64),
            np.concatenate([np.arange(first[-1]), np.full(len(short), -1)]).astype(np.int32),
            long_rows.astype(np.int32),
            first.astype(np.int32),
        )

    def near_each_other(self, columns: Any) -> Tasks:
        """Order the pieces by their first column: those at work at a time read the same rows."""
        import cupy as cp

        n_pieces = int(self.first_slots[-1])
        first = columns[cp.asarray(self.begin[:n_pieces])].get()
        order = np.argsort(first, kind="stable")
        for array in self[:4]:
            array[:n_pieces] = array[:n_pieces][order]
        return self


def bits_of(pattern: Pattern, words: int) -> Array:
    """Return sets of components by row, as 64-bit masks.

    >>> bits_of(Pattern(np.array([0, 2, 2]), np.array([0, 65])), 2).tolist()
    [[1, 2], [0, 0]]
    """
    rows = np.repeat(np.arange(len(pattern.starts) - 1), np.diff(pattern.starts))
    masks = np.zeros((len(pattern.starts) - 1, words), dtype=np.uint64)
    columns = pattern.columns.astype(np.int64)
    bits = np.uint64(1) << (columns % 64).astype(np.uint64)
    np.bitwise_or.at(masks, (rows, columns // 64), bits)
    return masks


class DeviceRows:
    """A view on the device, for kernels that take tasks."""

    def __init__(self, view: RowView) -> None:
        import cupy as cp

        self.n_rows, self.n_columns, self.nnz = view.n_rows, view.n_columns, view.nnz
        check_memory(16 * self.nnz + 128 * self.n_rows, "X")
        lengths = np.diff(view.indptr)
        starts = row_starts(lengths)
        self.columns = cp.zeros(int(starts[-1]) + PADDING, dtype=np.int32)
        self.values = cp.zeros(int(starts[-1]) + PADDING, dtype=np.float32)
        spread = cp.RawKernel(SPREAD, "spread_rows")
        least = np.ones(self.n_rows, dtype=np.float32)
        for piece in pieces_of(view):
            n_rows = len(piece.indptr) - 1
            source = (piece.indices, piece.values.astype(np.float32, copy=False))
            ends = (piece.indptr, starts[piece.rows])
            arrays = (cp.ascontiguousarray(cp.asarray(array)) for array in (*ends, *source))
            arguments = (np.int32(n_rows), *arrays, self.columns, self.values)
            spread((max(1, -(-n_rows // 8)),), (256,), arguments)
            if len(piece.values) and piece.values.min() < 1:
                least[piece.rows] = least_roots(piece.indptr, cp.asnumpy(piece.values))
        tasks = Tasks.of(lengths, PIECE).near_each_other(self.columns)
        self.task_rows, begin, end, slot, self.long_rows, self.first_slots = map(cp.asarray, tasks)
        self.n_tasks, self.n_long, self.n_pieces = (
            len(tasks.row),
            len(tasks.long_rows),
            int(tasks.first_slots[-1]),
        )
        self.tasks = (self.task_rows, begin, end, slot, self.columns, self.values)
        self.totals = cp.asarray(view.row_sums)
        self.least_root = cp.asarray(least) if (least < 1).any() else NULL
        self.constraints = view.row_constraints or RowConstraints()
        self._set_constraints(cp, self.constraints)
        # What launches leave: state of rows, and their value, residual and gap.
        self.state = cp.zeros(self.n_rows, dtype=np.uint8)
        self.row_values, self.kkt, self.gaps = cp.zeros((3, self.n_rows))
        self._parts: dict[Any, Any] = {}
        self._masks: dict[int, tuple[Any, Any]] = {}

    def _set_constraints(self, cp: Any, constraints: RowConstraints) -> None:
        shares, missing = constraints.penalty_shares, constraints.missing
        self.shares = NULL if shares is None else cp.asarray(np.ascontiguousarray(shares, float))
        self.own, self.missing = NULL, None
        if missing is not None:
            lengths = np.diff(missing.starts)
            own = np.where(lengths > 0, np.cumsum(lengths > 0) - 1, -1)
            starts = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
            self.own = cp.asarray(own.astype(np.int32))
            self.missing = tuple(map(cp.asarray, (starts, missing.columns.astype(np.int64))))

    def masks(self, n_components: int, stride: int) -> tuple[Any, Any]:
        """Barred components by row and frozen ones, for factors of this rank."""
        if n_components not in self._masks:
            self._masks[n_components] = self._new_masks(n_components, stride)
        return self._masks[n_components]

    def _new_masks(self, n_components: int, stride: int) -> tuple[Any, Any]:
        import cupy as cp

        words, barred, frozen = -(-stride // 64), NULL, NULL
        if self.constraints.barred is not None:
            barred = cp.asarray(bits_of(self.constraints.barred, words))
        if self.constraints.frozen is not None:
            which = np.flatnonzero(self.constraints.is_frozen(n_components))
            one_row = Pattern(np.array([0, len(which)]), which)
            frozen = cp.asarray(bits_of(one_row, words))
        return barred, frozen

    def parts(self, numbers: int, dtype: Any) -> Any:
        """Room for what pieces of long rows leave."""
        import cupy as cp

        key = (numbers, np.dtype(dtype).name)
        if key not in self._parts:
            self._parts[key] = cp.zeros(max(1, self.n_pieces) * numbers, dtype=dtype)
        return self._parts[key]


def pieces_of(view: RowView) -> Iterator[Piece]:
    """Pieces of a view; their columns and values may be on the device already."""
    if not isinstance(view, CupyView):
        return view.pieces()
    arrays = (view.indptr, view.columns, view.values)
    return iter([Piece(slice(0, view.n_rows), *arrays, view.row_constraints)])


def check_memory(needed: float, what: str) -> None:
    """Refuse what the device has no room for, before any work starts."""
    import cupy as cp

    free = cp.cuda.runtime.memGetInfo()[0] + cp.get_default_memory_pool().free_bytes()
    if needed > free:
        raise MemoryError(
            f"{what} need{'' if ' ' in what else 's'} {needed / 1e9:.1f} GB on the GPU, which has "
            f"{free / 1e9:.1f} GB free: backend='cuda' holds everything there. Choose "
            "backend='cpu', or a larger GPU."
        )


def least_roots(indptr: Array, values: Array) -> Array:
    """Root of the smallest value of each row, 1 at most.

    >>> least_roots(np.array([0, 2, 2, 3]), np.array([0.25, 3.0, 2.0]))
    array([0.5, 1. , 1. ], dtype=float32)
    """
    least = np.ones(len(indptr) - 1)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        least[filled] = np.minimum.reduceat(values, indptr[filled])
    return np.sqrt(np.minimum(least, 1.0)).astype(np.float32)
