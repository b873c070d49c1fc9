"""The traps of the problem: no cover, no data, no room; extreme sizes and extreme values."""

from __future__ import annotations

import os
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, objective
from klnmf.backends.base import Fixed, Improve
from klnmf.backends.cpu import CpuBackend
from klnmf.data.sparse_data import InMemoryData
from klnmf.simulate import simulate_counts
from klnmf.solvers import SOLVERS

COUNTS = simulate_counts(40, 30, 3, counts_per_sample=80, random_state=0).X.toarray()
# Entries of "ccd" never fall below this floor.
FLOOR = 1e-15

every_solver = pytest.mark.parametrize("solver", SOLVERS)
every_start = pytest.mark.parametrize("init", ["random", "nndsvd"])
unconverged = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def model(**parameters: Any) -> KLNMF:
    """Return a small model that gives the same result every time."""
    return KLNMF(**{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


def assert_sound(estimator: KLNMF, X: Any, W: np.ndarray) -> None:
    """Nonnegative, finite, and as good as it says."""
    H = estimator.components_.T
    for factor in (W, H):
        assert np.isfinite(factor).all()
        assert (factor >= 0).all()
    assert np.isfinite(estimator.divergence_)
    total = float(X.sum(dtype=np.float64))
    assert objective.kl_divergence(X, W, H.T) == pytest.approx(
        estimator.divergence_, rel=1e-6, abs=1e-7 * total
    )


# ---- shapes -------------------------------------------------------------------------------------


@unconverged
@every_solver
@every_start
def test_more_components_than_rows_and_columns(solver: str, init: str) -> None:
    X = np.array([[1.0, 0.0, 5.0], [2.0, 3.0, 0.0]])
    estimator = model(n_components=8, solver=solver, init=init, max_iter=500)
    W = estimator.fit_transform(X)
    assert W.shape == (2, 8)
    assert estimator.components_.shape == (8, 3)
    assert_sound(estimator, X, W)
    np.testing.assert_allclose(W @ estimator.components_, X, atol=0.05)


@unconverged
@every_solver
@every_start
@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (1, 1)])
def test_one_row_or_one_column_is_fitted_exactly(
    shape: tuple[int, int], solver: str, init: str
) -> None:
    X = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    estimator = model(n_components=2, solver=solver, init=init)
    W = estimator.fit_transform(X)
    assert_sound(estimator, X, W)
    np.testing.assert_allclose(W @ estimator.components_, X, rtol=2e-3)
    assert np.isfinite(estimator.score(X))
    assert np.isfinite(estimator.score(0.5 * X))


@every_solver
@every_start
@pytest.mark.parametrize("container", [np.array, sp.csr_array])
def test_all_zero_matrix(solver: str, init: str, container: Any) -> None:
    X = container(np.zeros((4, 5)))
    estimator = model(solver=solver, init=init)
    W = estimator.fit_transform(X)  # a warning of NumPy would be an error here
    np.testing.assert_array_equal(W, np.zeros((4, 3)))
    # Components of nothing but the floor are scaled to sum to 1.
    assert estimator.components_.max() <= (0.2 + 1e-6 if solver == "ccd" else 0)
    assert estimator.divergence_ == 0
    assert estimator.kkt_residual_ == 0
    assert estimator.converged_
    np.testing.assert_array_equal(estimator.transform(X), np.zeros((4, 3)))
    assert np.isfinite(estimator.score(X))


@unconverged
@every_solver
@every_start
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_empty_rows_and_columns_are_exactly_zero(solver: str, init: str, penalty: float) -> None:
    X = COUNTS.copy()
    X[[0, 7, 39]] = 0
    X[:, [0, 5, 29]] = 0
    penalties = {name: penalty for name in ("l1_W", "l2_W", "l1_H", "l2_H")}
    estimator = model(solver=solver, init=init, max_iter=20, **penalties)
    W = estimator.fit_transform(X)
    assert_sound(estimator, X, W)
    assert (W[[0, 7, 39]] == 0).all()
    # The floor is that of the solver's components, before they are scaled to sum to 1.
    assert estimator.components_[:, [0, 5, 29]].max() <= (10 * FLOOR if solver == "ccd" else 0)
    filled = np.setdiff1d(np.arange(40), [0, 7, 39])
    assert (W[filled].sum(axis=1) > 0).all()
    assert np.array_equal(estimator.transform(X)[[0, 7, 39]], np.zeros((3, 3)))


# ---- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e9, 1e-9])
def test_huge_and_tiny_counts_are_only_a_change_of_scale(scale: float, dtype: type) -> None:
    X = COUNTS.astype(dtype)
    # A power of two near the scale, so that not even rounding differs in the data.
    power = dtype(2.0 ** round(np.log2(scale)))
    plain, scaled = model().fit(X), model().fit(X * power)
    assert scaled.converged_
    assert scaled.divergence_ / float(power) == pytest.approx(plain.divergence_, rel=1e-4)
    assert np.isfinite(scaled.score(X * power))


