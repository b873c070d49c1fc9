"""How cells are held out, and what held-out cells say of a fit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import xlogy

from klnmf import NotCountsWarning
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.estimators.held_out import (
    UNKNOWN,
    HeldOutCells,
    Predictor,
    feature_shares,
    groups_of_features,
)
from klnmf.model_selection import select_rank
from klnmf.model_selection.hold_out import ROW_SOLVE, Fold, fold_of_samples
from rank_checks import counts, plain_counts

# ---- folds and groups ----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "n_splits"), [(23, 5), (5, 5), (2, 2)])
def test_folds_share_the_samples_evenly(n: int, n_splits: int) -> None:
    sizes = np.bincount(fold_of_samples(n, n_splits, 0))
    assert len(sizes) == n_splits
    assert np.ptp(sizes) <= 1


@pytest.mark.parametrize("m", [1, 4, 10, 37])
def test_every_feature_is_in_one_group(m: int) -> None:
    groups = groups_of_features(m, 0)
    assert len(groups) == min(10, m)
    assert sorted(np.concatenate(groups)) == list(range(m))
    assert np.ptp([len(group) for group in groups]) <= 1


def test_cells_do_not_reach_their_own_prediction() -> None:
    """Other values in the cells of a fold and a group change their deviance and nothing else."""
    X = counts(40, 30, 3, 150)
    is_test = np.arange(40) % 4 == 0
    before = Fold(plain_counts(X), is_test, 0, 1)
    other = X.toarray()
    features = before._groups[3]
    other[np.ix_(np.flatnonzero(is_test), features)] = 77
    after = Fold(plain_counts(check_counts(other)), is_test, 0, 1)
    models = [fold.fitted(None, 2, [0]) for fold in (before, after)]
    for ours, theirs in zip(*models, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    H = models[0][1]

    def W_without(group: int) -> list[np.ndarray]:  # noqa: N802
        return [
            fold._predictor((H, H), [0.1]).W_without(fold._test, before._groups[group])
            for fold in (before, after)
        ]

    np.testing.assert_array_equal(*W_without(3))
    assert not np.array_equal(*W_without(4))


def test_predictions_are_those_of_the_other_features() -> None:
    """One component has a closed form: W is the sum of the others over the sum of their H."""
    X = check_counts(counts(40, 30, 3, 150).toarray() + 1)
    is_test = np.arange(40) % 4 == 0
    fold = Fold(plain_counts(X), is_test, 0, 1)
    _, H = fold.fitted(None, 1, [0])
    dense, h = X.toarray()[is_test], H[:, 0].astype(np.float64)
    expected = np.zeros(10)
    for group in fold._groups:
        rest = np.setdiff1d(np.arange(30), group)
        w = dense[:, rest].sum(axis=1) / h[rest].sum()
        mu, x = np.outer(w, h[group]), dense[:, group]
        expected += 2 * (xlogy(x, x / mu) - x + mu).sum(axis=1)
    # The least background changes little.
    found = fold.deviances((np.zeros((30, 1)), H), [1e-9])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_predicted_poisson_counts_have_the_deviance_of_their_noise() -> None:
    X = check_counts(np.random.default_rng(0).poisson(200.0, (100, 80)))
    fold = Fold(plain_counts(X), np.arange(100) % 5 == 0, 0, 1)
    found = fold.deviances(fold.fitted(None, 1, [0]), [1e-6])
    # Of a cell: χ² with one degree of freedom, a little more as the rates are estimated.
    assert abs(found.mean() / 80 - 1) < 0.1


# ---- deviance ------------------------------------------------------------------------------------


def test_deviance_is_that_of_the_formula() -> None:
    generator = np.random.default_rng(0)
    X = generator.poisson(0.7, (6, 3)).astype(float)
    missing = np.zeros((6, 3), dtype=bool)
    missing[2, 1] = missing[5, 0] = True
    W, H = generator.random((6, 2)), generator.random((5, 2))
    H[0] = 0.0  # a feature that the model does not know
    q, unit, features = np.array([0.1, 0.2, 0.3, 0.3, 0.1]), 0.7, np.array([0, 2, 3])
    stored = sp.csr_array(np.where(missing, 0, X))
    cells = HeldOutCells.of(InMemoryData(stored))._replace(missing=np.nonzero(missing))
    predictor = Predictor([H], [q], unit, [features], [0.01, 0.2], ROW_SOLVE, 1)
    found, masses = predictor._of_group(cells, W, (W @ H.T).sum(axis=1), features)
    for background, row in zip([0.01, 0.2], found, strict=True):
        y = W @ H.T
        total = y.sum(axis=1, keepdims=True)
        mu = (1 - background) * y + (background * total + UNKNOWN * unit) * q
        mu = mu[:, features]
        losses = np.where(missing, 0, xlogy(X, X / mu) - X + mu)
        np.testing.assert_allclose(row, 2 * losses.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(masses[1], np.where(missing, 0, mu).sum(axis=1), rtol=1e-12)


def test_shares_of_the_background_are_positive_and_sum_to_one() -> None:
    np.testing.assert_allclose(feature_shares(np.array([4.0, 0.0]), 1.0), [5 / 6, 1 / 6])


def test_sample_of_which_nothing_is_known_costs_the_same_under_all_backgrounds() -> None:
    cells = HeldOutCells.of(InMemoryData(check_counts(np.array([[900.0, 0.0]]))))
    W, H = np.zeros((1, 2)), np.ones((4, 2))
    features = np.array([0, 1])
    predictor = Predictor([H], [np.full(4, 0.25)], 1.0, [features], [0.001, 0.5], ROW_SOLVE, 1)
    found, _ = predictor._of_group(cells, W, np.zeros(1), features)
    assert found[0] == found[1]


# ---- data at the edges ---------------------------------------------------------------------------


def test_held_out_counts_without_a_rate_cost_something_finite() -> None:
    X = np.zeros((10, 6))
    X[:, :3] = 5
    X[0, 5] = 1  # a feature that occurs once: in training or in test
    X[9] = 0
    X[9, 4] = 1  # and so does a whole sample
    selection = select_rank(X, [1, 2], n_splits=4, random_state=0)
    assert np.isfinite(selection.deviance).all()


@pytest.mark.parametrize(
    "X",
    [
        np.ones((2, 1)),  # no other feature
        np.ones((2, 2)),  # fewer samples than folds
        np.eye(6),  # every sample, and every fold, has a feature of its own
        np.vstack([np.zeros((5, 4)), np.full((1, 4), 9)]),  # folds without training data
        np.hstack([np.full((6, 1), 1000), np.zeros((6, 3))]),  # all counts in one feature
    ],
)
def test_small_and_degenerate_data_have_rank_one(X: np.ndarray) -> None:
    selection = select_rank(X, [1, 2, 3], random_state=0)
    assert np.isfinite(selection.deviance).all()
    assert selection.best_rank == 1


def test_units_do_not_matter() -> None:
    X = counts(100, 60, 3, 300).toarray().astype(np.float64)
    ours = select_rank(X, range(1, 5), n_splits=2, random_state=0)
    theirs = select_rank(X / 4096, range(1, 5), n_splits=2, random_state=0)  # exact
    np.testing.assert_allclose(theirs.deviance * 4096, ours.deviance, rtol=1e-3)
    assert ours.best_rank == theirs.best_rank == 3


def test_values_that_look_transformed_are_warned_of() -> None:
    X = counts(60, 40, 3, 300).toarray()
    with pytest.warns(NotCountsWarning):
        select_rank(X / X.sum(axis=1, keepdims=True), [1, 2], n_splits=2, random_state=0)
