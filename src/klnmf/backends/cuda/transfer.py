"""From the host to the device: threads fill pinned buffers while others travel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from klnmf.support.array_types import Array

BUFFER = 1 << 26  # bytes: enough that handing out the work costs little
MOST_THREADS = 16

# Writes the numbers of places [begin, end) to an array.
Fill = Callable[[int, int, Array], None]


@cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="klnmf-upload")


class Pinned:
    """Two pinned buffers of a device, which all copies to it share."""

    def __init__(self) -> None:
        import cupy as cp

        self.lock = threading.Lock()
        self._memory = [cp.cuda.alloc_pinned_memory(BUFFER) for _ in range(2)]
        self._is_free = [cp.cuda.Event() for _ in range(2)]
        self._turn = 0

    def send(self, fill: Fill, target: Any, unit: int, n_threads: int, stream: Any) -> None:
        """Fill a contiguous array on the device, ``unit`` numbers for each place, on a stream."""
        import cupy as cp

        size, bytes_of_place = target.size // unit, target.itemsize * unit
        step = max(1, BUFFER // bytes_of_place)
        for begin in range(0, size, step):
            end = min(size, begin + step)
            memory, is_free = self._memory[self._turn], self._is_free[self._turn]
            self._turn = 1 - self._turn
            is_free.synchronize()
            out = np.frombuffer(memory, target.dtype, (end - begin) * unit)
            cuts = np.linspace(begin, end, n_threads + 1).astype(int).tolist()

            def part(a: int, b: int, out: Array = out, begin: int = begin) -> None:
                fill(a, b, out[(a - begin) * unit : (b - begin) * unit])

            list(_helpers().map(part, cuts[:-1], cuts[1:]))
            address = target.data.ptr + begin * bytes_of_place
            kind = cp.cuda.runtime.memcpyHostToDevice
            count = (end - begin) * bytes_of_place
            cp.cuda.runtime.memcpyAsync(address, memory.ptr, count, kind, stream.ptr)
            is_free.record(stream)


@cache
def _pinned(device: int) -> Pinned:
    return Pinned()


def send(fill: Fill, target: Any, unit: int = 1, n_threads: int = 1, stream: Any = None) -> None:
    """Fill an array on the device; the copies may still be on their way along the stream."""
    import cupy as cp

    pinned = _pinned(target.device.id)
    with pinned.lock:
        stream = cp.cuda.get_current_stream() if stream is None else stream
        pinned.send(fill, target, unit, min(n_threads, MOST_THREADS), stream)


def send_array(source: Array, target: Any, n_threads: int = 1, stream: Any = None) -> None:
    """Copy an array to the device, in the type that is there."""

    def fill(begin: int, end: int, out: Array) -> None:
        np.copyto(out, source[begin:end], casting="same_kind")

    send(fill, target, 1, n_threads, stream)


class Registered:
    """Arrays of the host that the device reads where they are, until this is closed."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []

    @classmethod
    def of(cls, *arrays: Array) -> Registered | None:
        """Return arrays that are registered, or None where the system does not allow that."""
        import cupy as cp

        made = cls()
        try:
            for array in arrays:
                cp.cuda.runtime.hostRegister(array.ctypes.data, array.nbytes, 0)
                made._arrays.append(array)
        except cp.cuda.runtime.CUDARuntimeError:
            made.close()
            return None
        return made

    def close(self) -> None:
        """Let go of the arrays."""
        import cupy as cp

        while self._arrays:
            cp.cuda.runtime.hostUnregister(self._arrays.pop().ctypes.data)
