"""Simulated counts: the right mean, the right variance, and no dense matrix."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.stats import nbinom

import klnmf.simulate
from klnmf.simulate import SimulatedCounts, _poisson_counts, draw_counts, simulate_counts


def test_shapes_types_and_scaling_of_the_factors() -> None:
    totals = np.linspace(10.0, 300.0, 30)
    X, W, H = simulate_counts(30, 50, 4, counts_per_sample=totals, random_state=0)
    assert X.format == "csr"
    assert X.shape == (30, 50)
    assert X.dtype.kind == "i"
    assert X.has_canonical_format
    assert X.data.min() > 0
    assert W.shape == (30, 4)
    assert H.shape == (50, 4)
    assert H.flags.c_contiguous
    np.testing.assert_allclose(W.sum(axis=1), totals, rtol=1e-12)
    np.testing.assert_allclose(H.sum(axis=0), 1.0, rtol=1e-12)
    assert W.min() >= 0.0
    assert H.min() >= 0.0


def repeated_draws(n_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Many independent draws of X from one pair of factors, and the mean they should have."""
    generator = np.random.default_rng(7)
    W = generator.gamma(0.5, size=(6, 3)) * 4.0
    W[0] = 0.0
    W[2, 1] = 0.0
    H = generator.dirichlet(np.full(8, 0.7), size=3).T * [1.0, 0.3, 2.0]
    draws = np.stack([_poisson_counts(generator, W, H).toarray() for _ in range(n_draws)])
    return draws, W @ H.T


def test_entries_have_poisson_mean_variance_and_no_correlation() -> None:
    n_draws = 4000
    draws, mean = repeated_draws(n_draws)
    assert (draws[:, mean == 0.0] == 0).all()
    drawn, expected = draws[:, mean > 0.0], mean[mean > 0.0]
    # The average of N Poisson(µ) draws has standard error sqrt(µ / N). There are 40 entries, so
    # 4.5 standard errors are passed by chance with probability 40 · 7e-6 (and the seed is fixed).
    errors = (drawn.mean(axis=0) - expected) / np.sqrt(expected / n_draws)
    assert np.abs(errors).max() < 4.5
    # The sample variance has variance (µ + 2µ²) / N: the fourth central moment is µ + 3µ².
    variance_error = np.sqrt((expected + 2.0 * expected**2) / n_draws)
    assert (np.abs(drawn.var(axis=0) - expected) / variance_error).max() < 4.5
    # Independence: a correlation has standard error 1 / sqrt(N); 780 pairs, so 5 of them.
    frequent = drawn[:, expected > 0.05]
    correlation = np.corrcoef(frequent, rowvar=False) - np.eye(frequent.shape[1])
    assert np.abs(correlation).max() < 5.0 / np.sqrt(n_draws)


def test_batches_do_not_change_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(klnmf.simulate, "_MAX_DRAWS_AT_ONCE", 64)
    X, W, H = simulate_counts(20, 15, 2, counts_per_sample=500.0, random_state=3)
    mean = W @ H.T
    # Pearson's statistic over cells of mean >= 5 is chi-square with as many degrees of freedom,
    # d, up to small terms: mean d, standard deviation sqrt(2 d).
    cells = mean >= 5.0
    statistic = ((X.toarray()[cells] - mean[cells]) ** 2 / mean[cells]).sum()
    assert abs(statistic - cells.sum()) < 4.0 * np.sqrt(2.0 * cells.sum())
    assert abs(X.sum() - 10_000) < 4.0 * 100.0


def test_sparsity_gives_exact_zeros_but_no_empty_sample_or_component() -> None:
    _, W, H = simulate_counts(400, 300, 10, sparsity=0.7, random_state=1)
    # Binomial standard error of the share of zeros is about sqrt(0.21 / 4000) = 0.007; the kept
    # entry of each row lowers the share by 0.7 / 10 in W and by 0.7 / 300 in H.
    assert abs(np.mean(W == 0.0) - 0.63) < 0.03
    assert abs(np.mean(H == 0.0) - 0.698) < 0.035
    assert (W.sum(axis=1) > 0.0).all()
    assert (H.sum(axis=0) > 0.0).all()
    _, W, H = simulate_counts(50, 40, 3, random_state=1)
    assert (W > 0.0).all()


def test_a_tiny_concentration_does_not_underflow() -> None:
    _, W, H = simulate_counts(
        200, 100, 5, concentration_W=1e-4, concentration_H=1e-4, sparsity=0.5, random_state=0
    )
    np.testing.assert_allclose(W.sum(axis=1), 100.0)
    np.testing.assert_allclose(H.sum(axis=0), 1.0)


def test_concentration_of_the_dirichlet() -> None:
    # Var(p) = (1/r)(1 - 1/r) / (r a + 1) for a symmetric Dirichlet(a) of r entries.
    for concentration in (0.2, 3.0):
        _, W, _ = simulate_counts(
            20_000, 2, 4, counts_per_sample=1.0, concentration_W=concentration, random_state=5
        )
        expected = 0.25 * 0.75 / (4.0 * concentration + 1.0)
        np.testing.assert_allclose(W.var(axis=0), expected, rtol=0.04)


