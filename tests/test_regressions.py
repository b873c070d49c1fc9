"""Mistakes that were made once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.backends.base import Fixed, Improve, Multiply
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.reference import ReferenceBackend
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.objective import kl_divergence, penalised_objective
from klnmf.simulate import simulate_counts
from klnmf.solvers import MultiplicativeUpdates
from klnmf.solvers.extrapolation import Momentum
from klnmf.solvers.initialization import nndsvd_start
from klnmf.topics import component_shares

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=60, random_state=0).X


@pytest.mark.parametrize(
    "rule",
    [
        Improve(np.zeros(1, np.int32)),
        Multiply(),
        Multiply(relaxed=1),
    ],
    ids=["guarded", "multiplicative", "relaxed"],
)
def test_sums_over_a_million_equal_nonzeros_keep_their_digits(rule: Any) -> None:
    """In one float they would lose three: the optimum x = 10 moved, with a residual of 1e-2."""
    n = 1_000_000
    data = InMemoryData(sp.csr_array(np.full((1, n), 10, np.float32)))
    backend = CpuBackend(data, 1)
    x, A = np.full((1, 1), 10, np.float32), np.ones((n, 1), np.float32)
    totals = backend.update_rows(x, Fixed(0, (A,), slopes=backend.column_sums(A)), rule)
    assert x[0, 0] == pytest.approx(10, rel=1e-5)
    assert totals.kkt < 1e-5


@pytest.mark.parametrize("solver", ["srcd", "mu"])
def test_squares_of_slopes_do_not_overflow_under_l2(solver: str) -> None:
    X = 1e15 * np.random.default_rng(0).uniform(0.2, 1, (300, 300)).astype(np.float32)
    model = KLNMF(2, l2_W=1e-12, l2_H=1e-12, solver=solver, tol=1e3, random_state=0, max_iter=6)
    model.fit(X)
    assert np.isfinite(model.divergence_)
    assert model.components_.any()


@pytest.mark.parametrize("name", ["l1_W", "l2_W", "l1_H", "l2_H"])
def test_penalties_beyond_the_arithmetic_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be at most 1e\+15.*float32, got 1e\+39"):
        KLNMF(2, **{name: 1e39}).fit(COUNTS)


def test_interrupt_while_components_are_scaled_leaves_a_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W scaled and H not would be a pair of nothing."""
    n_calls = 0
    scaled = CpuBackend.scaled

    def interrupted(self: Any, factor: Any, scales: Any, order: Any = None) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            raise KeyboardInterrupt
        return scaled(factor, scales, order)

    monkeypatch.setattr(CpuBackend, "scaled", interrupted)
    model = KLNMF(3, l1_W=0.01, l1_H=10.0, random_state=0, n_threads=1)
    W, H = np.full((60, 3), 1e3), np.random.default_rng(0).random((3, 40))
    with pytest.raises(KeyboardInterrupt):
        model.fit(COUNTS, W=W, H=H)
    monkeypatch.undo()
    one = KLNMF(3, l1_W=0.01, l1_H=10.0, random_state=0, tol=1e9, max_iter=1).fit(COUNTS, W=W, H=H)
    assert model.divergence_ < 2 * one.divergence_


def test_a_fit_without_warm_start_forgets_the_state_before_it() -> None:
    model = KLNMF(3, warm_start=True, max_iter=5, tol=1e9, random_state=0).fit(COUNTS)
    model.set_params(warm_start=False, max_iter=40, tol=1e-3).fit(COUNTS)
    best = model.divergence_
    model.set_params(warm_start=True, max_iter=1, tol=1e9).fit(COUNTS)
    assert model.divergence_ <= best * (1 + 1e-6)  # from the last components, not the first state


