"""Workers that are lost at any contact with the driver, from the first one on."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from klnmf import KLNMF
from klnmf.backends import ClusterLostError
from klnmf.simulate import simulate_counts

dask = pytest.importorskip("dask", reason="needs the extra [dask]")
pytest.importorskip("distributed", reason="needs the extra [dask]")
import dask.array as da  # noqa: E402
from distributed import Client, KilledWorker, LocalCluster  # noqa: E402
from distributed.comm import CommClosedError  # noqa: E402

from dask_clusters import as_given, dask_array, kill, killable_workers, local_cluster, within  # noqa: E402
from klnmf.backends.dask import cluster as contacts  # noqa: E402
from klnmf.backends.dask import session  # noqa: E402
from klnmf.backends.dask.cluster import Cluster  # noqa: E402
from klnmf.backends.dask.kernels import Operation, count_zeros  # noqa: E402
from klnmf.backends.dask.session import Session  # noqa: E402
from klnmf.backends.dask.worker import FitOnWorker, PartMissingError  # noqa: E402
from strategies import make_model  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

COUNTS = simulate_counts(600, 60, 3, counts_per_sample=20, random_state=0).X
CUTS = [250]
KINDS = ["in memory", "dask array", "on disk"]


def model(**parameters: Any) -> KLNMF:
    return make_model(3, **{"random_state": 0, "max_iter": 3, "tol": 0, **parameters})


@pytest.fixture(scope="module")
def expected() -> Any:
    return model().fit_transform(COUNTS)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Workers in this process."""
    with local_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def of_processes() -> Iterator[Client]:
    """Workers that can be killed."""
    with local_cluster(2, processes=True) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def killable(of_processes: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """As many as there were at first; the fit does not wait until those that died are back."""
    killable_workers(of_processes, 2)
    monkeypatch.setattr(contacts, "SECONDS_TO_RESTART", 0.3)
    return of_processes


# ---- a contact that fails ------------------------------------------------------------------------


def break_contact(
    monkeypatch: pytest.MonkeyPatch, number: int, of_scheduler: bool = False
) -> list[int]:
    """Let one contact with workers, or with the scheduler alone, fail; return those there were."""
    contact, seen = Cluster._contact, [0]

    def maybe(self: Cluster, ask: Any, workers: Any = None) -> Any:
        if (workers is None) == of_scheduler:
            seen[0] += 1
            if seen[0] == number:
                raise CommClosedError("broken")
        return contact(self, ask, workers)

    monkeypatch.setattr(Cluster, "_contact", maybe)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_any_contact_with_workers_may_fail(
    client: Client, kind: str, expected: Any, tmp_path: Path
) -> None:
    X = as_given(COUNTS, kind, tmp_path, CUTS)
    for number in range(1, 16):
        with pytest.MonkeyPatch.context() as patch, client.as_current():
            seen = break_contact(patch, number)
            W = model(backend="dask").fit_transform(X)
            np.testing.assert_array_equal(np.asarray(W), expected)
            assert seen[0] > number


@pytest.mark.parametrize("kind", KINDS)
def test_a_scheduler_that_does_not_answer(client: Client, kind: str, tmp_path: Path) -> None:
    X = as_given(COUNTS, kind, tmp_path, CUTS)
    with pytest.MonkeyPatch.context() as patch, client.as_current():
        break_contact(patch, 1, of_scheduler=True)
        with pytest.raises(
            ClusterLostError, match=r"scheduler.*a new Client.*pass run=RunOptions\(checkpoint="
        ):
            model(backend="dask").fit(X)


def test_transform(client: Client) -> None:
    fitted = model().fit(COUNTS)
    expected = fitted.transform(COUNTS)
    fitted.set_params(backend="dask")
    for number in range(1, 9):
        with pytest.MonkeyPatch.context() as patch, client.as_current():
            break_contact(patch, number)
            np.testing.assert_array_equal(fitted.transform(COUNTS), expected)


def test_what_is_known_as_a_dask_array(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = np.zeros(COUNTS.shape, dtype=bool)
    missing[::7, 3] = True
    X, given = dask_array(COUNTS, CUTS), da.from_array(missing, chunks=(250, 40))
    one = model().fit(COUNTS, missing=missing)
    for number in (1, 2):
        with pytest.MonkeyPatch.context() as patch, client.as_current():
            break_contact(patch, number)
            many = model(backend="dask").fit(X, missing=given)
            np.testing.assert_array_equal(many.components_, one.components_)
    monkeypatch.setattr(contacts, "SECONDS_WITHOUT_WORKERS", 0.3)
    with local_cluster(0) as cluster, Client(cluster), within(60):
        for known in ({"missing": given}, {"exposure": da.ones(COUNTS.shape[0])}):
            with pytest.raises(ClusterLostError, match="has no workers"):
                model(backend="dask").fit(X, **known)


def test_contacts_that_fail_for_ever(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    contact = Cluster._contact

    def broken(self: Cluster, ask: Any, workers: Any = None) -> Any:
        if workers is not None:
            raise CommClosedError("broken")
        return contact(self, ask, workers)

    monkeypatch.setattr(Cluster, "_contact", broken)
    monkeypatch.setattr(session, "SECONDS_BETWEEN_LOSSES", 0.0)
    for X in (COUNTS, dask_array(COUNTS, CUTS)):
        with client.as_current(), pytest.raises(ClusterLostError, match=r"20 times in a row.*logs"):
            model(backend="dask").fit(X)


# ---- workers that are killed ---------------------------------------------------------------------


def arm(client: Client, address: str, handlers: str, name: str, number: int) -> None:
    """Let a worker kill itself as it is called so many times."""

    def die_at(dask_worker: Any) -> None:
        table, calls = getattr(dask_worker, handlers), itertools.count(1)

        @functools.wraps(table[name])
        def maybe(*args: Any, handler: Any = table[name], **kwargs: Any) -> Any:
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return handler(*args, **kwargs)

        table[name] = maybe

    client.run(die_at, workers=[address])


@pytest.mark.parametrize(
    ("kind", "handlers", "name", "number"),
    [
        ("in memory", "handlers", "update_data", 2),  # a part of X is sent
        ("in memory", "handlers", "run", 1),  # it hears of the fit
        ("dask array", "stream_handlers", "compute-task", 3),
    ],
)
def test_a_worker_dies_at_the_start(
    killable: Client,
    kind: str,
    handlers: str,
    name: str,
    number: int,
    expected: Any,
    tmp_path: Path,
) -> None:
    victim = max(killable.nthreads())
    arm(killable, victim, handlers, name, number)
    W = model(backend="dask").fit_transform(as_given(COUNTS, kind, tmp_path, CUTS))
    np.testing.assert_array_equal(np.asarray(W), expected)
    assert victim not in killable.nthreads()


def test_all_workers_die(killable: Client, expected: Any) -> None:
    """Those that come back have other addresses, and nothing of X."""

    def kill_all(record: dict[str, Any]) -> None:
        if record["iteration"] == 2:
            for address in killable.nthreads():
                kill(killable, address)

    with within(120):
        W = model(backend="dask", callback=kill_all).fit_transform(dask_array(COUNTS, CUTS))
    np.testing.assert_array_equal(np.asarray(W), expected)


def test_a_worker_dies_at_the_end(
    killable: Client, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W is handed to Dask part by part; and what was handed over may be lost later."""
    hand_over, victims = Session._futures_of, [max(killable.nthreads())]

    def killing(self: Session, version: int) -> Any:
        while victims:
            kill(killable, victims.pop())
        return hand_over(self, version)

    monkeypatch.setattr(Session, "_futures_of", killing)
    W = model(backend="dask").fit_transform(dask_array(COUNTS, CUTS))
    np.testing.assert_array_equal(W.compute(), expected)
    killable_workers(killable, 2)
    holders = {address for held in killable.who_has().values() for address in held}
    for address in holders:
        kill(killable, address)
    with within(120), pytest.raises(RuntimeError, match=r"Call transform\(X\)"):
        W.compute()


def test_a_worker_that_is_closed(monkeypatch: pytest.MonkeyPatch, expected: Any) -> None:
    """It says good-bye, but has given away what it held before anybody hears of it."""
    context, closing = FitOnWorker._context, []

    def close_first(self: FitOnWorker, *args: Any) -> Any:
        if not closing:
            closing.append(asyncio.ensure_future(self.worker.close()))
            self.teardown(self.worker)
        return context(self, *args)

    monkeypatch.setattr(FitOnWorker, "_context", close_first)
    monkeypatch.setattr(contacts, "SECONDS_TO_RESTART", 0.3)
    with local_cluster(2) as cluster, Client(cluster):
        W = model(backend="dask").fit_transform(COUNTS)
    np.testing.assert_array_equal(W, expected)


# ---- nobody is left ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_without_workers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contacts, "SECONDS_WITHOUT_WORKERS", 0.3)
    path = tmp_path / "fit.checkpoint"
    with local_cluster(0) as cluster, Client(cluster):
        started = time.monotonic()
        with pytest.raises(ClusterLostError, match=r"has no workers.*was not written yet"):
            model(backend="dask", checkpoint=path).fit(as_given(COUNTS, kind, tmp_path, CUTS))
        assert time.monotonic() - started < 20


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_leave_and_come(
    kind: str, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = as_given(COUNTS, kind, tmp_path, CUTS)
    with local_cluster(1) as cluster, Client(cluster) as client:

        def leave(record: dict[str, Any]) -> None:
            cluster.scale(0)
            while client.nthreads():
                time.sleep(0.02)

        def change(record: dict[str, Any]) -> None:
            if record["iteration"] == 1:  # one that comes late
                cluster.scale(2)
                client.wait_for_workers(2, timeout=60)
            if record["iteration"] == 2:  # all others than before
                leave(record)
                cluster.scale(1)

        W = model(backend="dask", callback=change).fit_transform(X)
        np.testing.assert_array_equal(np.asarray(W), expected)
        monkeypatch.setattr(contacts, "SECONDS_WITHOUT_WORKERS", 0.3)
        with pytest.raises(ClusterLostError, match="has no workers"):
            model(backend="dask", callback=leave).fit(X)


def test_own_workers_that_die_as_they_start(monkeypatch: pytest.MonkeyPatch, expected: Any) -> None:
    n_failures = 1

    def make(**parameters: Any) -> LocalCluster:
        nonlocal n_failures
        n_failures -= 1
        if n_failures >= 0:
            raise RuntimeError("Nanny failed to start.")
        del parameters["env"]  # of processes
        return LocalCluster(**{**parameters, "processes": False})

    def no_client() -> Any:
        raise ValueError("No clients found")

    monkeypatch.setattr("distributed.default_client", no_client)
    monkeypatch.setattr("distributed.LocalCluster", make)
    W = model(backend="dask", n_threads=2).fit_transform(COUNTS)
    np.testing.assert_array_equal(W, expected)
    n_failures = 100
    with pytest.raises(ClusterLostError, match=r"Nanny failed to start.*__main__"):
        model(backend="dask", n_threads=2).fit(COUNTS)


# ---- errors that say something else --------------------------------------------------------------


def no_file(block: Any) -> Any:
    raise FileNotFoundError("counts.npz")


def no_memory(block: Any) -> Any:
    raise KilledWorker("sum", SimpleNamespace(address="tcp://10.0.0.1:1"), 3)


def test_errors_of_tasks(client: Client) -> None:
    with client.as_current():
        with pytest.raises(FileNotFoundError, match=r"counts\.npz"):
            model(backend="dask").fit(dask_array(COUNTS, CUTS, no_file))
        with pytest.raises(ClusterLostError, match=r"workers died.*more memory.*allowed-failures"):
            model(backend="dask").fit(dask_array(COUNTS, CUTS, no_memory))


def test_a_fit_lets_go_of_what_is_on_workers() -> None:
    """Dask counts losses by task, and would go on counting in the next fit of the same array."""
    X = dask_array(COUNTS, CUTS)
    with local_cluster(1) as cluster, Client(cluster), within(60):
        gc.disable()
        try:
            model(backend="dask").fit(X)
            while cluster.scheduler.tasks:
                time.sleep(0.02)
        finally:
            gc.enable()


def test_data_that_cannot_be_made_again(expected: Any) -> None:
    with local_cluster(2) as cluster, Client(cluster) as client:
        block = client.scatter(COUNTS, workers=[max(client.nthreads())])
        X = da.from_delayed(dask.delayed(block), COUNTS.shape, COUNTS.dtype)
        np.testing.assert_array_equal(model(backend="dask").fit_transform(X), expected)
        client.retire_workers([max(client.nthreads())], close_workers=True, remove=True)
        block.release()
        client.cancel(block, force=True)
        with pytest.raises(ClusterLostError, match="Create X again"):
            model(backend="dask").fit(X)


def test_a_round_that_was_given_up_is_not_done(client: Client) -> None:
    async def old_round(dask_worker: Any) -> str:
        (name,) = (name for name in dask_worker.plugins if name.startswith("klnmf-"))
        try:
            await dask_worker.plugins[name].answer(1, Operation(0, count_zeros), [])
        except PartMissingError as error:
            return str(error)
        return "done"

    answers: list[str] = []
    with client.as_current():
        model(
            backend="dask", callback=lambda _: answers.extend(client.run(old_round).values())
        ).fit(COUNTS)
    assert set(answers) == {"round 1 was given up"}
