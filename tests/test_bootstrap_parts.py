"""What the intervals are made from: running moments and limits from the likelihood."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq

from klnmf.uncertainty import intervals
from klnmf.uncertainty.intervals import RunningMoments, share_intervals, upper_limits


def test_running_moments_are_those_of_all_arrays() -> None:
    arrays = np.random.default_rng(0).normal(1e6, 1.0, size=(20, 3, 4))
    moments = RunningMoments((3, 4))
    for values in arrays:
        moments.add(values)
    np.testing.assert_allclose(moments.mean, arrays.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.standard_deviation, arrays.std(axis=0, ddof=1), rtol=1e-6)
    assert np.isnan(RunningMoments((2,)).standard_deviation).all()


def brute_force_limit(
    X: np.ndarray, x: np.ndarray, A: np.ndarray, row: int, k: int, alpha: float
) -> float:
    """Where the row's minus log-likelihood has risen by log(1/α), by bisection on all cells."""

    def cost(u: float) -> float:
        moved = x[row].copy()
        moved[k] += u
        rates = A @ moved
        return float(rates.sum() - (X[row] * np.log(rates)).sum())

    return float(brentq(lambda u: cost(u) - cost(0.0) + np.log(alpha), 0.0, 1e6))


@pytest.mark.parametrize("entries_at_once", [1 << 22, 8])
def test_limits_are_where_the_likelihood_has_fallen(
    entries_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "_ENTRIES_AT_ONCE", entries_at_once)
    generator = np.random.default_rng(1)
    A = generator.gamma(1.0, size=(7, 3)) * (generator.random((7, 3)) < 0.7) + 1e-3
    # Rows at their optimum, by many multiplicative updates: then the slope at 0 is not negative.
    X = generator.poisson(2.0, size=(5, 7)).astype(float)
    X[3] = 0.0
    x = np.ones((5, 3))
    for _ in range(3000):
        x *= (X / np.maximum(x @ A.T, 1e-300)) @ A / A.sum(axis=0)
    wanted = generator.random((5, 3)) < 0.8
    found = upper_limits(sp.csr_array(X), x, A, wanted, 0.05)
    for row in range(5):
        for k in range(3):
            expected = 0.0
            if wanted[row, k]:
                expected = (
                    brute_force_limit(X, x, A, row, k, 0.05)
                    if row != 3
                    else -np.log(0.05) / A[:, k].sum()
                )
            assert found[row, k] == pytest.approx(expected, rel=1e-5), (row, k)


def test_limits_beyond_a_fall_of_the_cost() -> None:
    """At 0 the likelihood still rises with the component, as where a penalty holds it down."""
    A, x = np.array([[1.0, 3.0], [2.0, 0.5]]), np.array([[1.0, 0.0], [0.01, 0.0]])
    X = np.array([[1.0, 9.0], [40.0, 1.0]])
    found = upper_limits(sp.csr_array(X), x, A, x == 0.0, 0.05)
    for row in range(2):
        expected = brute_force_limit(X, x, A, row, 1, 0.05)
        assert found[row, 1] == pytest.approx(expected, rel=1e-5)
    assert found[:, 0].tolist() == [0.0, 0.0]


def test_nothing_limits_an_empty_component() -> None:
    A = np.array([[1.0, 0.0], [2.0, 0.0]])
    found = upper_limits(
        sp.csr_array([[1.0, 2.0]]), np.array([[1.0, 0.0]]), A, np.array([[False, True]]), 0.05
    )
    assert found.tolist() == [[0.0, np.inf]]


def test_intervals_keep_to_shares_and_contain_the_estimate() -> None:
    generator = np.random.default_rng(0)
    estimate = generator.dirichlet(np.full(6, 0.2), size=50)
    error = generator.random((50, 6)) * 0.2
    room = generator.random((50, 6)) * 0.2
    found = share_intervals(estimate, estimate + 0.01, error, room, 0.95, 100)
    assert found.lower.min() >= 0.0
    assert found.upper.max() <= 1.0
    assert np.all((found.lower <= estimate) & (estimate <= found.upper))
    np.testing.assert_allclose(found.bias, 0.01)
