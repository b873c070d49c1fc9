"""Matrices that are on a GPU, with CuPy on NumPy: what is taken as it is, and where W comes back.

tests/test_cuda_fits.py fits real ones.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fake_cupy
from fake_cupy import FakeArray, FakeSparse
from klnmf import KLNMF, backends
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.cuda.cupy_input import CupyData, CupyView, data_of
from klnmf.model_selection import consensus
from klnmf.simulate import simulate_counts
from strategies import same_bits

COUNTS = simulate_counts(40, 30, 3, counts_per_sample=50, random_state=0).X.astype(np.float32)


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in fake_cupy.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    # "cuda" computes on the CPU, but holds X where it is.
    line = {"cuda": (__name__, "CudaOnCpu")}
    monkeypatch.setattr(backends, "BACKENDS", backends.BACKENDS | line)


class CudaOnCpu(CpuBackend):
    """A usable back-end that remembers what data it was made with."""

    name = "cuda"
    made: list[Any] = []  # noqa: RUF012

    def __init__(self, data: Any, n_threads: int | None = None) -> None:
        self.made.append(data)
        super().__init__(data, n_threads)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense"])
def test_matrices_are_taken_as_they_are(form: str) -> None:
    generator = np.random.default_rng(0)
    for number in range(40):
        dense = generator.poisson(0.5, generator.integers(1, 9, 2)).astype(
            "f4" if number % 2 else "f8"
        )
        dense[0, 0] = 1
        given = (
            dense.view(FakeArray)
            if form == "dense"
            else FakeSparse(getattr(sp, f"{form}_array")(dense))
        )
        data = data_of(given, None)
        assert data is not None
        for mode, expected in enumerate((dense, dense.T)):
            view = data.view(mode)
            np.testing.assert_array_equal(view.as_csr().toarray(), expected)
            np.testing.assert_array_equal(view.row_sums, expected.sum(axis=1))
            assert view.columns.dtype == np.int32
            assert isinstance(view.values, FakeArray)
            rows = generator.integers(0, len(expected), 3)
            indptr, columns, values = view.take_rows(rows)
            taken = sp.csr_array((values, columns, indptr), shape=(3, expected.shape[1]))
            np.testing.assert_array_equal(taken.toarray(), expected[rows])


def broken() -> sp.csr_array:
    matrix = sp.csr_array(np.array([[1.0, 2.0], [3.0, 0.0]]))
    matrix.indices[0] = 5
    return matrix


@pytest.mark.parametrize(
    "matrix",
    [
        broken(),
        sp.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2)),
        sp.csr_array((np.ones(3), np.array([1, 0, 0]), np.array([0, 2, 3])), shape=(2, 2)),
        sp.csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2)),
        sp.csr_array(np.array([[0.1, 1.0]])),
        sp.csr_array(np.array([[-1.0, 1.0]])),
        sp.csr_array(np.array([[np.nan, 1.0]])),
        sp.csr_array((1, 2)),
    ],
    ids=["index", "twice", "unordered", "zero", "float64", "negative", "nan", "empty"],
)
def test_what_needs_a_look_is_looked_at_on_the_host(matrix: sp.csr_array) -> None:
    assert data_of(FakeSparse(matrix), None) is None


def test_values_are_rounded_where_that_is_asked_for() -> None:
    X = FakeSparse(sp.csr_array(np.array([[0.1, 1.0]])))
    data = data_of(X, "float32")
    assert data is not None
    np.testing.assert_array_equal(data.view(0).row_sums, [float(np.float32(0.1)) + 1])


@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_fits_stay_on_the_device(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CupyView.whole copies all of X; the stand-in's kernels need it, nothing else does."""
    expected = KLNMF(3, random_state=0, backend="cpu")
    W = expected.fit_transform(COUNTS)
    monkeypatch.setattr(CudaOnCpu, "made", [])
    model = KLNMF(3, random_state=0, backend=backend)
    found = model.fit_transform(FakeSparse(COUNTS))
    assert isinstance(CudaOnCpu.made[0], CupyData)
    assert isinstance(found, FakeArray)
    np.testing.assert_allclose(found.get(), W, rtol=1e-3, atol=1e-3)
    assert isinstance(model.components_, np.ndarray)
    transformed = model.transform(FakeSparse(COUNTS))
    assert isinstance(transformed, FakeArray)
    assert same_bits(transformed.get(), model.transform(COUNTS))
    assert model.score(FakeSparse(COUNTS)) == pytest.approx(model.score(COUNTS), rel=1e-6)
    sparse = KLNMF(3, random_state=0, sparse_output=True).fit_transform(FakeSparse(COUNTS))
    assert isinstance(sparse, FakeSparse)


def test_the_cpu_gets_a_copy_and_w_goes_back() -> None:
    W = KLNMF(3, random_state=0, backend="cpu").fit_transform(FakeSparse(COUNTS))
    assert isinstance(W, FakeArray)
    assert same_bits(W.get(), KLNMF(3, random_state=0).fit_transform(COUNTS))
    model = KLNMF(3, random_state=0).fit(COUNTS)
    assert isinstance(model.proportions(W), np.ndarray)


def test_weights_and_missing_cells_on_the_device() -> None:
    weights = np.linspace(0.5, 2, 40)
    missing = sp.csr_array(np.random.default_rng(0).random((40, 30)) < 0.1)
    known = {"sample_weight": weights, "missing": missing}
    there = {"sample_weight": weights.view(FakeArray), "missing": FakeSparse(missing)}
    model = KLNMF(3, random_state=0, backend="cuda", dtype="float32")
    W = model.fit_transform(FakeSparse(COUNTS), **there)
    assert isinstance(W, FakeArray)
    assert same_bits(W.get(), model.fit_transform(COUNTS, **known))


def test_model_selection_takes_a_copy() -> None:
    both = [consensus(X, 2, n_runs=2, random_state=0).W for X in (FakeSparse(COUNTS), COUNTS)]
    assert same_bits(*both)


def test_without_a_gpu_that_can_be_used_auto_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaOnCpu, "available", classmethod(lambda _: "too old"))
    monkeypatch.setattr(CudaOnCpu, "made", [])
    W = KLNMF(2, random_state=0).fit_transform(FakeSparse(COUNTS))
    assert isinstance(W, FakeArray)
    assert not CudaOnCpu.made


def test_no_copy_of_all_of_x_but_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    callers: list[str] = []
    whole = CupyView.whole

    def seen(view: CupyView) -> Any:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_filename.endswith(("cupy_input.py", "sparse_data.py")):
            frame = frame.f_back
        callers.append(frame.f_globals["__name__"])
        return whole(view)

    monkeypatch.setattr(CupyView, "whole", seen)
    KLNMF(3, random_state=0).fit_transform(FakeSparse(COUNTS))
    assert set(callers) == {"klnmf.backends.cpu"}
