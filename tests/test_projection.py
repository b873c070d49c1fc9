"""Projection by name: what is found, what is left out, and that W is what it should be."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from klnmf import KLNMF
from klnmf.projection import match_features, project
from klnmf.simulate import simulate_counts

NAMES = [f"gene {j}" for j in range(40)]
COUNTS = simulate_counts(60, 40, 3, counts_per_sample=150, sparsity=0.3, random_state=0).X
NEW = simulate_counts(25, 40, 3, counts_per_sample=150, random_state=1).X


def frame(X: Any, names: list[str]) -> pd.DataFrame:
    return pd.DataFrame(X.toarray(), columns=names, index=[f"cell {i}" for i in range(X.shape[0])])


@pytest.fixture(scope="module")
def model() -> KLNMF:
    return KLNMF(3, random_state=0, n_threads=1).fit(frame(COUNTS, NAMES))


@pytest.fixture(scope="module")
def nameless() -> KLNMF:
    return KLNMF(3, random_state=0, n_threads=1).fit(COUNTS)


# ---- W -------------------------------------------------------------------------------------------


def test_own_data_give_the_bits_of_transform(model: KLNMF, nameless: KLNMF) -> None:
    expected = nameless.transform(COUNTS)
    from_frame = project(model, frame(COUNTS, NAMES))
    from_matrix = project(nameless, COUNTS, NAMES, model_feature_names=NAMES)
    for result in (from_frame, from_matrix):
        np.testing.assert_array_equal(result.W, expected)
        assert result.overlap.missing == ()


@pytest.mark.parametrize("form", ["frame", "csr", "csc", "coo", "dense", "list"])
def test_names_in_another_order_give_the_same_bits(model: KLNMF, form: str) -> None:
    order = np.random.default_rng(0).permutation(40)
    names, shuffled = [NAMES[j] for j in order], NEW[:, order]
    expected = model.transform(frame(NEW, NAMES))
    if form == "frame":
        W = project(model, frame(shuffled, names)).W
    elif form in ("dense", "list"):
        dense = shuffled.toarray()
        W = project(model, dense if form == "dense" else dense.tolist(), names).W
    else:
        W = project(model, shuffled.asformat(form), names).W
    np.testing.assert_array_equal(W, expected)


def test_unknown_columns_are_left_out_whatever_they_hold(model: KLNMF) -> None:
    new = frame(NEW, NAMES)
    new.insert(7, "donor", "A")
    new["score"] = -1.5
    W, overlap = project(model, new)
    np.testing.assert_array_equal(W, model.transform(frame(NEW, NAMES)))
    assert (overlap.n_found, overlap.n_ignored) == (40, 2)


def test_missing_features_are_not_observed(model: KLNMF) -> None:
    kept = np.sort(np.random.default_rng(0).permutation(40)[:25])
    names = [NAMES[j] for j in kept]
    by_hand = KLNMF(3, random_state=0, n_threads=1)
    by_hand.components_ = model.components_[:, kept]
    by_hand.n_components_, by_hand.n_features_in_ = by_hand.components_.shape
    W, overlap = project(model, NEW[:, kept[::-1]], names[::-1])
    np.testing.assert_array_equal(W, by_hand.transform(NEW[:, kept]))
    assert overlap.missing == tuple(name for name in NAMES if name not in names)
    # As zeros, they would pull W down: the sum of the rates would be that of fewer counts.
    zeros = np.zeros(NEW.shape)
    zeros[:, kept] = NEW.toarray()[:, kept]
    assert W.sum() > 1.2 * model.transform(frame(sp.csr_array(zeros), NAMES)).sum()


def test_missing_features_are_estimated_from_the_others() -> None:
    planted = simulate_counts(400, 80, 3, counts_per_sample=2000, random_state=2)
    names = [f"gene {j}" for j in range(80)]
    fitted = KLNMF(3, random_state=0).fit(planted.X[:300])
    half = planted.X[300:, ::2]
    W = project(fitted, half, names[::2], model_feature_names=names).W
    whole = fitted.transform(planted.X[300:])
    assert np.corrcoef(W.ravel(), whole.ravel())[0, 1] > 0.99
    assert W.sum() == pytest.approx(whole.sum(), rel=0.05)


def test_penalties_and_sparse_output_are_those_of_the_model() -> None:
    fitted = KLNMF(3, random_state=0, l1_W=2.0, l1_H=2.0, sparse_output=True)
    fitted.fit(frame(COUNTS, NAMES))
    W = project(fitted, NEW[:, ::-1], NAMES[::-1]).W
    assert isinstance(W, sp.csr_array)
    expected = fitted.transform(frame(NEW, NAMES))
    np.testing.assert_array_equal(W.toarray(), expected.toarray())
    assert project(fitted, NEW[:, :9], NAMES[:9]).W.shape == (25, 3)


def test_frames_out_where_the_model_says_so(model: KLNMF) -> None:
    fitted = KLNMF(3, random_state=0, n_threads=1).set_output(transform="pandas")
    fitted.fit(frame(COUNTS, NAMES))
    new = frame(NEW, NAMES)[NAMES[::-2]]
    W = project(fitted, new).W
    assert list(W.columns) == ["klnmf0", "klnmf1", "klnmf2"]
    pd.testing.assert_index_equal(W.index, new.index)
    np.testing.assert_array_equal(W.to_numpy(), project(model, new).W)


def test_names_need_not_be_strings() -> None:
    fitted = KLNMF(3, random_state=0).fit(pd.DataFrame(COUNTS.toarray()))
    assert not hasattr(fitted, "feature_names_in_")
    new = pd.DataFrame(NEW.toarray()).iloc[:, ::-1]
    W = project(fitted, new, model_feature_names=range(40)).W
    np.testing.assert_array_equal(W, fitted.transform(NEW))


def test_the_model_is_left_as_it_was(model: KLNMF) -> None:
    components, names = model.components_.copy(), model.feature_names_in_.copy()
    project(model, NEW[:, :10], NAMES[:10])
    np.testing.assert_array_equal(model.components_, components)
    np.testing.assert_array_equal(model.feature_names_in_, names)
    assert model.n_features_in_ == 40


def test_components_that_nothing_found_can_tell_about_are_zero_with_a_warning() -> None:
    blocks = np.kron(np.eye(3), np.ones((4, 5))) * 6
    fitted = KLNMF(3, random_state=0).fit(blocks)
    names = [f"gene {j}" for j in range(15)]
    unseen = int(np.flatnonzero(fitted.components_[:, :10].sum(axis=1) == 0)[0])
    with pytest.warns(UserWarning, match=rf"components {unseen} have no weight") as caught:
        W = project(fitted, blocks[:, :10], names[:10], model_feature_names=names).W
    assert caught[0].filename == __file__
    assert (W[:, unseen] == 0).all()
    np.testing.assert_allclose(W @ fitted.components_[:, :10], blocks[:, :10], rtol=1e-3, atol=1e-3)


# ---- the overlap ---------------------------------------------------------------------------------


def test_line_on_the_overlap() -> None:
    model_names = [f"m{j}" for j in range(2000)]
    data_names = [f"m{j}" for j in range(168, 2000)] + [f"other {j}" for j in range(5411)]
    overlap = match_features(model_names, data_names[::-1])
    assert str(overlap) == (
        "1,832 of 2,000 features of the model found (91.6 %), 168 missing, 5,411 others ignored"
    )
    assert (overlap.n_found, overlap.n_model, overlap.n_ignored) == (1832, 2000, 5411)
    assert overlap.missing == tuple(model_names[:168])
    np.testing.assert_array_equal(overlap.model_positions, np.arange(168, 2000))
    assert [data_names[::-1][j] for j in overlap.data_positions] == model_names[168:]


def test_line_is_logged_and_seen_where_features_are_missing(
    model: KLNMF, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="klnmf"):
        project(model, NEW, NAMES)
        _, overlap = project(model, NEW[:, :39], NAMES[:39])
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert caplog.records[1].getMessage() == str(overlap)
    assert (
        str(overlap) == "39 of 40 features of the model found (97.5 %), 1 missing, 0 others ignored"
    )


# ---- errors --------------------------------------------------------------------------------------


def test_no_feature_in_common_shows_both_kinds_of_names(model: KLNMF) -> None:
    names = [f"ENSG{j:05}" for j in range(40)]
    with pytest.raises(ValueError, match="no feature in common") as caught:
        project(model, NEW, names)
    for part in ("'gene 0', 'gene 1'", "'ENSG00000', 'ENSG00001'", "..."):
        assert part in str(caught.value)


def test_names_that_occur_twice_are_refused_where_they_matter(model: KLNMF) -> None:
    twice = [*NAMES[:38], "gene 3", "gene 7"]
    with pytest.raises(ValueError, match="not unique: 'gene 3', 'gene 7' occur more than once"):
        project(model, NEW, twice)
    project(model, NEW, [*NAMES[:38], "no gene", "no gene"])  # nobody asks for these
    with pytest.raises(ValueError, match="model's features are not unique: 'gene 3'"):
        project(model, NEW, NAMES, model_feature_names=[*NAMES[:39], "gene 3"])


def test_names_must_be_known_and_as_many_as_columns(model: KLNMF, nameless: KLNMF) -> None:
    with pytest.raises(ValueError, match="Pass them as model_feature_names"):
        project(nameless, NEW, NAMES)
    with pytest.raises(ValueError, match="Pass them as feature_names"):
        project(model, NEW)
    with pytest.raises(ValueError, match=r"39 names; the model has 40 features"):
        project(nameless, NEW, NAMES, model_feature_names=NAMES[:39])
    with pytest.raises(ValueError, match=r"shape \(25, 40\) and 39 feature names"):
        project(model, NEW, NAMES[:39])
    with pytest.raises(ValueError, match=r"shape \(40,\) and 40 feature names"):
        project(model, np.ones(40), NAMES)
    with pytest.raises(NotFittedError):
        project(KLNMF(3), NEW, NAMES, model_feature_names=NAMES)


def test_bad_values_in_common_features_are_refused(model: KLNMF) -> None:
    negative = NEW.toarray()
    negative[3, 5] = -2
    with pytest.raises(ValueError, match="Negative values"):
        project(model, negative, NAMES)
