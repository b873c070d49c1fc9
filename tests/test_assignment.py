"""Sparse assignment: components are taken away from a sample as long as the likelihood allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import xlogy
from scipy.stats import chi2

from klnmf import KLNMF
from klnmf.uncertainty import dispersion, sparse_assignment
from klnmf.uncertainty.assignment import _variance_factors
from klnmf.uncertainty.data_of_fit import data_of_any
from klnmf.uncertainty.overdispersion import estimated_dispersion

R = 10


def simulated(
    n: int, total: float, *, dispersion: float = 0.0, seed: int = 0
) -> tuple[Any, Any, Any]:
    """Counts of samples with 1 to 5 of ten signatures, their amounts, and the signatures."""
    generator = np.random.default_rng(seed)
    spread = np.where(np.arange(R) < 7, 0.15, 1.0)
    signatures = np.array([generator.dirichlet(np.full(96, s)) for s in spread])
    W = np.zeros((n, R))
    for i in range(n):
        active = generator.choice(R, generator.integers(1, 6), replace=False)
        W[i, active] = total * generator.dirichlet(np.full(len(active), 1.5))
    rates = W @ signatures
    if dispersion:
        rates *= generator.gamma(1 / dispersion, dispersion, rates.shape)
    return generator.poisson(rates), W, signatures


def test_it_is_backward_elimination_by_likelihood_ratios() -> None:
    X, _, signatures = simulated(25, 300.0)
    model = KLNMF.from_components(signatures, dtype=np.float64)
    found = sparse_assignment(model, X, level=0.9, noise="poisson")
    assert isinstance(found, sp.csr_array)
    critical = chi2.isf(2 * 0.1 / R, 1)
    for i, x in enumerate(X):
        there = model.transform(x[None])[0] > 0
        while True:
            trials = {}
            for k in [None, *np.flatnonzero(there)]:
                allowed = there & (np.arange(R) != k)
                w = model.transform(x[None], zero_W=~allowed[None])[0]
                y = w @ signatures
                trials[k] = float(xlogy(x, y).sum() - y.sum()), w
            best = max((k for k in trials if k is not None), key=lambda k: trials[k][0])
            if 2 * (trials[None][0] - trials[best][0]) >= critical:
                break
            there = trials[best][1] > 0
        np.testing.assert_array_equal(found[[i]].toarray()[0] > 0, there)
        np.testing.assert_allclose(found[[i]].toarray()[0], trials[None][1], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("total", "dispersion"), [(100.0, 0.0), (1000.0, 0.0), (1000.0, 0.1)])
def test_few_samples_get_more_components_than_they_have(total: float, dispersion: float) -> None:
    X, W, signatures = simulated(500, total, dispersion=dispersion)
    model = KLNMF.from_components(signatures)
    found = sparse_assignment(model, X).toarray() > 0
    number, most_likely = found.sum(axis=1), (model.transform(X) > 0).sum(axis=1)
    true_number = (W > 0).sum(axis=1)
    assert np.mean(number > true_number) < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 500)
    assert np.mean(most_likely > true_number) > 0.7
    is_large = total / 5 < W
    assert found[is_large].mean() > (0.9 if total < 500 else 0.99)


def test_counts_that_vary_more_need_more_evidence() -> None:
    X, W, signatures = simulated(300, 5000.0, dispersion=0.1)
    model = KLNMF.from_components(signatures)
    wrong = [
        ((sparse_assignment(model, X, noise=noise) > 0).toarray() & (W == 0)).any(axis=1).mean()
        for noise in ("estimated", "poisson")
    ]
    assert wrong[0] < 0.06
    assert wrong[1] > 2 * wrong[0]


def test_the_variance_factors_are_those_of_the_amounts() -> None:
    # Against the scatter of the amounts over many samples of the same rates.
    generator = np.random.default_rng(0)
    signatures = generator.dirichlet(np.full(96, 0.5), size=3)
    rates = np.array([400.0, 300.0, 500.0]) @ signatures
    X = generator.poisson(rates * generator.gamma(1 / 0.2, 0.2, (3000, 96)))
    model = KLNMF.from_components(signatures, dtype=np.float64)
    factors = _variance_factors(data_of_any(model, X, {}, "test"))
    as_poisson = np.linalg.inv((signatures / rates) @ signatures.T)
    expected = model.transform(X).var(axis=0) / np.diag(as_poisson)
    assert (expected > 2).all()
    np.testing.assert_allclose(np.median(factors, axis=0), expected, rtol=0.15)


def test_components_count_as_estimated_only_from_their_own_counts() -> None:
    X, _, _ = simulated(40, 300.0, dispersion=0.1)
    weights = np.linspace(0.5, 1.0, 40)
    model = KLNMF(4, random_state=0).fit(X, sample_weight=weights)
    own = data_of_any(model, X, {"sample_weight": weights}, "test")
    assert not own.has_known_H
    assert data_of_any(model, X, {}, "test").has_known_H
    assert data_of_any(KLNMF.from_components(model.components_), X, {}, "test").has_known_H
    found = estimated_dispersion(own.fitted_rates)
    assert found.common == dispersion(model, X, sample_weight=weights).common


def test_constraints_on_the_samples() -> None:
    X, W, signatures = simulated(60, 1000.0)
    model = KLNMF.from_components(signatures)
    plain = sparse_assignment(model, X).toarray()
    exposed = sparse_assignment(model, X, exposure=np.full(60, 0.5)).toarray()
    np.testing.assert_allclose(exposed, 2 * plain, rtol=1e-3, atol=1e-2)
    barred = np.zeros(W.shape, dtype=bool)
    barred[:, 0] = True
    assert not sparse_assignment(model, X, zero_W=barred)[:, [0]].nnz
    missing = np.zeros(X.shape, dtype=bool)
    missing[:, 48:] = True
    halved = sparse_assignment(model, np.where(missing, 0, X), missing=missing, noise="poisson")
    half = KLNMF.from_components(signatures[:, :48])
    expected = sparse_assignment(half, X[:, :48], noise="poisson")
    np.testing.assert_allclose(halved.toarray(), expected.toarray(), rtol=1e-3, atol=1e-2)


def test_fixed_columns_are_kept() -> None:
    X, _, _ = simulated(60, 300.0)
    fixed = np.full((60, 1), 1e-3)
    model = KLNMF(4, random_state=0).fit(X, fixed_W=fixed)
    found = sparse_assignment(model, X, fixed_W=fixed).toarray()
    np.testing.assert_allclose(found[:, 3], 1e-3)
    with pytest.raises(ValueError, match="fixed_W had 1 columns in fit"):
        sparse_assignment(model, X)


def test_samples_without_counts_and_counts_without_components() -> None:
    signatures = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0]])
    model = KLNMF.from_components(signatures)
    X = np.array([[0, 0, 0, 0], [40, 40, 0, 3], [0, 0, 0, 2], [40, 41, 1, 0]])
    found = sparse_assignment(model, X, noise="poisson").toarray()
    # The last sample has a count that only the second component explains.
    np.testing.assert_array_equal(found > 0, [[0, 0], [1, 0], [0, 0], [1, 1]])


def test_the_result_does_not_depend_on_threads_or_on_the_size_of_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, _, signatures = simulated(80, 300.0)
    one, two = (KLNMF.from_components(signatures, n_threads=n) for n in (1, 2))
    expected = sparse_assignment(one, X).toarray()
    np.testing.assert_array_equal(sparse_assignment(two, X).toarray(), expected)
    monkeypatch.setattr("klnmf.uncertainty.assignment._NONZEROS_AT_ONCE", 500)
    np.testing.assert_array_equal(sparse_assignment(one, X).toarray(), expected)


def test_what_has_no_likelihood_is_refused() -> None:
    X, _, signatures = simulated(30, 300.0)
    model = KLNMF.from_components(signatures)
    penalised = KLNMF(3, l1_W=0.1, l1_H=0.1, random_state=0).fit(X)
    weighted = KLNMF(3, feature_weight=np.linspace(0.5, 1, 96), random_state=0).fit(X)
    for without in (penalised, weighted):
        with pytest.raises(ValueError, match=r"KLNMF\.from_components"):
            sparse_assignment(without, X)
    with pytest.raises(ValueError, match="not whole numbers"):
        sparse_assignment(model, X + 0.5)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        sparse_assignment(model, X, level=95)
    with pytest.raises(ValueError, match="noise"):
        sparse_assignment(model, X, noise="normal")  # type: ignore[arg-type]
