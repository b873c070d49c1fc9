"""What runs on a worker: it holds its parts of X and of the factors, and computes with them.

A worker answers *rounds* of the driver and requests of its peers for parts of factors. Nothing that
it holds ever changes, so a round that is repeated gives exactly the same result.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from distributed import Worker
from distributed.comm.addressing import get_address_host
from distributed.core import send_recv
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol import to_serialize

from klnmf.backends.cpu import column_sums
from klnmf.backends.dask import kernels
from klnmf.backends.dask.operations import (
    MAKERS,
    Answer,
    Evaluate,
    Keep,
    Layout,
    Operation,
    Reset,
    Round,
    Update,
)
from klnmf.backends.dask.packing import Packed, pack, unpack
from klnmf.backends.dask.partition import Partition, Pieces
from klnmf.data.sparse_data import RowView
from klnmf.support.array_types import Array

Place = tuple[int, int]  # version and part

# A peer that has not heard of a round this many seconds after this worker has is lost.
PATIENCE = 30.0
# A request for a part that does not exist yet is answered after at most this many seconds.
LONGEST_WAIT = 5.0
SECONDS_TO_CONNECT = 5.0
# Before all rounds: the part exists, or never will.
NO_ROUND = -1
# Workers of one machine copy faster than they pack.
PACK_ON_ONE_MACHINE = False


class PartMissingError(RuntimeError):
    """A part that this worker needs is not where it should be: a worker was lost."""


class Parcel(NamedTuple):
    """A part on its way, and the column sums of the blocks that lie in it as a whole."""

    rows: Array | Packed
    sums: list[Array]


class Whole(NamedTuple):
    """All rows of a version, and its column sums."""

    version: int
    rows: Array
    sums: Array


class FitOnWorker(WorkerPlugin):
    """The part of one fit that a worker holds, from its first :class:`Reset` to :class:`Close`."""

    def __init__(self, name: str) -> None:
        self.name = name

    # ---- life ------------------------------------------------------------------------------------

    def setup(self, worker: Worker) -> None:
        """See distributed."""
        self.worker = worker
        self.is_over = False
        self.layout: Layout | None = None
        self._parts: dict[Place, Array] = {}
        self._modes: dict[int, int] = {}
        self._data: dict[tuple[int, int], RowView] = {}  # by mode and part
        self._parcels: dict[tuple[int, int, bool], Parcel] = {}
        self._whole: dict[int, Whole] = {}
        self._round = self._failed = NO_ROUND
        self._news = asyncio.Event()
        # One thread: one kernel at a time, on as many cores as the worker has threads.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="klnmf")
        worker.handlers[self.name] = self.serve

    def teardown(self, worker: Worker) -> None:
        """See distributed."""
        self.is_over = True
        worker.handlers.pop(self.name, None)
        self._data, self._parts, self._parcels, self._whole = {}, {}, {}, {}
        self.layout = None
        self._announce()
        self._pool.shutdown(wait=False)

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def inventory(self) -> frozenset[tuple[int, int]] | None:
        """Versions and parts that this worker holds; None before the first layout."""
        return None if self.layout is None else frozenset(self._parts)

    @property
    def _address(self) -> str:
        return str(self.worker.address)

    # ---- rounds ----------------------------------------------------------------------------------

    async def reset(self, message: Reset) -> None:
        """Adopt a layout, and fetch the parts that this worker is to hold."""
        layout = self.layout = message.layout
        self._whole, self._parcels, self._modes = {}, {}, dict(message.versions)
        self._parts = {place: x for place, x in self._parts.items() if place[0] in self._modes}
        self._announce()
        self._hold_data(layout)
        held = set(layout.parts_at(self._address))
        held |= {part for part, keeper in enumerate(layout.keepers) if keeper == self._address}
        for version in message.versions:
            for part in held:
                if (version, part) not in self._parts:
                    parcel = await self._request(message.sources[part], version, part)
                    self._put(version, part, await self._in_thread(unpacked, parcel.rows))

    async def answer(self, message: Round) -> Answer:
        """Do the operations of a round."""
        layout = self.layout
        if layout is None:
            raise PartMissingError(f"{self._address} does not take part in this fit")
        if message.number <= self._round:
            raise PartMissingError(f"round {message.number} was given up")
        self._round = message.number
        self._announce()
        answer = Answer()
        try:
            for operation in message.operations:
                results = await self._do(operation, layout, message, answer)
                answer.by_operation.append(results)
        except BaseException:
            self._failed = message.number
            self._announce()
            raise
        drops = set(message.drops)
        self._parts = {place: x for place, x in self._parts.items() if place[0] not in drops}
        self._parcels = {key: x for key, x in self._parcels.items() if key[0] not in drops}
        return answer

    async def _do(
        self, operation: Operation, layout: Layout, message: Round, answer: Answer
    ) -> dict[int, Any]:
        if isinstance(operation, Keep):
            await self._keep(operation, layout, answer)
            return {}
        whole = None
        if isinstance(operation, Update | Evaluate):
            (A,) = operation.fixed.factors
            whole = await self._assembled(A, 1 - operation.mode, layout, answer)
        results = {}
        for part in layout.parts_at(self._address):
            context = self._context(operation, part, layout, whole, message)
            started = time.perf_counter()
            made, results[part] = await self._in_thread(kernels.run, operation, context)
            answer.seconds += time.perf_counter() - started
            if self.layout is not layout:
                raise PartMissingError("the round was given up")
            if isinstance(operation, MAKERS):
                self._modes[operation.out] = operation.mode
                self._put(operation.out, part, made)
        return results

    def _context(
        self,
        operation: Operation,
        part: int,
        layout: Layout,
        whole: Whole | None,
        message: Round,
    ) -> kernels.Context:
        return kernels.Context(
            partition=layout.partitions[operation.mode],
            part=part,
            n_threads=int(self.worker.state.nthreads),
            wants=message.wants,
            inputs=[self._own(version, part) for version in operation.sources],
            data=self._data[operation.mode, part],
            fixed=None if whole is None else (whole.rows, whole.sums),
        )

    def _hold_data(self, layout: Layout) -> None:
        """Hold the parts of X, whatever Dask does with its copies of them."""
        self._data = {}
        for part, mode in itertools.product(layout.parts_at(self._address), (0, 1)):
            key = layout.keys[mode][part]
            if key not in self.worker.data:
                raise PartMissingError(f"{self._address} does not have its part of X")
            self._data[mode, part] = self.worker.data[key]

    def _own(self, version: int, part: int) -> Array:
        try:
            return self._parts[version, part]
        except KeyError:
            raise PartMissingError(
                f"{self._address} does not hold part {part} of version {version}"
            ) from None

    def _put(self, version: int, part: int, rows: Array) -> None:
        rows.flags.writeable = False
        self._parts[version, part] = rows
        self._announce()

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    # ---- peers -----------------------------------------------------------------------------------

    async def serve(
        self,
        comm: Any = None,
        version: int = 0,
        part: int = 0,
        round: int = 0,
        may_pack: bool = False,
    ) -> dict[str, Any]:
        """Send a part to a peer as soon as it exists."""
        deadline = time.monotonic() + LONGEST_WAIT
        while (version, part) not in self._parts:
            if self._failed >= round or self.layout is None:
                return {"status": "lost"}
            if time.monotonic() >= deadline:
                return {"status": "later", "round": self._round}
            try:
                await asyncio.wait_for(self._news.wait(), deadline - time.monotonic())
            except TimeoutError:
                continue
        parcel = await self._parcel(version, part, may_pack)
        return {"status": "ready", "rows": to_serialize(parcel.rows), "sums": parcel.sums}

    async def _parcel(self, version: int, part: int, may_pack: bool) -> Parcel:
        key = (version, part, may_pack)
        parcel = self._parcels.get(key)
        if parcel is None:
            rows, mode = self._parts[version, part], self._modes[version]
            assert self.layout is not None
            partition = self.layout.partitions[mode]
            parcel = await self._in_thread(_parcel, rows, partition, part, may_pack)
            if (version, part) in self._parts:
                self._parcels[key] = parcel
        return parcel

    async def _request(self, address: str, version: int, part: int) -> Parcel:
        """Ask a peer for a part until it exists or the peer is lost."""
        return await requested(self.worker, self.name, address, self._round, version, part)

    async def _assembled(self, version: int, mode: int, layout: Layout, answer: Answer) -> Whole:
        """Return all rows of a version; those of the peers are fetched, all at the same time."""
        held = self._whole.get(mode)
        if held is not None and held.version == version:
            return held
        partition = layout.partitions[mode]
        parts = [part for part in range(partition.n_parts) if partition.size(part)]
        rows: Array | None = None if held is None else held.rows
        self._whole.pop(mode, None)
        sums: dict[int, list[Array]] = {}

        async def bring(part: int) -> None:
            nonlocal rows
            if layout.homes[part] == self._address:
                own = self._own(version, part)
                parcel = Parcel(own, await self._in_thread(_block_sums, own, partition, part))
            else:
                parcel = await self._request(layout.homes[part], version, part)
                answer.bytes_received += parcel.rows.nbytes
            shape = (partition.n_rows, *parcel.rows.shape[1:])
            if rows is None or rows.shape != shape or rows.dtype != _dtype(parcel.rows):
                rows = np.empty(shape, dtype=_dtype(parcel.rows))
            await self._in_thread(unpack, parcel.rows, rows[partition.rows(part)])
            sums[part] = parcel.sums

        await _all_or_none([bring(part) for part in parts])
        assert rows is not None
        total = await self._in_thread(_total_sums, rows, partition, sums)
        if self.layout is not layout:
            raise PartMissingError("the round was given up")
        whole = self._whole[mode] = Whole(version, rows, total)
        return whole

    async def _keep(self, operation: Keep, layout: Layout, answer: Answer) -> None:
        """Hold copies of the parts that this worker keeps for others."""
        (version,) = operation.sources
        for part, keeper in enumerate(layout.keepers):
            place = (version, part)
            if keeper == self._address and place not in self._parts:
                parcel = await self._request(layout.homes[part], *place)
                answer.bytes_received += parcel.rows.nbytes
                self._modes[version] = operation.mode
                self._put(*place, await self._in_thread(unpacked, parcel.rows))


async def requested(
    worker: Worker, name: str, address: str, round: int, version: int, part: int
) -> Parcel:
    """Return a part that a peer holds, or will hold once it has done that round."""
    is_near = get_address_host(address) == get_address_host(worker.address)
    wanted = {"version": version, "part": part, "round": round}
    wanted["may_pack"] = PACK_ON_ONE_MACHINE or not is_near
    started = time.monotonic()
    while True:
        try:
            reply = await _called(worker, address, op=name, **wanted)
        except Exception as error:
            raise PartMissingError(f"{address} does not answer: {error!r}") from error
        if reply is None:  # it is closing
            raise PartMissingError(f"{address} gives no answer")
        if reply["status"] == "ready":
            return Parcel(reply["rows"], reply["sums"])
        has_heard = reply.get("round", -1) >= round
        if reply["status"] == "lost" or (not has_heard and time.monotonic() - started > PATIENCE):
            raise PartMissingError(f"{address} does not have part {part} of {version}")


async def _called(worker: Worker, address: str, **message: Any) -> Any:
    # Without a limit, a worker that is gone is tried again for half a minute.
    comm = await asyncio.wait_for(worker.rpc.connect(address), SECONDS_TO_CONNECT)
    try:
        return await send_recv(comm, **message)
    finally:
        worker.rpc.reuse(address, comm)


def unpacked(rows: Array | Packed) -> Array:
    """Rows of a parcel."""
    target = np.empty(rows.shape, dtype=_dtype(rows))
    unpack(rows, target)
    return target


async def _all_or_none(jobs: list[Any]) -> None:
    """Wait for all jobs; if one fails, cancel the others."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _dtype(rows: Array | Packed) -> np.dtype[Any]:
    return rows.nonzeros.dtype if isinstance(rows, Packed) else rows.dtype


def _block_sums(rows: Array, partition: Partition, part: int) -> list[Array]:
    return partition.pieces(part, rows, column_sums).whole


def _parcel(rows: Array, partition: Partition, part: int, may_pack: bool) -> Parcel:
    return Parcel(pack(rows) if may_pack else rows, _block_sums(rows, partition, part))


def _total_sums(rows: Array, partition: Partition, sums: dict[int, list[Array]]) -> Array:
    """Column sums of a whole factor, from the sums of blocks; blocks that are cut are added up."""

    def pieces(part: int) -> Pieces:
        own = rows[partition.rows(part)]
        known = iter(sums.get(part, []))
        return partition.pieces(part, own, lambda block: next(known))

    every = map(pieces, range(partition.n_parts))
    total: Array = partition.total(every, column_sums, np.zeros(rows.shape[1]))
    return total
