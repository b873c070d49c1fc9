"""Which workers a fit runs on: those of the user's client, or some that are made for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from klnmf.backends.cpu import effective_threads

# Dask would go on trying to reach a scheduler for a minute and more.
SECONDS_WITHOUT_SCHEDULER = 3.0


class ClusterLostError(RuntimeError):
    """The cluster, or too much of it, is gone."""


def scheduler_lost(error: BaseException) -> ClusterLostError:
    """Return the error to raise where a scheduler does not answer any more."""
    return ClusterLostError(f"The scheduler of the Dask cluster does not answer ({error!r}).")


def import_distributed() -> Any:
    """Return the package, or say what to install."""
    try:
        import dask.array  # noqa: F401
        import distributed
    except ImportError as error:
        raise ImportError(
            "backend='dask' needs dask and distributed, which are not installed: "
            'pip install "klnmf[dask]".'
        ) from error
    return distributed


def current_client() -> Any:
    """Return the client that the user has made, or None."""
    distributed = import_distributed()
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    if client.asynchronous:
        raise ValueError(
            "backend='dask' waits for its workers, which an asynchronous Client does not allow. "
            "Make the Client without asynchronous=True."
        )
    return client


class Cluster:
    """A client, and the cluster behind it if that was made here.

    Parameters
    ----------
    n_threads : int or None
        Workers of one thread each in a cluster that is made here; without effect on one that is
        there already, which is used as a whole.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        distributed = import_distributed()
        self._own: Any = None
        self.client = current_client()
        if self.client is None:
            self._own = distributed.LocalCluster(
                n_workers=effective_threads(n_threads),
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",  # any free port: nobody is told it
                memory_limit=0,  # what would not fit here would not fit without workers either
            )
            self.client = distributed.Client(self._own, set_as_default=False)

    @property
    def is_own(self) -> bool:
        """Whether the cluster is made for the fit and goes with it."""
        return self._own is not None

    def threads(self) -> dict[str, int]:
        """Addresses of the workers that are there now, and their threads."""
        return dict(self.awaited(lambda: self.client.nthreads()))

    def awaited(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer to a question, as long as there is a scheduler to hear it.

        Parameters
        ----------
        ask : callable
            Asks, in the client's event loop, and returns something to wait for.
        """

        async def answer() -> Any:
            asked = asyncio.ensure_future(ask())
            seconds_alone = 0.0
            while not asked.done():
                await asyncio.wait([asked], timeout=0.5)
                is_alone = self.client.status != "running"
                seconds_alone = seconds_alone + 0.5 if is_alone else 0.0
                if seconds_alone > SECONDS_WITHOUT_SCHEDULER:
                    asked.cancel()
                    raise OSError("connection lost")
            return asked.result()

        try:
            return self.client.sync(answer)
        except (OSError, TimeoutError) as error:
            raise scheduler_lost(error) from error

    def restore(self, n_workers: int) -> None:
        """Start workers that do not come back by themselves, if the cluster was made here."""
        if self._own is not None:
            self._own.scale(n_workers)

    def close(self) -> None:
        """Close what was made here."""
        if self._own is not None:
            self.client.close()
            self._own.close()
