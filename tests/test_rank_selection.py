"""`select_rank`: planted ranks, noise, arguments, progress."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.overdispersed import COMPONENTS, draw

from klnmf import RunOptions
from klnmf.estimators.held_out import BACKGROUNDS
from klnmf.model_selection import RankSelection, select_rank, selection
from klnmf.model_selection import search as search_module
from klnmf.model_selection.search import Plan, Search, Step, agreement
from rank_checks import counts, plain_counts


@pytest.fixture(scope="module", name="found")
def selection_of_planted_counts() -> RankSelection:
    return select_rank(counts(), range(1, 9), n_splits=3, random_state=0)


# ---- select_rank ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "depth"), [(3, 100), (5, 300), (6, 1000)])
def test_planted_rank_is_found(rank: int, depth: float) -> None:
    for seed in range(2):
        X = counts(40 * rank, 150, rank, depth, seed)
        selection = select_rank(X, range(1, rank + 6), n_splits=3, random_state=seed)
        assert abs(selection.best_rank - rank) <= 1


def test_components_that_vanish_do_no_harm() -> None:
    kinds = np.array([[2, 1, 1, 0, 0, 0], [0, 1, 0, 2, 1, 0], [1, 0, 0, 0, 1, 3]], dtype=float)
    X = np.tile(kinds, (6, 1))  # three components are exact, and the others shrink to nothing
    selection = select_rank(X, range(1, 16), random_state=0)
    assert np.isfinite(selection.deviance).all()
    assert selection.best_rank <= 4


def test_remark_on_ranks_for_reading(found: RankSelection) -> None:
    chosen = {"ranks": np.array([2, 4]), "best_rank": 4, "lowest_rank": 4, "stable_rank": 2}
    columns = ("deviance", "difference", "standard_error", "background", "seconds")
    two = replace(found, **chosen, **{name: np.arange(2.0) for name in columns})
    assert "For reading: 2" in str(replace(two, stability=np.array([0.95, 0.5])))
    unstable = " ".join(str(replace(two, stability=np.array([0.7, 0.5]))).split())
    assert "No rank above 1 up to the choice has a stability of at least 0.9" in unstable


@pytest.mark.parametrize("mean", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("is_even", [True, False])
def test_noise_has_rank_one(mean: float, is_even: bool) -> None:
    generator = np.random.default_rng(7)
    rates = np.full((200, 150), mean)
    if not is_even:
        rates = np.outer(generator.lognormal(0, 0.7, 200), generator.lognormal(0, 1, 150)) * mean
    selection = select_rank(generator.poisson(rates), range(1, 8), n_splits=3, random_state=0)
    assert selection.best_rank == 1


@pytest.mark.parametrize("size", [1.0, 3.0, None])
@pytest.mark.parametrize("rank", [1, 3])
def test_overdispersed_counts_have_their_rank(rank: int, size: float | None) -> None:
    """Thinned counts would share the noise of a cell between training and test: 10 and more."""
    X = draw(200, 100, rank, 300, size=size, seed=rank).X
    assert select_rank(X, range(1, 8), n_splits=3, random_state=0).best_rank == rank


def test_short_samples_are_said_to_be_short() -> None:
    short, long = (draw(150, 80, 6, depth, components="broad", seed=0).X for depth in (15, 500))
    remarks = [
        " ".join(select_rank(X, range(1, 9), n_splits=3, random_state=0).remarks())
        for X in (short, long)
    ]
    assert "what these counts can show, not how many components there are" in remarks[0]
    assert "what these counts can show" not in remarks[1]


def test_values_that_are_no_counts_have_their_rank() -> None:
    X = draw(150, 96, 4, 1500, noise="gamma", variance=0.05, seed=0).X
    assert select_rank(X, range(1, 8), n_splits=3, random_state=0).best_rank == 4


@pytest.mark.slow
def test_ranks_are_right_within_one_for_all_kinds_of_noise_and_components() -> None:
    """A small part of ``benchmarks/ranks.py``; it fails if the calibration is lost."""
    hits = []
    for number, (rank, kind) in enumerate(product((1, 3, 7), COMPONENTS)):
        for size in (None, (10.0, 3.0, 1.0)[number % 3]):
            X = draw(250, 150, rank, 400, kind, size=size, seed=[number]).X
            found = select_rank(X, range(1, rank + 6), random_state=0, n_jobs=1)
            hits.append(abs(found.best_rank - rank) <= 1 and (rank > 1 or found.best_rank == 1))
    assert np.mean(hits) >= 0.9


def test_result_does_not_depend_on_jobs_threads_or_memory(
    found: RankSelection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "KEPT_BYTES", 0)  # folds are selected again for each fit
    again = select_rank(counts(), range(1, 9), n_splits=3, n_jobs=3, n_threads=2, random_state=0)
    for name in ("deviance", "standard_error", "stability"):
        np.testing.assert_array_equal(getattr(found, name), getattr(again, name))


def test_input_types_give_the_same_choice(found: RankSelection) -> None:
    X = counts()
    for other in (X.toarray().astype(np.int64), sp.csc_array(X.astype(np.float64))):
        again = select_rank(other, range(1, 9), n_splits=3, random_state=0)
        np.testing.assert_array_equal(found.deviance, again.deviance)


def test_early_stop_saves_ranks_and_keeps_the_choice(found: RankSelection) -> None:
    assert not found.is_complete
    assert found.ranks.tolist() == [1, 2, 3, 4, 5, 6, 7]
    whole = select_rank(counts(), range(1, 9), n_splits=3, early_stop=False, random_state=0)
    assert whole.is_complete
    assert whole.best_rank == found.best_rank == 4
    # The ways back begin at different ranks; a rank may keep the fits of either.
    np.testing.assert_allclose(whole.deviance[:7], found.deviance, rtol=0.01)


def test_background_is_the_best_for_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = select_rank(counts(), [4], n_splits=3, random_state=0)
    fixed = {}
    for background in BACKGROUNDS:
        monkeypatch.setattr(selection, "BACKGROUNDS", (background,))
        only = select_rank(counts(), [4], n_splits=3, random_state=0)
        fixed[background] = only.deviance[0]
    assert whole.deviance[0] == min(fixed.values())
    assert whole.background[0] == min(fixed, key=lambda background: fixed[background])


def test_stability_is_highest_at_the_planted_rank(found: RankSelection) -> None:
    assert found.stability[3] > 0.99
    assert found.stability[3] > found.stability[4:].max()


def test_agreement_is_that_of_matched_components() -> None:
    first = np.array([[1.0, 0.0, 0.0], [0.0, 3.0, 4.0]])
    second = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    assert agreement([first, second]) == pytest.approx((1 + 0.6) / 2)
    assert np.isnan(agreement([first]))


def test_callback_sees_every_fit_and_a_time_that_shrinks_to_nothing() -> None:
    records: list[dict[str, Any]] = []
    select_rank(
        counts(), [1, 3, 2], n_splits=2, early_stop=False, n_jobs=1, random_state=0,
        run=RunOptions(callback=records.append),
    )  # fmt: skip
    assert [(record["rank"], record["split"]) for record in records] == [
        (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    assert [record["n_done"] for record in records] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert records[0]["seconds_left"] is None  # one component says nothing about more
    assert records[2]["seconds_left"] > 0
    assert records[-1]["seconds_left"] == 0
    assert {record["n_fits"] for record in records} == {8}


def test_progress_bar_is_shown_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    select_rank(counts(), [1, 2], n_splits=2, run=RunOptions(progress=True), random_state=0)
    assert "klnmf rank:" in capsys.readouterr().err
    select_rank(counts(), [1, 2], n_splits=2, random_state=0)  # no terminal
    assert capsys.readouterr().err == ""


def test_time_is_predicted_to_grow_with_the_rank() -> None:
    plan = Plan(plain_counts(counts()), (1, 2, 4, 20), 2, (0.1,), 0, 1)
    search = Search.new(plan)
    search.of_samples, search.seconds = [np.zeros(1)], [np.full(2, 0.01)]
    assert search.seconds_left(1) is None  # one component says nothing about more
    search.of_samples, search.seconds = 3 * [np.zeros(1)], [np.full(2, 0.1 * r) for r in (0, 2, 4)]
    # 20 in two folds, and on the way back 4 and 2.
    assert search.seconds_left(1) == pytest.approx(0.1 * 2 * (20 + 4 + 2))
    assert search.seconds_left(8) == pytest.approx(0.1 * (20 + 4 + 2))
    step = Step((np.zeros((1, 1)),) * 2, np.zeros((1, 1)), 0.0, seconds=2.0)
    search.current = {0: step}
    assert search.seconds_left(1) == pytest.approx(0.1 * (20 + 2 * (4 + 2)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": []}, "ranks must be whole numbers"),
        ({"ranks": [0, 1]}, r"at least 1; got \[0, 1\]"),
        ({"ranks": [1.5]}, "ranks must be whole numbers"),
        ({"n_splits": 1}, "n_splits must be a whole number of at least 2; got 1"),
        ({"l1_W": -1}, "l1_W must be a finite number of at least 0; got -1"),
        ({"n_jobs": 0}, "n_jobs must be None, from 1 to"),
        ({"run": RunOptions(resume=True)}, "pass checkpoint="),
        ({"run": RunOptions(resume="no")}, "'resume' parameter of RunOptions must be"),
        ({"run": RunOptions(resume=1)}, "'resume' parameter of RunOptions must be"),
        ({"run": RunOptions(progress="maybe")}, "'progress' parameter of RunOptions must be"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_rank(counts(20, 10), **arguments)


def test_data_without_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="All values of X are zero"):
        select_rank(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="Negative values"):
        select_rank(-np.ones((4, 3)))
