"""What runs on a worker: it holds its parts of X and of the factors, and computes with them.

A worker answers *rounds* of the driver and requests of its peers for parts of factors. Nothing that
it holds ever changes, so a round that is repeated gives exactly the same result.
"""

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from distributed import Worker, get_worker
from distributed.core import send_recv
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol import to_serialize

from klnmf.backends.base import Fixed
from klnmf.backends.cpu import column_sums
from klnmf.backends.cuda.part_of_rows import PartOnDevice, worker_has_device
from klnmf.backends.dask import kernels
from klnmf.backends.dask.kernels import Context, Operation
from klnmf.backends.dask.partition import Layout
from klnmf.data.sparse_data import RowView
from klnmf.support.array_types import Array

SECONDS_TO_CONNECT = 5.0


class PartMissingError(RuntimeError):
    """A part that this worker needs is not where it should be: a worker was lost."""


class Whole(NamedTuple):
    """All rows of a version, and its column sums."""

    version: int
    rows: Array
    sums: Array


class FitOnWorker(WorkerPlugin):
    """The part of one fit that a worker holds, from its first `reset` to `close`."""

    def __init__(self, name: str) -> None:
        self.name = name

    # ---- life ------------------------------------------------------------------------------------

    def setup(self, worker: Worker) -> None:
        """See distributed."""
        self.worker = worker
        self.is_over = False
        self.layout: Layout | None = None
        self._parts: dict[tuple[int, int], Array] = {}  # by version and part
        self._data: dict[tuple[int, int], RowView] = {}  # by mode and part
        self._whole: dict[int, Whole] = {}  # by mode
        # Parts of X on the GPU of this worker, by mode and part; None: it has no GPU.
        self._on_device: dict[tuple[int, int], PartOnDevice] | None = (
            {} if worker_has_device() else None
        )
        self._round = 0
        # One thread: one kernel at a time, on as many cores as the worker has threads.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="klnmf")
        worker.handlers[self.name] = self.serve

    def teardown(self, worker: Worker) -> None:
        """See distributed."""
        self.is_over = True
        worker.handlers.pop(self.name, None)
        self._data, self._parts, self._whole, self._on_device = {}, {}, {}, None
        self.layout = None
        self._pool.shutdown(wait=False)

    async def close(self) -> None:
        """End the fit."""
        await self.worker.plugin_remove(name=self.name)

    async def inventory(self) -> frozenset[tuple[int, int]] | None:
        """Versions and parts that this worker holds; None before the first layout."""
        return None if self.layout is None else frozenset(self._parts)

    @property
    def _address(self) -> str:
        return str(self.worker.address)

    # ---- rounds ----------------------------------------------------------------------------------

    async def reset(self, layout: Layout, versions: list[int], sources: dict[int, str]) -> None:
        """Adopt a layout; of the versions, fetch the parts that this worker is to hold.

        No other version stays. ``sources`` says who has each part.
        """
        self.layout, self._whole = layout, {}
        self._parts = {place: x for place, x in self._parts.items() if place[0] in versions}
        self._hold_data(layout)
        held = {*layout.parts_at(self._address), *layout.copies_at(self._address)}
        for place in itertools.product(versions, held):
            if place not in self._parts:
                self._put(*place, await self._request(sources[place[1]], *place))

    async def keep(self, versions: list[int]) -> None:
        """Copy the parts that this worker keeps for others, so that they are not lost with them."""
        layout = self._present_layout()
        for place in itertools.product(versions, layout.copies_at(self._address)):
            if place not in self._parts:
                rows = await self._request(layout.homes[place[1]], *place)
                self._check_same(layout)
                self._put(*place, rows)

    async def answer(self, number: int, operation: Operation, drops: list[int]) -> dict[int, Any]:
        """Do the operation of a round, then let go of versions; return the answers by part."""
        layout, answers = self._present_layout(), dict[int, Any]()
        if number <= self._round:
            raise PartMissingError(f"round {number} was given up")
        self._round = number
        fixed = operation.fixed
        if fixed is not None:
            fixed = await self._with_all_rows(fixed, layout)
        for part in layout.parts_at(self._address):
            context = self._context(operation, part, layout, fixed)
            if operation.by_part is None:
                inputs = [self._own(version, part) for version in operation.sources]
            else:
                inputs = [operation.by_part[part]]
            run = (kernels.run, operation, context, inputs)
            made, answers[part] = await self._in_thread(*run)
            self._check_same(layout)
            if operation.out is not None:
                self._put(operation.out, part, made)
        self._parts = {place: x for place, x in self._parts.items() if place[0] not in drops}
        return answers

    def _present_layout(self) -> Layout:
        if self.layout is None:
            raise PartMissingError(f"{self._address} does not take part in this fit")
        return self.layout

    def _check_same(self, layout: Layout) -> None:
        if self.layout is not layout:
            raise PartMissingError("the round was given up")

    def _context(
        self, operation: Operation, part: int, layout: Layout, fixed: Fixed | None
    ) -> Context:
        return Context(
            partition=layout.partitions[operation.mode],
            part=part,
            n_threads=int(self.worker.state.nthreads),
            data=self._data[operation.mode, part],
            fixed=fixed,
            on_device=None
            if self._on_device is None
            else partial(self._part_on_device, operation.mode, part),
        )

    def _part_on_device(self, mode: int, part: int) -> PartOnDevice:
        """Return a part of X on the GPU; only the thread that computes asks for it."""
        assert self._on_device is not None
        if (mode, part) not in self._on_device:
            self._on_device[mode, part] = PartOnDevice(self._data[mode, part])
        return self._on_device[mode, part]

    def _hold_data(self, layout: Layout) -> None:
        """Hold the parts of X, whatever Dask does with its copies of them."""
        self._data = {}
        if self._on_device is not None:
            self._on_device = {}
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

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    # ---- peers -----------------------------------------------------------------------------------

    async def serve(self, comm: Any = None, version: int = 0, part: int = 0) -> dict[str, Any]:
        """Send a part to a peer."""
        rows = self._parts.get((version, part))
        return {"rows": None if rows is None else to_serialize(rows)}

    async def _request(self, address: str, version: int, part: int) -> Array:
        return await requested(self.worker, self.name, address, version, part)

    async def _with_all_rows(self, fixed: Fixed, layout: Layout) -> Fixed:
        """Return what is fixed with all rows of its factor, and with the slopes."""
        (version,) = fixed.factors
        whole = await self._assembled(version, 1 - fixed.mode, layout)
        slopes = whole.sums + fixed.l1 if fixed.slopes is None else fixed.slopes
        return fixed._replace(factors=(whole.rows,), slopes=slopes)

    async def _assembled(self, version: int, mode: int, layout: Layout) -> Whole:
        """Return all rows of a version; those of the peers are fetched, all at the same time."""
        held = self._whole.get(mode)
        if held is not None and held.version == version:
            return held
        partition = layout.partitions[mode]
        like = self._own(version, layout.parts_at(self._address)[0])
        shape = (partition.n_rows, *like.shape[1:])
        self._whole.pop(mode, None)
        rows = None if held is None else held.rows
        if rows is None or rows.shape != shape or rows.dtype != like.dtype:
            rows = np.empty(shape, like.dtype)

        async def bring(part: int) -> None:
            if layout.homes[part] == self._address:
                fetched = self._own(version, part)
            else:
                fetched = await self._request(layout.homes[part], version, part)
            await self._in_thread(np.copyto, rows[partition.rows(part)], fetched)

        try:
            async with asyncio.TaskGroup() as group:  # if one fails, the others are cancelled
                for part in filter(partition.size, range(partition.n_parts)):
                    group.create_task(bring(part))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        sums = await self._in_thread(column_sums, rows, int(self.worker.state.nthreads))
        self._check_same(layout)
        whole = self._whole[mode] = Whole(version, rows, sums)
        return whole


