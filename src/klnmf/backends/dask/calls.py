"""What the driver calls on workers: a message to all of them, or a task for one."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from distributed import Worker, get_worker

from klnmf.backends.dask.operations import Answer, Close, Message, Ping, Reset
from klnmf.backends.dask.worker import FitOnWorker, PartMissingError

Array = npt.NDArray[Any]


async def on_worker(name: str, message: Message, dask_worker: Worker) -> Answer | str:
    """Run by every worker for every message. What went wrong with a worker is no error of ours."""
    plugin = dask_worker.plugins.get(name)
    if plugin is None and isinstance(message, Reset):
        plugin = FitOnWorker(name)
        await dask_worker.plugin_add(plugin, name=name, catch_errors=False)
    if plugin is None:
        return f"{dask_worker.address} knows nothing of this fit"
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
    except PartMissingError as error:
        return str(error)


def held_part(name: str, version: int, part: int) -> Array:
    """Return a part that this worker holds, as the result of a task."""
    plugin = get_worker().plugins.get(name)
    if plugin is None:
        raise PartMissingError(
            "A worker that held a part of W is gone, and the fit that made it is over. Call "
            "transform(X) to have W again."
        )
    held: Array = plugin.held(version, part)
    return held
