"""Missing cells as users have them: NaN in X, tables with NA, and scores that leave them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from constraint_cases import RANK, X, everything_known, fit
from klnmf import KLNMF, MiniBatchKLNMF, open_matrix
from klnmf.evaluation import evaluate
from klnmf.readers import prepare
from strategies import same_bits

ALL = everything_known()
MISSING = ALL["missing"]
n, m = X.shape


def with_values(value: float) -> np.ndarray:
    """Counts with some value in the cells that are missing."""
    return np.where(MISSING.toarray(), value, X.toarray().astype(float))


# ---- whatever X has there -----------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
def test_whatever_stands_in_missing_cells_is_not_looked_at(value: float) -> None:
    expected, model = fit(missing=MISSING, max_iter=3)
    filled = with_values(value)
    before = filled.copy()
    twice = sp.csr_array(filled)
    twice = sp.csr_array(  # every value in two halves, of which both must go
        (np.repeat(twice.data / 2, 2), np.repeat(twice.indices, 2), 2 * twice.indptr),
        shape=twice.shape,
    )
    for given in (filled, filled.tolist(), sp.coo_array(filled), sp.csc_matrix(filled), twice):
        W, other = fit(given, missing=MISSING, max_iter=3)
        assert same_bits(W, expected)
        assert same_bits(other.components_, model.components_)
        found = model.transform(given, missing=MISSING)
        assert same_bits(found, model.transform(X, missing=MISSING))
        assert model.score(given, missing=MISSING) == model.score(X, missing=MISSING)
    np.testing.assert_array_equal(filled, before)


def test_nan_is_missing_in_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    expected = fit(missing=MISSING, max_iter=3)[0]
    frame = pandas.DataFrame(with_values(np.nan), columns=[f"f{j}" for j in range(m)])
    before = frame.copy()
    W, model = fit(frame, missing=frame.isna(), max_iter=3)
    assert same_bits(W, expected)
    assert list(model.feature_names_in_) == list(frame.columns)
    pandas.testing.assert_frame_equal(frame, before)
    nullable = frame.convert_dtypes()
    assert same_bits(fit(nullable, missing=nullable.isna(), max_iter=3)[0], expected)
    with_na = frame.isna().astype("boolean")  # the type of pandas that has NA, and here has none
    assert same_bits(fit(frame, missing=with_na, max_iter=3)[0], expected)
    with_na.iloc[0, 0] = pandas.NA
    with pytest.raises(ValueError, match=r"missing must be True .* but it has NaN"):
        fit(frame, missing=with_na)


def test_nan_elsewhere_is_refused() -> None:
    filled = with_values(np.nan)
    few = MISSING.toarray()
    few[np.flatnonzero(few.any(axis=1))[0]] = False
    with pytest.raises(ValueError, match="NaN"):
        fit(filled, missing=few)
    with pytest.raises(ValueError, match=r"missing must have shape \(30, 20\), got \(30, 19\)"):
        fit(filled, missing=few[:, 1:])


# ---- patterns that make no sense ----------------------------------------------------------------


@pytest.mark.parametrize("as_given", [np.asarray, sp.csr_array])
def test_a_pattern_with_nan_is_x_by_mistake(as_given: Any) -> None:
    filled = with_values(np.nan)
    with pytest.raises(ValueError, match=r"it has NaN\. .* pass numpy\.isnan\(X\)"):
        fit(filled, missing=as_given(filled))


def test_a_pattern_of_all_cells_leaves_nothing() -> None:
    with pytest.raises(ValueError, match="missing covers every cell of X: nothing would be left"):
        fit(missing=np.ones((n, m)))
    model = fit(max_iter=2)[1]
    assert not model.transform(X, missing=np.ones((n, m))).any()  # nothing is known of them


@pytest.mark.parametrize("name", ["missing", "zero_W", "fixed_W"])
def test_rows_of_different_lengths(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be an array of shape \(30, "):
        fit(**{name: [[1.0] * (1 + i % 2) for i in range(n)]})


# ---- scores -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 0.5], ids=["counts", "halves"])
@pytest.mark.parametrize("known", [{}, {"feature_weight": ALL["feature_weight"]}], ids=str)
def test_a_score_neither_sees_nor_predicts_missing_cells(known: Any, scale: float) -> None:
    model = fit(X * scale, missing=MISSING, **known)[1]
    scores = {
        model.score(scale * with_values(value), missing=MISSING) for value in (0.0, 4.0, 7.5, 1e6)
    }
    assert len(scores) == 1
    assert scores != {model.score(X * scale, missing=np.zeros((n, m)))}


def test_a_score_on_disk_has_the_same_bits(tmp_path: Any) -> None:
    model = fit(missing=MISSING)[1]
    prepare(with_values(0.5), tmp_path / "matrix")  # whole numbers where they were observed
    matrix = open_matrix(tmp_path / "matrix")
    assert model.score(matrix, missing=MISSING) == model.score(X.astype(float), missing=MISSING)


def test_a_model_that_knew_of_missing_cells_is_not_scored_without() -> None:
    model = fit(missing=MISSING, max_iter=3)[1]
    with pytest.raises(ValueError, match="fitted with missing cells, and score does not know"):
        model.score(X)
    with pytest.raises(ValueError, match=r"missing must have shape \(30, 20\), got \(20, 30\)"):
        model.score(X, missing=MISSING.T)
    plain = fit(max_iter=3)[1]
    model.components_, model.W_sums_ = plain.components_, plain.W_sums_
    assert model.score(X, missing=np.zeros((n, m))) == plain.score(X)
    with pytest.raises(ValueError, match="evaluate does not take missing cells"):
        evaluate(model, X)
    stream = MiniBatchKLNMF(2, random_state=0).fit(X)
    assert stream.score(with_values(np.nan), missing=MISSING) != stream.score(X)


# ---- scikit-learn hands it on -------------------------------------------------------------------


def test_a_search_hands_on_what_is_known() -> None:
    import sklearn
    from sklearn.model_selection import GridSearchCV

    settings = {"n_threads": 1, "random_state": 0, "max_iter": 20, "tol": 1.0}
    with sklearn.config_context(enable_metadata_routing=True):
        model = KLNMF(RANK, **settings)
        model.set_fit_request(missing=True, sample_weight=True)
        model.set_score_request(missing=True, sample_weight=True)
        model.set_transform_request(missing=True, exposure=False)
        searches = [
            GridSearchCV(model, {"n_components": [2, 3]}, cv=2, error_score="raise").fit(
                counts, missing=MISSING.toarray(), sample_weight=np.arange(1.0, n + 1)
            )
            for counts in (with_values(0), with_values(9))
        ]
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    np.testing.assert_array_equal(*scores)
    assert searches[0].best_estimator_.constraint_names_ == ["sample_weight", "missing"]


def test_unknown_names_cannot_be_handed_on() -> None:
    import sklearn

    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.raises(TypeError, match="weights"),
    ):
        KLNMF(2).set_fit_request(weights=True)