def test_svd_start_runs_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A threaded BLAS sums in another order: the start would follow the number of threads."""
    limits: list[Any] = []

    class Recorder:
        def __init__(self, limit: int) -> None:
            limits.append(limit)

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr("klnmf.solvers.initialization.threadpool_limits", Recorder)
    nndsvd_start(InMemoryData(check_counts(COUNTS)), 3, np.random.default_rng(0))
    assert limits == [1]


@pytest.mark.parametrize("solver", ["srcd", "mu"])
def test_tiny_entries_of_a_start_do_no_harm(solver: str) -> None:
    X = COUNTS.astype(np.float32)
    W = np.full((60, 3), 1e-15, np.float32)
    W[0] = 1e-38
    model = KLNMF(3, solver=solver, tol=1e9, max_iter=1, random_state=0)
    model.fit(X, W=W, H=np.full((3, 40), 1e15))
    assert np.isfinite(model.history_[0]["objective"])


def test_a_backend_must_have_the_rule_that_ends_every_fit() -> None:
    class WithoutSolve(CpuBackend):
        name = "half"
        rules = frozenset({Multiply})

    lacking = WithoutSolve.lacks(MultiplicativeUpdates().needs(n_components=2))
    assert lacking is not None
    assert "needs Solve, which backend='half' does not have" in lacking


@pytest.mark.parametrize("backend", [CpuBackend, ReferenceBackend])
def test_an_unknown_rule_is_refused(backend: Any) -> None:
    data = InMemoryData(check_counts(COUNTS))
    x, A = np.ones((60, 2), np.float32), np.ones((40, 2), np.float32)
    with pytest.raises(TypeError, match="has no rule str"):
        backend(data).update_rows(x, Fixed(0, (A,), slopes=np.ones(2)), "newton")


def test_explicit_zeros_do_not_count_in_the_specification() -> None:
    X = sp.csr_array((np.array([2.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    W, H = np.ones((1, 1)), np.array([[2.0], [0.0]])
    assert kl_divergence(X, W, H.T) == 0.0
    assert X.nnz == 2  # and the caller's matrix stays as it is


def test_fit_does_not_wrap_its_output() -> None:
    """Only the result of transform has to fit into a DataFrame."""
    model = KLNMF(2, sparse_output=True, random_state=0).set_output(transform="pandas")
    assert sp.issparse(model.fit(COUNTS).components_)


def test_shares_take_a_sparse_representation() -> None:
    components, W = np.array([[1.0, 2.0], [0.5, 0.5]]), np.eye(2)
    expected = component_shares(components, W)
    np.testing.assert_array_equal(component_shares(components, sp.csr_array(W)), expected)


def test_values_too_far_apart_for_single_precision_are_refused() -> None:
    X = np.array([[1e14, 0], [0, 1e-12]])
    with pytest.raises(ValueError, match=r"not over all of that range in one matrix.*float64"):
        KLNMF(1, random_state=0).fit(X.astype(np.float32))
    assert np.isfinite(KLNMF(1, random_state=0).fit(X).divergence_)


def test_rescaling_moves_the_momentum_along() -> None:
    model = KLNMF(3, l1_W=0.1, l1_H=1.0, warm_start=True, tol=0, max_iter=8, random_state=0)
    with pytest.warns(UserWarning, match="max_iter"):
        W = model.fit_transform(COUNTS)
    state = model._saved_state[1]
    momentum: Momentum = state.memory["momentum"]
    for mode in (0, 1):
        for array in momentum.arrays(mode):
            ratio = array.sum(axis=0) / state.factors[mode].sum(axis=0)
            assert ((ratio > 0.2) & (ratio < 5)).all()
    f = penalised_objective(COUNTS, state.factors[0], state.factors[1].T)
    assert np.isfinite(f)
    assert W.shape == (60, 3)


@pytest.mark.parametrize("init", ["samples", "random", "nndsvd"])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64])
def test_a_matrix_without_counts_is_fitted_without_a_word(init: str, dtype: type) -> None:
    model = KLNMF(2, init=init, random_state=0, sparse_output=True)
    W = model.fit_transform(sp.csr_array((5, 4), dtype=dtype))
    assert W.shape == (5, 2)
    assert W.nnz == 0
    assert model.converged_
    assert model.divergence_ == 0
