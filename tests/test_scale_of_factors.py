"""The scale and the order of components: sums of 1, W in counts, the largest first."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, ManyComponentsWarning, MiniBatchKLNMF
from klnmf.simulate import simulate_counts

COUNTS = sp.csr_array(simulate_counts(80, 50, 4, counts_per_sample=200, random_state=3).X)


def model(**parameters: object) -> KLNMF:
    return KLNMF(**{"n_components": 4, "random_state": 0, **parameters})


@pytest.mark.parametrize("solver", ["srcd", "mu", "bmme", "ccd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_components_sum_to_one_and_w_counts(solver: str, dtype: type) -> None:
    fitted = model(solver=solver, dtype=dtype, max_iter=2000)
    W = fitted.fit_transform(COUNTS)
    np.testing.assert_allclose(fitted.components_.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(W.sum(axis=1), COUNTS.sum(axis=1), rtol=1e-4)
    assert (np.diff(W.sum(axis=0)) <= 0).all()
    np.testing.assert_allclose(fitted.transform(COUNTS), W, atol=0.02 * W.max())


def test_the_main_component_is_the_largest_entry_of_w() -> None:
    fitted = model()
    W = fitted.fit_transform(COUNTS)
    shares = fitted.proportions(W)
    np.testing.assert_array_equal(W.argmax(axis=1), shares.argmax(axis=1))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(fitted.proportions(sp.csr_array(W)), shares)


def test_proportions_count_the_scale_of_components() -> None:
    given = KLNMF.from_components([[2.0, 0.0], [0.0, 6.0]])
    W = [[3.0, 1.0], [0.0, 0.0]]
    assert given.proportions(W).tolist() == [[0.5, 0.5], [0.0, 0.0]]
    with pytest.raises(ValueError, match=r"W must have shape \(n_samples, 2\)"):
        given.proportions([[1.0, 2.0, 3.0]])


def test_penalties_keep_the_scale_but_not_the_order() -> None:
    fitted = model(l1_W=0.5, l1_H=2.0)
    W = fitted.fit_transform(COUNTS)
    sums = fitted.components_.sum(axis=1)
    assert not np.allclose(sums, 1.0, rtol=0.01)
    # The best scale of every component balances its two penalties.
    np.testing.assert_allclose(0.5 * W.sum(axis=0), 2.0 * sums, rtol=0.05)
    assert (np.diff(W.sum(axis=0) * sums) <= 0).all()


def test_a_given_start_keeps_its_order() -> None:
    first = model().fit(COUNTS)
    turned = first.components_[::-1]
    again = model().fit(COUNTS, H=turned)
    np.testing.assert_allclose(again.components_, turned, atol=0.01)
    np.testing.assert_allclose(again.components_.sum(axis=1), 1.0, rtol=1e-5)


def test_fixed_components_keep_scale_and_place() -> None:
    small = 7.0 * model().fit(COUNTS).components_[[-1]]
    fitted = model(fixed_components=small)
    W = fitted.fit_transform(COUNTS)
    np.testing.assert_array_equal(fitted.components_[:1], small.astype(fitted.components_.dtype))
    np.testing.assert_allclose(fitted.components_[1:].sum(axis=1), 1.0, rtol=1e-5)
    assert (np.diff(W[:, 1:].sum(axis=0)) <= 0).all()  # the others come largest first
    assert W[:, 0].sum() * 7.0 == pytest.approx(W[:, 1:].sum(axis=0).min(), rel=0.5)


def test_fixed_columns_of_w_stay_and_their_components_keep_the_scale() -> None:
    column = np.linspace(0.5, 1.5, 80)[:, None]
    fitted = model()
    W = fitted.fit_transform(COUNTS, fixed_W=column)
    np.testing.assert_allclose(W[:, -1:], column, rtol=1e-6)
    np.testing.assert_allclose(fitted.components_[:-1].sum(axis=1), 1.0, rtol=1e-5)
    assert (np.diff(W[:, :-1].sum(axis=0)) <= 0).all()
    rates = W @ fitted.components_
    np.testing.assert_allclose(rates.sum(), COUNTS.sum(), rtol=1e-4)


def test_zeros_keep_their_components() -> None:
    zeros = np.zeros((4, 50), bool)
    zeros[0, 10:] = True  # the first component has the first ten features alone
    fitted = model(zero_components=zeros).fit(COUNTS)
    assert (fitted.components_[0, 10:] == 0).all()
    assert (fitted.components_[1:, 10:] > 0).any()


def test_weights_and_exposures_leave_sums_of_one() -> None:
    weight = np.linspace(0.2, 3.0, 50)
    exposure = np.linspace(1.0, 4.0, 80)
    fitted = model(feature_weight=weight)
    W = fitted.fit_transform(COUNTS, exposure=exposure, sample_weight=exposure[::-1])
    np.testing.assert_allclose(fitted.components_.sum(axis=1), 1.0, rtol=1e-5)
    weighted = (exposure[:, None] * (W @ fitted.components_)) @ weight
    np.testing.assert_allclose(weighted, COUNTS @ weight, rtol=1e-3)


def test_empty_components_stay_empty() -> None:
    X = np.array([[4.0, 0.0], [2.0, 0.0], [6.0, 0.0]])
    with pytest.warns(ManyComponentsWarning):
        fitted = KLNMF(3, random_state=0).fit(X)
    assert np.isfinite(fitted.components_).all()
    assert np.isin(fitted.components_.sum(axis=1).round(6), (0.0, 1.0)).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_that_continues_is_sorted_as_one_that_never_stopped() -> None:
    whole = model(max_iter=10, tol=0)
    W = whole.fit_transform(COUNTS)
    parts = model(max_iter=5, tol=0, warm_start=True).fit(COUNTS)
    np.testing.assert_array_equal(parts.fit_transform(COUNTS), W)
    np.testing.assert_array_equal(parts.components_, whole.components_)


def test_clusters_return_the_same() -> None:
    W = model().fit_transform(COUNTS)
    blocks = da.from_array(COUNTS.toarray(), chunks=(40, 50))
    fitted = model(backend="dask", n_threads=1)
    np.testing.assert_array_equal(np.asarray(fitted.fit_transform(blocks)), W)


def test_streams_sum_to_one_too() -> None:
    fitted = MiniBatchKLNMF(4, random_state=0).fit(COUNTS)
    np.testing.assert_allclose(fitted.components_.sum(axis=1), 1.0, rtol=1e-5)
