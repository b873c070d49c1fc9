"""What the driver calls on workers: a message to all of them, or a task for one."""

import asyncio

from distributed import Worker, get_worker

from klnmf.backends.dask.operations import Answer, Close, Message, Ping, Reset
from klnmf.backends.dask.worker import (
    NO_ROUND,
    FitOnWorker,
    PartMissingError,
    requested,
    unpacked,
)
from klnmf.support.array_types import Array


async def on_worker(name: str, message: Message, dask_worker: Worker) -> Answer | str:
    """Answer a message on a worker; a string says that a worker was lost, which is no error."""
    plugin = dask_worker.plugins.get(name)
    if plugin is None and isinstance(message, Reset):
        plugin = FitOnWorker(name)
        await dask_worker.plugin_add(plugin, name=name, catch_errors=False)
    if plugin is None or plugin.is_over:
        return f"{dask_worker.address} does not take part in this fit"
    try:
        match message:
            case Reset():
                await plugin.reset(message)
                return Answer()
            case Close():
                await dask_worker.plugin_remove(name=name)
                return Answer()
            case Ping():
                return Answer(held=plugin.inventory())
            case _:
                answer: Answer = await plugin.answer(message)
                return answer
    except Exception as error:
        if isinstance(error, PartMissingError) or plugin.is_over:  # the worker is closing
            return str(error)
        raise


async def held_part(name: str, home: str, version: int, part: int) -> Array:
    """Return a part of a factor as the result of a task, which any worker may do."""
    try:
        parcel = await requested(get_worker(), name, home, NO_ROUND, version, part)
    except PartMissingError as error:
        raise PartMissingError(
            "A worker that held a part of W is gone, and the fit is over. Call transform(X) to "
            "compute W again."
        ) from error
    return await asyncio.to_thread(unpacked, parcel.rows)
