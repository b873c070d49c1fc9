"""The choice of the rank: hold-out, deviance, growth of the fits, the rule, and what comes back."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import xlogy

from klnmf import KLNMF
from klnmf.backends import make_backend
from klnmf.model_selection import RankSelection, select_rank
from klnmf.model_selection import search as search_module
from klnmf.model_selection.choice import compared
from klnmf.model_selection.deviance import BACKGROUNDS, deviances_of_all_cells, feature_shares
from klnmf.model_selection.growth import descended, grown, one_component
from klnmf.model_selection.search import Plan, Search, agreement
from klnmf.model_selection.speckles import SpeckledSplit, n_hidden, random_cells
from klnmf.model_selection.thinning import ThinnedSplit, thinned
from klnmf.model_selection.timing import predicted_seconds
from klnmf.objective import Penalties, kl_divergence
from klnmf.saved.container import SavedFileError
from klnmf.simulate import simulate_counts
from klnmf.solvers.base import Problem
from klnmf.sparse_data import SparseData
from klnmf.validation import check_counts


def counts(n: int = 120, m: int = 80, rank: int = 4, depth: float = 200, seed: int = 0) -> Any:
    return check_counts(
        simulate_counts(n, m, rank, counts_per_sample=depth, random_state=seed).X, dtype=np.float32
    )


@pytest.fixture(scope="module", name="found")
def selection_of_planted_counts() -> RankSelection:
    return select_rank(counts(), range(1, 9), n_splits=3, random_state=0)


# ---- hold-out ------------------------------------------------------------------------------------


def test_thinned_parts_sum_to_the_counts_and_are_binomial() -> None:
    X = sp.csr_array(np.full((200, 100), 7.0, dtype=np.float32))
    train, test = thinned(X, 0.8, np.random.default_rng(0))
    assert np.array_equal((train + test).toarray(), X.toarray())
    assert train.data.min() > 0  # no explicit zeros
    assert test.data.min() > 0
    dense = train.toarray()
    assert abs(dense.mean() - 7 * 0.8) < 0.05
    assert abs(dense.var() - 7 * 0.8 * 0.2) < 0.05


def test_thinned_poisson_parts_are_independent() -> None:
    X = sp.csr_array(np.random.default_rng(1).poisson(3.0, (400, 300)).astype(np.float32))
    train, test = (part.toarray().ravel() for part in thinned(X, 0.5, np.random.default_rng(0)))
    assert abs(np.corrcoef(train, test)[0, 1]) < 4 / np.sqrt(train.size)


def test_deviance_is_that_of_the_formula() -> None:
    generator = np.random.default_rng(0)
    X = sp.csr_array(generator.poisson(0.7, (6, 5)).astype(float))
    W, H = generator.random((6, 2)), generator.random((5, 2))
    H[0] = 0.0  # a feature that the model does not know
    q, scale = np.array([0.1, 0.2, 0.3, 0.3, 0.1]), 0.25
    found = deviances_of_all_cells(X, W, H, q, [0.01, 0.2], scale)
    for background, row in zip([0.01, 0.2], found, strict=True):
        y, x = W @ H.T, X.toarray()
        total = y.sum(axis=1, keepdims=True)
        mu = scale * ((1 - background) * y + background * (total + 1) * q)
        expected = 2 * (xlogy(x, x / mu) - x + mu).sum(axis=1)
        np.testing.assert_allclose(row, expected, rtol=1e-12)


def test_shares_of_the_background_are_positive_and_sum_to_one() -> None:
    data = SparseData(check_counts(np.array([[3.0, 0.0], [1.0, 0.0]])))
    np.testing.assert_allclose(feature_shares(data), [5 / 6, 1 / 6])


def test_held_out_counts_without_a_rate_cost_something_finite() -> None:
    X = np.zeros((10, 6))
    X[:, :3] = 5
    X[0, 5] = 1  # a feature that occurs once: in training or in test
    X[9] = 0
    X[9, 4] = 1  # and so does a whole sample
    selection = select_rank(X, [1, 2], n_splits=4, random_state=0)
    assert np.isfinite(selection.deviance).all()


# ---- fits ----------------------------------------------------------------------------------------


def problem_of(X: Any) -> Problem:
    data = SparseData(X)
    data.prepare()
    return Problem(make_backend("auto", data, 1), Penalties())


def test_one_component_is_the_optimum() -> None:
    X = counts()
    problem = problem_of(X)
    factors = one_component(problem.backend.data)
    assert problem.evaluate(list(factors)).kkt_residual < 1e-5


def test_growing_keeps_the_fit_and_a_new_component_pays() -> None:
    X = counts()
    problem = problem_of(X)
    one = one_component(problem.backend.data)
    two = grown(problem, one, 2, [0])
    assert two[0].shape == (120, 2)
    assert np.array_equal(two[0][:, 0], one[0][:, 0])
    assert not two[0][:, 1].any()  # waits for the first half-step
    np.testing.assert_allclose(two[1].sum(axis=0), 1.0, rtol=1e-5)
    improved, objective = descended(problem, two, 0)
    assert objective < 0.9 * problem.objective(list(one))
    assert objective == pytest.approx(kl_divergence(X, *improved), rel=1e-5)


@pytest.mark.parametrize(("rank", "most"), [(3, 1e-3), (5, 1e-3), (8, 5e-3)])
def test_warm_starts_do_not_end_above_fresh_fits(rank: int, most: float) -> None:
    """In the mean: single fits may end in either of two optima. Rank 8 of 5 fits noise."""
    gaps = []
    for seed in range(5):
        X = counts(150, 100, 5, seed=seed)
        split = ThinnedSplit(X, 0.9, [seed], 1)
        factors = None
        for r in range(1, rank + 1):
            factors = split.fitted(factors, r, [seed, r])
        assert factors is not None
        train = split._problem.backend.data.view(0).as_csr()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh = KLNMF(rank, random_state=seed, max_iter=100, n_threads=1).fit(train)
        gaps.append(kl_divergence(train, *factors) / fresh.divergence_ - 1)
    assert np.mean(gaps) < most


def test_every_new_component_is_used() -> None:
    """Beyond the planted rank it fits noise; a fit that leaves it empty has missed something."""
    for seed in range(3):
        split = ThinnedSplit(counts(200, 150, 8, 300, seed), 0.9, [seed], 1)
        train = split._problem.backend.data.view(0).as_csr()
        factors, divergences = None, []
        for rank in range(1, 13):
            factors = split.fitted(factors, rank, [seed, rank])
            assert np.all(factors[0].sum(axis=0) * factors[1].sum(axis=0) > 0)
            divergences.append(kl_divergence(train, *factors))
        falls = -np.diff(divergences) / divergences[-1]
        assert falls.min() > 1e-3
        assert falls[:7].min() > 2 * falls[7:].max()


def test_held_out_counts_are_predicted_in_their_own_scale() -> None:
    X = sp.csr_array(np.random.default_rng(0).poisson(200.0, (100, 80)).astype(np.float32))
    split = ThinnedSplit(X, 0.8, [0], 1)
    deviances = split.deviances(split.fitted(None, 1, [0]), [1e-6])
    # Of a cell: χ² with one degree of freedom, a little more as the rates are estimated.
    assert abs(deviances.mean() / 80 - 1) < 0.1


def test_growing_by_several_components_finds_them_all() -> None:
    X = counts(200, 100, 6)
    split = ThinnedSplit(X, 0.9, [0], 1)
    step_by_step = None
    for rank in range(1, 7):
        step_by_step = split.fitted(step_by_step, rank, [0, rank])
    assert step_by_step is not None
    at_once = split.fitted(None, 6, [0, 6])
    train = split._problem.backend.data.view(0).as_csr()
    assert kl_divergence(train, *at_once) < 1.01 * kl_divergence(train, *step_by_step)


# ---- speckled hold-out ---------------------------------------------------------------------------


def masked_divergence(x: np.ndarray, y: np.ndarray, visible: np.ndarray) -> float:
    x, y = x[visible], y[visible] + 1e-300
    return float(np.sum(xlogy(x, x / y) - x + y))


@pytest.fixture(name="speckled")
def speckled_split() -> tuple[SpeckledSplit, np.ndarray, np.ndarray]:
    """A split, the data, and which cells it sees."""
    dense = 1.3 * counts(40, 30, 3, 150).toarray().astype(np.float64)
    split = SpeckledSplit(check_counts(dense), 0.8, [3], 1)
    visible = np.ones(dense.shape, dtype=bool)
    visible[split._rows, split._columns] = False
    return split, dense, visible


def test_hidden_cells_are_random_and_include_zeros(speckled: Any) -> None:
    split, dense, visible = speckled
    assert (~visible).sum() == round(0.2 * dense.size)
    np.testing.assert_array_equal(split._values, dense[~visible])
    share = (dense[~visible] == 0).mean()
    assert abs(share - (dense == 0).mean()) < 0.12


def test_fit_to_the_visible_cells_is_that_of_masked_updates(speckled: Any) -> None:
    split, dense, visible = speckled
    factors = None
    for rank in (1, 2, 3):
        factors = split.fitted(factors, rank, [3, rank])
    W, H = (np.asarray(factor, dtype=np.float64) for factor in factors)
    ours = masked_divergence(dense, W @ H.T, visible)
    assert split.objective(factors) == pytest.approx(ours, rel=1e-5)
    # Multiplicative updates with a mask, from there: no better optimum close by.
    for _ in range(500):
        W *= (visible * dense / (W @ H.T + 1e-300)) @ H / (visible @ H)
        H *= (visible * dense / (W @ H.T + 1e-300)).T @ W / (visible.T @ W)
    assert masked_divergence(dense, W @ H.T, visible) > 0.995 * ours


def test_hidden_values_do_not_reach_the_fit() -> None:
    dense = 1.3 * counts(40, 30, 3, 150).toarray().astype(np.float64)
    split = SpeckledSplit(check_counts(dense), 0.8, [3], 1)
    other = dense.copy()
    other[split._rows, split._columns] = 77.7 * (dense[split._rows, split._columns] > 0)
    again = SpeckledSplit(check_counts(other), 0.8, [3], 1)
    for ours, theirs in zip(split.fitted(None, 2, [0]), again.fitted(None, 2, [0]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_number_of_hidden_cells_is_bounded_by_the_nonzeros() -> None:
    assert n_hidden((1000, 1000), 50_000, 0.9) == 100_000
    assert n_hidden((1_000_000, 1_000_000), 50_000, 0.9) == 500_000
    for n_cells in (20, 90):  # both ways of drawing
        cells = random_cells((10, 10), n_cells, np.random.default_rng(0))
        assert len(np.unique(cells)) == n_cells
        assert cells.max() < 100


def test_values_that_are_no_counts_are_held_out_by_cells_with_a_warning() -> None:
    X = counts(100, 60, 3, 300).toarray() * 0.37
    with pytest.warns(UserWarning, match="not whole numbers.*speckled"):
        selection = select_rank(X, range(1, 6), n_splits=2, random_state=0)
    assert selection.method == "speckled"
    assert selection.best_rank == 3


# ---- the rule ------------------------------------------------------------------------------------


def test_smallest_rank_within_one_standard_error_is_chosen() -> None:
    noise = np.random.default_rng(0).normal(size=(3, 400))
    noise -= noise.mean(axis=1, keepdims=True)
    of_samples = np.array([[2.0], [0.04], [0.0]]) + noise
    error = (noise[1] - noise[2]).std(ddof=1) / 20
    once = compared(of_samples, of_samples.mean(axis=1, keepdims=True))
    assert (once.lowest, once.chosen) == (2, 1)
    assert once.standard_error[1] == pytest.approx(error)
    assert once.standard_error[2] == 0
    of_samples[1] += 2 * error
    assert compared(of_samples, of_samples.mean(axis=1, keepdims=True)).chosen == 2


def test_noise_that_ranks_share_is_no_error_of_their_difference() -> None:
    shared = 100 * np.random.default_rng(0).random(50)
    of_samples = np.array([shared + 1.0, shared])
    found = compared(of_samples, of_samples.mean(axis=1, keepdims=True))
    assert found.chosen == 1
    assert found.standard_error[0] < 1e-12


def test_splits_that_disagree_widen_the_error() -> None:
    of_samples = np.array([[1.0, 1.1], [0.9, 1.0]])
    alike = compared(of_samples, np.array([[1.05, 1.05], [0.95, 0.95]]))
    apart = compared(of_samples, np.array([[1.35, 0.75], [0.95, 0.95]]))
    assert alike.chosen == 1
    assert apart.chosen == 0


def test_path_is_given_up_only_after_a_clear_rise() -> None:
    generator = np.random.default_rng(0)

    def risen(heights: list[float]) -> bool:
        of_samples = np.array(heights)[:, None] + 0.1 * generator.normal(size=(len(heights), 200))
        return compared(of_samples, of_samples.mean(axis=1, keepdims=True)).has_clearly_risen

    assert risen([2, 1, 1.5, 1.6, 1.7])
    assert not risen([2, 1, 1.5, 1.6])  # two are not enough
    assert not risen([2, 1, 1.0, 1.6, 1.7])
    assert not risen([2, 1.5, 1.4, 1.2, 1])


# ---- select_rank ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "depth"), [(3, 100), (5, 300), (6, 1000)])
def test_planted_rank_is_found(rank: int, depth: float) -> None:
    for seed in range(3):
        X = counts(40 * rank, 150, rank, depth, seed)
        selection = select_rank(X, range(1, rank + 6), n_splits=3, random_state=seed)
        assert abs(selection.best_rank - rank) <= 1


@pytest.mark.parametrize("mean", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("is_even", [True, False])
def test_noise_has_rank_one(mean: float, is_even: bool) -> None:
    generator = np.random.default_rng(7)
    rates = np.full((200, 150), mean)
    if not is_even:
        rates = np.outer(generator.lognormal(0, 0.7, 200), generator.lognormal(0, 1, 150)) * mean
    selection = select_rank(generator.poisson(rates), range(1, 8), n_splits=3, random_state=0)
    assert selection.best_rank == 1


@pytest.mark.slow
@pytest.mark.parametrize("breadth", [0.1, 0.5])
def test_planted_ranks_up_to_twenty_are_found(breadth: float) -> None:
    hits = []
    for rank, shape in ((5, (200, 300)), (10, (300, 400)), (20, (600, 500))):
        for depth in (400, 1000):
            X = simulate_counts(
                *shape,
                rank,
                counts_per_sample=depth,
                concentration_H=breadth,
                random_state=rank + depth,
            ).X
            selection = select_rank(X, range(1, rank + 8), random_state=0)
            hits.append(abs(selection.best_rank - rank) <= 1)
    assert np.mean(hits) >= 0.9


def test_result_does_not_depend_on_jobs_threads_or_memory(
    found: RankSelection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "KEPT_BYTES", 0)  # splits are drawn anew for each fit
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
    np.testing.assert_array_equal(whole.deviance[:7], found.deviance)


def test_background_is_the_best_for_each_rank(found: RankSelection) -> None:
    fixed = {
        background: select_rank(
            counts(), [4], n_splits=3, background=background, random_state=0
        ).deviance[0]
        for background in BACKGROUNDS
    }
    whole = select_rank(counts(), [4], n_splits=3, random_state=0)
    assert whole.deviance[0] == min(fixed.values())
    assert whole.background[0] == min(fixed, key=lambda background: fixed[background])


def test_stability_is_highest_at_the_planted_rank(found: RankSelection) -> None:
    assert found.stability[3] > 0.99
    assert found.stability[3] > found.stability[4:].max()
    single = select_rank(counts(), [2], n_splits=1, random_state=0)
    assert np.isnan(single.stability[0])


def test_agreement_is_that_of_matched_components() -> None:
    first = np.array([[1.0, 0.0, 0.0], [0.0, 3.0, 4.0]])
    second = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    assert agreement([first, second]) == pytest.approx((1 + 0.6) / 2)
    assert np.isnan(agreement([first]))


def test_callback_sees_every_fit_and_a_time_that_shrinks_to_nothing() -> None:
    records: list[dict[str, Any]] = []
    select_rank(
        counts(), [1, 3, 2], n_splits=2, early_stop=False, n_jobs=1, random_state=0,
        callback=records.append,
    )  # fmt: skip
    assert [(record["rank"], record["split"]) for record in records] == [
        (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1),
    ]  # fmt: skip
    assert [record["n_done"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert records[0]["seconds_left"] is None  # one component says nothing about more
    assert records[2]["seconds_left"] > 0
    assert records[-1]["seconds_left"] == 0
    assert {record["n_fits"] for record in records} == {6}


def test_progress_bar_is_shown_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    select_rank(counts(), [1, 2], n_splits=1, progress=True, random_state=0)
    assert "klnmf rank:" in capsys.readouterr().err
    select_rank(counts(), [1, 2], n_splits=1, random_state=0)  # no terminal
    assert capsys.readouterr().err == ""


def test_time_is_predicted_from_its_growth_with_the_rank() -> None:
    ranks = [2, 4, 6, 8, 10]
    assert predicted_seconds(ranks, [0.1 * r for r in ranks], [20, 40]) == pytest.approx(6.0)
    # Times that fall by chance do not predict less than nothing.
    falling = predicted_seconds([2, 3], [2.0, 1.0], [10])
    assert falling is not None
    assert falling >= 1.0
    assert predicted_seconds([1], [0.1], [2]) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": []}, "ranks must be whole numbers"),
        ({"ranks": [0, 1]}, r"at least 1; got \[0, 1\]"),
        ({"ranks": [1.5]}, "ranks must be whole numbers"),
        ({"n_splits": 0}, "n_splits must be a whole number of at least 1; got 0"),
        ({"train_fraction": 1.0}, "train_fraction must be between 0 and 1"),
        ({"background": 0}, "background must be between 0 and 1"),
        ({"background": "none"}, 'background must be "best" or'),
        ({"n_jobs": 0}, "n_jobs must be None or"),
        ({"resume": True}, "pass checkpoint="),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_rank(counts(20, 10), **arguments)


def test_data_without_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing but zeros"):
        select_rank(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="Negative values"):
        select_rank(-np.ones((4, 3)))


# ---- what comes back -----------------------------------------------------------------------------


def test_table_has_a_row_for_each_rank(found: RankSelection) -> None:
    table = found.table()
    assert {len(column) for column in table.values()} == {len(found.ranks)}
    assert table["rank"][table["is_best"]].tolist() == [found.best_rank]
    assert table["difference"].min() == 0
    pandas = pytest.importorskip("pandas")
    assert pandas.DataFrame(table).shape == (7, 8)


def test_printed_table_marks_the_choice(found: RankSelection) -> None:
    lines = str(found).splitlines()
    assert [line for line in lines if "<- best" in line] == [lines[4]]
    assert lines[4].split()[0] == "4"
    assert "4 components: the fewest within one standard error" in str(found)
    assert "Beyond 7 nothing was tried" in str(found)


def test_largest_rank_being_best_is_said() -> None:
    selection = select_rank(counts(), [1, 2, 3], n_splits=2, random_state=0)
    assert selection.is_at_the_edge
    assert "still falling at 3" in str(selection)


def test_saved_and_loaded_it_is_the_same(found: RankSelection, tmp_path: Path) -> None:
    single = select_rank(counts(), [1, 2], n_splits=1, random_state=0)  # with stability NaN
    for selection in (found, single):
        selection.save(tmp_path / "rank.json")
        again = RankSelection.load(tmp_path / "rank.json")
        assert str(again) == str(selection)
        for name, column in selection.table().items():
            np.testing.assert_array_equal(again.table()[name], column)
        assert again.random_state == selection.random_state
    assert [path.name for path in tmp_path.iterdir()] == ["rank.json"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("format", "x"), ("version", 2), ("deviance", [1.0]), ("best_rank", 99), ("ranks", None)],
)
def test_damaged_files_are_refused(
    found: RankSelection, tmp_path: Path, name: str, value: Any
) -> None:
    path = tmp_path / "rank.json"
    found.save(path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {name: value}))
    with pytest.raises(SavedFileError, match="not a rank selection that klnmf wrote"):
        RankSelection.load(path)


def test_nothing_is_written_to_a_folder_that_is_not_there(
    found: RankSelection, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        found.save(tmp_path / "nowhere" / "rank.json")


# ---- interrupted searches ------------------------------------------------------------------------


class Killed(BaseException):
    """What stands for the end of the process."""


@pytest.mark.parametrize("n_fits", [1, 4, 9])
def test_killed_search_goes_on_to_the_same_result(
    found: RankSelection, tmp_path: Path, n_fits: int
) -> None:
    path = tmp_path / "search"
    arguments: dict[str, Any] = {"n_splits": 3, "random_state": 0, "checkpoint": path}

    def kill(record: dict[str, Any]) -> None:
        if record["n_done"] == n_fits:
            raise Killed

    with pytest.raises(Killed):
        select_rank(counts(), range(1, 9), callback=kill, **arguments)
    seen: list[int] = []
    again = select_rank(
        counts(), range(1, 9), callback=lambda record: seen.append(record["n_done"]), **arguments
    )
    assert min(seen) > n_fits  # what was done is not done again
    for name in ("deviance", "standard_error", "stability", "background"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    # A search that is over is over.
    third = select_rank(counts(), range(1, 9), callback=kill, **arguments)
    np.testing.assert_array_equal(third.deviance, found.deviance)


def test_file_is_written_only_so_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from klnmf.model_selection import search_file

    written: list[int] = []
    original = search_file.write_container
    monkeypatch.setattr(
        search_file, "write_container", lambda *a, **k: (written.append(1), original(*a, **k))
    )
    for every, expected in ((1e9, 2), (0.0, 6)):  # the first, the last; and one for each fit
        written.clear()
        select_rank(
            counts(), [1, 2], n_splits=2, random_state=0,
            checkpoint=tmp_path / f"search{every}", checkpoint_every=every,
        )  # fmt: skip
        assert len(written) == expected


def test_search_of_other_data_or_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search"
    given: dict[str, Any] = {"n_splits": 2, "random_state": 0, "checkpoint": path}
    select_rank(counts(), [1, 2], **given)
    with pytest.raises(SavedFileError, match=r"another search.*ranks \(\[1, 2\] there, \[1, 3\]"):
        select_rank(counts(), [1, 3], **given)
    with pytest.raises(SavedFileError, match="checksum of X"):
        select_rank(counts(seed=1), [1, 2], **given)
    with pytest.raises(SavedFileError, match="seed"):
        select_rank(counts(), [1, 2], **(given | {"random_state": 1}))
    without_seed = select_rank(counts(), [1, 2], **(given | {"random_state": None}))
    assert without_seed.is_complete
    anew = select_rank(counts(), [1, 3], resume=False, **given)
    assert anew.ranks.tolist() == [1, 3]


def test_damaged_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search"
    path.write_bytes(b"no zip")
    with pytest.raises(SavedFileError, match="not a file that klnmf saved"):
        select_rank(counts(), [1, 2], checkpoint=path, random_state=0)
    assert path.read_bytes() == b"no zip"


def test_search_in_a_folder_that_is_not_there_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        select_rank(counts(), checkpoint=tmp_path / "nowhere" / "search", callback=pytest.fail)


def test_step_changes_nothing_until_it_is_accepted() -> None:
    search = Search.new(Plan(counts(), (2,), 2, 0.9, (0.01,), "thinning", 0, 1))
    step = search.step(0)
    assert search.factors == [None, None]
    assert search.splits_to_do == [0, 1]
    search.accept(0, step)
    assert search.splits_to_do == [1]
    assert search.n_ranks_done == 0
