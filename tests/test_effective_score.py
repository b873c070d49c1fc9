"""The effective score: what it is, and that it holds for rare and overdispersed counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import gamma, norm

from klnmf import KLNMF
from klnmf.uncertainty import differential_features, effective_score
from klnmf.uncertainty.effective_score import EffectiveScore, effective_scores
from klnmf.uncertainty.feature_regressions import Regressions


def noisy(rates: np.ndarray, alpha: float, generator: np.random.Generator) -> np.ndarray:
    if alpha == 0.0:
        return generator.poisson(rates)
    return generator.poisson(rates * generator.gamma(1 / alpha, alpha, rates.shape))


def example(alpha: float = 0.4) -> tuple[Regressions, np.ndarray, np.ndarray]:
    """Regressions, estimates with x_0 = x_2, and dispersions."""
    generator = np.random.default_rng(0)
    L = generator.gamma(0.5, 20.0, size=(50, 3)) + 0.1
    x = generator.gamma(1.0, size=(7, 3))
    x[:, 0] = x[:, 2]
    counts = noisy(x @ L.T, alpha, generator)
    return Regressions(sp.csr_array(counts.astype(float)), L, 1), x, np.linspace(0, 1, 7)


def by_projection(v: np.ndarray, L: np.ndarray, x: np.ndarray, w: np.ndarray, alpha: float) -> Any:
    """z and skewness: the score of x_0 − x_2 less its projection on those of x_1 and x_2."""
    y = L @ x
    V = y + alpha * y**2
    others = np.column_stack([L[:, 1], L[:, 0] + L[:, 2]])  # x_0 = x_2
    slopes, *_ = np.linalg.lstsq(np.sqrt(w / V)[:, None] * others, np.sqrt(w / V) * L[:, 0])
    c = (L[:, 0] - others @ slopes) * w / V
    third = V * (1 + 2 * alpha * y)
    spread = np.sqrt(c**2 @ V)
    return c @ (v - y) / spread, c**3 @ third / spread**3


@pytest.mark.parametrize("samples_at_once", [7, 1 << 12])
def test_score_less_its_projection(monkeypatch: pytest.MonkeyPatch, samples_at_once: int) -> None:
    monkeypatch.setattr(effective_score, "_SAMPLES_AT_ONCE", samples_at_once)
    regressions, x, alpha = example()
    found = effective_scores(regressions, x, np.array([1.0, 0.0, -1.0]), alpha)
    counts = regressions.counts.toarray()
    for j in range(7):
        z, skewness = by_projection(counts[j], regressions.L, x[j], np.ones(50), alpha[j])
        assert found.z[j] == pytest.approx(z, abs=1e-6)
        assert found.skewness[j] == pytest.approx(skewness, abs=1e-6)


def test_weights_and_missing_cells() -> None:
    regressions, x, alpha = example()
    weight = np.linspace(0.2, 3.0, 50)
    missing = sp.csr_array(np.arange(350).reshape(7, 50) % 11 == 3)
    counts = np.where(missing.toarray(), 0, regressions.counts.toarray())
    part = Regressions(sp.csr_array(counts), regressions.L, 1, weight, missing)
    found = effective_scores(part, x, np.array([1.0, 0.0, -1.0]), alpha)
    for j in range(7):
        seen = ~missing.toarray()[j]
        z, skewness = by_projection(
            counts[j, seen], regressions.L[seen], x[j], weight[seen], alpha[j]
        )
        assert found.z[j] == pytest.approx(z, abs=1e-6)
        assert found.skewness[j] == pytest.approx(skewness, abs=1e-6)


def test_skewness_is_taken_out_as_of_a_gamma_variable() -> None:
    z = np.array([-0.9, 0.5, 2.0, 4.0])
    for shape in (1.0, 9.0, 1e4):
        score = EffectiveScore(z, np.full(4, 2 / np.sqrt(shape)))
        expected = gamma.sf(shape + z * np.sqrt(shape), shape)
        np.testing.assert_allclose(norm.sf(score.normal()), expected, rtol=1e-9)
        np.testing.assert_allclose(norm.cdf(score.normal()), 1 - expected, rtol=1e-6)
        mirrored = EffectiveScore(-z, -score.skewness)
        np.testing.assert_allclose(mirrored.normal(), -score.normal(), rtol=1e-12)
    np.testing.assert_array_equal(EffectiveScore(z, 0 * z).normal(), z)
    far = EffectiveScore(np.array([900.0, -900.0]), np.full(2, 0.1)).normal()
    assert far.tolist() == [900.0, -900.0]  # tails below the smallest number


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effective_score, "_RATES_AT_ONCE", 100)  # two features at a time
    generator = np.random.default_rng(0)
    rates = generator.dirichlet(np.full(3, 0.5), 60) * 200 @ generator.dirichlet(np.ones(30), 3)
    X = noisy(rates, 0.3, generator)
    model = KLNMF(3, random_state=0).fit(X)
    one, other = (differential_features(model, X, n_threads=n) for n in (1, 3))
    np.testing.assert_array_equal(one.p_value, other.p_value)
    np.testing.assert_array_equal(one.lower, other.lower)


def test_what_the_samples_do_not_determine_is_not_significant() -> None:
    generator = np.random.default_rng(0)
    column = generator.gamma(1.0, 50.0, size=(40, 1))
    L = np.hstack([column, generator.gamma(1.0, 50.0, size=(40, 1)), column])
    counts = sp.csr_array(generator.poisson(0.1 * L.sum(axis=1), size=(20, 40)).astype(float))
    x = np.full((20, 3), 0.1)
    alike = effective_scores(Regressions(counts, L, 1), x, np.array([1.0, 0.0, -1.0]), np.zeros(20))
    assert np.all(np.abs(alike.z) < 0.1)


def boundary_design(kind: str, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Amounts, and shares with x_0 = x_1 and other components without the feature."""
    if kind == "a component without the feature goes with the tested one":
        g = generator.gamma(0.5, size=(200, 3))
        g[:, 2] = g[:, 0] * generator.gamma(2.0, 0.5, 200) + 0.05 * g[:, 2]
        return 1000 * g / g.sum(axis=1, keepdims=True), np.array([1.0, 1.0, 0.0])
    L = generator.dirichlet([0.05, 1.0, 0.5, 0.5, 0.5], 200) * 1000  # a small component
    return L, np.array([1.0, 1.0, 0.0, 0.0, 3.0])


@pytest.mark.parametrize(
    "kind", ["a component without the feature goes with the tested one", "a small component"]
)
@pytest.mark.parametrize(("alpha", "counts"), [(0.0, 30), (0.0, 3000), (0.5, 300), (0.5, 3000)])
def test_one_sided_tests_hold_on_both_sides(kind: str, alpha: float, counts: int) -> None:
    """With W known; a likelihood ratio has 2 % on one side and 8 % on the other at 30 counts."""
    generator = np.random.default_rng(5)
    L, shares = boundary_design(kind, generator)
    x = shares * counts / (L @ shares).sum()
    X = noisy(np.outer(L @ x, np.ones(1500)), alpha, generator)
    X = X[:, X.sum(axis=0) > 0]
    model = KLNMF.from_components(np.full((L.shape[1], X.shape[1]), 1 / X.shape[1]))
    found = differential_features(model, X, 1, components=[0], W=L)
    p = found.p_value[0]
    assert 0.025 < np.mean(p < 0.05) < 0.075
    assert np.mean(p < 0.01) < 0.02
    assert np.mean(p > 0.95) < 0.075
    assert np.mean(p > 0.99) < 0.02
    if counts >= 300:
        assert np.mean(p > 0.95) > 0.025
