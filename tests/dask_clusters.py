"""Clusters for the tests, of workers in this process or of processes that can be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster, Nanny, Status


def local_cluster(n_workers: int, processes: bool = False) -> LocalCluster:
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=":0",
        memory_limit=0,
        silence_logs=60,
    )


def _is_there(nanny: Nanny) -> bool:
    return nanny.is_alive() and nanny.process.status == Status.running


def wait_until_killable(client: Client, n_workers: int) -> None:
    """Wait for so many workers whose nannies would restart them.

    A nanny may give up on a worker that dies as it starts. Another one takes its place then.
    """
    cluster, started = client.cluster, time.monotonic()
    while True:
        nannies = list(cluster.workers.values())
        n_there = sum(_is_there(nanny) for nanny in nannies)
        if n_there >= n_workers and len(client.nthreads()) == n_there:
            return
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
