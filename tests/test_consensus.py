"""Components that many runs agree on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, RunOptions
from klnmf.data.sparse_data import InMemoryView
from klnmf.model_selection import Consensus, consensus
from klnmf.model_selection.consensus_groups import (
    distances,
    grouped_runs,
    mean_distance_to_neighbours,
)
from klnmf.objective import kl_divergence
from klnmf.simulate import simulate_counts
from klnmf.topics import match_components

PLANTED = simulate_counts(150, 80, 4, counts_per_sample=300, random_state=0)


@pytest.fixture(scope="module", name="found")
def consensus_of_planted_counts() -> Consensus:
    return consensus(PLANTED.X, 4, n_runs=12, random_state=0)


def test_planted_components_are_agreed_on(found: Consensus) -> None:
    match = match_components(found.components, PLANTED.H.T)
    assert match.similarity.min() > 0.97
    assert found.stability.min() > 0.999
    assert found.silhouette.min() > 0.95
    assert found.run_share.tolist() == [1.0] * 4
    assert found.n_left_out == 0


def test_components_are_medians_and_w_is_solved_for(found: Consensus) -> None:
    for k in range(4):
        median = np.median(found.spectra[found.labels == k], axis=0)
        np.testing.assert_allclose(found.components[k], median / median.sum(), atol=1e-6)
    np.testing.assert_allclose(found.components.sum(axis=1), 1.0, rtol=1e-6)
    assert np.all(np.diff(found.W.sum(axis=0)) <= 0)  # the largest first
    # With the components fixed no W is better, and the row sums are those of X.
    np.testing.assert_allclose(
        found.W.sum(axis=1), np.asarray(PLANTED.X.sum(axis=1)).ravel(), rtol=1e-3
    )
    assert found.divergence == pytest.approx(
        kl_divergence(PLANTED.X, found.W, found.components), rel=1e-5
    )


def test_refit_of_both_factors_describes_the_data_better(found: Consensus) -> None:
    both = consensus(PLANTED.X, 4, n_runs=12, refit="both", random_state=0)
    assert both.divergence < found.divergence
    best = KLNMF(4, random_state=0).fit(PLANTED.X).divergence_
    assert both.divergence == pytest.approx(best, rel=2e-3)


def test_result_does_not_depend_on_jobs_and_x_is_prepared_once(
    found: Consensus, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[InMemoryView] = []
    original = InMemoryView.transposed

    def counted(self: InMemoryView, *constraints: Any) -> InMemoryView:
        made.append(self)
        return original(self, *constraints)

    monkeypatch.setattr(InMemoryView, "transposed", counted)
    again = consensus(PLANTED.X, 4, n_runs=12, n_jobs=3, n_null_runs=0, random_state=0)
    assert len(made) == 1
    np.testing.assert_array_equal(found.components, again.components)
    np.testing.assert_array_equal(found.run_objectives, again.run_objectives)


def test_too_many_components_are_less_stable(found: Consensus) -> None:
    more = consensus(PLANTED.X, 7, n_runs=12, random_state=0)
    assert more.silhouette.min() < 0.6 < found.silhouette.min()
    assert more.stability.min() < found.stability.min()


def test_far_components_are_left_out() -> None:
    generator = np.random.default_rng(0)
    near = np.repeat(np.eye(3, 10), 6, axis=0) + 0.02 * generator.random((18, 10))
    far = generator.random((2, 10)) * (np.arange(10) > 5)
    rows = np.concatenate([near, far]).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    between = distances(rows)
    expected = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.testing.assert_allclose(between, expected, atol=1e-3)
    to_neighbours = mean_distance_to_neighbours(between, n_runs=7)  # two neighbours
    assert to_neighbours[0] == pytest.approx(np.sort(between[0])[1:3].mean())
    assert to_neighbours[:18].max() < 0.1 < to_neighbours[18:].min()
    groups = grouped_runs(rows[:18], 6, threshold=0.1, seed=0)
    assert len({tuple(groups.labels[6 * i : 6 * i + 6]) for i in range(3)}) == 3
    assert all(len(set(groups.labels[6 * i : 6 * i + 6])) == 1 for i in range(3))


def test_threshold_leaves_out_what_lies_alone() -> None:
    found = consensus(PLANTED.X, 6, n_runs=8, random_state=0)
    threshold = float(np.quantile(found.neighbour_distance, 0.8))
    strict = consensus(PLANTED.X, 6, n_runs=8, density_threshold=threshold, random_state=0)
    assert strict.n_left_out == np.sum(found.neighbour_distance > threshold) > 0
    with pytest.raises(ValueError, match="The runs do not agree"):
        consensus(PLANTED.X, 6, n_runs=8, density_threshold=1e-9, random_state=0)


def test_feature_that_no_median_has_keeps_a_cover() -> None:
    X = sp.lil_array((60, 30))
    X[:, :20] = simulate_counts(60, 20, 2, counts_per_sample=100, random_state=0).X
    X[0, 25] = 1  # so rare that runs may put it anywhere
    found = consensus(X, 2, n_runs=6, random_state=0)
    assert np.isfinite(found.divergence)


def test_printed_table_has_a_row_for_each_component(found: Consensus) -> None:
    lines = str(found).splitlines()
    titles = lines[0].split()
    assert titles == [
        "component",
        "in",
        "runs",
        "(null)",
        "silhouette",
        "(null)",
        "stability",
        "(null)",
        "share",
    ]
    assert lines[1].split()[:2] == ["0", "100%"]
    assert len(lines) == 1 + 4 + 1 + 4
    assert "12 runs; 0 of their 48 components" in lines[6]
    assert "not whether a component is real" in lines[7]
    assert "12 runs on one draw of Poisson counts, with the same margins" in lines[8]
    assert lines[9] == "Silhouettes above the one beside them: 4 of 4; above all of the null: 4."
    without = str(replace(found, null=None))
    assert "(null)  " not in without
    assert "there was no null run" in without.splitlines()[-1]
    assert {len(column) for column in found.table().values()} == {4}


def test_picture_is_sorted_by_component(found: Consensus) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    ax = found.plot()
    try:
        ax.figure.draw_without_rendering()
        image = np.asarray(ax.images[0].get_array())
        assert image.shape == (48, 48)
        assert image[:12, :12].min() > 0.99  # a dark square for each component
        assert image[:12, 12:].max() < 0.9
        assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2", "3"]
    finally:
        plt.close("all")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number"),
        ({"n_runs": 1.5}, "n_runs must be a whole number"),
        ({"n_runs": 1}, "n_runs must be a whole number of at least 2; got 1"),
        ({"density_threshold": 0}, "density_threshold must be a positive number"),
        ({"refit": "H"}, "refit must be 'W' or 'both'; got 'H'"),
        ({"init": "zeros"}, "init must be 'samples'"),
        ({"n_null_runs": 1}, "n_null_runs must be 0, or at least 2; got 1"),
        ({"n_null_runs": -3}, "n_null_runs must be a whole number of at least 0"),
        ({"feature_names": ["a", "b"]}, "feature_names has 2 names for 80 features"),
        ({"n_jobs": 0}, "n_jobs must be None, from 1 to"),
        ({"run": RunOptions(resume="no")}, "'resume' parameter of RunOptions must be"),
        ({"run": RunOptions(resume=1)}, "'resume' parameter of RunOptions must be"),
        ({"run": RunOptions(progress="maybe")}, "'progress' parameter of RunOptions must be"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        consensus(**{"X": PLANTED.X, "n_components": 2, **arguments})
