"""One mode of the data on the device: nonzeros, the tasks of warps, and the terms of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from klnmf.backends.cuda.streaming import ChunkStream
from klnmf.data.row_constraints import Pattern, RowConstraints
from klnmf.data.sparse_data import RowView
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


# One warp for each task. Sums of whole numbers and smallest values are the same in any order.
SPREAD = """
extern "C" __global__ void spread_rows(int count, const int* rows, const long long* begins,
                                       const long long* ends, const long long* shifts,
                                       long long first, long long first_place,
                                       const int* columns, const float* values, int* to_columns,
                                       float* to_values, float* least, double* totals,
                                       int* numbers) {
    const int task = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (task >= count)
        return;
    const int row = rows[task];
    const long long begin = begins[task], length = ends[task] - begin;
    const long long from = begin + shifts[row] - first, to = begin - first_place;
    float smallest = 1.f;
    double sum = 0;
    for (long long i = lane; i < length; i += 32) {
        const float value = values[from + i];
        to_columns[to + i] = columns[from + i];
        to_values[to + i] = value;
        smallest = fminf(smallest, value), sum += value;
        if (numbers)
            numbers[from + i] = row;
    }
    for (int o = 16; o; o >>= 1) {
        smallest = fminf(smallest, __shfl_xor_sync(0xffffffffu, smallest, o));
        sum += __shfl_xor_sync(0xffffffffu, sum, o);
    }
    if (lane == 0 && least)
        atomicMin(reinterpret_cast<int*>(least + row), __float_as_int(smallest));
    if (lane == 0 && totals)
        atomicAdd(totals + row, sum);
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
        # In 16 bits, which NumPy sorts by counting.
        rank = (longest - lengths[short]).astype(np.uint16 if longest < 2**16 else np.int64)
        short = short[np.argsort(rank, kind="stable")]
        return cls(
            np.concatenate([row, short]).astype(np.int32),
            np.concatenate([begin, starts[short]]).astype(np.int64),
            np.concatenate([end, starts[short] + lengths[short]]).astype(np.int64),
            np.concatenate([np.arange(first[-1]), np.full(len(short), -1)]).astype(np.int32),
            long_rows.astype(np.int32),
            first.astype(np.int32),
        )

    def near_each_other(self, shifts: Array, columns: Any) -> Tasks:
        """Order the pieces by their first column: those at work at a time read the same rows."""
        import cupy as cp

        n_pieces = int(self.first_slots[-1])
        places = self.begin[:n_pieces] + shifts[self.row[:n_pieces]]
        first = columns[cp.asarray(places)].get()
        order = np.argsort(first, kind="stable")
        for array in self[:4]:
            array[:n_pieces] = array[:n_pieces][order]
        return self

    def chunks(self, most: int) -> list[Array]:
        """Numbers of the tasks of chunks, each of at most so many nonzeros on the device.

        >>> [chunk.tolist() for chunk in Tasks.of(np.array([2, 0, 41, 7]), 40).chunks(40)]
        [[0, 3, 4], [1, 2]]
        """
        by_place = np.lexsort((self.end, self.begin))
        begin, end = self.begin[by_place], self.end[by_place]
        cuts = [0]
        while cuts[-1] < len(by_place):
            stop = int(np.searchsorted(end, begin[cuts[-1]] + most, side="right"))
            cuts.append(max(stop, cuts[-1] + 1))
        return [np.sort(by_place[a:b]) for a, b in pairwise(cuts)]


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


class Chunk(NamedTuple):
    """Tasks whose nonzeros are on the device together."""

    tasks: tuple[Any, ...]  # row, begin, end and slot of each
    n_tasks: int
    entries: slice  # which of the view's nonzeros they have
    first: int  # where these begin on the device
    size: int


class DeviceRows:
    """A view for kernels that take tasks: on the device, or streamed to it in each pass.

    ``raw`` are its columns and values on the device, if they are there, or else chunks of at most
    ``most`` nonzeros are sent from the host by each pass. ``totals``, sums of the rows, are
    computed if they are not given, and are exact for whole numbers; ``numbers`` gets the row of
    each nonzero.
    """

    def __init__(
        self,
        view: RowView,
        indptr: Array,
        raw: tuple[Any, Any] | None = None,
        *,
        most: int = 0,
        totals: Array | None = None,
        numbers: Any = NULL,
        n_threads: int = 1,
    ) -> None:
        import cupy as cp

        self.n_rows, self.n_columns = len(indptr) - 1, view.n_columns
        self.indptr, self.nnz = indptr, int(indptr[-1])
        lengths = np.diff(indptr)
        starts = row_starts(lengths)
        shifts = indptr[:-1] - starts[:-1]
        tasks = Tasks.of(lengths, PIECE)
        if raw is not None:
            tasks = tasks.near_each_other(shifts, raw[0])
        self.long_rows, self.first_slots = map(cp.asarray, tasks[4:])
        self.n_long, self.n_pieces = len(tasks.long_rows), int(tasks.first_slots[-1])
        together = [np.arange(len(tasks.row))] if raw is not None else tasks.chunks(most)
        self.chunks = [_chunk(tasks, which, shifts) for which in together]
        self._shifts = cp.asarray(shifts)
        self._spread = cp.RawKernel(SPREAD, "spread_rows")
        least = cp.ones(self.n_rows, dtype=np.float32)
        self.totals = cp.zeros(self.n_rows) if totals is None else cp.asarray(totals)
        self._facts = (least, self.totals if totals is None else NULL, numbers)
        self._resident: tuple[Any, Any] | None = None
        self._stream: ChunkStream | None = None
        if raw is not None:
            size = self.chunks[0].first + self.chunks[0].size + PADDING
            arrays = (cp.zeros(size, dtype=np.int32), cp.zeros(size, dtype=np.float32))
            self._spread_chunk(self.chunks[0], raw, 0, arrays, 0)
            self._resident = arrays
        else:
            self._stream = ChunkStream(view, self.chunks, n_threads)
            for _ in self.loaded():
                pass
        self._facts = (NULL, NULL, NULL)
        self.least_root = cp.sqrt(least) if bool((least < 1).any()) else NULL
        self.constraints = view.row_constraints or RowConstraints()
        self._set_constraints(cp, self.constraints)
        # What launches leave: state of rows, and their value, residual and gap.
        self.state = cp.zeros(self.n_rows, dtype=np.uint8)
        self.row_values, self.kkt, self.gaps = cp.zeros((3, self.n_rows))
        self._parts: dict[Any, Any] = {}
        self._masks: dict[int, tuple[Any, Any]] = {}

    def _spread_chunk(
        self, chunk: Chunk, raw: tuple[Any, Any], first: int, to: tuple[Any, Any], place: int
    ) -> None:
        """Copy the rows of a chunk to where kernels want them."""
        ends = (self._shifts, np.int64(first), np.int64(place))
        arguments = (np.int32(chunk.n_tasks), *chunk.tasks[:3], *ends, *raw, *to, *self._facts)
        self._spread((max(1, -(-chunk.n_tasks // 8)),), (256,), arguments)

    def loaded(self, wanted: Sequence[int] | None = None) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Chunks one after the other, by number, and what kernels take of each.

        What is launched between two of them sees its chunk; ``wanted`` leaves some out.
        """
        numbers = range(len(self.chunks)) if wanted is None else wanted
        if self._resident is not None:
            for number in numbers:
                yield number, (*self.chunks[number].tasks, *self._resident)
            return
        assert self._stream is not None
        for number, raw in self._stream.loaded(numbers):
            chunk, there = self.chunks[number], self._stream.spread
            self._spread_chunk(chunk, raw, chunk.entries.start, there, chunk.first)
            self._stream.was_read()
            # Kernels know places in all of the rows.
            shifted = (np.uint64((array.data.ptr - 4 * chunk.first) % 2**64) for array in there)
            yield number, (*chunk.tasks, *shifted)

    def close(self) -> None:
        """Let go of memory of the host."""
        if self._stream is not None:
            self._stream.close()

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


def _chunk(tasks: Tasks, which: Array, shifts: Array) -> Chunk:
    """Return some tasks, whose nonzeros follow each other, on the device."""
    import cupy as cp

    everything = len(which) == len(tasks.row)
    row, begin, end, slot = (of if everything else of[which] for of in tasks[:4])
    if not len(row):
        return Chunk(tuple(map(cp.asarray, (row, begin, end, slot))), 0, slice(0, 0), 0, 0)
    low, high = int(begin.argmin()), int(end.argmax())
    first, last = int(begin[low]), int(end[high])
    entries = slice(first + int(shifts[row[low]]), last + int(shifts[row[high]]))
    arrays = tuple(map(cp.asarray, (row, begin, end, slot)))
    return Chunk(arrays, len(row), entries, first, last - first)
