"""Data larger than a GPU's memory: the bits of data that fit; ``make test-cuda`` runs these."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from klnmf import KLNMF, open_matrix, prepare
from klnmf.backends.cuda import device_data, rows, transfer
from klnmf.backends.cuda.backend import CudaBackend
from klnmf.data.sparse_data import InMemoryData
from klnmf.simulate import simulate_counts
from strategies import fit_quietly, same_bits

pytestmark = pytest.mark.cuda
X = simulate_counts(2000, 500, 5, counts_per_sample=400, random_state=0).X.astype(np.float32)
LIMIT = 3_000_000  # bytes: the factors and a tenth of X


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some columns are in pieces, which may be in different chunks."""
    monkeypatch.setattr(rows, "PIECE", 256)


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CuPy refuses to take more than the limit, and some for other arrays and their rounding."""
    import cupy as cp

    monkeypatch.setattr(CudaBackend, "memory_limit", LIMIT)
    monkeypatch.setattr(device_data, "MOST_OF_CHUNK", 20_000)
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=2 * LIMIT)
    yield
    pool.set_limit(size=0)


def fit(X: Any, **settings: Any) -> tuple[Any, KLNMF]:
    return fit_quietly(X, model=KLNMF(5, backend="cuda", random_state=0, **settings))


def assert_same_fit(first: tuple[Any, KLNMF], second: tuple[Any, KLNMF]) -> None:
    assert same_bits(first[0], second[0])
    assert same_bits(first[1].components_, second[1].components_)
    without = [
        [{**record, "seconds": 0.0} for record in model.history_] for _, model in (first, second)
    ]
    assert without[0] == without[1]


RESIDENT: list[tuple[Any, KLNMF]] = []


@pytest.fixture
def resident() -> tuple[Any, KLNMF]:
    """A fit of X on a device with room for it."""
    if not RESIDENT:
        RESIDENT.append(fit(X))
    return RESIDENT[0]


def n_chunks(X: Any) -> list[int]:
    backend = CudaBackend(InMemoryData(X))
    backend.upload(np.ones((X.shape[0], 5), np.float32), 0)
    found = [len(backend.data.rows(mode).chunks) for mode in (0, 1)]
    backend.close()
    return found


def test_data_that_do_not_fit_give_the_same_bits(
    resident: tuple[Any, KLNMF], request: pytest.FixtureRequest
) -> None:
    assert n_chunks(X) == [1, 1]
    request.getfixturevalue("small_device")
    assert min(n_chunks(X)) > 3
    assert_same_fit(resident, fit(X))


def test_through_pinned_memory(
    resident: tuple[Any, KLNMF], small_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the device cannot read the arrays of the host itself."""
    monkeypatch.setattr(transfer.Registered, "of", classmethod(lambda cls, *arrays: None))
    assert_same_fit(resident, fit(X))


def test_float64_on_the_host(request: pytest.FixtureRequest) -> None:
    resident = fit(X.astype(np.float64))
    request.getfixturevalue("small_device")
    assert_same_fit(resident, fit(X.astype(np.float64)))


def test_from_disk(resident: tuple[Any, KLNMF], small_device: None, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", X)
    prepare(tmp_path / "X.npz", tmp_path / "X.disk", dtype=np.float32)
    assert_same_fit(resident, fit(open_matrix(tmp_path / "X.disk", memory=400_000)))


def test_constraints(request: pytest.FixtureRequest) -> None:
    generator = np.random.default_rng(0)
    known = {
        "sample_weight": generator.integers(1, 4, X.shape[0]).astype(np.float32),
        "missing": sp.random_array(X.shape, density=0.002, rng=generator) > 0,
    }
    results = []
    for name in (None, "small_device"):
        if name:
            request.getfixturevalue(name)
        model = KLNMF(5, backend="cuda", random_state=0, l1_W=0.1, l2_H=0.1, max_iter=20)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            results.append((model.fit_transform(X, **known), model))
    assert_same_fit(*results)


def test_transform(resident: tuple[Any, KLNMF], request: pytest.FixtureRequest) -> None:
    expected = resident[1].transform(X)
    request.getfixturevalue("small_device")
    assert same_bits(resident[1].transform(X), expected)


def test_factors_that_do_not_fit_are_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CudaBackend, "memory_limit", 500_000)
    with pytest.raises(MemoryError, match=r"need at least .* GB on the GPU.*fewer components"):
        fit(X)


def test_columns_are_those_of_the_host() -> None:
    """The device transposes, and sums whole numbers; others are left to the host."""
    for values in (X, X * np.float32(0.1)):
        data = InMemoryData(sp.csr_array(values))
        backend = CudaBackend(data)
        columns, expected = backend.data.view(1), data.view(1)
        is_there = isinstance(columns, device_data.DeviceColumns)
        assert is_there == (values is X)
        assert (columns.indptr == expected.indptr).all()
        assert same_bits(columns.row_sums, expected.row_sums)
        there = backend.data.rows(1)
        assert there.nnz == X.nnz
        chunk, (columns_there, values_there) = there.chunks[0], there._resident
        starts = rows.row_starts(np.diff(expected.indptr))
        places = np.repeat(starts[:-1] - expected.indptr[:-1], np.diff(expected.indptr))
        places += np.arange(X.nnz)
        assert chunk.size == int(starts[-2] + np.diff(expected.indptr)[-1])
        assert (columns_there.get()[places] == expected.indices).all()
        assert same_bits(values_there.get()[places], expected.values)
