"""Clusters for the tests, of workers in this process or of processes that can be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import scipy.sparse as sp
from distributed import Client, LocalCluster, Nanny, Status
from distributed.utils import get_mp_context

from klnmf.readers import prepare

# Workers that are killed are soon back: their processes are forks of one that has imported this.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
get_mp_context().set_forkserver_preload(["distributed", "klnmf.backends.dask.worker", "pandas"])
# Else a worker that is down 15 seconds after a loss, for the second time, is not started again.
dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})


def local_cluster(n_workers: int, processes: bool = False) -> LocalCluster:
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=":0",
        memory_limit=0,
        silence_logs=60,
    )


def dask_array(X: Any, cuts: Sequence[int], make: Callable[[Any], Any] = sp.csr_array) -> da.Array:
    """Return X in blocks of rows, which workers make; it is cut before these rows."""
    blocks = [X[start:stop] for start, stop in pairwise([0, *cuts, X.shape[0]])]
    return da.concatenate(
        [da.from_delayed(dask.delayed(make)(x), x.shape, x.dtype) for x in blocks]
    )


def as_given(X: Any, kind: str, folder: Path, cuts: Sequence[int]) -> Any:
    """Return X as it is, "on disk" or as a "dask array"."""
    if kind == "on disk":
        return prepare(X, folder / "matrix")
    return dask_array(X, cuts) if kind == "dask array" else X


def killable_workers(client: Client, n_workers: int, killed: Collection[int] = ()) -> list[int]:
    """Wait for so many workers whose nannies would restart them; return their processes.

    A nanny may give up on a worker that dies as it starts. Another one takes its place then.
    Processes that were killed a moment ago may not be missed by anybody yet.
    """

    def is_there(nanny: Nanny) -> bool:
        is_running = nanny.is_alive() and nanny.process.status == Status.running
        return bool(is_running and nanny.pid not in killed)

    cluster, started = client.cluster, time.monotonic()
    while True:
        there = [nanny.pid for nanny in list(cluster.workers.values()) if is_there(nanny)]
        if len(there) >= n_workers and len(client.nthreads()) == len(there):
            return there
        if time.monotonic() - started > 20:
            cluster.scale(len(cluster.worker_spec) + 1)
            started = time.monotonic()
        time.sleep(0.05)


def kill(client: Client, address: str) -> None:
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
