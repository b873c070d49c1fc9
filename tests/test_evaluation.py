"""Scores of a model on data that it has not seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import NMF
from sklearn.exceptions import NotFittedError

from klnmf import KLNMF
from klnmf.evaluation import evaluate
from klnmf.simulate import simulate_counts
from klnmf.topics import coherence

PLANTED = simulate_counts(200, 60, 4, counts_per_sample=120, random_state=0)
X = sp.csr_array(PLANTED.X)


@pytest.fixture(name="model", scope="module")
def fitted() -> KLNMF:
    return KLNMF(4, random_state=0).fit(X[:150])


def test_evaluation_is_score_perplexity_and_coherence(model: KLNMF) -> None:
    new = X[150:]
    scores = evaluate(model, new, n_top=5)
    assert scores.log_likelihood == pytest.approx(model.score(new), rel=1e-12)
    assert scores.n_samples == 50
    assert scores.n_features == 60
    assert scores.n_counts == new.sum()
    assert np.array_equal(scores.npmi, coherence(model.components_, new, "npmi", n_top=5))
    assert np.array_equal(scores.umass, coherence(model.components_, new, "umass", n_top=5))


def test_a_better_model_has_a_lower_perplexity(model: KLNMF) -> None:
    one = KLNMF(1, random_state=0).fit(X[:150])
    better, worse = (evaluate(m, X[150:]).perplexity for m in (model, one))
    assert better < worse < 60


def test_an_even_model_hesitates_among_all_features() -> None:
    even = KLNMF(1, random_state=0).fit(np.ones((3, 60)))
    assert evaluate(even, X[:60]).perplexity == pytest.approx(60, rel=1e-6)


def test_sparse_components_and_values_that_are_not_whole(model: KLNMF) -> None:
    sparse = KLNMF(4, random_state=0, sparse_output=True).fit(X[:150])
    assert evaluate(sparse, X[150:]).perplexity == evaluate(model, X[150:]).perplexity
    halves = evaluate(model, X[150:] * 0.5)
    assert halves.n_features == 60
    assert halves.perplexity == pytest.approx(evaluate(model, X[150:]).perplexity, rel=0.1)


def test_models_of_others_and_bare_components_are_scored(model: KLNMF) -> None:
    new = X[150:]
    own = evaluate(model, new)
    for components in (model.components_, sp.csr_array(model.components_)):
        bare = evaluate(components, new)
        assert bare.perplexity == pytest.approx(own.perplexity, rel=0.01)
        np.testing.assert_array_equal(bare.npmi, own.npmi)
    other = NMF(
        4, beta_loss="kullback-leibler", solver="mu", max_iter=1000, random_state=0, init="random"
    ).fit(X[:150])
    assert evaluate(other, new).perplexity == pytest.approx(own.perplexity, rel=0.05)
    with pytest.raises(NotFittedError):
        evaluate(NMF(4), new)
    with pytest.raises(ValueError, match="nonnegative"):
        evaluate(-model.components_, new)
    with pytest.raises(TypeError, match=r"load_model\(path\)\.model"):
        evaluate(object(), new)


def test_printed_scores_have_all_three(model: KLNMF) -> None:
    scores = evaluate(model, X[150:])
    lines = str(scores).splitlines()
    assert lines[0].startswith(f"log-likelihood  {scores.log_likelihood:.6g}")
    assert lines[1].startswith(f"perplexity      {scores.perplexity:.6g} (guessing evenly: 60)")
    assert f"mean {scores.npmi.mean():.3f}, from" in lines[2]
    assert f"to {scores.umass.max():.3f}" in lines[3]
    assert lines[4] == f"{scores.n_counts:g} counts of 50 samples scored"


def test_data_are_checked_as_by_score(model: KLNMF) -> None:
    with pytest.raises(ValueError, match="60 features"):
        evaluate(model, X[:, :50])
    with pytest.raises(NotFittedError):
        evaluate(KLNMF(2), X)


def test_nothing_to_score_is_nan(model: KLNMF) -> None:
    with pytest.warns(UserWarning, match="Only 0 samples have counts"):
        empty = evaluate(model, sp.csr_array((2, 60)))
    assert math.isnan(empty.perplexity)
    assert empty.n_counts == 0
    assert "no component has two" in str(empty)


# ---- figures that say little ---------------------------------------------------------------------


def test_few_samples_warn_and_are_scored_all_the_same(model: KLNMF) -> None:
    few = sp.csr_array(sp.vstack([X[150:153], sp.csr_array((70, 60))]))
    with pytest.warns(UserWarning, match="Only 3 samples have counts .* at least 50") as caught:
        scores = evaluate(model, few)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert 1 < scores.perplexity < 60
    with pytest.warns(UserWarning, match="Only 49 samples have counts"):
        evaluate(model, X[150:199])
    evaluate(model, X[150:])  # 50 samples: warnings are errors here


def test_worse_than_an_even_guess_warns(model: KLNMF) -> None:
    shuffled = X[150:][:, np.random.default_rng(0).permutation(60)]
    with pytest.warns(UserWarning, match=r"perplexity is \d.*worse than guessing evenly .*60 feat"):
        scores = evaluate(model, shuffled)
    assert scores.perplexity > 60


# ---- one scale for all values --------------------------------------------------------------------


@settings(max_examples=30)
@given(
    place=st.integers(0, X[150:].nnz - 1),
    change=st.sampled_from([-0.999, -0.5, -0.1, -1e-9, 1e-9, 0.3, 0.5, 0.9]),
)
def test_one_value_that_is_not_whole_hardly_changes_the_score(
    model: KLNMF, place: int, change: float
) -> None:
    counts = X[150:].astype(np.float64)
    before = model.score(counts)
    changed = counts.copy()
    changed.data[place] += change
    # One count more or less of about 6,000: far less than the noise of another split.
    assert model.score(changed) == pytest.approx(before, abs=12 * abs(change) / 50 + 1e-6)


def test_rounding_noise_does_not_change_the_score(model: KLNMF) -> None:
    counts = X[150:].astype(np.float64)
    noisy = counts.copy()
    noisy.data *= 1 + 1e-9 * np.random.default_rng(0).standard_normal(counts.nnz)
    assert model.score(noisy) == pytest.approx(model.score(counts), rel=1e-6)
    assert evaluate(model, noisy).n_counts == pytest.approx(evaluate(model, counts).n_counts)
