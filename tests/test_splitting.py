"""Counts in two parts: independent ones, with which a model's own noise is not significant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.uncertainty import differential_features, dispersion, split_counts


def negative_binomial(rates: np.ndarray, alpha: Any, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    alpha = np.broadcast_to(alpha, rates.shape)
    return generator.poisson(rates * generator.gamma(1 / alpha, alpha))


def test_parts_sum_to_the_counts_and_depend_on_the_seed_alone() -> None:
    X = sp.csr_array(np.random.default_rng(0).poisson(3.0, size=(30, 20)))
    one, other = split_counts(X, 0.3, dispersion=0, random_state=0)
    np.testing.assert_array_equal((one + other).toarray(), X.toarray())
    assert one.data.min() > 0
    assert one.sum() / X.sum() == pytest.approx(0.3, abs=0.05)
    again, _ = split_counts(X.toarray(), 0.3, dispersion=0, random_state=0)
    np.testing.assert_array_equal(one.toarray(), again.toarray())
    assert (split_counts(X, 0.3, dispersion=0, random_state=1)[0] != one).nnz > 0


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_parts_are_independent_if_the_dispersion_is_right(share: float) -> None:
    alpha = np.repeat([0.2, 1.0], 50)
    X = negative_binomial(np.full((2000, 100), 20.0), alpha, 0)

    def mean_correlation(dispersion: Any) -> np.ndarray:
        parts = split_counts(X, share, dispersion=dispersion, random_state=0)
        one, other = (part.toarray() for part in parts)
        each = [np.corrcoef(one[:, j], other[:, j])[0, 1] for j in range(100)]
        return np.array([np.mean(each[:50]), np.mean(each[50:])])

    assert np.all(np.abs(mean_correlation(alpha)) < 0.02)
    assert np.all(mean_correlation(0.0) > 0.3)  # taken as Poisson counts: both have the excess
    one, _ = split_counts(X, share, dispersion=alpha, random_state=0)
    variances = one.toarray().var(axis=0)
    expected = 20 * share * (1 + alpha * 20)  # the same ratio of variance to rate
    np.testing.assert_allclose((variances / expected).reshape(2, 50).mean(axis=1), 1.0, atol=0.05)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_components_of_noise_are_not_confirmed_by_the_other_part(alpha: float) -> None:
    generator = np.random.default_rng(1)
    rates = np.tile(600 * generator.dirichlet(np.ones(100)), (200, 1))
    X = generator.poisson(rates) if alpha == 0 else negative_binomial(rates, alpha, 2)
    model = KLNMF(3, random_state=0).fit(X)
    variation = dispersion(model, X)
    both = differential_features(model, X, "others")
    assert np.nanmean(both.p_value < 0.05) > 0.1
    for_model, for_tests = split_counts(X, dispersion=variation, random_state=0)
    model = KLNMF(3, random_state=0).fit(for_model)
    found = differential_features(model, for_tests, "others", W=model.transform(for_model))
    assert np.sum(found.q_value <= 0.05) <= 2
    assert 0.02 < np.nanmean(found.p_value < 0.05) < 0.09


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.0}, "share must be between 0 and 1"),
        ({"dispersion": -1.0}, "dispersion must be nonnegative and finite"),
        ({"dispersion": [1.0, 2.0]}, "one for each of the 3 features; got shape"),
        ({"X": np.full((2, 3), 0.5)}, "only counts can be split"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_counts(**{"X": np.ones((2, 3)), "dispersion": 0, **options})
