"""The specification against formulas that are even more direct, and against SciPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import poisson

from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.objective import (
    kkt_residual,
    kl_divergence,
    optimality_gap,
    penalised_objective,
    penalty,
    poisson_deviance,
    poisson_log_likelihood,
)
from strategies import DTYPES, PENALTY_SETS, penalties, random_case

Array = np.ndarray


def dense_divergence(X: Array, W: Array, H: Array) -> float:
    total = 0.0
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            rate = sum(float(W[i, k]) * float(H[j, k]) for k in range(W.shape[1]))
            if X[i, j] > 0:
                if rate == 0:
                    return np.inf
                total += X[i, j] * np.log(X[i, j] / rate) - X[i, j]
            total += rate
    return total


def dense_residual(X: Array, x: Array, A: Array, l1: float, l2: float) -> float:
    """Worst |min(x c / Σ X_i, g / c)|, entry by entry, with the gradient by numerical summation."""
    worst = 0.0
    for i in range(X.shape[0]):
        if not X[i].any():
            continue
        for k in range(x.shape[1]):
            c = A[:, k].sum() + l1
            if c == 0:
                continue
            S = sum(X[i, j] * A[j, k] / (x[i] @ A[j]) for j in range(X.shape[1]) if X[i, j] > 0)
            g = c + l2 * x[i, k] - S
            worst = max(worst, abs(min(x[i, k] * c / X[i].sum(), g / c)))
    return worst


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 8), (1, 5), (5, 1), (1, 1)])
def test_divergence_is_the_dense_formula_in_double(shape: tuple[int, int], dtype: type) -> None:
    case = random_case(shape, 3, dtype=dtype, density=0.7, seed=sum(shape))
    X = case.X.toarray().astype(np.float64)
    expected = dense_divergence(X, case.W, case.H)
    assert kl_divergence(case.X, case.W, case.H.T) == pytest.approx(expected, rel=1e-13)
    assert kl_divergence(case.X.toarray(), case.W, case.H.T) == pytest.approx(expected, rel=1e-13)
    assert poisson_deviance(case.X, case.W, case.H.T) == pytest.approx(2 * expected, rel=1e-13)


def test_divergence_is_zero_at_a_perfect_fit_and_positive_elsewhere() -> None:
    case = random_case((5, 7), 2, zeros=0.0)
    X = case.W @ case.H.T
    assert kl_divergence(X, case.W, case.H.T) == pytest.approx(0, abs=1e-12 * X.sum())
    assert kl_divergence(X, case.W * 1.01, case.H.T) > 1e-6 * X.sum()


def test_divergence_is_infinite_where_a_nonzero_has_no_cover() -> None:
    X = np.array([[1.0, 0.0], [2.0, 3.0]])
    W, H = np.array([[1.0], [0.0]]), np.ones((2, 1))
    assert kl_divergence(X, W, H.T) == np.inf
    assert kl_divergence(np.array([[1.0, 0.0], [0.0, 0.0]]), W, H.T) == pytest.approx(1.0)
    assert poisson_log_likelihood(X, W, H.T) == -np.inf


def test_divergence_of_an_empty_matrix_is_the_sum_of_the_rates() -> None:
    case = random_case((3, 4), 2)
    empty = sp.csr_array((3, 4))
    assert kl_divergence(empty, case.W, case.H.T) == pytest.approx((case.W @ case.H.T).sum())
    assert kkt_residual(empty, case.W, case.H.T) == 0


def test_log_likelihood_is_that_of_the_poisson_distribution() -> None:
    case = random_case((6, 8), 3, zeros=0.0)
    X = np.random.default_rng(1).poisson(case.W @ case.H.T)
    expected = poisson.logpmf(X, case.W @ case.H.T).sum()
    assert poisson_log_likelihood(X, case.W, case.H.T) == pytest.approx(expected, rel=1e-12)
    # Two pairs differ in log-likelihood as in divergence, with the sign turned.
    others = 1.3 * case.W, case.H.T + 0.1
    gained = poisson_log_likelihood(X, *others) - poisson_log_likelihood(X, case.W, case.H.T)
    lost = kl_divergence(X, *others) - kl_divergence(X, case.W, case.H.T)
    assert gained == pytest.approx(-lost, rel=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_penalty_is_the_formula(dtype: type) -> None:
    case = random_case((4, 5), 2, dtype=dtype)
    W, H = case.W.astype(np.float64), case.H.astype(np.float64)
    weights = Penalties.of_matrix(l1_W=2.0, l2_W=3.0, l1_H=5.0, l2_H=7.0)
    expected = 2 * W.sum() + 1.5 * (W**2).sum() + 5 * H.sum() + 3.5 * (H**2).sum()
    assert penalty(case.W, case.H.T, weights) == pytest.approx(expected, rel=1e-13)
    assert penalty(case.W, case.H.T) == 0
    whole = penalised_objective(case.X, case.W, case.H.T, weights)
    assert whole == pytest.approx(kl_divergence(case.X, case.W, case.H.T) + expected, rel=1e-13)


def test_penalty_of_one_factor_does_not_look_at_the_other() -> None:
    # Under a penalty of H alone W grows for ever, up to where its squares are no longer numbers.
    W, H = np.array([[1e200]]), np.array([[1e-200]])
    assert penalty(W, H.T, Penalties.of_matrix(l1_H=50.0, l2_H=0.01)) == pytest.approx(
        5e-199, rel=1e-13
    )
    assert penalty(H, W.T, Penalties.of_matrix(l1_W=50.0)) == pytest.approx(5e-199, rel=1e-13)


@pytest.mark.parametrize("weights", PENALTY_SETS.values(), ids=PENALTY_SETS)
def test_residual_is_the_dense_formula(weights: Penalties) -> None:
    case = random_case((6, 8), 3, seed=2)
    X = case.X.toarray()
    X[2], X[:, 3] = 0, 0
    case.W[:, 1] = 0  # a dead component
    for_W = dense_residual(X, case.W, case.H, weights.l1[0], weights.l2[0])
    for_H = dense_residual(X.T, case.H, case.W, weights.l1[1], weights.l2[1])
    found = kkt_residual(X, case.W, case.H.T, weights)
    assert found == pytest.approx(max(for_W, for_H), rel=1e-12)
    swapped = Penalties(weights.l1[::-1], weights.l2[::-1])
    assert kkt_residual(X.T, case.H, case.W.T, swapped) == pytest.approx(found, rel=1e-12)


def test_gradient_in_the_residual_is_the_slope_of_the_objective() -> None:
    """At an interior pair the residual of one free entry is |f'| / c, with f' by differences."""
    X = np.array([[3.0, 5.0]])
    H = np.array([[1.0], [2.0]])
    weights = Penalties.of_matrix(l1_W=0.5, l2_W=0.25)
    w, step = 4.0, 1e-5

    def value(at: float) -> float:
        return penalised_objective(X, np.array([[at]]), H.T, weights)

    slope = (value(w + step) - value(w - step)) / (2 * step)
    c = H.sum() + 0.5
    of_W = min(w * c / X.sum(), slope / c)
    of_H = dense_residual(X.T, H, np.array([[w]]), 0.0, 0.0)
    found = kkt_residual(X, np.array([[w]]), H.T, weights)
    assert found == pytest.approx(max(abs(of_W), of_H), rel=1e-6)
    assert abs(of_W) > of_H


def test_residual_is_zero_at_the_rank_one_optimum_and_only_there() -> None:
    X = random_case((6, 8), 1, seed=3).X
    W, H = X.sum(axis=1)[:, None], X.sum(axis=0)[:, None] / X.sum()
    assert kkt_residual(X, W, H.T) < 1e-14
    assert kkt_residual(X, 1.001 * W, H.T) == pytest.approx(1e-3, rel=1e-2)
    W[2] *= 1.001
    assert kkt_residual(X, W, H.T) > 5e-4
    padded = np.hstack([W, np.zeros_like(W)]), np.hstack([H, np.zeros_like(H)]).T
    assert kkt_residual(X, *padded) == pytest.approx(kkt_residual(X, W, H.T))  # a dead component


def test_residual_does_not_change_with_the_scale_of_components_or_of_the_data() -> None:
    case = random_case((6, 8), 3, seed=4)
    scales = np.array([1e-6, 1.0, 1e7])
    expected = kkt_residual(case.X, case.W, case.H.T)
    assert expected > 0.1
    scaled = kkt_residual(case.X, case.W * scales, (case.H / scales).T)
    assert scaled == pytest.approx(expected, rel=1e-12)
    larger = kkt_residual(case.X * 1e6, case.W * 1e6, case.H.T)
    assert larger == pytest.approx(expected, rel=1e-12)


def test_which_factors_are_penalised() -> None:
    assert not NO_PENALTIES.is_one_sided
    assert not NO_PENALTIES.has_best_scale
    for one_sided in (
        Penalties.of_matrix(l1_W=1),
        Penalties.of_matrix(l2_H=1),
        Penalties.of_matrix(l1_W=1, l2_W=1),
    ):
        assert one_sided.is_one_sided
        assert not one_sided.has_best_scale
    for both in (Penalties.of_matrix(l1_W=1, l1_H=1), Penalties.of_matrix(l2_W=1, l1_H=1)):
        assert both.has_best_scale
        assert not both.is_one_sided


@given(
    weights=penalties().filter(lambda weights: weights.has_best_scale),
    log_w=st.floats(-10, 10),
    log_h=st.floats(-10, 10),
    seed=st.integers(0, 1000),
)
def test_best_scale_has_the_least_penalty(
    weights: Penalties, log_w: float, log_h: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    w, h = (np.exp(log + generator.normal(size=4)) for log in (log_w, log_h))

    def penalty_at(log_scale: float) -> float:
        scale = np.exp(log_scale)
        return penalty(w[:, None] * scale, (h[:, None] / scale).T, weights)

    sums, squares = (np.array([w.sum()]), np.array([h.sum()])), ((w**2).sum(), (h**2).sum())
    (scale,), _ = weights.best_scales(sums, tuple(np.array([square]) for square in squares))
    best = minimize_scalar(penalty_at, bounds=(-40, 40), method="bounded", options={"xatol": 1e-9})
    assert penalty_at(np.log(scale)) <= best.fun * (1 + 1e-12)
    assert np.log(scale) == pytest.approx(best.x, abs=1e-4)


def test_a_component_that_is_zero_in_a_factor_keeps_its_scale() -> None:
    weights = Penalties.of_matrix(l1_W=1, l2_W=1, l1_H=1, l2_H=1)
    w, h = np.array([0.0, 3.0, 0.0, 3.0]), np.array([2.0, 0.0, 0.0, 2.0])
    scales, _ = weights.best_scales((w, h), (w**2, h**2))
    assert scales[:3].tolist() == [1, 1, 1]
    assert 0 < scales[3] < 1


def test_missing_cells_may_hold_nan() -> None:
    X = np.array([[2.0, np.nan], [0.0, 2.0]])
    ones = np.ones((2, 1))
    filled = np.nan_to_num(X)
    for form in (X, sp.csr_array(X)):
        found = kl_divergence(form, ones, ones.T, missing=np.isnan(X))
        assert found == kl_divergence(filled, ones, ones.T, missing=np.isnan(X))


# ---- arguments -----------------------------------------------------------------------------------


OF_DATA = (
    kl_divergence,
    poisson_deviance,
    poisson_log_likelihood,
    penalised_objective,
    kkt_residual,
    optimality_gap,
)


@pytest.mark.parametrize("function", OF_DATA)
def test_factors_have_the_shapes_of_a_model(function: Callable[..., float]) -> None:
    case = random_case((6, 8), 3, seed=5)
    assert np.isfinite(function(case.X, case.W, case.H.T))
    assert function(case.X, sp.csr_array(case.W), case.H.T.tolist()) == function(
        case.X, case.W, case.H.T
    )
    wrong = {
        r"H must have shape \(3, 8\), got \(8, 3\)\. It looks transposed: .* as in components_": (
            *(case.X, case.W, case.H),
        ),
        r"H must have shape \(3, 8\), got \(3, 1\)": (case.X, case.W, case.H.T[:, :1]),
        r"W must have shape \(6, n_components\), got \(1, 3\)": (case.X, case.W[:1], case.H.T),
        r"W must have shape \(6, n_components\), got \(3, 6\)\. It looks": (
            *(case.X, case.W.T, case.H.T),
        ),
        r"H must be finite and nonnegative, but H\[0, 0\] = -1": (
            *(case.X, case.W, -np.ones((3, 8))),
        ),
        "Expected 2D array, got 1D": (np.ones(8), case.W, case.H.T),
    }
    for message, arguments in wrong.items():
        with pytest.raises(ValueError, match=message):
            function(*arguments)
    if function not in OF_DATA[:3]:
        with pytest.raises(TypeError, match=r"penalties must be a klnmf\.objective\.Penalties"):
            function(case.X, case.W, case.H.T, penalties=[0])


def test_weights_and_missing_cells_have_the_shape_of_the_data() -> None:
    case = random_case((6, 8), 3, seed=5)
    for name in ("sample_weight", "feature_weight", "exposure", "missing"):
        with pytest.raises(ValueError, match=f"{name} must have"):
            kl_divergence(case.X, case.W, case.H.T, **{name: np.ones(3)})
    with pytest.raises(ValueError, match=r"l1_W must be a finite number of at least 0; got -1\."):
        Penalties.of_matrix(l1_W=-1)
    with pytest.raises(ValueError, match=r"H must have shape \(3, n_features\), got \(8, 3\)"):
        penalty(case.W, case.H)