@unconverged
@every_solver
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_and_tiny_counts_together(solver: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    X = (COUNTS * 10.0 ** rng.integers(-9, 10, COUNTS.shape)).astype(dtype)
    estimator = model(solver=solver, max_iter=50)
    W = estimator.fit_transform(X)
    if solver != "srcd-paper":  # the paper's steps have no guard and may end at infinity
        assert_sound(estimator, X, W)
    assert not np.isnan(W).any()
    assert not np.isnan(estimator.components_).any()
    if solver == "srcd":
        assert estimator.converged_
        objectives = [record["objective"] for record in estimator.history_]
        assert (np.diff(objectives) <= 1e-7 * X.sum(dtype=np.float64)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_smallest_and_largest_values_that_are_allowed(dtype: type) -> None:
    low, high = {"float32": (1e-15, 1e15), "float64": (1e-140, 1e140)}[np.dtype(dtype).name]
    base = 1.0 + (COUNTS > 2)
    for X in ((base * low * 1.01).astype(dtype), (base * high * 0.49).astype(dtype)):
        estimator = model(tol=1e-2)
        W = estimator.fit_transform(X)
        assert estimator.converged_
        assert np.isfinite(W).all()
        rates = W.astype(np.float64) @ estimator.components_.astype(np.float64)
        np.testing.assert_allclose(rates.sum(), X.sum(dtype=np.float64), rtol=1e-3)


@unconverged
@every_solver
def test_single_precision_ends_no_higher_than_double(solver: str) -> None:
    """Products that are kept up to date for long drift away from the factors in float32."""
    rng = np.random.default_rng(0)
    W, H = 10 * rng.random((40, 3)) + 0.1, rng.random((3, 30)) + 0.01
    single, double = (
        model(solver=solver, max_iter=200, dtype=dtype).fit(COUNTS, W=W, H=H).divergence_
        for dtype in (np.float32, np.float64)
    )
    assert single < 1.05 * double  # not equal: rounding may lead to another local optimum


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factors_hold_no_denormals(dtype: type) -> None:
    estimator = model(n_components=6, max_iter=2000)
    W = estimator.fit_transform((COUNTS * 1e-9).astype(dtype))
    for factor in (W, estimator.components_):
        positive = factor[factor > 0]
        assert positive.min() >= np.finfo(dtype).tiny


# ---- cover --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(5))
def test_the_last_cover_of_a_nonzero_stays_positive(seed: int, dtype: type) -> None:
    """Block-diagonal counts, one block a component: every other component wants to be 0."""
    X = np.kron(np.diag([1, 1000, 5, 30]), np.ones((4, 3))).astype(dtype)
    estimator = model(n_components=4, random_state=seed)
    W = estimator.fit_transform(X)
    assert_sound(estimator, X, W)
    rates = W.astype(np.float64) @ estimator.components_
    assert (rates[X > 0] > 0).all()
    assert all(np.isfinite(record["objective"]) for record in estimator.history_)


def test_solution_of_block_diagonal_data_is_found_from_its_blocks() -> None:
    X = np.kron(np.diag([1.0, 1000.0, 5.0]), np.ones((4, 3)))
    H = np.kron(np.eye(3), np.ones((1, 3)))
    estimator = model()
    W = estimator.fit_transform(X, H=H)
    np.testing.assert_allclose(W @ estimator.components_, X, rtol=1e-6)
    # Every nonzero has one cover, and everything else is exactly 0.
    assert np.count_nonzero(W) == 12
    assert np.count_nonzero(estimator.components_) == 9
    assert estimator.divergence_ == pytest.approx(0, abs=1e-9)


@unconverged
@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "mu"])
def test_dead_component_is_no_trouble(solver: str) -> None:
    H = np.ones((3, 30)) + np.eye(3, 30)
    H[1] = 0
    estimator = model(solver=solver, max_iter=30)
    W = estimator.fit_transform(COUNTS, H=H)
    assert not np.isnan(W).any()
    assert np.isfinite(estimator.divergence_)


def test_penalty_kills_components_without_nan() -> None:
    estimator = model(n_components=12, l1_W=3.0, l1_H=3.0, max_iter=3000)
    W = estimator.fit_transform(COUNTS)
    assert_sound(estimator, COUNTS, W)
    dead = ~W.any(axis=0)
    assert 0 < dead.sum() < 12
    np.testing.assert_array_equal(dead, ~estimator.components_.any(axis=1))


def test_unbearable_penalty_gives_a_bounded_answer() -> None:
    estimator = model(l1_W=1e6, l1_H=1e6, l2_W=1e6, l2_H=1e6, max_iter=3000)
    W = estimator.fit_transform(COUNTS)
    assert np.isfinite(W).all()
    assert np.isfinite(estimator.components_).all()
    assert np.isfinite(estimator.divergence_)


def zero_start() -> tuple[np.ndarray, np.ndarray]:
    """Start whose zeros are in the wrong places: half the data can not be reached by scaling."""
    rng = np.random.default_rng(1)
    W, H = rng.random((40, 3)) + 0.5, rng.random((3, 30)) + 0.5
    W[:, 0] = 0
    W[::2, 1] = 0
    H[2, ::3] = 0
    return W, H


