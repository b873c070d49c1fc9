"""The dispersion of counts around a model, against planted values and dense sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.overdispersed import draw, noisy

from klnmf import KLNMF, MiniBatchKLNMF
from klnmf.uncertainty import dispersion
from klnmf.uncertainty.residual_moments import FittedRates, residual_sums

PLANTED = draw(120, 40, 3, 300, "broad", size=2.0, seed=0)
X = PLANTED.X


def fitted(counts: Any, rank: int = 3, **given: Any) -> KLNMF:
    return KLNMF(rank, random_state=0, n_threads=1, max_iter=500).fit(counts, **given)


@pytest.mark.parametrize(
    ("n", "m", "rank", "counts"),
    [(400, 300, 3, 50), (400, 300, 7, 300), (250, 96, 4, 1500), (250, 96, 4, 3000)],
)
@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0])
def test_planted_values_are_found(n: int, m: int, rank: int, counts: int, alpha: float) -> None:
    planted = draw(n, m, rank, counts, "broad", size=1 / alpha, seed=1)
    found = dispersion(fitted(planted.X, rank), planted.X)
    assert found.common == pytest.approx(alpha, rel=0.1, abs=3 * found.standard_error)
    np.testing.assert_allclose(np.median(found.by_feature), alpha, rtol=0.2, atol=0.05)


@pytest.mark.parametrize(("counts", "rank"), [(50, 3), (300, 7), (3000, 4)])
def test_poisson_counts_have_none(counts: int, rank: int) -> None:
    planted = draw(250, 96, rank, counts, "broad", seed=2)
    found = dispersion(fitted(planted.X, rank), planted.X)
    assert found.is_poisson
    assert found.factor == 1.0
    assert not found.by_feature.any()
    assert (
        str(found) == "The counts do not clearly vary more around the model than Poisson counts do."
    )


def test_features_differ() -> None:
    planted = draw(300, 60, 3, 1500, "broad", seed=3)
    alpha = np.where(np.arange(60) < 30, 0.1, 1.0)
    generator = np.random.default_rng(0)
    rates = planted.W @ planted.H.T * generator.gamma(1 / alpha, alpha, (300, 60))
    counts = generator.poisson(rates)
    found = dispersion(fitted(counts), counts).by_feature
    often = planted.H.max(axis=1) > 0.01
    assert found[:30][often[:30]] == pytest.approx(0.1, abs=0.1)
    assert found[30:][often[30:]] == pytest.approx(1.0, abs=0.6)


def test_it_is_said_in_words() -> None:
    found = dispersion(fitted(X), X)
    assert 0.4 < found.common < 0.6
    rates = PLANTED.W @ PLANTED.H.T
    expected = np.sum(rates * (1 + 0.5 * rates)) / rates.sum()
    assert found.factor == pytest.approx(expected, rel=0.15)
    assert f"the variance y + {found.common:.2g} y²" in str(found)
    assert f"that is {found.factor:.3g} times the Poisson variance" in str(found)
    assert "that is 1.01 times the Poisson variance" in str(replace(found, factor=1.014))
    of_amounts = str(replace(found, factor=275069.3))
    assert "more than 100 times the Poisson variance: these are amounts" in of_amounts


@pytest.mark.parametrize("with_weights", [False, True])
def test_sums_over_the_nonzeros_are_those_over_all_cells(with_weights: bool) -> None:
    """The formulas of the module, cell by cell."""
    generator = np.random.default_rng(0)
    n, m, r = 12, 9, 3
    W, H = generator.gamma(1.0, 2.0, (n, r)), generator.gamma(1.0, 1.0, (m, r))
    W[0, 1] = H[2, 0] = 0.0
    x, a = generator.poisson(W @ H.T), generator.random(n)
    w, v = generator.random(n) + 0.5, generator.random(m) + 0.5
    free_H = np.array([False, True, True])
    rates = FittedRates(sp.csr_array(x), W, H, is_free=(None, free_H))
    if with_weights:
        rates = FittedRates(sp.csr_array(x), W, H, (w, v), (None, free_H))
    else:
        w, v = np.ones(n), np.ones(m)
    y = W @ H.T
    expected = {"excess": (x - y) ** 2 - x, "squares": y**2}
    expected |= {name: np.zeros((n, m)) for name in ("lost", "crossed", "spread", "inflated")}
    for factor, other, weights, counts, free in (
        (W, H, v, x, np.ones(r, bool)),
        (H, W, w, x.T, free_H),
    ):
        for i in range(len(factor)):
            D = np.diag(factor[i] * free)
            rate = other @ factor[i]
            J = (other.T * (weights * counts[i] / rate**2)) @ other
            M = D @ np.linalg.inv(D @ J @ D + 0.1 * np.eye(r)) @ D
            between = (other.T * (weights**2 * counts[i] / rate**2)) @ other
            q = np.einsum("jk,kl,jl->j", other, M, other)
            u = np.einsum("jk,kl,jl->j", other, M @ between @ M, other)
            g = np.einsum("jk,kl,jl->j", other, M @ (other.T * weights**2) @ other @ M, other)
            cells = (i, slice(None)) if factor is W else (slice(None), i)
            expected["lost"][cells] += 2 * weights * q - u
            expected["crossed"][cells] += 2 * weights * rate * q
            expected["spread"][cells] += g
            expected["inflated"][cells] += u
    found = residual_sums(rates, a)
    for name, cells in expected.items():
        np.testing.assert_allclose(getattr(found, name), a @ cells, rtol=1e-9, err_msg=name)


def test_constraints_of_the_fit_are_taken_into_account() -> None:
    generator = np.random.default_rng(1)
    weights, exposure = generator.uniform(0.2, 2.0, 120), generator.uniform(1, 5, 120)
    missing = generator.random(X.shape) < 0.1
    with_gaps = np.where(missing, 999, X)
    for counts, given in (
        (X, {"sample_weight": weights}),
        (X, {"exposure": exposure}),
        (with_gaps, {"missing": missing}),
        (X, {"fixed_W": PLANTED.W[:, [1]]}),
    ):
        found = dispersion(fitted(counts, **given), counts, **given)
        assert found.common == pytest.approx(0.5, rel=0.15), given
    signatures = KLNMF(3, fixed_components=PLANTED.H.T[:2], random_state=0, n_threads=1).fit(X)
    assert dispersion(signatures, X).common == pytest.approx(0.5, rel=0.15)
    weighted = KLNMF(3, feature_weight=np.linspace(0.5, 2, 40), random_state=0, n_threads=1)
    assert dispersion(weighted.fit(X), X).common == pytest.approx(0.5, rel=0.15)


def test_samples_with_many_counts_do_not_decide() -> None:
    """A few hypermutated samples with a noise of their own."""
    generator = np.random.default_rng(0)
    planted = draw(300, 50, 3, 300, "broad", size=5.0, seed=4)
    heavy = noisy(200 * planted.W[:6] @ planted.H.T, generator, size=1.0)
    counts = np.vstack([planted.X, heavy])
    weights = 1.0 / counts.sum(axis=1)
    model = fitted(counts, sample_weight=weights)
    assert dispersion(model, counts, sample_weight=weights).common == pytest.approx(0.2, rel=0.3)


def test_constraints_must_be_those_of_the_fit() -> None:
    weights = np.linspace(0.5, 2, 120)
    model = fitted(X, sample_weight=weights)
    with pytest.raises(ValueError, match=r"same again: dispersion\(model, X, sample_weight=...\)"):
        dispersion(model, X)
    with pytest.raises(ValueError, match="with sample_weight, is not the data"):
        dispersion(model, X, sample_weight=weights[::-1])
    with pytest.raises(ValueError, match="was fitted without exposure"):
        dispersion(fitted(X), X, exposure=weights)
    with pytest.raises(TypeError, match="dispersion does not take the argument 'samples'"):
        dispersion(fitted(X), X, samples=[1])
    with pytest.raises(ValueError, match="not whole numbers"):
        dispersion(fitted(0.5 * X), 0.5 * X)


def test_streams_and_empty_data() -> None:
    stream = MiniBatchKLNMF(3, random_state=0, n_threads=1).fit(X)
    assert dispersion(stream, X).common > 0.3
    nothing = sp.csr_array((4, 30))
    assert dispersion(fitted(nothing, 2), nothing).is_poisson
