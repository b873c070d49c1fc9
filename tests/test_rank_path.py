"""The path over ranks: fits that go on from smaller ones; and the rule that chooses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData
from klnmf.model_selection.growth import descended, one_component, resized
from klnmf.model_selection.hold_out import Fold
from klnmf.model_selection.search import Plan, Search, compared
from klnmf.objective import Penalties, kl_divergence
from klnmf.solvers.base import Problem
from rank_checks import counts, plain_counts

# ---- fits ----------------------------------------------------------------------------------------


def problem_of(X: Any) -> Problem:
    data = InMemoryData(X)
    data.prepare()
    return Problem(make_backend("auto", data, 1), Penalties())


def fold_of(X: Any, seed: int = 0) -> tuple[Fold, sp.csr_array]:
    """The first of five folds, and the samples outside it."""
    is_test = np.arange(X.shape[0]) % 5 == 0
    return Fold(plain_counts(X), is_test, seed, 1), X[~is_test]


def divergence(X: sp.csr_array, factors: Any) -> float:
    return kl_divergence(X, factors[0], factors[1].T)


def test_one_component_is_the_optimum() -> None:
    X = counts()
    problem = problem_of(X)
    factors = one_component(problem.backend.data)
    assert problem.evaluate(list(factors)).kkt_residual < 1e-5


def test_growing_keeps_the_fit_and_a_new_component_pays() -> None:
    X = counts()
    problem = problem_of(X)
    one = one_component(problem.backend.data)
    two = resized(lambda _: problem, one, 2, [0])
    assert two[0].shape == (120, 2)
    assert np.array_equal(two[0][:, 0], one[0][:, 0])
    assert not two[0][:, 1].any()  # waits for the first half-step
    np.testing.assert_allclose(two[1].sum(axis=0), 1.0, rtol=1e-5)
    improved, objective = descended(problem, two, 0)
    assert objective < 0.9 * problem.objective(list(one))
    assert objective == pytest.approx(divergence(X, improved), rel=1e-5)


@pytest.mark.parametrize(("rank", "most"), [(3, 1e-3), (5, 1e-3), (8, 5e-3)])
def test_warm_starts_do_not_end_above_fresh_fits(rank: int, most: float) -> None:
    """In the mean: single fits may end in either of two optima. Rank 8 of 5 fits noise."""
    gaps = []
    for seed in range(5):
        X = counts(150, 100, 5, seed=seed)
        fold, train = fold_of(X, seed)
        factors = None
        for r in range(1, rank + 1):
            factors = fold.fitted(factors, r, [seed, r])
        assert factors is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh = KLNMF(rank, random_state=seed, max_iter=100, n_threads=1).fit(train)
        gaps.append(divergence(train, factors) / fresh.divergence_ - 1)
    assert np.mean(gaps) < most


def test_every_new_component_is_used() -> None:
    """Beyond the planted rank it fits noise; a fit that leaves it empty has missed something."""
    for seed in range(3):
        fold, train = fold_of(counts(200, 150, 8, 300, seed), seed)
        factors, divergences = None, []
        for rank in range(1, 13):
            factors = fold.fitted(factors, rank, [seed, rank])
            assert np.all(factors[0].sum(axis=0) * factors[1].sum(axis=0) > 0)
            divergences.append(divergence(train, factors))
        falls = -np.diff(divergences) / divergences[-1]
        assert falls.min() > 1e-3
        assert falls[:7].min() > 2 * falls[7:].max()


def test_growing_by_several_components_finds_them_all() -> None:
    X = counts(200, 100, 6)
    fold, train = fold_of(X)
    step_by_step = None
    for rank in range(1, 7):
        step_by_step = fold.fitted(step_by_step, rank, [0, rank])
    assert step_by_step is not None
    at_once = fold.fitted(None, 6, [0, 6])
    assert divergence(train, at_once) < 1.01 * divergence(train, step_by_step)


# ---- the way back --------------------------------------------------------------------------------


def test_split_components_are_merged_again() -> None:
    X = counts()
    problem = problem_of(X)
    four = resized(lambda _: problem, one_component(problem.backend.data), 4, [0])
    (W, H), objective = descended(problem, four, 0)
    # Two of them are split in halves, at another scale.
    halves = np.concatenate([W, 0.5 * W[:, :2]], axis=1), np.concatenate([H, H[:, :2]], axis=1)
    halves[0][:, :2] *= 0.5
    halves[0][:, 2] *= 4.0
    halves[1][:, 2] /= 4.0
    split = (np.ascontiguousarray(halves[0]), np.ascontiguousarray(halves[1]))
    assert problem.objective(list(split)) == pytest.approx(objective, rel=1e-5)
    merged = resized(lambda _: problem, split, 4, [0])
    assert (merged[0].shape, merged[1].shape) == ((120, 4), (80, 4))
    assert problem.objective(list(merged)) <= objective * (1 + 1e-4)


def test_merge_keeps_row_sums_and_every_nonzero_its_cover() -> None:
    X = counts(depth=30)
    problem = problem_of(X)
    one = one_component(problem.backend.data)
    six, _ = descended(problem, resized(lambda _: problem, one, 6, [0]), 0)
    five = resized(lambda _: problem, six, 5, [0])
    before, after = (W.astype(float) @ H.sum(axis=0, dtype=float) for W, H in (six, five))
    np.testing.assert_allclose(after, before, rtol=1e-5)
    assert np.isfinite(problem.objective(list(five)))


def test_without_data_the_smallest_are_merged() -> None:
    problem = problem_of(sp.csr_array((4, 3), dtype=np.float32))
    factors = np.ones((4, 3), np.float32), np.array([[1, 5, 1]] * 3, np.float32)
    W, H = resized(lambda _: problem, factors, 2, [0])
    np.testing.assert_allclose((W @ H.T), np.full((4, 3), 7.0), rtol=1e-6)
    assert sorted(H.sum(axis=0)) == pytest.approx([3, 15])


def finished(search: Search, early_stop: bool = True) -> list[int]:
    """Ranks in the order in which they were fitted."""
    ranks = []
    while search.goes_on(early_stop):
        ranks.append(search.rank)
        for split in search.splits_to_do:
            search.accept(split, search.step(split))
    return ranks


def test_way_leads_up_and_back_and_keeps_the_lower_objective() -> None:
    X = counts(200, 150, 8, depth=60)
    search = Search.new(Plan(plain_counts(X), tuple(range(1, 13)), 2, (0.01, 0.1), 0, 1))
    while search.goes_on(early_stop=False) and search.back is None:
        for split in search.splits_to_do:
            search.accept(split, search.step(split))
    up, deviance = np.array(search.objectives), search.comparison().deviance
    assert len(up) == 12
    top = search.factors[0]
    assert finished(search, early_stop=False) == list(range(11, 1, -1))
    assert search.factors[0] is top
    back = np.array(search.objectives)
    assert np.all(back <= up)
    changed = back < up
    assert 3 <= changed.sum() <= 10
    assert not changed[[0, 11]].any()
    np.testing.assert_array_equal(search.comparison().deviance[~changed], deviance[~changed])
    assert search.n_fits == 2 * (12 + 10)
    assert search.ranks_ahead == []


def test_way_leads_on_upwards_where_the_deviance_has_not_risen_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Claimed:
        """Says that the deviance has risen: before the first way back, and from 9 ranks on."""

        def __init__(self, search: Search) -> None:
            n_done = search.n_ranks_done
            self.has_clearly_risen = n_done >= 9 or (n_done >= 4 and search.n_swept == 0)

    monkeypatch.setattr(Search, "comparison", lambda search: Claimed(search))
    search = Search.new(Plan(plain_counts(counts()), tuple(range(2, 20)), 2, (0.1,), 0, 1))
    assert finished(search) == [2, 3, 4, 5, 4, 3, 2, 6, 7, 8, 9, 10, 9, 8, 7, 6, 5, 4, 3, 2]
    assert not search.is_complete


# ---- the rule ------------------------------------------------------------------------------------


EACH = np.arange(400)  # folds of one sample each


def test_smallest_rank_within_one_standard_error_is_chosen() -> None:
    noise = np.random.default_rng(0).normal(size=(3, 400))
    noise -= noise.mean(axis=1, keepdims=True)
    of_samples = np.array([[2.0], [0.04], [0.0]]) + noise
    error = (noise[1] - noise[2]).std(ddof=1) / 20
    once = compared(of_samples, EACH)
    assert (once.lowest, once.chosen) == (2, 1)
    assert once.standard_error[1] == pytest.approx(error)
    assert once.standard_error[2] == 0
    of_samples[1] += 2 * error
    assert compared(of_samples, EACH).chosen == 2


def test_noise_that_ranks_share_is_no_error_of_their_difference() -> None:
    shared = 100 * np.random.default_rng(0).random(400)
    found = compared(np.array([shared + 1.0, shared]), EACH)
    assert found.chosen == 1
    assert found.standard_error[0] < 1e-12


def test_folds_that_disagree_widen_the_error() -> None:
    """In the mean the first is 0.2 above the second; the fits of one fold are bad."""
    folds = np.arange(400) % 4
    noise = 0.5 * np.random.default_rng(0).normal(size=400)
    alike = np.array([0.2 + noise, np.zeros(400)])
    apart = np.array([np.where(folds == 0, 0.8, 0.0) + noise, np.zeros(400)])
    assert compared(alike, folds).chosen == 1
    found = compared(apart, folds)
    assert found.chosen == 0
    means = np.array([(apart[0] - apart[1])[folds == k].mean() for k in range(4)])
    assert found.standard_error[0] == pytest.approx(means.std(ddof=1) / 2)


def test_path_is_given_up_only_after_a_clear_rise() -> None:
    generator = np.random.default_rng(0)

    def risen(heights: list[float]) -> bool:
        of_samples = np.array(heights)[:, None] + 0.1 * generator.normal(size=(len(heights), 400))
        return compared(of_samples, EACH).has_clearly_risen

    assert risen([2, 1, 1.5, 1.6, 1.7])
    assert not risen([2, 1, 1.5, 1.6])  # two are not enough
    assert not risen([2, 1, 1.0, 1.6, 1.7])
    assert not risen([2, 1.5, 1.4, 1.2, 1])
