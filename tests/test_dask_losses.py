"""Workers and schedulers that die in mid-fit: real processes, killed with SIGKILL."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import klnmf
from klnmf import KLNMF
from klnmf.simulate import simulate_counts

dask = pytest.importorskip("dask", reason="needs the extra [dask]")
pytest.importorskip("distributed", reason="needs the extra [dask]")
import dask.array as da  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

from klnmf.backends.dask.cluster import ClusterLostError  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

COUNTS = simulate_counts(9000, 1000, 6, counts_per_sample=40, random_state=0).X
KILLS = 10


def model(**parameters: Any) -> KLNMF:
    return KLNMF(6, **{"random_state": 0, "max_iter": 60, "tol": 0, **parameters})


def as_given(kind: str, folder: Path) -> Any:
    if kind == "on disk":
        return klnmf.on_disk.prepare(COUNTS, folder / "matrix")
    if kind == "dask array":
        rows = [COUNTS[start : start + 2000] for start in range(0, COUNTS.shape[0], 2000)]
        return da.concatenate(
            [
                da.from_delayed(dask.delayed(sp.csr_array)(block), block.shape, block.dtype)
                for block in rows
            ]
        )
    return COUNTS


class Killer:
    """Kills a random worker at a random moment after every few iterations.

    A nanny gives up on a worker that dies while it starts. So it is only workers that have been
    there for a while that are killed, and the next iteration waits for as many as there were.
    """

    def __init__(self, client: Client, n_kills: int, seed: int) -> None:
        self._client, self._random = client, random.Random(seed)
        self.n_kills, self._left, self._next = 0, n_kills, 3
        self.iterations: list[int] = []

    def __call__(self, record: dict[str, Any]) -> None:
        self.iterations.append(record["iteration"])
        if record["iteration"] >= self._next and self.n_kills < self._left:
            self._next += self._random.randint(1, 4)
            try:
                self._client.wait_for_workers(2, timeout=20)
            except TimeoutError:  # a nanny has given up
                self._client.cluster.scale(len(self._client.cluster.worker_spec) + 1)
                self._client.wait_for_workers(2, timeout=60)
            time.sleep(2.0)
            victim = self._random.choice(list(self._client.run(os.getpid).values()))
            delay = self._random.uniform(0.0, 0.1)
            threading.Timer(delay, os.kill, (victim, signal.SIGKILL)).start()
            self.n_kills += 1


@pytest.mark.parametrize(
    ("kind", "n_kills"), [("in memory", KILLS), ("dask array", 4), ("on disk", 4)]
)
def test_killed_workers_cost_nothing_but_time(kind: str, n_kills: int, tmp_path: Path) -> None:
    expected = model().fit_transform(COUNTS)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        killer = Killer(client, n_kills, seed=len(kind))
        fitted = model(backend="dask", callback=killer)
        W = np.asarray(fitted.fit_transform(as_given(kind, tmp_path)))
    assert killer.n_kills == n_kills
    assert killer.iterations == list(range(1, 61))  # nobody hears of an iteration twice
    np.testing.assert_array_equal(W, expected)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def cluster_of_processes() -> Iterator[Callable[[], None]]:
    """A scheduler and two workers as commands; what is yielded kills the scheduler."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    worker = ("worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny")
    options = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    with (
        command("scheduler", *options) as scheduler,
        command(*worker),
        command(*worker),
        Client(address, timeout=60) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield scheduler.kill


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_lost_scheduler_leaves_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "fit.checkpoint"
    died: list[float] = []
    with cluster_of_processes() as kill_scheduler:

        def kill_at_seven(record: dict[str, Any]) -> None:
            if record["iteration"] == 7:
                kill_scheduler()
                died.append(time.monotonic())

        fitted = model(
            backend="dask", checkpoint=path, checkpoint_every=0.0, callback=kill_at_seven
        )
        with pytest.raises(ClusterLostError, match=r"scheduler.*fit\.checkpoint"):
            fitted.fit(COUNTS)
        assert time.monotonic() - died[0] < 20  # Dask itself would try for a minute
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        resumed = model(backend="dask", checkpoint=path, resume=True).fit(COUNTS)
    np.testing.assert_array_equal(resumed.components_, model().fit(COUNTS).components_)
    assert resumed.n_iter_ == 60
