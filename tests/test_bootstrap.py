"""Intervals by the parametric bootstrap."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.overdispersed import draw
from scipy.stats import t as student
from sklearn.exceptions import NotFittedError

from klnmf import KLNMF, MiniBatchKLNMF, RunOptions
from klnmf.model_selection import consensus
from klnmf.simulate import draw_counts, simulate_counts
from klnmf.topics import component_shares, match_components, plsi_probabilities, top_features
from klnmf.uncertainty import Bootstrap, bootstrap, differential_features
from klnmf.uncertainty.data_of_fit import data_of_fit
from klnmf.uncertainty.overdispersion import estimated_dispersion
from klnmf.uncertainty.parametric_bootstrap import shares_of
from klnmf.uncertainty.refits import refits

PLANTED = simulate_counts(80, 30, 3, counts_per_sample=150, random_state=0)
X = PLANTED.X


@pytest.fixture(scope="module", name="model")
def fitted_model() -> KLNMF:
    return KLNMF(3, random_state=0).fit(X)


@pytest.fixture(scope="module", name="result")
def bootstrapped(model: KLNMF) -> Bootstrap:
    return bootstrap(model, X, n_runs=12, n_jobs=1, random_state=0)


@pytest.fixture(scope="module", name="draws")
def shares_of_all_runs(model: KLNMF) -> list[np.ndarray]:
    """Components, proportions and sizes of each run."""
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    data = data_of_fit(model, X, {}, "bootstrap", "")
    runs = refits(model, data, estimated_dispersion(data.fitted_rates).by_feature, 12, seed, 1)
    shares = [shares_of(run.W, run.components, np.arange(len(data.W))) for run in runs]
    return [np.array(part) for part in zip(*shares, strict=True)]


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_estimates_are_the_shares_of_the_model(model: KLNMF, result: Bootstrap) -> None:
    W = model.transform(X)
    mixture = plsi_probabilities(W, model.components_)
    np.testing.assert_allclose(result.components.estimate, mixture.feature_given_component)
    np.testing.assert_allclose(result.proportions.estimate, mixture.component_given_sample)
    np.testing.assert_allclose(result.sizes.estimate[0], component_shares(model.components_, W))
    assert result.samples.tolist() == list(range(80))


@pytest.mark.parametrize(
    ("of_model", "of_counts"),
    [(np.float32, np.float64), (np.float32, np.int64), (np.float64, np.float32)],
)
def test_type_of_the_counts_need_not_be_that_of_the_model(of_model: Any, of_counts: Any) -> None:
    model = KLNMF(3, random_state=0).fit(X.astype(of_model))
    expected, found = (
        bootstrap(model, X.astype(dtype), n_runs=2, random_state=0)
        for dtype in (of_model, of_counts)
    )
    np.testing.assert_array_equal(found.components.upper, expected.components.upper)
    shares = [differential_features(model, X.astype(t)).share for t in (of_model, of_counts)]
    np.testing.assert_array_equal(*shares)


def test_a_model_whose_output_is_a_data_frame(model: KLNMF) -> None:
    framed = KLNMF(3, random_state=0).set_output(transform="pandas").fit(X)
    found, expected = (
        bootstrap(given, X, n_runs=2, n_jobs=1, random_state=0) for given in (framed, model)
    )
    np.testing.assert_array_equal(found.components.estimate, expected.components.estimate)
    np.testing.assert_array_equal(found.proportions.lower, expected.proportions.lower)


def test_consensus_of_whole_numbers_can_be_drawn_from() -> None:
    counts = X.astype(np.int64)
    found = consensus(counts, 3, n_runs=4, random_state=0)
    result = bootstrap(found.to_model(), counts, n_runs=2, random_state=0)
    np.testing.assert_allclose(result.components.estimate.sum(axis=1), 1.0)


def test_standard_errors_and_bias_are_those_of_the_draws(
    result: Bootstrap, draws: list[np.ndarray]
) -> None:
    of_parts = (result.components, result.proportions, result.sizes)
    for intervals, kept in zip(of_parts, draws, strict=True):
        np.testing.assert_allclose(intervals.standard_error, kept.std(axis=0, ddof=1), atol=1e-6)
        np.testing.assert_allclose(
            intervals.bias, kept.mean(axis=0) - intervals.estimate, atol=1e-6
        )
        np.testing.assert_allclose(kept.sum(axis=-1), 1.0, rtol=1e-5)


def test_runs_are_refits_of_data_drawn_from_the_model(
    model: KLNMF, result: Bootstrap, draws: list[np.ndarray]
) -> None:
    """The first run, done again by hand."""
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    generator = np.random.default_rng([seed, 0])
    W = model.transform(X)
    drawn = draw_counts(W, model.components_, generator).astype(np.float32)
    refit = KLNMF(3, random_state=int(generator.integers(2**31 - 1)), n_threads=1)
    new_W = refit.fit_transform(drawn, W=W, H=model.components_)
    match = match_components(model.components_, refit.components_)
    mixture = plsi_probabilities(new_W[:, match.second], refit.components_[match.second])
    np.testing.assert_allclose(draws[0][0], mixture.feature_given_component, atol=1e-6)
    np.testing.assert_allclose(draws[1][0], mixture.component_given_sample, atol=1e-6)
    np.testing.assert_allclose(result.similarity[0], match.similarity)


class Reversed(KLNMF):
    """Finds the same components in the opposite order."""

    def fit_transform(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> Any:
        found = super().fit_transform(X, y, W, H)
        self.components_ = self.components_[::-1]
        return found[:, ::-1]


def test_components_of_the_runs_are_matched(model: KLNMF, result: Bootstrap) -> None:
    backward = Reversed(3, random_state=0).fit(X)
    backward.components_ = model.components_
    found = bootstrap(backward, X, n_runs=12, n_jobs=1, random_state=0)
    np.testing.assert_array_equal(found.components.upper, result.components.upper)
    np.testing.assert_array_equal(found.proportions.upper, result.proportions.upper)


def test_same_seed_gives_the_same_bits_for_any_number_of_jobs(
    model: KLNMF, result: Bootstrap
) -> None:
    again = bootstrap(model, X, n_runs=12, n_jobs=3, random_state=0)
    for name in ("components", "proportions", "sizes"):
        for field in dataclasses.fields(getattr(result, name)):
            np.testing.assert_array_equal(
                getattr(getattr(result, name), field.name),
                getattr(getattr(again, name), field.name),
            )
    other = bootstrap(model, X, n_runs=12, n_jobs=1, random_state=1)
    assert not np.array_equal(result.components.lower, other.components.lower)


def test_interior_intervals_are_about_the_estimate(
    result: Bootstrap, draws: list[np.ndarray]
) -> None:
    found = result.components
    inside = found.is_interior
    assert 0.2 < inside.mean() < 0.9
    np.testing.assert_array_equal(
        inside,
        np.minimum(found.estimate, 1 - found.estimate) > 3 * found.standard_error,
    )
    # Variance plus squared bias of the runs, on the scale of angles.
    angles = [np.arcsin(np.sqrt(shares)) for shares in (draws[0], found.estimate)]
    squares = angles[0].var(axis=0, ddof=1) + (2 * (angles[0].mean(axis=0) - angles[1])) ** 2
    reach = student.ppf(0.975, 11) * np.sqrt(squares)
    np.testing.assert_allclose(
        found.upper[inside], np.sin(angles[1] + reach)[inside] ** 2, atol=1e-5
    )
    np.testing.assert_allclose(
        found.lower[inside], np.sin(np.maximum(angles[1] - reach, 0))[inside] ** 2, atol=1e-5
    )


def test_entries_near_0_have_one_sided_intervals(
    result: Bootstrap, draws: list[np.ndarray]
) -> None:
    for found in (result.components, result.proportions):
        near = ~found.is_interior & (found.estimate < 0.5)
        assert near.any()
        assert np.all(found.lower[near] == 0.0)
        assert np.all(found.upper[near] > found.estimate[near])
    # What is 0 in every run is not said to be 0: three counts of a component's could be missed.
    always_zero = (draws[0] == 0).all(axis=0)
    assert always_zero.any()
    counts = result.sizes.estimate[0] * X.sum()
    limits = np.broadcast_to(3.0 / counts[:, np.newaxis], always_zero.shape)
    upper = result.components.upper
    assert np.all(upper[always_zero] > 0.9 * limits[always_zero])


def test_pure_samples_leave_room_for_other_components() -> None:
    counts = sp.csr_array(np.kron(np.eye(2), np.full((6, 4), 3.0)))
    model = KLNMF(2, random_state=0).fit(counts)
    found = bootstrap(model, counts, n_runs=5, n_jobs=1, random_state=0).proportions
    own = found.estimate > 0.5
    np.testing.assert_allclose(found.estimate[own], 1.0, atol=1e-6)
    assert np.all(found.upper[own] == 1.0)
    # Of the 12 counts of a sample none is the other component's: up to three could be expected.
    np.testing.assert_allclose(found.lower[own], 1 - 3.0 / (12 + 3.0), rtol=0.01)
    np.testing.assert_allclose(found.lower[own], 1 - found.upper[~own])


def test_higher_levels_are_wider(model: KLNMF, result: Bootstrap) -> None:
    wide = bootstrap(model, X, n_runs=12, level=0.99, n_jobs=1, random_state=0)
    assert np.all(wide.components.upper >= result.components.upper)
    assert np.all(wide.components.lower <= result.components.lower)
    inside = result.components.is_interior
    assert np.all((wide.components.lower < result.components.lower)[inside])
    ratio = student.ppf(0.995, 11) / student.ppf(0.975, 11)
    widths = [(found.components.upper - found.components.lower)[inside] for found in (wide, result)]
    np.testing.assert_allclose(widths[0] / widths[1], ratio, rtol=0.05)


def test_planted_shares_are_covered(model: KLNMF) -> None:
    found = bootstrap(model, X, n_runs=40, random_state=0)
    order = match_components(model.components_, PLANTED.H.T).second
    truth = PLANTED.H.T[order]
    covered = (found.components.lower <= truth) & (truth <= found.components.upper)
    assert covered.mean() > 0.9
    proportions = plsi_probabilities(PLANTED.W, PLANTED.H.T).component_given_sample[:, order]
    covered = (found.proportions.lower <= proportions) & (proportions <= found.proportions.upper)
    assert covered.mean() > 0.9


@pytest.mark.parametrize(
    ("samples", "rows"),
    [([5, 2], [5, 2]), ([], []), (np.arange(80) < 3, [0, 1, 2])],
)
def test_proportions_of_some_samples(
    model: KLNMF, result: Bootstrap, samples: Any, rows: list[int]
) -> None:
    some = bootstrap(model, X, n_runs=12, samples=samples, n_jobs=1, random_state=0)
    assert some.samples.tolist() == rows
    np.testing.assert_array_equal(some.proportions.upper, result.proportions.upper[rows])
    np.testing.assert_array_equal(some.components.upper, result.components.upper)
    np.testing.assert_array_equal(some.sizes.upper, result.sizes.upper)
    assert "Parametric bootstrap with 12 runs" in str(some)


def test_memory_does_not_grow_with_the_runs(model: KLNMF, monkeypatch: pytest.MonkeyPatch) -> None:
    # The short run of the sampler takes more than all runs here, and has nothing to do with them.
    sampler = "klnmf.uncertainty.parametric_bootstrap.shift_of_posterior"
    monkeypatch.setattr(sampler, lambda *given, **options: np.nan)
    peaks = []
    for n_runs in (20, 20, 47):  # the first call also imports modules
        tracemalloc.start()
        bootstrap(model, X, n_runs=n_runs, n_jobs=1, random_state=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    draws = 27 * 4 * 3 * (80 + 30)  # what the other 27 runs would take in float32
    assert peaks[2] - peaks[1] < draws / 2


def test_drawn_counts_vary_as_the_data_do(result: Bootstrap) -> None:
    assert result.dispersion.is_poisson
    assert "The counts do not clearly vary more around the model than Poisson counts do." in str(
        result
    )
    noisy = draw(150, 40, 3, 400, "broad", size=1.0, seed=0).X
    model = KLNMF(3, random_state=0).fit(noisy)
    wide = bootstrap(model, noisy, n_runs=10, random_state=0)
    narrow = bootstrap(model, noisy, n_runs=10, noise="poisson", random_state=0)
    assert wide.dispersion.common == pytest.approx(1.0, rel=0.2)
    assert f"{wide.dispersion} The intervals account for this." in str(wide)
    assert "assume Poisson counts (noise='poisson')" in str(narrow)
    assert narrow.dispersion.is_poisson
    for part in ("components", "proportions", "sizes"):
        one, other = getattr(wide, part), getattr(narrow, part)
        ratio = np.median(one.standard_error / np.maximum(other.standard_error, 1e-9))
        assert ratio > 1.5, part
    # Also where the likelihood decides.
    near = ~wide.components.is_interior & (wide.components.estimate == 0)
    assert np.all(wide.components.upper[near] > narrow.components.upper[near])


def test_poisson_data_have_poisson_intervals(model: KLNMF, result: Bootstrap) -> None:
    exact = bootstrap(model, X, n_runs=12, noise="poisson", n_jobs=1, random_state=0)
    np.testing.assert_array_equal(exact.components.upper, result.components.upper)
    np.testing.assert_array_equal(exact.proportions.lower, result.proportions.lower)


def test_components_that_the_runs_do_not_find_are_named(result: Bootstrap) -> None:
    similarity = np.array([[1.0, 0.5, 0.9], [1.0, 0.7, 0.9]])
    text = str(dataclasses.replace(result, similarity=similarity))
    assert "different components in place of 1 (similarity below 0.8)" in text


def test_sparse_output_penalties_and_fits_that_stop_early() -> None:
    plain = KLNMF(3, l1_W=0.1, l1_H=0.1, random_state=0, max_iter=1000)
    sparse = KLNMF(3, l1_W=0.1, l1_H=0.1, random_state=0, max_iter=1000, sparse_output=True)
    one, other = (bootstrap(m.fit(X), X, n_runs=3, random_state=0) for m in (plain, sparse))
    np.testing.assert_array_equal(one.components.upper, other.components.upper)
    short = KLNMF(3, random_state=0).fit(X).set_params(tol=1e-9, max_iter=2)
    early = bootstrap(short, X, n_runs=3, random_state=0)
    assert early.n_converged == 0
    assert "3 runs, 0 of them converged" in str(early)


def test_empty_samples_have_no_proportions() -> None:
    counts = sp.vstack([X, sp.csr_matrix((1, 30), dtype=X.dtype)])
    model = KLNMF(3, random_state=0).fit(counts)
    found = bootstrap(model, counts, n_runs=3, random_state=0).proportions
    assert np.isnan(found.lower[-1]).all()
    assert np.isnan(found.upper[-1]).all()
    assert np.isfinite(found.lower[:-1]).all()


def test_empty_components_are_said_to_be_empty() -> None:
    model = KLNMF(5, l1_W=5.0, l1_H=50.0, random_state=0).fit(X)
    empty = ~model.components_.any(axis=1)
    assert empty.any()
    assert not empty.all()
    found = bootstrap(model, X, n_runs=3, random_state=0)
    assert np.isnan(found.components.upper[empty]).all()
    assert np.isfinite(found.components.upper[~empty]).all()
    assert str(found).count("(empty)") == empty.sum()
    assert "different components" not in str(found)
    nothing = sp.csr_array((4, 30))
    found = bootstrap(KLNMF(2, random_state=0).fit(nothing), nothing, n_runs=2, random_state=0)
    assert np.isnan(found.proportions.upper).all()


def test_one_component_is_all_of_every_sample() -> None:
    found = bootstrap(KLNMF(1, random_state=0).fit(X), X, n_runs=3, random_state=0)
    np.testing.assert_array_equal(found.proportions.lower, 1.0)
    np.testing.assert_array_equal(found.proportions.upper, 1.0)
    assert found.components.is_interior.any()


def test_tables_and_frames(result: Bootstrap) -> None:
    table = result.table(1, 4)
    order = np.argsort(-result.components.estimate[1])[:4]
    assert table["feature"].tolist() == [f"feature {j}" for j in order]
    np.testing.assert_array_equal(table["upper"], result.components.upper[1, order])
    assert len(result.table(1, None)["share"]) == 30
    with pytest.raises(ValueError, match="component must be from 0 to 2; got 3"):
        result.table(3)
    frame = result.components_frame()
    assert frame.shape == (90, 7)
    row = frame[(frame.component == 2) & (frame.feature == "feature 7")].iloc[0]
    assert row.upper == result.components.upper[2, 7]
    of_samples = result.proportions_frame()
    assert of_samples.shape == (240, 7)
    row = of_samples[(of_samples["sample"] == 5) & (of_samples.component == 1)].iloc[0]
    assert row.lower == result.proportions.lower[5, 1]


def test_picture_has_a_line_for_every_interval(result: Bootstrap) -> None:
    axes = result.plot(n_top=25, select=[2, 0])
    assert [ax.get_title(loc="left") for ax in axes] == ["component 2", "component 0"]
    table = result.table(2, 25)
    assert 0 < table["is_interior"].sum() < 25
    lines, points = axes[0].collections
    ends = np.array([segment[:, 0] for segment in lines.get_segments()])
    np.testing.assert_allclose(ends, np.column_stack([table["lower"], table["upper"]]))
    np.testing.assert_allclose(points.get_offsets()[:, 0], table["share"])
    filled = points.get_facecolors()[:, 0] < 0.9  # hollow points are white
    np.testing.assert_array_equal(filled, table["is_interior"])
    assert [label.get_text() for label in axes[0].get_yticklabels()] == list(table["feature"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_runs": 1}, "n_runs must be a whole number of at least 2; got 1"),
        ({"noise": "gamma"}, "noise must be 'estimated' or 'poisson'; got 'gamma'"),
        ({"level": 95}, "level must be between 0 and 1 .exclusive.; got 95"),
        ({"level": "a"}, "level must be between 0 and 1 .exclusive.; got 'a'"),
        ({"n_jobs": 0}, "n_jobs must be None, from 1 to"),
        ({"n_jobs": "a"}, "n_jobs must be None, from 1 to .* got 'a'"),
        ({"run": RunOptions(progress="maybe")}, "'progress' parameter of RunOptions must be"),
        ({"run": RunOptions(checkpoint="b")}, r"bootstrap has no use for RunOptions.checkpoint="),
        ({"run": RunOptions(callback=print)}, r"bootstrap has no use for RunOptions.callback="),
        ({"samples": [80]}, "samples must be from 0 to 79"),
        ({"samples": [0.5]}, "samples must be row numbers or a mask of 80"),
        ({"X": X * 0.5}, "not whole numbers"),
        ({"X": X[:, :20]}, "30 features"),
        ({"feature_names": ["a"]}, "feature_names has 1 names for 30 features"),
    ],
)
def test_wrong_arguments_are_named(model: KLNMF, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap(**{"model": model, "X": X, "n_runs": 2, **arguments})


def test_wrong_models_are_named() -> None:
    with pytest.raises(NotFittedError):
        bootstrap(KLNMF(3), X)
    with pytest.raises(TypeError, match="needs a fitted KLNMF; got MiniBatchKLNMF"):
        bootstrap(MiniBatchKLNMF(3), X)  # type: ignore[arg-type]


def test_features_that_lead_are_those_of_tables(model: KLNMF, result: Bootstrap) -> None:
    for k, top in enumerate(top_features(model.components_, n_top=3)):
        names = [
            part.rpartition(" [")[0] for part in result._leading(k, 1).split(", ") if "[" in part
        ]
        assert names == [name for name, _ in top]
