"""What the intervals are made from: the spread of runs and limits from the likelihood."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq

from klnmf.uncertainty import row_blocks
from klnmf.uncertainty.intervals import SpreadOfRuns, share_intervals, upper_limits


def test_spread_is_that_of_all_runs() -> None:
    runs = np.random.default_rng(0).beta(2.0, 30.0, size=(20, 3, 4))
    estimate = np.full((3, 4), 0.05)
    spread = SpreadOfRuns(estimate)
    for shares in runs:
        spread.add(shares)
    np.testing.assert_allclose(spread.mean, runs.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(spread.standard_deviation, runs.std(axis=0, ddof=1), rtol=1e-9)
    angles = np.arcsin(np.sqrt(runs))
    bias = angles.mean(axis=0) - np.arcsin(np.sqrt(0.05))
    expected = np.sqrt(angles.var(axis=0, ddof=1) + (2 * bias) ** 2)
    np.testing.assert_allclose(spread.angular_deviation, expected, rtol=1e-9)
    assert np.isnan(SpreadOfRuns(estimate).standard_deviation).all()


def brute_force_limit(
    X: np.ndarray, x: np.ndarray, A: np.ndarray, row: int, k: int, rise: float
) -> float:
    """Where the row's minus log-likelihood has risen so far, by bisection on all cells."""

    def cost(u: float) -> float:
        moved = x[row].copy()
        moved[k] += u
        rates = A @ moved
        return float(rates.sum() - (X[row] * np.log(rates)).sum())

    return float(brentq(lambda u: cost(u) - cost(0.0) - rise, 0.0, 1e6))


@pytest.mark.parametrize("entries_at_once", [1 << 22, 8])
def test_limits_are_where_the_likelihood_has_fallen(
    entries_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_blocks, "ENTRIES_AT_ONCE", entries_at_once)
    generator = np.random.default_rng(1)
    A = generator.gamma(1.0, size=(7, 3)) * (generator.random((7, 3)) < 0.7) + 1e-3
    # Rows at their optimum, by many multiplicative updates: then the slope at 0 is not negative.
    X = generator.poisson(2.0, size=(5, 7)).astype(float)
    X[3] = 0.0
    x = np.ones((5, 3))
    for _ in range(3000):
        x *= (X / np.maximum(x @ A.T, 1e-300)) @ A / A.sum(axis=0)
    wanted = generator.random((5, 3)) < 0.8
    rise = np.array([3.0, 3.0, 6.0, 3.0, 1.0])
    found = upper_limits(sp.csr_array(X), x, A, wanted, rise, None)
    for row in range(5):
        for k in range(3):
            expected = 0.0
            if wanted[row, k]:
                expected = (
                    brute_force_limit(X, x, A, row, k, rise[row])
                    if row != 3
                    else rise[row] / A[:, k].sum()
                )
            assert found[row, k] == pytest.approx(expected, rel=1e-5), (row, k)


def test_limits_beyond_a_fall_of_the_cost() -> None:
    """At 0 the likelihood still rises with the component, as where a penalty holds it down."""
    A, x = np.array([[1.0, 3.0], [2.0, 0.5]]), np.array([[1.0, 0.0], [0.01, 0.0]])
    X = np.array([[1.0, 9.0], [40.0, 1.0]])
    found = upper_limits(sp.csr_array(X), x, A, x == 0.0, np.full(2, 3.0), None)
    for row in range(2):
        expected = brute_force_limit(X, x, A, row, 1, 3.0)
        assert found[row, 1] == pytest.approx(expected, rel=1e-5)
    assert found[:, 0].tolist() == [0.0, 0.0]


def test_nothing_limits_an_empty_component() -> None:
    A = np.array([[1.0, 0.0], [2.0, 0.0]])
    x, wanted = np.array([[1.0, 0.0]]), np.array([[False, True]])
    found = upper_limits(sp.csr_array([[1.0, 2.0]]), x, A, wanted, np.full(1, 3.0), None)
    assert found.tolist() == [[0.0, np.inf]]


def test_missing_cells_limit_nothing() -> None:
    A = np.array([[1.0, 1.0], [2.0, 5.0]])
    x, wanted = np.array([[1.0, 0.0]]), np.array([[False, True]])
    missing = sp.csr_array([[False, True]])
    found = upper_limits(sp.csr_array([[1.0, 0.0]]), x, A, wanted, np.full(1, 3.0), missing)
    expected = brute_force_limit(np.ones((1, 1)), x, A[:1], 0, 1, 3.0)
    assert found[0, 1] == pytest.approx(expected, rel=1e-5)


def test_intervals_keep_to_shares_and_contain_the_estimate() -> None:
    generator = np.random.default_rng(0)
    estimate = generator.dirichlet(np.full(6, 0.2), size=50)
    spread = SpreadOfRuns(estimate)
    for _ in range(20):
        runs = generator.dirichlet(np.full(6, 0.5), size=50)
        spread.add(0.8 * estimate + 0.2 * runs)
    room = generator.random((50, 6)) * 0.2
    given = generator.random((50, 6)) < 0.1
    found = share_intervals(spread, room, given, 0.95)
    assert found.lower.min() >= 0.0
    assert found.upper.max() <= 1.0
    assert np.all((found.lower <= estimate) & (estimate <= found.upper))
    np.testing.assert_array_equal(found.lower[given], estimate[given])
    np.testing.assert_array_equal(found.upper[given], estimate[given])
    np.testing.assert_allclose(found.bias, spread.mean - estimate)
