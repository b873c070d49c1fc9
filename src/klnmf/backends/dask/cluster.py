"""Which workers a fit runs on: those of the user's client, or some that are made for it."""

from __future__ import annotations

from typing import Any

from klnmf.backends.cpu import effective_threads


class ClusterLostError(RuntimeError):
    """The cluster, or too much of it, is gone."""


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
        return dict(self.client.nthreads())

    def restore(self, n_workers: int) -> None:
        """Start workers that do not come back by themselves, if the cluster was made here."""
        if self._own is not None:
            self._own.scale(n_workers)

    def close(self) -> None:
        """Close what was made here."""
        if self._own is not None:
            self.client.close()
            self._own.close()
