"""Learning batch by batch: what it reaches, what it promises, and streams that are not nice."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, ManyComponentsWarning, MiniBatchKLNMF
from klnmf.data.validation import check_counts
from klnmf.objective import kl_divergence
from klnmf.simulate import simulate_counts
from klnmf.solvers import online


@pytest.fixture(scope="module")
def counts() -> sp.csr_array:
    return check_counts(simulate_counts(1200, 300, 4, random_state=0).X)


def one_thread(n_components: int = 4, **parameters: Any) -> MiniBatchKLNMF:
    return MiniBatchKLNMF(n_components, n_threads=1, **parameters)


def pieces(X: sp.csr_array, size: int) -> list[sp.csr_array]:
    return [X[start : start + size] for start in range(0, X.shape[0], size)]


def divergence(model: KLNMF | MiniBatchKLNMF, X: sp.csr_array) -> float:
    H = model.components_
    H = H.toarray() if sp.issparse(H) else H
    W = model.transform(X)
    W = W.toarray() if sp.issparse(W) else W
    return kl_divergence(X, W, H)


@pytest.fixture(scope="module")
def lowest(counts: sp.csr_array) -> float:
    return KLNMF(4, random_state=0, n_threads=1).fit(counts).divergence_


def test_three_passes_come_within_one_per_cent(counts: sp.csr_array, lowest: float) -> None:
    model = one_thread(batch_size=200, max_iter=3, max_no_improvement=None, random_state=0).fit(
        counts
    )
    assert divergence(model, counts) < 1.01 * lowest
    assert (model.n_iter_, model.n_steps_, len(model.history_)) == (3, 18, 3)


def test_one_look_at_each_batch_comes_near(counts: sp.csr_array, lowest: float) -> None:
    model = one_thread(random_state=0)
    gaps = []
    for piece in pieces(counts, 200):
        model.partial_fit(piece)
        gaps.append(divergence(model, counts) / lowest - 1)
    assert gaps[-1] < 0.02
    assert gaps[-1] < 0.5 * gaps[0]  # and it did learn on the way


def test_threads_change_no_bit(counts: sp.csr_array) -> None:
    one, three = (
        MiniBatchKLNMF(4, batch_size=250, max_iter=2, random_state=1, n_threads=n).fit(counts)
        for n in (1, 3)
    )
    np.testing.assert_array_equal(one.components_, three.components_)


def test_the_seed_decides(counts: sp.csr_array) -> None:
    first, again, other = (
        one_thread(batch_size=250, max_iter=1, random_state=seed).fit(counts).components_
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_backends_agree(dtype: type) -> None:
    X = simulate_counts(60, 20, 3, random_state=0).X * 1.1  # so float64 is not narrowed at first
    fast, slow = (
        MiniBatchKLNMF(
            3, n_threads=1, batch_size=20, max_iter=2, random_state=0, dtype=dtype, backend=backend
        )
        .fit(X)
        .components_
        for backend in ("cpu", "reference")
    )
    assert fast.dtype == dtype
    np.testing.assert_allclose(fast, slow, atol=1e-8 if dtype == np.float64 else 1e-3)


def test_fit_transform_is_transform_after_fit(counts: sp.csr_array) -> None:
    model = one_thread(batch_size=400, max_iter=1, random_state=0)
    W = model.fit_transform(counts)
    np.testing.assert_array_equal(W, model.transform(counts))


def test_components_sum_to_one_and_have_zeros(counts: sp.csr_array) -> None:
    model = one_thread(sparse_output=True, random_state=0).fit(counts)
    assert sp.issparse(model.components_)
    assert model.components_.nnz < 4 * counts.shape[1]
    np.testing.assert_allclose(model.components_.sum(axis=1), 1, rtol=1e-5)
    assert model.history_[-1]["zeros_H"] == 1 - model.components_.nnz / (4 * counts.shape[1])


def test_fit_stops_when_passes_no_longer_improve(counts: sp.csr_array) -> None:
    model = one_thread(batch_size=200, max_iter=50, tol=1e-2, random_state=0).fit(counts)
    assert model.n_iter_ < 50
    fallen = [record["divergence"] for record in model.history_]
    assert fallen[-2] - fallen[-1] <= 1e-2 * fallen[-1]
    assert all(a - b > 1e-2 * b for a, b in pairwise(fallen[:-1]))


# ---- streams -------------------------------------------------------------------------------------


def test_batches_of_any_size(counts: sp.csr_array) -> None:
    model = one_thread(random_state=0)
    for start, stop in ((0, 300), (300, 301), (301, 310), (310, 1200)):
        model.partial_fit(counts[start:stop])
    assert model.n_steps_ == 4
    assert np.isfinite(model.components_).all()


def test_a_batch_without_counts_changes_nothing(counts: sp.csr_array) -> None:
    model = one_thread(random_state=0).partial_fit(counts[:300])
    before = model.components_
    for empty in (sp.csr_array((5, 300)), sp.csr_array((0, 300))):
        model.partial_fit(empty)
    np.testing.assert_array_equal(model.components_, before)
    assert (model.n_steps_, model.n_iter_) == (1, 3)


def test_a_stream_may_begin_with_nothing(counts: sp.csr_array) -> None:
    late = one_thread(random_state=0).partial_fit(sp.csr_array((5, 300)))
    assert not late.components_.any()
    assert not late.transform(counts[:3]).any()
    late.partial_fit(counts[:300])
    at_once = one_thread(random_state=0).partial_fit(counts[:300])
    np.testing.assert_array_equal(late.components_, at_once.components_)


def test_fit_of_nothing() -> None:
    model = one_thread(2, max_iter=3, max_no_improvement=None)
    assert not model.fit_transform(np.zeros((4, 3))).any()


def test_features_may_appear_late(counts: sp.csr_array) -> None:
    hidden = counts.toarray()[:600]
    hidden[:, 200:] = 0
    model = one_thread(random_state=0).partial_fit(hidden)
    assert not model.components_[:, 200:].any()
    model.partial_fit(counts[600:])
    seen = np.asarray(counts[600:].sum(axis=0)).ravel() > 0
    assert model.components_[:, 200:].any(axis=0)[seen[200:]].all()
    assert np.isfinite(divergence(model, counts[600:]))


def test_the_number_of_features_stays(counts: sp.csr_array) -> None:
    model = one_thread().partial_fit(counts[:100])
    with pytest.raises(ValueError, match=r"299 features.*expecting 300"):
        model.partial_fit(counts[:100, :299])


def test_partial_fit_goes_on_after_fit_and_fit_begins_anew(counts: sp.csr_array) -> None:
    model = one_thread(batch_size=300, max_iter=1, random_state=0).fit(counts[:600])
    fitted = model.components_
    model.partial_fit(counts[600:])
    assert model.n_steps_ == 3
    assert not np.array_equal(fitted, model.components_)
    np.testing.assert_array_equal(fitted, model.fit(counts[:600]).components_)


def test_a_pickled_model_goes_on_the_same(counts: sp.csr_array) -> None:
    model = one_thread(random_state=0).partial_fit(counts[:300])
    twin = pickle.loads(pickle.dumps(model)).partial_fit(counts[300:])
    np.testing.assert_array_equal(model.partial_fit(counts[300:]).components_, twin.components_)


def test_the_first_batch_decides_the_type(counts: sp.csr_array) -> None:
    model = one_thread().partial_fit(counts[:300].astype(np.float32))
    assert model.partial_fit(counts[300:].astype(np.float64)).components_.dtype == np.float32


def test_forgetting_follows_a_change() -> None:
    old, new = (simulate_counts(1500, 100, 3, random_state=seed).X for seed in (0, 1))
    errors = []
    for factor in (1.0, 0.7):
        model = one_thread(3, forget_factor=factor, random_state=0)
        for piece in [*pieces(old, 100), *pieces(new, 100)]:
            model.partial_fit(piece)
        errors.append(divergence(model, new))
    assert errors[1] < 0.98 * errors[0]


def test_dead_components_are_revived(counts: sp.csr_array) -> None:
    model = one_thread(random_state=0).partial_fit(counts[:600])
    memory = model._memory
    assert memory is not None
    memory.shares[:, 2] = 0
    memory.shares[:] = online._normalised(memory.shares)
    model.partial_fit(counts[600:])
    assert model.n_revived_ == 1
    assert model.components_[2].any()
    model.partial_fit(counts[:600])
    assert model.n_revived_ == 1
    assert model.components_[2].sum() == pytest.approx(1)


def test_more_components_than_samples() -> None:
    X = simulate_counts(30, 12, 3, random_state=0).X
    model = one_thread(8, batch_size=4, max_iter=3, random_state=0).fit(X)
    assert np.isfinite(model.components_).all()


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="Negative values in data passed to MiniBatchKLNMF"):
        one_thread(2).partial_fit([[1.0, -1.0]])


# ---- the step ------------------------------------------------------------------------------------


@pytest.fixture
def memory(counts: sp.csr_array) -> online.OnlineMemory:
    return online.OnlineMemory.begin(counts[:600], 4, 0, "cpu", 1)


def test_weights_account_for_the_features_that_a_batch_lacks(
    memory: online.OnlineMemory, counts: sp.csr_array
) -> None:
    batch = online.Batch(counts[600:601], "cpu", 1)
    assert len(batch.features) < 0.9 * counts.shape[1]
    memory.learn(batch)
    assert batch.W.sum() == pytest.approx(counts[600:601].sum(), rel=0.01)  # as at every optimum


def test_what_was_counted_fades(memory: online.OnlineMemory, counts: sp.csr_array) -> None:
    before = memory.totals.copy()
    memory.observe(online.Batch(counts[600:700], "cpu", 1), keep=0.5)
    np.testing.assert_allclose(memory.totals, 0.5 * before + counts[600:700].sum(axis=0))


def test_a_whole_step_forgets_all_but_the_batch(
    memory: online.OnlineMemory, counts: sp.csr_array
) -> None:
    batch = online.Batch(counts[600:700], "cpu", 1)
    memory.observe(batch)
    memory.learn(batch, least_step=1.0)
    assert memory.weights[batch.features].sum() == pytest.approx(batch.counts.sum(), rel=0.02)


def test_small_shares_become_zero(memory: online.OnlineMemory) -> None:
    memory.weights[7], memory.shares[7] = 10.0, [1 - 3e-4, 1e-4, 1e-4, 1e-4]
    memory._move(np.array([7]), np.array([[5.0, 0.0, 0.0, 3.0]], dtype=memory.shares.dtype), 0.0)
    assert np.count_nonzero(memory.shares[7]) == 2
    assert memory.shares[7].sum() == pytest.approx(1)


# ---- weights -------------------------------------------------------------------------------------


def test_weighted_samples_count_several_times(counts: sp.csr_array) -> None:
    weights = np.arange(counts.shape[0]) % 3
    repeated = sp.csr_array(counts[np.repeat(np.arange(counts.shape[0]), weights)])
    settings: dict[str, Any] = {"random_state": 0, "max_iter": 3, "batch_size": 10_000}
    weighted = one_thread(**settings).fit(counts, sample_weight=weights)
    plain = one_thread(**settings).fit(repeated)
    losses = [divergence(model, repeated) for model in (weighted, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert weighted.W_sums_.sum() == pytest.approx(repeated.sum(), rel=1e-5)
    assert weighted.constraint_names_ == ["sample_weight"]
    np.testing.assert_allclose(weighted.components_.sum(axis=1), 1.0, rtol=1e-5)


def test_weights_scale_the_counts_of_a_batch(counts: sp.csr_array) -> None:
    """Exactly: a weight of 2 is the sample with its counts doubled, and 0 is no sample."""
    weights = np.arange(counts.shape[0]) % 3.0
    scaled = sp.csr_array(counts.multiply(weights.astype(np.float32)[:, np.newaxis]))
    scaled.eliminate_zeros()
    one, other = one_thread(random_state=0), one_thread(random_state=0)
    for part, its, weighted in zip(
        pieces(counts, 400), np.split(weights, 3), pieces(scaled, 400), strict=True
    ):
        one.partial_fit(part, sample_weight=its)
        other.partial_fit(weighted)
    np.testing.assert_array_equal(one.components_, other.components_)
    fits = one_thread(random_state=0).fit(counts, sample_weight=weights)
    np.testing.assert_array_equal(
        fits.components_, one_thread(random_state=0).fit(scaled).components_
    )


def test_weights_of_features_are_those_of_the_full_fit(counts: sp.csr_array) -> None:
    weights = np.where(np.arange(300) % 7 == 0, 0.0, 0.5 + np.arange(300) % 4)
    model = one_thread(random_state=0, feature_weight=weights).fit(counts)
    full = KLNMF(4, random_state=0, n_threads=1, feature_weight=weights).fit(counts)
    assert not model.components_[:, weights == 0].any()
    np.testing.assert_allclose(model.components_.sum(axis=1), 1.0, rtol=1e-5)
    H = model.components_.T * weights[:, None]
    W = model.transform(counts)
    weighted = sp.csr_array(counts.multiply(weights))
    weighted.eliminate_zeros()
    loss = kl_divergence(weighted, W, H.T)
    assert loss == pytest.approx(full.divergence_, rel=0.03)
    np.testing.assert_allclose(
        one_thread(random_state=0, feature_weight=weights).fit_transform(counts), W
    )
    margins = model.components_.T @ model.W_sums_
    seen = np.asarray(counts.sum(axis=0)).ravel() * (weights > 0)
    np.testing.assert_allclose(margins, seen, rtol=1e-3)
    stream = one_thread(random_state=0, feature_weight=weights)
    for part in pieces(counts, 400):
        stream.partial_fit(part)
    np.testing.assert_array_equal(stream.feature_weight_, weights)
    assert not stream.components_[:, weights == 0].any()
    assert np.isfinite(stream.score(counts, sample_weight=np.ones(1200)))


@pytest.mark.parametrize("function", ["fit", "partial_fit", "fit_transform"])
def test_other_constraints_are_refused_by_name(counts: sp.csr_array, function: str) -> None:
    call = getattr(one_thread(), function)
    with pytest.raises(TypeError, match="does not take 'missing': each update of H would need it"):
        call(counts, missing=counts > 1)
    with pytest.raises(TypeError, match="does not take 'exposure': it does not change the comp"):
        call(counts, exposure=np.ones(1200))
    with pytest.raises(TypeError, match="does not take the argument 'weights'"):
        call(counts, weights=np.ones(1200))
    with pytest.raises(ValueError, match="one number for each sample"):
        call(counts, sample_weight=np.ones(3))


def test_as_many_components_as_samples_warn_in_the_first_batch(counts: sp.csr_array) -> None:
    with pytest.warns(ManyComponentsWarning, match="12 components"):
        one_thread(12).partial_fit(counts[:10])
