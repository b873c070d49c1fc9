"""`select_rank` with weights, exposures, missing cells, fixed entries and penalties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.overdispersed import draw

from klnmf import KLNMF, RunOptions
from klnmf.constraints.checks import check_constraints
from klnmf.data.validation import check_counts
from klnmf.model_selection import RankSelection, select_rank
from klnmf.model_selection.hold_out import ConstrainedCounts, Fold
from klnmf.objective import Penalties
from rank_checks import counts, plain_counts

PLANTED = draw(90, 60, 3, 200, size=5, seed=0)
X = PLANTED.X


def selected(X: Any = X, ranks: Any = range(1, 6), **options: Any) -> RankSelection:
    return select_rank(X, ranks, n_splits=3, random_state=0, **options)


def same(one: RankSelection, other: RankSelection, scale: float = 1.0) -> None:
    np.testing.assert_allclose(one.deviance * scale, other.deviance, rtol=2e-3)
    assert one.best_rank == other.best_rank


# ---- weights and exposures -----------------------------------------------------------------------


def test_equal_weights_change_nothing_but_the_scale() -> None:
    found = selected()
    same(found, selected(sample_weight=np.full(90, 4.0)), 4.0)
    same(found, selected(feature_weight=np.full(60, 0.25)), 0.25)


def test_weights_are_those_of_the_counts() -> None:
    """KL is homogeneous: weighted counts are scaled counts."""
    generator = np.random.default_rng(0)
    w, v = generator.uniform(0.5, 2, 90), generator.uniform(0.5, 2, 60)
    weighted = selected(X.astype(np.float64), feature_weight=v)
    np.testing.assert_allclose(weighted.deviance, selected(X * v).deviance, rtol=1e-6)
    # The small part of the background that is no share of a sample's rate counts per sample.
    weighted = selected(X.astype(np.float64), sample_weight=w, feature_weight=v)
    np.testing.assert_allclose(weighted.deviance, selected(w[:, None] * X * v).deviance, rtol=1e-3)


def test_samples_and_features_of_weight_0_are_left_out() -> None:
    w, v = np.arange(90) % 3 > 0, np.arange(60) % 4 > 0
    found = selected(sample_weight=w, feature_weight=v)
    assert (found.n_samples, found.n_features) == X.shape
    np.testing.assert_allclose(found.deviance, selected(X[w][:, v]).deviance, rtol=1e-6)
    with pytest.raises(ValueError, match="Only one sample has a weight above 0"):
        selected(sample_weight=np.arange(90) == 1)


def test_exposures_matter_under_penalties_only() -> None:
    e = np.random.default_rng(0).uniform(0.5, 2, 90)
    same(selected(), selected(exposure=e))
    penalties: Any = {"ranks": [1, 2, 3], "l1_W": 3.0, "l1_H": 3.0}
    apart = selected(exposure=e, **penalties).deviance - selected(**penalties).deviance
    assert np.abs(apart).max() > 0.01


# ---- missing cells -------------------------------------------------------------------------------


def test_missing_cells_are_in_no_fit_and_in_no_deviance() -> None:
    missing = np.random.default_rng(0).random(X.shape) < 0.1
    found = selected(missing=missing)
    for other in (np.where(missing, np.nan, X), np.where(missing, 1000, X)):
        again = selected(other, missing=sp.csr_array(missing))
        np.testing.assert_array_equal(again.deviance, found.deviance)
    assert found.best_rank == 3
    # All that was observed is scored: about nine tenths of the deviance.
    assert found.deviance[2] == pytest.approx(0.9 * selected().deviance[2], rel=0.05)


# ---- fixed entries -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_fixed", [1, 2])
def test_fixed_components_count_and_stay(n_fixed: int) -> None:
    fixed = PLANTED.H.T[:n_fixed]
    found = selected(ranks=range(n_fixed + 1, 6), fixed_components=fixed)
    assert found.best_rank == 3
    known = plain_counts(check_counts(X))
    fold = Fold(with_constraints(known, fixed_components=fixed), np.arange(90) % 3 == 0, 0, 1)
    factors = None
    for rank in (n_fixed + 1, 5):
        factors = fold.fitted(factors, rank, [0, rank])
    assert factors is not None
    for fit in (factors, fold.merged(factors, 4, [0])):
        np.testing.assert_array_equal(fit[1][:, :n_fixed], fixed.T.astype(np.float32))
        assert fold.free_components(fit).shape[1] == fit[1].shape[1] - n_fixed


def test_fixed_columns_count_and_stay() -> None:
    batch = np.random.default_rng(0).integers(2, size=90)[:, None].astype(float)
    rates = PLANTED.W @ PLANTED.H.T + 150 * batch * np.roll(PLANTED.H[:, 0], 7)
    Y = np.random.default_rng(1).poisson(rates)
    found = selected(Y, ranks=range(2, 7), fixed_W=batch)
    assert found.best_rank == 4
    known = plain_counts(check_counts(Y))
    is_test = np.arange(90) % 3 == 0
    fold = Fold(with_constraints(known, fixed_W=batch), is_test, 0, 1)
    five = fold.fitted(fold.fitted(None, 2, [0]), 5, [0])
    for W, _ in (five, fold.merged(five, 3, [0])):
        np.testing.assert_array_equal(W[:, -1], batch[~is_test, 0].astype(np.float32))


def with_constraints(counts: ConstrainedCounts, **given: Any) -> ConstrainedCounts:
    found = check_constraints(given, counts.X.shape, 99, counts.X.dtype)
    return replace(counts, constraints=found)


def test_ranks_include_the_fixed_components() -> None:
    fixed = PLANTED.H.T
    only = selected(ranks=[3, 4], fixed_components=fixed)  # nothing is learned with 3
    assert np.isnan(only.stability[0])
    with pytest.raises(ValueError, match="ranks begin with 2, but 3 components are fixed"):
        selected(ranks=[2, 3], fixed_components=fixed)
    without = np.where(np.arange(60) == X.sum(axis=0).argmax(), 0, fixed)
    with pytest.raises(ValueError, match="fixed_components leave no component"):
        selected(ranks=[3, 4], fixed_components=without)
    assert selected(ranks=[4, 5], fixed_components=without).best_rank == 4


@pytest.mark.parametrize(("name", "shape"), [("zero_components", (3, 60)), ("zero_W", (90, 3))])
def test_zeros_belong_to_one_rank_and_are_refused(name: str, shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"select_rank does not support {name}: it says which"):
        selected(**{name: np.zeros(shape, dtype=bool)})


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="select_rank does not take the argument 'weights'"):
        selected(weights=np.ones(90))


# ---- penalties -----------------------------------------------------------------------------------


def test_fits_have_the_penalties() -> None:
    penalties = Penalties.of_matrix(l1_W=2.0, l1_H=2.0)
    train = counts(90, 60, 3, 200)
    is_test = np.arange(90) % 3 == 0
    fold = Fold(plain_counts(train, penalties=penalties), is_test, 0, 1)
    factors = None
    for rank in (1, 2, 3):
        factors = fold.fitted(factors, rank, [0, rank])
    model = KLNMF(3, l1_W=2.0, l1_H=2.0, random_state=0).fit(train[~is_test])
    assert factors is not None
    objective = model.history_[-1]["objective"]
    assert fold.objective(factors) == pytest.approx(objective, rel=1e-3)


def test_heavy_penalties_leave_fewer_components() -> None:
    assert selected(l1_W=1e4, l1_H=1e4).best_rank < 3
    with pytest.warns(UserWarning, match="Only one of the factors is penalised"):
        selected(ranks=[1], l1_W=1.0)


# ---- checkpoints ---------------------------------------------------------------------------------


def test_search_with_other_constraints_is_another_search(tmp_path: Any) -> None:
    path = tmp_path / "search"
    w = np.linspace(1, 2, 90)
    first = selected(ranks=[1, 2], sample_weight=w, run=RunOptions(checkpoint=path))
    again = selected(ranks=[1, 2], sample_weight=w, run=RunOptions(checkpoint=path))
    np.testing.assert_array_equal(first.deviance, again.deviance)
    for other in ({}, {"sample_weight": w[::-1]}, {"sample_weight": w, "l1_W": 1.0, "l1_H": 1.0}):
        with pytest.raises(ValueError, match="another search"):
            selected(ranks=[1, 2], run=RunOptions(checkpoint=path), **other)