def test_coordinate_descent_leaves_zeros() -> None:
    W, H = zero_start()
    estimator = model(max_iter=500)
    W_fitted = estimator.fit_transform(COUNTS, W=W, H=H)
    assert estimator.converged_
    assert (W_fitted[:, 0] > 0).any()
    assert (W_fitted[::2, 1] > 0).any()
    assert (estimator.components_[2, ::3] > 0).any()
    best = min(model(random_state=seed).fit(COUNTS).divergence_ for seed in range(3))
    assert estimator.divergence_ < 1.2 * best


@unconverged
def test_multiplicative_updates_are_locked_at_zeros_as_documented() -> None:
    W, H = zero_start()
    estimator = model(solver="mu", max_iter=50).fit(COUNTS, W=W, H=H)
    assert (estimator.components_[2, ::3] == 0).all()
    assert "stays 0" in (SOLVERS["mu"].__doc__ or "")


@unconverged
@every_solver
def test_start_that_covers_nothing(solver: str) -> None:
    estimator = model(solver=solver, max_iter=30)
    W = estimator.fit_transform(COUNTS, W=np.zeros((40, 3)), H=np.zeros((3, 30)))
    assert_sound(estimator, COUNTS, W)


# ---- memory -------------------------------------------------------------------------------------


def test_dense_solver_refuses_terabytes_on_this_machine() -> None:
    X = sp.csr_array(([1.0], ([0], [0])), shape=(2_000_000, 2_000_000))
    with pytest.raises(MemoryError, match=r"29.1 TiB for an array .*solver='srcd'"):
        model(solver="ccd", n_components=1).fit(X)


@unconverged
@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "ccd"])
def test_memory_grows_with_nonzeros_and_margins_only(solver: str) -> None:
    n, nnz, rank = 200_000, 100_000, 3
    rng = np.random.default_rng(0)
    places = rng.integers(0, n, nnz), rng.integers(0, n, nnz)
    X = sp.csr_array((rng.integers(1, 5, nnz).astype(np.float32), places), shape=(n, n))
    tracemalloc.start()
    try:
        estimator = model(n_components=rank, solver=solver, max_iter=3, n_threads=2)
        W = estimator.fit_transform(X)
        if solver == "srcd":  # it solves for W alone, whatever the solver of the fit
            estimator.score(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert W.shape == (n, rank)
    assert np.isfinite(estimator.divergence_) or solver == "srcd-paper"
    # Up to 5 copies of each factor, and a few numbers a row; a dense row block would be far more.
    assert peak < 5 * 4 * 2 * n * rank + 16 * nnz + 100 * n


RANK = 32
BEYOND = 2**31 // RANK + 10  # rows of a factor with more than 2³¹ entries


def mapped_zeros() -> np.ndarray:
    """Factor of 8 GiB of which only the pages that are written to take memory."""
    try:
        return np.zeros((BEYOND, RANK), dtype=np.float32)
    except MemoryError:
        pytest.skip("this machine does not promise 8 GiB")


lazy_zeros = pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="no lazy zeros")


@lazy_zeros
def test_offsets_into_the_fixed_factor_beyond_two_billion_entries() -> None:
    A = mapped_zeros()
    A[0], A[-1] = 1.0, 2.0
    parts = np.array([3.0, 8.0], np.float32), np.array([0, BEYOND - 1], np.int32), np.array([0, 2])
    backend = CpuBackend(InMemoryData(sp.csr_array(parts, shape=(1, BEYOND))), n_threads=1)
    x = np.full((1, RANK), 0.5, dtype=np.float32)
    c = np.full(RANK, 3.0)
    expected = 3.0 * 0.5 * RANK - 3.0 * np.log(0.5 * RANK) - 8.0 * np.log(RANK)
    assert backend.evaluate(x, Fixed(0, (A,), slopes=c)).value == pytest.approx(expected, rel=1e-6)
    rule = Improve(order=np.arange(RANK, dtype=np.int32), rounds=50)
    backend.update_rows(x, Fixed(0, (A,), slopes=c), rule)
    # Both products are multiples of Σx: the minimiser has 3 Σx = 11.
    assert x.sum() == pytest.approx(11 / 3, rel=1e-5)


@pytest.mark.slow
@lazy_zeros
def test_offsets_into_the_solved_factor_beyond_two_billion_entries() -> None:
    x = mapped_zeros()
    x[-1] = 0.5
    indptr = np.zeros(BEYOND + 1, dtype=np.int64)
    indptr[-1] = 1
    parts = np.array([3.0], np.float32), np.array([1], np.int32), indptr
    backend = CpuBackend(InMemoryData(sp.csr_array(parts, shape=(BEYOND, 2))), n_threads=2)
    A = np.array([[0.0] * RANK, [1.0] * RANK], dtype=np.float32)
    expected = 2.0 * 0.5 * RANK - 3.0 * np.log(0.5 * RANK)
    found = backend.evaluate(x, Fixed(0, (A,), slopes=np.full(RANK, 2.0)))
    assert found.value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(backend.column_sums(x), np.full(RANK, 0.5))
    np.testing.assert_array_equal(backend.column_squares(x), np.full(RANK, 0.25))
