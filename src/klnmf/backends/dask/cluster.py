"""Which workers a fit runs on, and the one way in which its driver talks to them.

A worker may die at any moment, and every contact may fail then. All contacts go through
:class:`Cluster`. One that fails ends in :class:`WorkerLostError` if the request can be repeated
without that worker, and in :class:`ClusterLostError` if no worker or scheduler is left.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import CancelledError
from typing import Any

from klnmf.backends.base import ClusterLostError
from klnmf.backends.cpu import effective_threads
from klnmf.support.optional_packages import require

EXTRA, PACKAGES = "dask", ("dask", "distributed")
# Dask would go on trying to reach a scheduler for a minute and more.
SECONDS_WITHOUT_SCHEDULER = 3.0
# Between two checks, while waiting for an answer, that the workers asked are still there.
SECONDS_BETWEEN_LOOKS = 0.5
# Seconds to wait for a lost worker to come back before the others go on without it, and to wait
# for any worker at all.
SECONDS_TO_RESTART = 3.0
SECONDS_WITHOUT_WORKERS = 120.0
# Losses in a row, without a successful round in between.
MOST_LOSSES = 20
# Attempts to start a cluster: a worker that dies as it starts takes the others with it.
MOST_STARTS = 3


class WorkerLostError(Exception):
    """A worker was lost; the request can be repeated without it."""


def scheduler_lost(error: BaseException) -> ClusterLostError:
    """Return the error to raise when a scheduler does not answer any more."""
    return ClusterLostError(
        f"The scheduler of the Dask cluster does not answer ({error!r}). Start a cluster, connect "
        "a new Client to it, and call again."
    )


def too_many_losses(error: BaseException) -> ClusterLostError:
    """Return the error to raise when workers die again and again."""
    return ClusterLostError(
        f"Workers of the Dask cluster were lost {MOST_LOSSES} times in a row, the last time: "
        f"{str(error).rstrip('.')}. See their logs for the reason; often they need more memory."
    )


def current_client() -> Any:
    """Return the user's client, or None."""
    distributed = require("distributed", "backend='dask'", EXTRA)
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    if client.asynchronous:
        raise ValueError(
            "backend='dask' does not work with an asynchronous Client. Create the Client without "
            "asynchronous=True."
        )
    return client


def computed(collections: list[Any]) -> list[Any]:
    """Compute Dask collections, on the user's cluster if there is one."""
    import dask

    if current_client() is None:
        return list(dask.compute(*collections))
    cluster = Cluster()
    return cluster.results(cluster.compute(collections))


