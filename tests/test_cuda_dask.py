"""Two workers that share a GPU, and one of them dies: ``make test-cuda`` runs this."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from klnmf.simulate import simulate_counts
from strategies import fit_quietly, make_model, same_bits

pytest.importorskip("distributed", reason="needs the extra [dask]")
from distributed import Client, LocalCluster

from dask_clusters import kill, within

pytestmark = pytest.mark.cuda
X = simulate_counts(6000, 500, 5, counts_per_sample=60, random_state=0).X.astype(np.float32)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """As dask-cuda starts workers, but both on the same GPU."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        LocalCluster(**settings, env={"CUDA_VISIBLE_DEVICES": "0"}, silence_logs=60) as cluster,
        Client(cluster) as client,
    ):
        yield client


def fit(backend: str, **settings: Any) -> Any:
    settings = {"random_state": 0, "max_iter": 60, "tol": 0.0, **settings}
    with within(120):
        return fit_quietly(X, model=make_model(5, backend=backend, **settings))


def devices() -> int:
    """Parts of X that fits have brought to the device of this worker, in this process."""
    import gc

    from klnmf.backends.cuda.part_of_rows import PartOnDevice

    return sum(isinstance(thing, PartOnDevice) for thing in gc.get_objects())


def test_workers_use_their_gpu_and_agree_with_the_cpu(client: Client) -> None:
    seen: list[Any] = []

    def look(record: dict[str, Any]) -> None:
        if record["iteration"] == 5:
            seen.append(client.run(devices))

    (_, model), (_, cpu) = fit("dask", callback=look, tol=1e-5), fit("cpu", tol=1e-5)
    assert all(n_parts == 2 for n_parts in seen[0].values())
    assert model.divergence_ == pytest.approx(cpu.divergence_, rel=1e-3)
    objectives = np.array([record["objective"] for record in model.history_])
    assert (np.diff(objectives) <= 1e-7 * objectives[1:]).all()


def test_a_worker_that_dies_changes_no_bit(client: Client) -> None:
    W, model = fit("dask")
    victims: list[threading.Thread] = []

    def kill_one(record: dict[str, Any]) -> None:
        if record["iteration"] == 20:
            address = sorted(client.nthreads())[0]
            victims.append(threading.Thread(target=kill, args=(client, address)))
            victims[0].start()

    again, other = fit("dask", callback=kill_one)
    victims[0].join(30)
    assert same_bits(W, again)
    assert same_bits(model.components_, other.components_)
    for _ in range(300):  # its nanny starts another one
        if len(client.nthreads()) == 2:
            break
        time.sleep(0.1)
