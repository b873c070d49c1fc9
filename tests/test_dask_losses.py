"""Workers and schedulers that die in a fit: real processes, killed with SIGKILL."""

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

from klnmf import KLNMF
from klnmf.simulate import simulate_counts

dask = pytest.importorskip("dask", reason="needs the extra [dask]")
pytest.importorskip("distributed", reason="needs the extra [dask]")
import psutil  # noqa: E402
from distributed import Client  # noqa: E402

from dask_clusters import as_given, killable_workers, local_cluster, within  # noqa: E402
from klnmf.backends import ClusterLostError  # noqa: E402
from klnmf.backends.dask.worker import PartMissingError  # noqa: E402
from strategies import make_model  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

COUNTS = simulate_counts(9000, 1000, 6, counts_per_sample=40, random_state=0).X
CUTS = range(2000, 9000, 2000)
# A fit ends sooner, whatever is killed. The machine may be busy with other things.
LONGEST = 300.0


def model(**parameters: Any) -> KLNMF:
    return make_model(6, **{"random_state": 0, "max_iter": 60, "tol": 0, **parameters})


@pytest.fixture(scope="module")
def expected() -> Any:
    return model().fit_transform(COUNTS)


def fit(X: Any, **parameters: Any) -> Any:
    with within(LONGEST):
        return np.asarray(model(backend="dask", **parameters).fit_transform(X))


def check_fit(X: Any, expected: Any, message: str) -> None:
    """Fit while workers are killed; the result is exactly the same."""
    fitted = model(backend="dask")
    with within(LONGEST):
        W = fitted.fit_transform(X)
        try:
            W = np.asarray(W)
        except PartMissingError:
            # W of a Dask array stays on the workers. One died after the end of the fit, so that
            # nothing repeats the steps of the fit; the message says to solve for W again.
            W = np.asarray(fitted.transform(X))
            np.testing.assert_allclose(W, expected, rtol=1e-3, atol=1e-2, err_msg=message)
        else:
            np.testing.assert_array_equal(W, expected, err_msg=message)


# ---- at any moment, from the first one on --------------------------------------------------------

SECONDS_OF_START = 1.5


def moments(n_in_start: int, n_in_all: int, duration: float) -> list[float]:
    """Random moments in the start of a fit, most of them early, and in all of it.

    They are others in every run.
    """
    start = [random.uniform(i, i + 1) / n_in_start for i in range(n_in_start)]
    whole = [random.uniform(i, i + 1) / n_in_all for i in range(n_in_all)]
    return [SECONDS_OF_START * x**2 for x in start] + [duration * x for x in whole]


def kill_later(seconds: float, find_victims: Callable[[], list[int]]) -> Callable[[], None]:
    """Kill processes after a while, as soon as there are some; call the result after the fit."""
    is_over = threading.Event()

    def kill_them() -> None:
        time.sleep(seconds)
        while not (victims := find_victims()):
            if is_over.wait(0.01):
                return
        for victim in victims:
            os.kill(victim, signal.SIGKILL)

    def finish() -> None:
        is_over.set()
        thread.join()

    thread = threading.Thread(target=kill_them)
    thread.start()
    return finish


@pytest.mark.parametrize(
    ("kind", "n_in_start", "n_in_all", "n_victims"),
    [
        ("in memory", 3, 2, 1),
        ("dask array", 2, 1, 1),
        ("on disk", 2, 1, 1),
        ("in memory", 1, 1, 2),  # all that there are; their nannies bring them back
    ],
)
def test_workers_killed_at_any_moment(
    kind: str, n_in_start: int, n_in_all: int, n_victims: int, expected: Any, tmp_path: Path
) -> None:
    X = as_given(COUNTS, kind, tmp_path, CUTS)
    with local_cluster(2, processes=True) as cluster, Client(cluster) as client:
        fit(X)  # workers import this and that in the first one
        started = time.monotonic()
        fit(X)
        victims: list[int] = []
        for moment in moments(n_in_start, n_in_all, time.monotonic() - started):
            victims = random.sample(killable_workers(client, 2, killed=victims), n_victims)
            finish = kill_later(moment, lambda victims=victims: victims)
            check_fit(X, expected, f"killed after {moment:.3f} s")
            finish()


def own_workers() -> list[int]:
    """One of the processes that a cluster of this process has started."""
    children = psutil.Process().children()
    return [child.pid for child in children if "spawn_main" in " ".join(child.cmdline())][-1:]


def test_own_workers_killed_at_any_moment(expected: Any) -> None:
    """Where there is no client: while its workers are started, too."""
    started = time.monotonic()
    fit(COUNTS, n_threads=2)
    for moment in moments(2, 1, time.monotonic() - started - 1.0):
        finish = kill_later(moment, own_workers)
        W = fit(COUNTS, n_threads=2)
        finish()
        np.testing.assert_array_equal(W, expected, err_msg=f"killed after {moment:.3f} s")


# ---- again and again in one fit ------------------------------------------------------------------


class Killer:
    """Kills a random worker at a random moment after every few iterations."""

    def __init__(self, client: Client, n_kills: int, seed: int) -> None:
        self._client, self._random = client, random.Random(seed)
        self.n_kills, self._left, self._next = 0, n_kills, 3
        self.iterations: list[int] = []
        self._killed: list[int] = []

    def __call__(self, record: dict[str, Any]) -> None:
        self.iterations.append(record["iteration"])
        if record["iteration"] >= self._next and self.n_kills < self._left:
            self._next += self._random.randint(1, 4)
            workers = killable_workers(self._client, 2, killed=self._killed)
            self._killed = [self._random.choice(workers)]
            delay = self._random.uniform(0.0, 0.1)
            threading.Timer(delay, os.kill, (self._killed[0], signal.SIGKILL)).start()
            self.n_kills += 1


@pytest.mark.parametrize(("kind", "n_kills"), [("in memory", 5), ("dask array", 2), ("on disk", 2)])
def test_killed_workers_cost_nothing_but_time(
    kind: str, n_kills: int, expected: Any, tmp_path: Path
) -> None:
    with local_cluster(2, processes=True) as cluster, Client(cluster) as client:
        killer = Killer(client, n_kills, seed=len(kind))
        W = fit(as_given(COUNTS, kind, tmp_path, CUTS), callback=killer)
    assert killer.n_kills == n_kills
    assert killer.iterations == list(range(1, 61))  # nobody hears of an iteration twice
    np.testing.assert_array_equal(W, expected)


# ---- the scheduler -------------------------------------------------------------------------------


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
    with local_cluster(3) as cluster, Client(cluster):
        resumed = model(backend="dask", checkpoint=path, resume=True).fit(COUNTS)
    np.testing.assert_array_equal(resumed.components_, model().fit(COUNTS).components_)
    assert resumed.n_iter_ == 60


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["in memory", "dask array"])
def test_a_scheduler_lost_at_the_start(kind: str, tmp_path: Path) -> None:
    X = as_given(COUNTS, kind, tmp_path, CUTS)
    with cluster_of_processes() as kill_scheduler:
        threading.Timer(random.uniform(0.0, 0.3), kill_scheduler).start()
        with within(60.0), pytest.raises(ClusterLostError, match=r"scheduler.*a new Client"):
            model(backend="dask", max_iter=100_000).fit(X)
