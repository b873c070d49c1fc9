"""X as a fit on a GPU sees it: on the device by rows and by columns, or streamed to it."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from klnmf.backends.cuda.cupy_input import CupyView
from klnmf.backends.cuda.modules import RankClass
from klnmf.backends.cuda.rows import ALIGNED, PIECE, DeviceRows
from klnmf.backends.cuda.streaming import BYTES_OF_NONZERO
from klnmf.backends.cuda.transfer import send_array
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import CountData, InMemoryData, InMemoryView, RowView
from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property

# Share of the free memory that is planned with: CuPy's pool wastes some.
USABLE = 0.9
# Copies of both factors that are alive at a time, at most: those of the loop and of a half-step.
COPIES = 6
BYTES_OF_ROW = 128  # tasks, totals and results
# Nonzeros of a chunk at most: beyond that, the start of a copy costs nothing.
MOST_OF_CHUNK = 1 << 25
# Bytes for each nonzero while X is transposed on the device: both copies and what the sort needs.
BYTES_TO_TRANSPOSE = 56
MOST_TO_TRANSPOSE = 2**31 - 1
LEAST_AHEAD = 1 << 24  # nonzeros that are worth a thread of their own on their way to the device


class DeviceColumns(RowView):
    """Columns of X, which the device knows; the host transposes X if it is asked for entries."""

    def __init__(self, data: DeviceData, base: InMemoryData) -> None:
        self._data, self._base = data, base
        self.n_columns, self.n_threads = base.shape[0], base.view(0).n_threads
        self.row_constraints = base.row_constraints(1)

    @property
    def n_rows(self) -> int:
        """See :class:`RowView`."""
        return int(self._base.shape[1])

    @property
    def nnz(self) -> int:
        """See :class:`RowView`."""
        return self._base.nnz

    @cached_property
    def indptr(self) -> Array:  # type: ignore[override]
        """See :class:`RowView`."""
        return self._data.rows(1).indptr

    @cached_property
    def row_sums(self) -> Array:
        """See :class:`RowView`; those of whole numbers are the same in any order."""
        sums: Array = self._data.rows(1).totals.get()
        return sums

    def whole(self) -> InMemoryView:
        """See :class:`RowView`."""
        columns: InMemoryView = self._base.view(1)
        return columns


class DeviceData(CountData):
    """Data in float32, and their rows for kernels; ``limit`` is how many bytes they may take."""

    def __init__(self, data: CountData, n_threads: int, limit: int | None = None) -> None:
        self.shape, self.dtype, self.constraints = data.shape, np.dtype("f4"), data.constraints
        self.base, self._n_threads = data, n_threads
        self._budget = int(USABLE * free_memory())
        if limit is not None:
            self._budget = min(self._budget, limit)
        self._rows: dict[int, DeviceRows] = {}
        self._lock = threading.RLock()
        self._plans: dict[int, int] = {}
        self._on_its_way: Future[tuple[Any, Any]] | None = None
        if isinstance(data, InMemoryData):
            self._start_upload()
        self._most = -1  # nonzeros of a chunk; 0: all of X is on the device; -1: not decided

    def view(self, mode: int) -> RowView:
        """See :class:`CountData`."""
        if mode == 0:
            return self.base.view(0)
        with self._lock:  # of runs on several threads, one makes them
            return self._columns

    def row_constraints(self, mode: int) -> RowConstraints | None:
        """See :class:`CountData`."""
        return self.base.row_constraints(mode)

    @cached_property
    def _columns(self) -> RowView:
        base = self.base
        if isinstance(base, InMemoryData) and self._can_transpose and self._holds_whole_numbers:
            return DeviceColumns(self, base)
        return base.view(1)

    @property
    def _can_transpose(self) -> bool:
        is_small = self.base.nnz <= MOST_TO_TRANSPOSE
        return is_small and BYTES_TO_TRANSPOSE * self.base.nnz <= self._budget

    @cached_property
    def _holds_whole_numbers(self) -> bool:
        """Whether sums of columns are exact in any order."""
        import cupy as cp

        values = self._uploaded[1]
        return self.base.total < 2.0**53 and bool((values == cp.rint(values)).all())

    def make_room(self, rank_class: RankClass) -> None:
        """Decide how X is held beside factors of this rank, or say that there is no room."""
        with self._lock:
            stride = rank_class.stride
            if stride not in self._plans:
                self._plans[stride] = self._chunk_beside(rank_class)
            if self._most not in (-1, self._plans[stride]):
                self.close()
            self._most = self._plans[stride]

    def _chunk_beside(self, rank_class: RankClass) -> int:
        """Nonzeros of a chunk beside factors of this rank; 0: X fits as a whole."""
        nnz, n_rows = self.base.nnz, sum(self.shape)
        doubles, floats = rank_class.stride + 2, rank_class.sums_part + rank_class.matrix_part
        of_pieces = 2 * (nnz // PIECE) * (8 * doubles + 4 * floats)
        least = n_rows * (COPIES * 4 * rank_class.stride + BYTES_OF_ROW) + of_pieces
        left = self._budget - least
        if 3 * 8 * nnz + 8 * ALIGNED * n_rows <= left:  # both, and one on its way
            return 0
        most = min(MOST_OF_CHUNK, left // (2 * BYTES_OF_NONZERO) - 64)
        if most < PIECE:
            needed = least + 2 * BYTES_OF_NONZERO * (PIECE + 64)
            raise MemoryError(
                f"X and its factors need at least {needed / 1e9:.3g} GB on the GPU, of which "
                f"{self._budget / 1e9:.3g} GB can be used: factors must fit, X need not. Choose "
                "fewer components, backend='cpu', or a larger GPU."
            )
        return most

    def rows(self, mode: int) -> DeviceRows:
        """Rows of a mode for kernels."""
        with self._lock:
            if self._most < 0:
                self.make_room(RankClass.of(1, max(self.shape)))
            if mode not in self._rows:
                if self._most:
                    self._rows[mode] = self._streamed(mode)
                else:
                    self._upload(mode)
            return self._rows[mode]

    def _streamed(self, mode: int) -> DeviceRows:
        view = self.base.view(mode)
        return DeviceRows(
            view, view.indptr, most=self._most, totals=view.row_sums, n_threads=self._n_threads
        )

    def _start_upload(self) -> None:
        """Let X travel while the host does something else."""
        import cupy as cp

        device, view, room = cp.cuda.Device(), self.base.view(0), 3 * 8 * self.base.nnz
        if self.base.nnz < LEAST_AHEAD or room > self._budget:
            return

        def upload() -> tuple[Any, Any]:
            with device, cp.cuda.Stream.null:
                return uploaded(view, self._n_threads)

        one = ThreadPoolExecutor(1)
        self._on_its_way = one.submit(upload)
        one.shutdown(wait=False)

    @cached_property
    def _uploaded(self) -> tuple[Any, Any]:
        import cupy as cp

        if self._on_its_way is None:
            return uploaded(self.base.view(0), self._n_threads)
        raw, self._on_its_way = self._on_its_way.result(), None
        cp.cuda.Stream.null.synchronize()  # what comes may be on another stream
        return raw

    def _upload(self, mode: int) -> None:
        """Bring rows to the device, or columns, which it may make from the rows itself."""
        import cupy as cp

        view = self.view(mode)
        if not isinstance(view, DeviceColumns):
            raw = self._uploaded if mode == 0 else uploaded(view, self._n_threads)
            self._rows[mode] = DeviceRows(view, view.indptr, raw, totals=view.row_sums)
        else:
            raw, rows = self._uploaded, self.base.view(0)
            numbers: Any = cp.empty(view.nnz, dtype=np.int32)  # of rows, which is all that is new
            made = DeviceRows(rows, rows.indptr, raw, totals=rows.row_sums, numbers=numbers)
            self._rows.setdefault(0, made)
            order = cp.argsort(raw[0])  # stable: rows stay in their order
            counts = cp.bincount(raw[0], minlength=view.n_rows).get()
            indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
            turned = (numbers[order], raw[1][order])
            del order, numbers
            self._rows[1] = DeviceRows(view, indptr, turned)
        self.__dict__.pop("_uploaded", None)

    def close(self) -> None:
        """Let go of everything on the device."""
        if self._on_its_way is not None:
            self._on_its_way.exception()  # waits; nobody wants it any more
            self._on_its_way = None
        self.__dict__.pop("_uploaded", None)
        for rows in self._rows.values():
            rows.close()
        self._rows.clear()


def uploaded(view: RowView, n_threads: int) -> tuple[Any, Any]:
    """Columns and values of a view on the device, where they may be already."""
    import cupy as cp

    if isinstance(view, CupyView):
        return view.columns, view.values

    columns, values = cp.empty(view.nnz, dtype=np.int32), cp.empty(view.nnz, dtype=np.float32)
    at = 0
    for piece in view.pieces():
        part = slice(at, at + len(piece.values))
        send_array(piece.indices, columns[part], n_threads)
        send_array(piece.values, values[part], n_threads)
        at = part.stop
    return columns, values


def free_memory() -> int:
    """Bytes that the device has free, those that CuPy keeps included."""
    import cupy as cp

    return int(cp.cuda.runtime.memGetInfo()[0] + cp.get_default_memory_pool().free_bytes())