class Cluster:
    """A client, and the cluster behind it if that was made here.

    Parameters
    ----------
    n_threads : int or None
        Workers, with one thread each, of a cluster that is started here. A cluster of the user is
        used as a whole.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self._own: Any = None
        self.client = current_client()
        if self.client is None:
            self._start(effective_threads(n_threads))

    def _start(self, n_workers: int) -> None:
        distributed = require("distributed", "backend='dask'", EXTRA)
        for attempt in range(1, MOST_STARTS + 1):
            try:
                self._own = distributed.LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=":0",  # any free port
                    env={"CUDA_VISIBLE_DEVICES": ""},  # they would share one GPU
                    memory_limit=0,  # what would not fit here would not fit without workers either
                )
                break
            except (RuntimeError, OSError) as error:
                if attempt == MOST_STARTS:
                    raise ClusterLostError(
                        f"Dask could not start workers on this machine ({error}). In a script, "
                        "call fit under if __name__ == '__main__': each worker imports the "
                        "script. Or start a cluster yourself and connect a Client to it."
                    ) from error
        try:
            self.client = distributed.Client(self._own, set_as_default=False)
        except BaseException:
            self._own.close()
            raise

    @property
    def is_own(self) -> bool:
        """Whether the cluster was started for the fit and is closed after it."""
        return self._own is not None

    def close(self) -> None:
        """Close the cluster if it was started here."""
        if self._own is not None:
            self.client.close()
            self._own.close()

    # ---- contacts --------------------------------------------------------------------------------

    def threads(self) -> dict[str, int]:
        """Addresses of the workers that are there now, and their threads."""
        try:
            return dict(self._contact(lambda: self.client.nthreads()))
        except OSError as error:
            raise scheduler_lost(error) from error

    def awaited(self, ask: Callable[[], Awaitable[Any]], workers: Collection[str] = ()) -> Any:
        """Return the answer of ``workers`` (default: any) to ``ask``, called in the event loop.

        Raises a WorkerLostError if one of them, or the connection to it, is lost, and a
        ClusterLostError if the scheduler is.
        """
        try:
            return self._contact(ask, workers)
        except Exception as error:
            gone = set(workers) - set(self.threads())  # raises if the scheduler is lost
            if gone:
                raise WorkerLostError(f"{', '.join(sorted(gone))} is gone") from error
            if isinstance(error, OSError | CancelledError):  # the scheduler has not noticed yet
                raise WorkerLostError(repr(error)) from error
            raise

    def _contact(
        self, ask: Callable[[], Awaitable[Any]], workers: Collection[str] | None = None
    ) -> Any:
        if self.client.status in ("closing", "closed"):
            raise scheduler_lost(ConnectionError("the Client is closed"))
        return self.client.sync(self._answer, ask, workers)

    async def _answer(
        self, ask: Callable[[], Awaitable[Any]], workers: Collection[str] | None
    ) -> Any:
        """Wait for an answer; without ``workers`` it is the scheduler's alone."""
        asked = asyncio.ensure_future(ask())
        seconds_alone = 0.0
        try:
            while True:
                await asyncio.wait([asked], timeout=SECONDS_BETWEEN_LOOKS)
                if asked.done():
                    return asked.result()
                is_alone = self.client.status != "running"
                seconds_alone = seconds_alone + SECONDS_BETWEEN_LOOKS if is_alone else 0.0
                if seconds_alone > SECONDS_WITHOUT_SCHEDULER:
                    raise ConnectionError("connection lost")
                if workers is not None and not is_alone:
                    there = await self._answer(lambda: self.client.nthreads(), None)
                    if not there or not set(workers) <= set(there):
                        raise ConnectionError("worker lost")
        finally:
            asked.cancel()

    def wait_for_workers(self, wanted: int) -> dict[str, int]:
        """Wait for this many workers, or, after a while, for any; return what ``threads`` does."""
        started = time.monotonic()
        while True:
            threads, waited = self.threads(), time.monotonic() - started
            if len(threads) >= wanted or (threads and waited > SECONDS_TO_RESTART):
                return threads
            if waited > SECONDS_WITHOUT_WORKERS:
                raise ClusterLostError(
                    "The Dask cluster has no workers. Start some, or close its Client: a fit "
                    "without one starts workers on this machine."
                )
            if self._own is not None and waited > SECONDS_TO_RESTART / 2:
                self._own.scale(wanted)  # those that do not come back by themselves
            time.sleep(0.1)

    # ---- tasks and data --------------------------------------------------------------------------

    def scatter(self, value: Any, address: str) -> Any:
        """Send data to a worker, and return their future."""
        return self.awaited(
            lambda: self.client.scatter(value, workers=[address], hash=False), [address]
        )

    def submit(self, function: Any, *args: Any, at: str | None = None) -> Any:
        """Return the future of a task, preferably done by the worker ``at`` an address."""
        where = {} if at is None else {"workers": [at], "allow_other_workers": True}
        return self._sent(lambda: self.client.submit(function, *args, pure=False, **where))

    def compute(self, collections: list[Any]) -> list[Any]:
        """Return futures of Dask collections."""
        futures: list[Any] = self._sent(lambda: self.client.compute(collections))
        return futures

    def _sent(self, send: Callable[[], Any]) -> Any:
        try:
            return send()
        except Exception as error:
            if self.client.status in ("closing", "closed"):
                raise scheduler_lost(error) from error
            raise

    def wait(self, futures: list[Any], workers: Collection[str] = ()) -> None:
        """Wait until tasks are done and data have arrived; raise the error of a task."""
        from distributed import KilledWorker, wait

        async def all_of_them() -> None:
            with self.client.as_current():
                await wait(futures)

        self.awaited(all_of_them, workers)
        for future in futures:
            if future.status == "error":
                try:
                    future.result()
                except KilledWorker as error:
                    raise ClusterLostError(
                        f"{error} Often workers need more memory. If they are stopped for other "
                        "reasons, increase distributed.scheduler.allowed-failures."
                    ) from error
            elif future.status != "finished":
                raise WorkerLostError("data on a worker are gone")

    def results(self, futures: list[Any]) -> list[Any]:
        """Return the results of tasks; Dask repeats those that were lost with a worker."""
        n_losses = 0
        while True:
            try:
                self.wait(futures)
                gathered: list[Any] = self.awaited(lambda: self.client.gather(futures))
                return gathered
            except WorkerLostError as error:
                if any(future.cancelled() for future in futures):
                    raise ClusterLostError(
                        f"The data that X is made from were lost with a worker ({error}). Create X "
                        "again, and repeat the call."
                    ) from error
                n_losses += 1
                if n_losses > MOST_LOSSES:
                    raise too_many_losses(error) from error
                self.wait_for_workers(1)
