"""Workers that have a GPU, for which the CPU stands in: what is done there."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest

from klnmf.simulate import simulate_counts
from strategies import fit_quietly, make_model, same_bits

pytest.importorskip("distributed", reason="needs the extra [dask]")
from distributed import Client

from dask_clusters import local_cluster
from klnmf.backends.cpu import RowResults, evaluate_piece, update_piece
from klnmf.backends.cuda.part_of_rows import PartOnDevice, worker_has_device
from klnmf.backends.dask import worker

COUNTS = simulate_counts(300, 80, 3, counts_per_sample=60, random_state=0).X


class PartOnCpu(PartOnDevice):
    """The same steps on the CPU, counted."""

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self, view: Any) -> None:
        self._piece = next(iter(view.pieces()))
        self.steps["made"] += 1

    def update(self, x: Any, fixed: Any, rule: Any) -> Any:
        x, results = x.copy(), RowResults.empty(len(x))
        how = (fixed.slopes, fixed.l2 or 0.0, rule, 1, results)
        update_piece(self._piece, x, fixed.factors[0], *how)
        self.steps[type(rule).__name__] += 1
        return x, results

    def evaluate(self, x: Any, fixed: Any, want_residual: bool) -> Any:
        results = RowResults.empty(len(x))
        how = (fixed.slopes, fixed.l2, want_residual, 1, results)
        evaluate_piece(self._piece, x, fixed.factors[0], *how)
        self.steps["evaluate"] += 1
        return results


@pytest.fixture
def with_devices(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(worker, "worker_has_device", lambda: True)
    monkeypatch.setattr(worker, "PartOnDevice", PartOnCpu)
    monkeypatch.setattr(PartOnCpu, "steps", Counter())
    with local_cluster(2) as cluster, Client(cluster):
        yield PartOnCpu.steps


def fit(backend: str, X: Any = COUNTS, **settings: Any) -> Any:
    return fit_quietly(X, model=make_model(3, random_state=0, backend=backend, **settings))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_in_float32_are_done_on_the_device(dtype: type, with_devices: Any) -> None:
    """In float64 the last steps are left to the CPU, as are rules that the device does not have."""
    X = COUNTS.astype(dtype)
    (W, model), (expected, cpu) = fit("dask", X), fit("cpu", X)
    assert same_bits(W, expected)
    assert same_bits(model.components_, cpu.components_)
    assert with_devices["made"] == 4  # two parts of two modes, each of them once
    assert with_devices["Improve"] > 0
    assert (with_devices["Solve"] > 0) == (dtype == np.float32)
    with_devices.clear()
    fit("dask", X, solver="srcd-paper", max_iter=2)
    assert not with_devices["PaperRule"]


def test_only_a_worker_that_was_given_a_gpu_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def usable(is_usable: bool) -> None:
        reason = None if is_usable else "none"
        name = "klnmf.backends.cuda.part_of_rows.CudaBackend.available"
        monkeypatch.setattr(name, lambda: reason)

    usable(True)
    for given, has_one in (("", False), ("0", True), ("GPU-5f", True)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert worker_has_device() == has_one
    usable(False)
    assert not worker_has_device()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    usable(True)
    assert not worker_has_device()