async def requested(worker: Worker, name: str, address: str, version: int, part: int) -> Array:
    """Return a part that a peer holds."""
    try:
        # Without a limit, a worker that is gone is tried again for half a minute.
        comm = await asyncio.wait_for(worker.rpc.connect(address), SECONDS_TO_CONNECT)
        try:
            reply = await send_recv(comm, op=name, version=version, part=part)
        finally:
            worker.rpc.reuse(address, comm)
    except Exception as error:
        raise PartMissingError(f"{address} does not answer: {error!r}") from error
    rows: Array | None = None if reply is None else reply["rows"]  # None: it is closing
    if rows is None:
        raise PartMissingError(f"{address} does not have part {part} of version {version}")
    return rows


# ---- what the driver calls -----------------------------------------------------------------------


async def on_worker(name: str, method: str, args: tuple[Any, ...], dask_worker: Worker) -> Any:
    """Call a method of the fit; a string says that a worker was lost, which is no error."""
    plugin = dask_worker.plugins.get(name)
    if plugin is None and method == "reset":
        plugin = FitOnWorker(name)
        await dask_worker.plugin_add(plugin, name=name, catch_errors=False)
    if plugin is None or plugin.is_over:
        return f"{dask_worker.address} does not take part in this fit"
    try:
        return await getattr(plugin, method)(*args)
    except Exception as error:
        if isinstance(error, PartMissingError) or plugin.is_over:  # the worker is closing
            return str(error)
        raise


async def held_part(name: str, home: str, version: int, part: int) -> Array:
    """Return a part of a factor as the result of a task, which any worker may do."""
    try:
        return await requested(get_worker(), name, home, version, part)
    except PartMissingError as error:
        raise PartMissingError(
            "A worker that held a part of W is gone, and the fit is over. Call transform(X) to "
            "compute W again."
        ) from error
