"""Where a fit is not enough: tests of features with a posterior, and a bootstrap that says so."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from klnmf import KLNMF, RunOptions
from klnmf.uncertainty import Posterior, bootstrap, differential_features, posterior
from shared_backgrounds import with_background

pytestmark = pytest.mark.filterwarnings("ignore:The sweeps are too few")

X, _, TRUE = with_background(0)
QUIET = RunOptions(progress=False)


@pytest.fixture(scope="module", name="model")
def fitted_model() -> KLNMF:
    return KLNMF(3, random_state=0).fit(X, H=TRUE)


@pytest.fixture(scope="module", name="found")
def integrated(model: KLNMF) -> Posterior:
    return posterior(model, X, n_sweeps=150, random_state=0, n_threads=1)


# ---- tests of features ---------------------------------------------------------------------------


def test_covariances_are_those_of_the_draws(found: Posterior) -> None:
    S = found.covariances
    assert S is not None
    np.testing.assert_array_equal(S, S.transpose(0, 2, 1))
    diagonal = np.einsum("jkk->jk", S)
    np.testing.assert_allclose(diagonal, found.components.standard_error.T**2)
    # Samples mix the components, so what one of them gains another one loses.
    relative = S / np.sqrt(diagonal[:, :, np.newaxis] * diagonal[:, np.newaxis, :])
    assert np.abs(relative).max() <= 1.3
    assert np.median(relative[:, 0, 1]) < 0.0


@pytest.mark.parametrize("against", [0, "others", "nearest"])
def test_tests_are_those_of_the_moments(found: Posterior, against: Any) -> None:
    tests = differential_features(found, against=against)
    x, S, sizes = found.components.estimate.T, found.covariances, found.sizes.estimate[0]
    assert S is not None
    assert tests.is_integrated
    assert "the errors include the uncertainty of the components" in str(tests)
    for row, k in enumerate(tests.components):
        candidates = []
        others = [0] if against == 0 else [o for o in range(3) if o != k]
        weighted = [np.eye(3)[o] for o in others]
        if against == "others":
            weighted = [np.where(np.arange(3) == k, 0.0, sizes) / np.delete(sizes, k).sum()]
        for weights in weighted:
            g = np.eye(3)[k] - weights
            candidates.append(x @ g / np.sqrt(np.einsum("a,jab,b->j", g, S, g)))
        z = np.min(candidates, axis=0)
        np.testing.assert_allclose(tests.z[row], z, atol=1e-9)
        np.testing.assert_allclose(tests.p_value[row], norm.sf(z), rtol=1e-6)
        np.testing.assert_allclose(tests.share[row], x[:, k])
        if against == "nearest":
            assert {*tests.reference[row]} <= {*others}
    np.testing.assert_allclose(
        tests.log2_fold_change, np.log2(tests.share / tests.reference_share), rtol=1e-9
    )
    excludes = (tests.lower > 0.0) | (tests.upper < 0.0)
    np.testing.assert_array_equal(excludes, np.abs(tests.z) > norm.ppf(0.975))


def test_what_is_known_is_not_compared(model: KLNMF) -> None:
    known = model.components_[:2]
    partial = KLNMF(3, fixed_components=known, random_state=0).fit(X)
    found = posterior(partial, X, n_sweeps=60, random_state=0)
    tests = differential_features(found, against=0)
    assert np.isnan(tests.z[0]).all()  # component 1 is fixed, as is component 0
    assert (tests.reference[0] == -1).all()
    assert np.isfinite(tests.z[1]).all()


def test_counts_beside_a_posterior_are_refused(found: Posterior) -> None:
    with pytest.raises(ValueError, match="does not take X beside a Posterior"):
        differential_features(found, X)
    with pytest.raises(ValueError, match="does not take exposure beside a Posterior"):
        differential_features(found, exposure=np.ones(600))
    with pytest.raises(ValueError, match=r"no covariances, because 60 features × 3²"):
        differential_features(replace(found, covariances=None))


def test_many_entries_have_no_covariances(model: KLNMF, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klnmf.uncertainty.posterior_chain.MOST_PRODUCTS", 60 * 9 - 1)
    assert posterior(model, X, n_sweeps=30, random_state=0).covariances is None


@pytest.mark.slow
def test_equal_shares_are_rejected_more_often_by_a_fit() -> None:
    rates = []
    for seed in range(6):
        counts, _, H = with_background(seed, n=1500)
        start = KLNMF(3, random_state=0).fit(counts, H=H)
        found = posterior(start, counts, noise="poisson", random_state=seed, run=QUIET)
        options: dict[str, Any] = {"components": [1], "alternative": "two-sided"}
        both = (
            differential_features(start, counts, 0, **options),
            differential_features(found, None, 0, **options),
        )
        rates.append([np.mean(one.p_value[0, :15] < 0.05) for one in both])
    fitted, sampled = np.mean(rates, axis=0)
    assert fitted > 0.2
    assert sampled < 0.1  # 6 % of 90 tests where 5 % are meant


# ---- intervals that cannot be trusted ------------------------------------------------------------


def test_a_bootstrap_says_when_it_cannot_be_trusted(model: KLNMF) -> None:
    with pytest.warns(UserWarning, match=r"too short.*Use klnmf\.uncertainty\.posterior\(model, X"):
        found = bootstrap(model, X, 20, random_state=0, n_jobs=1)
    assert found.shift >= 0.36
    assert found.warning is not None
    assert found.warning in " ".join(str(found).split())


def test_a_bootstrap_of_distinct_components_is_trusted() -> None:
    counts, _, H = with_background(0, n=300, background=0.0)
    model = KLNMF(3, random_state=0).fit(counts, H=H)
    found = bootstrap(model, counts, 20, random_state=0, n_jobs=1)  # a warning would be an error
    assert 0.0 < found.shift < 0.3
    assert found.warning is None
    again = bootstrap(model, counts, 20, random_state=0, n_jobs=3)
    assert again.shift == found.shift


def test_it_does_not_judge_what_it_does_not_know(
    model: KLNMF, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klnmf.uncertainty.bootstrap_trust.MOST_CELLS", 600 * 60 - 1)
    generator = np.random.default_rng(0)
    varied = generator.poisson(X * generator.gamma(1.0, size=X.shape))
    spread = KLNMF(3, random_state=0).fit(varied)
    weight = np.ones(600)
    weighted = KLNMF(3, random_state=0).fit(X, H=TRUE, sample_weight=weight)
    penalised = KLNMF(3, l1_W=0.1, l1_H=0.1, random_state=0).fit(X, H=TRUE)
    for found in (
        bootstrap(weighted, X, 20, random_state=0, sample_weight=weight),
        bootstrap(penalised, X, 20, random_state=0),
        bootstrap(model, X, 10, random_state=0),
        bootstrap(spread, varied, 20, random_state=0, noise="estimated"),
    ):
        assert math.isnan(found.shift)
        assert found.warning is None
