"""Projection by name: what is found, what is left out, and that W is what it should be."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from klnmf import KLNMF, MiniBatchKLNMF, load_model
from klnmf.named_features import match_features, transform_by_name
from klnmf.readers import CountTable, read_counts
from klnmf.simulate import simulate_counts
from klnmf.topics import plsi_probabilities

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
    from_frame = transform_by_name(model, frame(COUNTS, NAMES))
    from_matrix = transform_by_name(nameless, COUNTS, NAMES, model_feature_names=NAMES)
    for result in (from_frame, from_matrix):
        np.testing.assert_array_equal(result[0], expected)
        assert result[1].missing == ()


@pytest.mark.parametrize("form", ["frame", "csr", "csc", "coo", "dense", "list"])
def test_names_in_another_order_give_the_same_bits(model: KLNMF, form: str) -> None:
    order = np.random.default_rng(0).permutation(40)
    names, shuffled = [NAMES[j] for j in order], NEW[:, order]
    expected = model.transform(frame(NEW, NAMES))
    if form == "frame":
        W = transform_by_name(model, frame(shuffled, names))[0]
    elif form in ("dense", "list"):
        dense = shuffled.toarray()
        W = transform_by_name(model, dense if form == "dense" else dense.tolist(), names)[0]
    else:
        W = transform_by_name(model, shuffled.asformat(form), names)[0]
    np.testing.assert_array_equal(W, expected)


def test_unknown_columns_are_left_out_whatever_they_hold(model: KLNMF) -> None:
    new = frame(NEW, NAMES)
    new.insert(7, "donor", "A")
    new["score"] = -1.5
    W, overlap = transform_by_name(model, new)
    np.testing.assert_array_equal(W, model.transform(frame(NEW, NAMES)))
    assert (overlap.n_found, overlap.n_ignored) == (40, 2)


def test_missing_features_are_not_observed(model: KLNMF) -> None:
    kept = np.sort(np.random.default_rng(0).permutation(40)[:25])
    names = [NAMES[j] for j in kept]
    by_hand = KLNMF.from_components(model.components_[:, kept], n_threads=1)
    W, overlap = transform_by_name(model, NEW[:, kept[::-1]], names[::-1])
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
    W = transform_by_name(fitted, half, names[::2], model_feature_names=names)[0]
    whole = fitted.transform(planted.X[300:])
    assert np.corrcoef(W.ravel(), whole.ravel())[0, 1] > 0.99
    assert W.sum() == pytest.approx(whole.sum(), rel=0.05)


def test_penalties_and_sparse_output_are_those_of_the_model() -> None:
    fitted = KLNMF(3, random_state=0, l1_W=2.0, l1_H=2.0, sparse_output=True)
    fitted.fit(frame(COUNTS, NAMES))
    W = transform_by_name(fitted, NEW[:, ::-1], NAMES[::-1])[0]
    assert isinstance(W, sp.csr_array)
    expected = fitted.transform(frame(NEW, NAMES))
    np.testing.assert_array_equal(W.toarray(), expected.toarray())
    assert transform_by_name(fitted, NEW[:, :9], NAMES[:9])[0].shape == (25, 3)


def test_frames_out_where_the_model_says_so(model: KLNMF) -> None:
    fitted = KLNMF(3, random_state=0, n_threads=1).set_output(transform="pandas")
    fitted.fit(frame(COUNTS, NAMES))
    new = frame(NEW, NAMES)[NAMES[::-2]]
    W = transform_by_name(fitted, new)[0]
    assert list(W.columns) == ["klnmf0", "klnmf1", "klnmf2"]
    pd.testing.assert_index_equal(W.index, new.index)
    np.testing.assert_array_equal(W.to_numpy(), transform_by_name(model, new)[0])


def test_names_need_not_be_strings() -> None:
    fitted = KLNMF(3, random_state=0).fit(pd.DataFrame(COUNTS.toarray()))
    assert not hasattr(fitted, "feature_names_in_")
    new = pd.DataFrame(NEW.toarray()).iloc[:, ::-1]
    W = transform_by_name(fitted, new, model_feature_names=range(40))[0]
    np.testing.assert_array_equal(W, fitted.transform(NEW))


def test_the_model_is_left_as_it_was(model: KLNMF) -> None:
    components, names = model.components_.copy(), model.feature_names_in_.copy()
    transform_by_name(model, NEW[:, :10], NAMES[:10])
    np.testing.assert_array_equal(model.components_, components)
    np.testing.assert_array_equal(model.feature_names_in_, names)
    assert model.n_features_in_ == 40


def test_components_that_nothing_found_can_tell_about_are_zero_with_a_warning() -> None:
    blocks = np.kron(np.eye(3), np.ones((4, 5))) * 6
    fitted = KLNMF(3, random_state=0).fit(blocks)
    names = [f"gene {j}" for j in range(15)]
    unseen = int(np.flatnonzero(fitted.components_[:, :10].sum(axis=1) == 0)[0])
    with pytest.warns(UserWarning, match=rf"components {unseen} have no weight") as caught:
        W = transform_by_name(fitted, blocks[:, :10], names[:10], model_feature_names=names)[0]
    assert caught[0].filename == __file__
    assert (W[:, unseen] == 0).all()
    np.testing.assert_allclose(W @ fitted.components_[:, :10], blocks[:, :10], rtol=1e-3, atol=1e-3)


# ---- texts: what is not there is zero ------------------------------------------------------------

LETTERS = ["sea ship sail wave", "sea sea ship", "corn field plough sun", "field corn corn rain"]


def write_texts(folder: Path, texts: list[str]) -> Path:
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(" ".join([text] * 5))
    return folder


def test_words_that_a_text_does_not_have_are_zeros(tmp_path: Path) -> None:
    old = read_counts(write_texts(tmp_path / "old", LETTERS))
    fitted = KLNMF(2, random_state=0).fit(old.X)
    # One word of the model, which both components have; the sea's other words would be there.
    fitted.components_[:, list(old.column_names).index("sun")] += 0.5
    new = read_counts(write_texts(tmp_path / "new", ["field sun moon", "sun"]))
    zeros = np.zeros((2, old.shape[1]), np.int32)
    for j, word in enumerate(old.column_names):
        if word in new.column_names:
            zeros[:, j] = new.X.toarray()[:, list(new.column_names).index(word)]
    expected = fitted.transform(zeros)
    names = {"model_feature_names": old.column_names}
    W, overlap = transform_by_name(fitted, new, **names)
    np.testing.assert_array_equal(W, expected)
    assert str(overlap) == f"2 of {old.shape[1]} features of the model occur, 1 other ignored"
    # Words as unobserved features would say that the rest of the texts was lost.
    unobserved = transform_by_name(fitted, new, absent_features="unobserved", **names)[0]
    shares, wrong = (
        plsi_probabilities(w, fitted.components_).component_given_sample for w in (W, unobserved)
    )
    assert np.abs(shares - wrong).max() > 0.2
    by_argument = transform_by_name(
        fitted, new.X, new.column_names, absent_features="zero", **names
    )
    np.testing.assert_array_equal(by_argument[0], expected)
    with pytest.raises(ValueError, match="absent_features must be 'unobserved' or 'zero'; got 'x'"):
        transform_by_name(fitted, new, absent_features="x", **names)


def test_zeros_for_all_kinds_of_data_and_results(model: KLNMF) -> None:
    zeros = NEW.toarray()
    zeros[:, 10:] = 0
    expected = model.transform(frame(sp.csr_array(zeros), NAMES))
    named = KLNMF(3, random_state=0, n_threads=1).set_output(transform="pandas")
    named.fit(frame(COUNTS, NAMES))
    part = frame(NEW[:, 9::-1], NAMES[9::-1])
    with_index = transform_by_name(named, part, absent_features="zero")[0]
    pd.testing.assert_index_equal(with_index.index, part.index)
    np.testing.assert_array_equal(with_index.to_numpy(), expected)
    for X in (NEW[:, 9::-1].tocsc(), NEW[:, 9::-1].toarray(), CountTable(NEW[:, 9::-1])):
        W = transform_by_name(model, X, NAMES[9::-1], absent_features="zero")[0]
        np.testing.assert_array_equal(W, expected)


def test_a_table_of_measured_features_keeps_those_unobserved(model: KLNMF) -> None:
    table = CountTable(NEW[:, :10], None, NAMES[:10])
    W = transform_by_name(model, table)[0]
    np.testing.assert_array_equal(W, transform_by_name(model, NEW[:, :10], NAMES[:10])[0])


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
        transform_by_name(model, NEW, NAMES)
        _, overlap = transform_by_name(model, NEW[:, :39], NAMES[:39])
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert caplog.records[1].getMessage() == str(overlap)
    assert (
        str(overlap) == "39 of 40 features of the model found (97.5 %), 1 missing, 0 others ignored"
    )


# ---- errors --------------------------------------------------------------------------------------


def test_no_feature_in_common_shows_both_kinds_of_names(model: KLNMF) -> None:
    names = [f"ENSG{j:05}" for j in range(40)]
    with pytest.raises(ValueError, match="no feature in common") as caught:
        transform_by_name(model, NEW, names)
    for part in ("'gene 0', 'gene 1'", "'ENSG00000', 'ENSG00001'", "..."):
        assert part in str(caught.value)


@pytest.mark.filterwarnings("ignore:The components")  # of which so few features know nothing
def test_an_overlap_of_less_than_a_tenth_is_refused(model: KLNMF) -> None:
    names = [*NAMES[:3], *(f"ENSG{j}" for j in range(37))]
    with pytest.raises(ValueError, match="Only 3 of 40 features") as caught:
        transform_by_name(model, NEW, names)
    for part in ("at least 10 % are needed", "'gene 3'", "'ENSG0', 'ENSG1'", "min_overlap=0"):
        assert part in str(caught.value)
    assert transform_by_name(model, NEW, names, min_overlap=0)[1].n_found == 3
    assert transform_by_name(model, NEW[:, :4], NAMES[:4])[1].n_found == 4  # a tenth
    with pytest.raises(ValueError, match="no feature in common"):
        transform_by_name(model, NEW, names[3:] + ["x"] * 3, min_overlap=0)
    # The words of a short text may be few of the model's.
    assert transform_by_name(model, NEW, names, absent_features="zero")[1].n_found == 3


def test_names_that_occur_twice_are_refused_where_they_matter(model: KLNMF) -> None:
    twice = [*NAMES[:38], "gene 3", "gene 7"]
    with pytest.raises(ValueError, match="not unique: 'gene 3', 'gene 7' occur more than once"):
        transform_by_name(model, NEW, twice)
    transform_by_name(model, NEW, [*NAMES[:38], "no gene", "no gene"])  # nobody asks for these
    with pytest.raises(ValueError, match="model's features are not unique: 'gene 3'"):
        transform_by_name(model, NEW, NAMES, model_feature_names=[*NAMES[:39], "gene 3"])


def test_names_must_be_known_and_as_many_as_columns(model: KLNMF, nameless: KLNMF) -> None:
    with pytest.raises(ValueError, match="Pass model_feature_names"):
        transform_by_name(nameless, NEW, NAMES)
    with pytest.raises(ValueError, match="Pass feature_names"):
        transform_by_name(model, NEW)
    with pytest.raises(ValueError, match="model_feature_names has 39 names for 40 features"):
        transform_by_name(nameless, NEW, NAMES, model_feature_names=NAMES[:39])
    with pytest.raises(ValueError, match=r"^feature_names has 39 names for 40 features"):
        transform_by_name(model, NEW, NAMES[:39])
    with pytest.raises(ValueError, match=r"shape \(n_samples, n_columns\), got \(40,\)"):
        transform_by_name(model, np.ones(40), NAMES)
    with pytest.raises(NotFittedError):
        transform_by_name(KLNMF(3), NEW, NAMES, model_feature_names=NAMES)


def test_what_load_model_returns_has_names_too(nameless: KLNMF, tmp_path: Path) -> None:
    nameless.save(tmp_path / "model.klnmf", feature_names=NAMES)
    saved = load_model(tmp_path / "model.klnmf")
    W, overlap = transform_by_name(saved, NEW[:, ::-1], NAMES[::-1])
    np.testing.assert_array_equal(W, nameless.transform(NEW))
    assert overlap.n_found == 40
    others = [f"other {j}" for j in range(40)]
    with pytest.raises(ValueError, match="no feature in common"):
        transform_by_name(saved, NEW, NAMES, model_feature_names=others)


def test_any_estimator_can_be_used() -> None:
    model = MiniBatchKLNMF(3, random_state=0, sparse_output=True).fit(COUNTS)
    found = transform_by_name(model, NEW[:, 5:], NAMES[5:], model_feature_names=NAMES)[0]
    part = KLNMF.from_components(model.components_[:, 5:], tol=model.tol)
    np.testing.assert_array_equal(found.toarray(), part.transform(NEW[:, 5:]))


def test_bad_values_in_common_features_are_refused(model: KLNMF) -> None:
    negative = NEW.toarray()
    negative[3, 5] = -2
    with pytest.raises(ValueError, match="Negative values"):
        transform_by_name(model, negative, NAMES)