def equal(first: SimulatedCounts, second: SimulatedCounts) -> bool:
    same_factors = np.array_equal(first.W, second.W) and np.array_equal(first.H, second.H)
    return same_factors and (first.X != second.X).nnz == 0


def test_seeds() -> None:
    def draw(random_state: object) -> SimulatedCounts:
        return simulate_counts(20, 30, 3, random_state=random_state)  # type: ignore[arg-type]

    assert equal(draw(5), draw(5))
    assert equal(draw(5), draw(np.int64(5)))
    assert equal(draw(5), draw(np.random.default_rng(5)))
    assert not equal(draw(5), draw(6))
    assert not equal(draw(None), draw(None))
    legacy = np.random.RandomState(5)
    first, second = draw(legacy), draw(legacy)
    assert equal(first, draw(np.random.RandomState(5)))
    assert not equal(first, second)  # a RandomState moves on, as does a Generator
    with pytest.raises(ValueError, match="random_state must be None"):
        draw("seed")


def test_memory_stays_far_below_the_dense_matrix() -> None:
    tracemalloc.start()
    X, _, _ = simulate_counts(20_000, 20_000, 2, counts_per_sample=5.0, random_state=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert X.shape == (20_000, 20_000)
    # 100,000 events: some 10 MB with all temporaries; the dense matrix would be 3.2 GB.
    assert peak < 40e6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 0}, "n_samples must be a whole number of at least 1; got 0"),
        ({"n_components": 2.5}, "n_components must be a whole number"),
        ({"sparsity": 1.0}, r"sparsity must be in \[0, 1\); got 1.0"),
        ({"concentration_H": 0.0}, "concentration_H must be a positive number"),
        ({"counts_per_sample": [1.0, 2.0]}, r"one for each of the 5 samples; got shape \(2,\)"),
        ({"counts_per_sample": -1.0}, "nonnegative and finite"),
        ({"counts_per_sample": np.inf}, "nonnegative and finite"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"n_samples": 5, "n_features": 4, "n_components": 2} | arguments
    with pytest.raises(ValueError, match=message):
        simulate_counts(**given)  # type: ignore[arg-type]


def test_zero_expected_counts_give_an_empty_matrix() -> None:
    X, W, _ = simulate_counts(3, 4, 2, counts_per_sample=0.0, random_state=0)
    assert X.nnz == 0
    assert X.shape == (3, 4)
    assert (W == 0.0).all()


def test_draws_from_given_factors_are_those_of_the_planted_ones() -> None:
    generator = np.random.default_rng(3)
    W, H = generator.gamma(0.5, size=(6, 3)), generator.gamma(0.5, size=(8, 3))
    drawn = draw_counts(W, H.T, random_state=5)
    expected = _poisson_counts(np.random.default_rng(5), W, H)
    np.testing.assert_array_equal(drawn.toarray(), expected.toarray())
    assert draw_counts(np.zeros((2, 3)), H.T).nnz == 0


@pytest.mark.parametrize(
    ("W", "components", "message"),
    [
        ([1.0], [[1.0]], "W must have two dimensions"),
        ([[1.0]], [[-1.0]], "components must be nonnegative"),
        ([[np.inf]], [[1.0]], "W must be nonnegative and finite"),
        ([[1.0, 2.0]], [[1.0, 2.0]], r"one column per component \(1\); got shape \(1, 2\)"),
    ],
)
def test_wrong_factors_are_named(W: object, components: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_counts(W, components)  # type: ignore[arg-type]


# ---- more variance than Poisson ------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("mean", [0.05, 2.0, 40.0])
def test_dispersed_counts_have_the_negative_binomial_distribution(
    mean: float, alpha: float
) -> None:
    n = 40_000
    rows = np.full((n, 2), mean / 2)
    X = draw_counts(rows, [[1.0], [1.0]], random_state=0, dispersion=alpha).toarray().ravel()
    size = 1 / alpha
    expected = nbinom(size, size / (size + mean))
    assert X.mean() == pytest.approx(mean, abs=5 * expected.std() / n**0.5)
    for quantile in (0.1, 0.5, 0.9, 0.99):
        value = expected.ppf(quantile)
        assert np.mean(value >= X) == pytest.approx(expected.cdf(value), abs=0.012)


def test_dispersion_of_features_and_its_checks() -> None:
    alpha = np.array([0.0, 2.0])
    X = draw_counts(np.full((20_000, 1), 5.0), [[1.0, 1.0]], random_state=0, dispersion=alpha)
    variances = X.toarray().var(axis=0)
    assert variances == pytest.approx([5.0, 5.0 + 2.0 * 25.0], rel=0.05)
    for wrong, message in (([1.0], "shape"), (-1.0, "nonnegative"), (np.nan, "nonnegative")):
        with pytest.raises(ValueError, match=f"dispersion must .*{message}"):
            draw_counts([[1.0]], [[1.0, 1.0]], dispersion=wrong)
    plain = draw_counts([[9.0]], [[1.0, 1.0]], random_state=0)
    zero = draw_counts([[9.0]], [[1.0, 1.0]], random_state=0, dispersion=0.0)
    assert (plain != zero).nnz == 0
