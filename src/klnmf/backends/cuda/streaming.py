"""Data larger than the device: chunks of nonzeros that travel while the one before is worked on."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.backends.cuda.transfer import Registered, send_array
from klnmf.data.sparse_data import InMemoryView, Piece, RowView

if TYPE_CHECKING:
    from klnmf.backends.cuda.rows import Chunk

# Bytes on the device for each nonzero of a chunk: two buffers, and one as kernels read it.
BYTES_OF_NONZERO = 3 * 8


class ChunkStream:
    """Two buffers on the device, filled in turn on a stream of their own.

    Arrays in memory are read where they are, if the system lets the device do that. Others, and
    those of another type, go through pinned memory.
    """

    def __init__(self, view: RowView, chunks: list[Chunk], n_threads: int) -> None:
        import cupy as cp

        self._view, self._chunks, self._n_threads = view, chunks, n_threads
        most = max(chunk.entries.stop - chunk.entries.start for chunk in chunks)
        size = max(chunk.size for chunk in chunks) + 64
        types = (np.int32, np.float32)
        self._raw = [tuple(cp.empty(most, dtype) for dtype in types) for _ in range(2)]
        self.spread = tuple(cp.zeros(size, dtype) for dtype in types)
        self._copies = cp.cuda.Stream(non_blocking=True)
        self._is_free = [cp.cuda.Event() for _ in range(2)]
        self._turn = 0
        self._registered: Registered | None = None
        if isinstance(view, InMemoryView) and view.values.dtype == np.float32:
            self._registered = Registered.of(view.indices, view.values)
        if self._registered is not None:
            weakref.finalize(self, self._registered.close).atexit = False
        # Memory that CuPy hands out may still be in use by what was launched before.
        self._copies.wait_event(cp.cuda.get_current_stream().record())

    def loaded(self, numbers: Iterable[int]) -> Iterator[tuple[int, tuple[Any, Any]]]:
        """Chunks by number, and their columns and values on the device, for the current stream.

        The user says when these `was_read`, as far as that stream is concerned.
        """
        import cupy as cp

        pieces, at = self._view.pieces(), 0
        piece = next(pieces)
        for number in numbers:
            entries = self._chunks[number].entries
            self._turn = 1 - self._turn
            raw = self._raw[self._turn]
            self._copies.wait_event(self._is_free[self._turn])
            place = entries.start
            while place < entries.stop:
                while place >= at + len(piece.values):
                    at += len(piece.values)
                    piece = next(pieces)
                stop = min(entries.stop, at + len(piece.values))
                self._send(piece, slice(place - at, stop - at), raw, place - entries.start)
                place = stop
            cp.cuda.get_current_stream().wait_event(self._copies.record())
            yield number, raw

    def was_read(self) -> None:
        """Say that the buffer can be filled again, once the current stream comes to this."""
        import cupy as cp

        self._is_free[self._turn].record(cp.cuda.get_current_stream())

    def _send(self, piece: Piece, part: slice, raw: tuple[Any, Any], to: int) -> None:
        import cupy as cp

        for source, target in zip((piece.indices, piece.values), raw, strict=True):
            there = target[to : to + part.stop - part.start]
            if self._registered is None:
                send_array(source[part], there, self._n_threads, self._copies)
                continue
            kind, some = cp.cuda.runtime.memcpyHostToDevice, source[part]
            address = some.ctypes.data
            cp.cuda.runtime.memcpyAsync(
                there.data.ptr, address, some.nbytes, kind, self._copies.ptr
            )

    def close(self) -> None:
        """Let go of the arrays of the host, when nothing travels any more."""
        if self._registered is not None:
            self._copies.synchronize()
            self._registered.close()
