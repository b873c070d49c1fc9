"""Mean shares of components by group: groups, means, intervals, tables and pictures."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import t as student

from klnmf.topics import mean_shares
from klnmf.topics.grouping import suitable_periods
from plot_checks import assert_apart

W = np.array([[1.0, 3.0], [0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [0.0, 0.0]])


def of(groups: Any, **options: Any) -> Any:
    """Mean shares of as many samples, all of them of one component."""
    return mean_shares(np.ones((len(groups), 1)), [[1.0]], groups, **options)


def test_means_leave_empty_samples_out() -> None:
    for representation in (W, sparse.csr_array(W)):
        means = mean_shares(representation, np.eye(2), ["b", "b", "b", "a", "c"])
        assert means.groups.tolist() == ["b", "a", "c"]
        np.testing.assert_allclose(means.shares, [[0.375, 0.625], [1.0, 0.0], [np.nan] * 2])
        assert means.n_samples.tolist() == [2, 1, 0]
        assert np.isnan(means.lower[1:]).all()
        assert np.isnan(means.upper[1:]).all()
        assert not means.is_ordered


def test_shares_do_not_depend_on_the_scale_of_the_components() -> None:
    scaled = mean_shares(W / [1.0, 4.0], np.diag([1.0, 4.0]), ["b", "b", "b", "a", "c"])
    np.testing.assert_allclose(scaled.shares[0], [0.375, 0.625])


def test_interval_is_that_of_t_on_the_scale_of_logarithms_of_odds() -> None:
    x = np.array([0.1, 0.2, 0.6])
    means = mean_shares(np.column_stack([x, 1.0 - x]), np.eye(2), ["a"] * 3, level=0.9)
    mean, error = x.mean(), x.std(ddof=1) / np.sqrt(3)
    half = student.ppf(0.95, 2) * error / (mean * (1.0 - mean))
    logit = np.log(mean / (1.0 - mean))
    for end, sign in ((means.lower, -1.0), (means.upper, 1.0)):
        assert end[0, 0] == pytest.approx(1.0 / (1.0 + np.exp(-(logit + sign * half))))
    np.testing.assert_allclose(means.lower[0, 0], 1.0 - means.upper[0, 1])


def test_a_component_that_no_sample_has_gets_an_upper_end() -> None:
    means = mean_shares(np.tile([1.0, 0.0], (20, 1)), np.eye(2), ["a"] * 20)
    assert means.lower[0, 1] == 0.0
    assert 0.1 < means.upper[0, 1] < 0.25
    assert means.lower[0, 0] == pytest.approx(1.0 - means.upper[0, 1])
    assert means.upper[0, 0] == 1.0


@pytest.mark.parametrize(("n", "least"), [(10, 0.80), (100, 0.92)])
def test_intervals_contain_the_means_of_uneven_shares(n: int, least: float) -> None:
    generator = np.random.default_rng(0)
    draws = {
        0.1 * 0.25: lambda: generator.beta(1, 3, n) * (generator.random(n) < 0.1),
        0.05: lambda: generator.beta(0.1, 1.9, n),
        0.2: lambda: generator.beta(2, 8, n),
    }
    for mean, draw in draws.items():
        x = np.concatenate([draw() for _ in range(600)])
        found = mean_shares(np.column_stack([x, 1.0 - x]), np.eye(2), np.repeat(np.arange(600), n))
        inside = (found.lower[:, 0] <= mean) & (mean <= found.upper[:, 0])
        assert least <= inside.mean() <= 0.995


def test_numbers_and_times_are_in_order_and_labels_as_they_come() -> None:
    assert of([3, 1.0, 3]).groups.tolist() == [1, 3]
    assert of([0.5, 0.25]).groups.tolist() == [0.25, 0.5]
    assert of(["1999", "210", "3"]).groups.tolist() == [3, 210, 1999]
    assert of(["007", "003"]).groups.tolist() == ["007", "003"]
    assert of([True, False]).groups.tolist() == [True, False]
    assert of([("b", 1), ("a", 2)]).groups.tolist() == [("b", 1), ("a", 2)]
    assert of(["2020-02-01", "2019-12-31"]).group_names == ["2019-12-31", "2020-02-01"]
    assert of(["2020-13-01", "2019-12-31"]).groups.tolist() == ["2020-13-01", "2019-12-31"]
    assert of([3, 1]).is_ordered


@pytest.mark.parametrize(
    ("every", "names"),
    [
        ("decade", ["2010s", "2020s"]),
        ("year", ["2019", "2020"]),
        ("quarter", ["2019-Q4", "2020-Q1", "2020-Q2"]),
        ("month", ["2019-12", "2020-02", "2020-03", "2020-05"]),
        ("week", ["2019-12-30", "2020-02-24", "2020-05-18"]),
        ("day", ["2019-12-31", "2020-02-28", "2020-03-01", "2020-05-20"]),
    ],
)
def test_times_are_counted_by_period(every: Any, names: list[str]) -> None:
    pd = pytest.importorskip("pandas")
    texts = ["2020-03-01T23:59:59+02:00", "2019-12-31", "2020-02-28 10:00", "2020-05-20"]
    stamps = [datetime.datetime.fromisoformat(text) for text in texts]
    forms = [
        texts,
        stamps,
        [stamp.date() for stamp in stamps],
        np.array([text[:10] for text in texts], dtype="datetime64[D]"),
        pd.Series(pd.to_datetime([text[:10] for text in texts])),
    ]
    for dates in forms:
        assert of(dates, every=every).group_names == names


def test_years_are_periods_too() -> None:
    for years in (["1987", "1991", "1999"], [1987, 1991, 1999.0]):
        assert of(years, every="decade").group_names == ["1980s", "1990s"]


def test_missing_groups_are_left_out_and_counted() -> None:
    pd = pytest.importorskip("pandas")
    for missing in (None, float("nan"), "", pd.NA, pd.NaT, np.datetime64("NaT")):
        means = of(["x", missing, "y", missing, "x"])
        assert (means.groups.tolist(), means.n_missing) == (["x", "y"], 2)
        assert means.n_samples.tolist() == [2, 1]
    assert of(np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), every="year").n_missing == 1
    assert of([None, None]).shares.shape == (0, 1)


def test_wrong_groups_are_named() -> None:
    with pytest.raises(ValueError, match=r"one entry per sample \(3\); got 2 entries"):
        mean_shares(np.ones((3, 1)), [[1.0]], ["a", "b"])
    with pytest.raises(TypeError, match="groups must be a sequence"):
        mean_shares(np.ones((3, 1)), [[1.0]], "abc")
    with pytest.raises(ValueError, match=r"got shape \(3, 1\)"):
        of(np.ones((3, 1)))
    with pytest.raises(ValueError, match="every must be 'decade', 'year'"):
        of(["2020-01-01"], every="century")
    with pytest.raises(ValueError, match=r"needs times.*got 'winter'\. Convert them"):
        of(["2020-01-01", "winter"], every="year")
    with pytest.raises(ValueError, match=r"every='year' needs times.*got inf"):
        of([2020.0, np.inf], every="year")
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        of(["a"], level=95)


def test_lists_and_arrays_are_groups_by_their_text() -> None:
    for given in ([["a"], ["b"], ["a"]], [np.array(["a"]), np.array(["b"]), np.array(["a"])]):
        means = mean_shares(np.ones((3, 2)), np.eye(2), given)
        assert means.group_names == ["['a']", "['b']"]
        assert means.n_samples.tolist() == [2, 1]


def test_periods_that_tell_times_apart_and_fit() -> None:
    days = np.arange("2019-01-01", "2021-12-31", dtype="datetime64[D]")
    assert suitable_periods(days, 40) == ["month", "quarter", "year", "decade"]
    assert suitable_periods(days, 12) == ["quarter", "year", "decade"]
    assert suitable_periods(["2020-01", "2020-03", None], 40) == ["month"]
    assert suitable_periods(["1990-01-01", "2020-01-01"], 40) == ["decade"]
    assert suitable_periods([f"{year}-01-01" for year in range(1000, 2000, 10)], 40) == ["decade"]
    assert suitable_periods(["north", "south"], 40) == []
    assert suitable_periods([], 40) == []


def test_table_has_a_row_for_each_group_and_component() -> None:
    pytest.importorskip("pandas")
    means = mean_shares(
        W, np.eye(2), ["2020-01-05", None, "2020-03-01", "2021-01-01", None], every="year"
    )
    frame = means.to_frame(["sea", "land"])
    assert frame["component"].tolist() == ["sea", "land", "sea", "land"]
    assert frame["group"].dt.year.tolist() == [2020, 2020, 2021, 2021]
    assert frame["share"].tolist() == [0.375, 0.625, 1.0, 0.0]
    assert frame["n_samples"].tolist() == [2, 2, 1, 1]
    assert means.to_frame()["component"].tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="component_names has 1 names for 2 components"):
        means.to_frame(["sea"])
    assert "2 samples without a group are left out" in str(means)


# ---- picture -------------------------------------------------------------------------------------


@pytest.fixture
def plt() -> Iterator[Any]:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def model(n_samples: int, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.gamma(0.3, size=(n_samples, n_components)), generator.gamma(
        0.3, size=(n_components, 30)
    )


@pytest.mark.usefixtures("plt")
def test_lines_for_times_with_the_numbers_of_the_result() -> None:
    from klnmf.plots import plot_mean_shares

    factors = model(60, 9)
    means = mean_shares(*factors, [f"{1990 + i % 6}-07-01" for i in range(60)], every="year")
    ax = plot_mean_shares(means)
    largest = np.argsort(-means.shares.mean(axis=0))[:6]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    shown = {*largest, *means.shares.argmax(axis=1)}
    assert len(shown) == 6  # so that no group has another leader
    rest = np.delete(means.shares, largest, axis=1)
    left_out = (
        f"3 others: each up to\n{100 * rest.max():.3g}%, together up to\n"
        f"{100 * rest.sum(axis=1).max():.3g}% of a group"
    )
    assert names == [*(f"component {k}" for k in largest), left_out]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), means.shares[:, largest[0]])
    assert len(ax.collections) == 2 * 6  # bars and a band
    for every in ("quarter", "week"):
        days = np.datetime64("2019-01-05") + 18 * np.arange(60)
        named = [f"a name of usual length {k}" for k in range(9)]
        ax_of_days = plot_mean_shares(mean_shares(*factors, days, every=every), named)
        assert_apart(ax_of_days.figure, ax_of_days.get_xticklabels())
    tops = ax.collections[1].get_paths()[0].vertices[:, 1].max()
    assert tops == pytest.approx(means.upper[:, largest[0]].max())


@pytest.mark.usefixtures("plt")
def test_points_for_categories_that_stand_apart() -> None:
    from klnmf.plots import plot_mean_shares

    labels = [f"newspaper {i % 5}" for i in range(60)]
    labels[0], labels[1] = "", "only one"
    means = mean_shares(*model(60, 4), labels)
    ax = plot_mean_shares(means, ["a", "b", "c", "d"], select=[3, 1])
    assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == ["3  d", "1  b"]
    assert [t.get_text() for t in ax.get_xticklabels()] == means.group_names
    assert_apart(ax.figure, ax.get_xticklabels())
    left, right = (np.asarray(line.get_xdata()) for line in ax.lines[:2])
    assert (left < right).all()
    # One bar per group with an interval, "only one" has none.
    bars = [bar[:, 1] for bar in ax.collections[0].get_segments() if len(bar)]
    known = ~np.isnan(means.lower[:, 3])
    ends = np.column_stack([means.lower[:, 3], means.upper[:, 3]])
    np.testing.assert_allclose(bars, ends[known])
    assert known.sum() == 5
    assert ax.get_title(loc="right") == "1 samples without a group left out"
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_mean_shares(mean_shares(np.zeros((2, 1)), [[1.0]], ["a", "b"]))


@pytest.mark.usefixtures("plt")
def test_the_largest_component_of_every_group_is_shown() -> None:
    from klnmf.plots import plot_mean_shares

    # Components 8 and 9 are small in all, but the largest in "x" and "y"; 7 is nowhere.
    W = np.tile([30.0, 20.0, 15.0, 12.0, 10.0, 8.0, 5.0, 0.0, 0.0, 0.0], (104, 1))
    W[100:] = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0]
    W[100:102, 8], W[102:, 9] = 15.0, 5.0
    ax = plot_mean_shares(mean_shares(W, np.eye(10), ["most"] * 100 + ["x"] * 2 + ["y"] * 2))
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    rest = "4 others: each up to\n40%, together up to\n40% of a group"
    assert names == [*(f"component {k}" for k in (0, 1, 2, 3, 8, 9)), rest]


@pytest.mark.usefixtures("plt")
def test_of_many_leading_components_those_of_most_samples_are_shown() -> None:
    from klnmf.plots import plot_mean_shares

    sizes = [9, 1, *range(20, 32)]
    means = mean_shares(
        np.repeat(np.eye(14), sizes, axis=0), np.eye(14), np.repeat(np.arange(14), sizes)
    )
    names = [text.get_text() for text in plot_mean_shares(means).get_legend().get_texts()]
    assert names[:12] == [f"component {k}" for k in range(13, 1, -1)]
    assert names[12].startswith("2 others: each up to\n100%")


@pytest.mark.usefixtures("plt")
def test_of_many_categories_the_largest_are_shown() -> None:
    from klnmf.plots import plot_mean_shares

    labels = [f"of {i}" for i in range(30) for _ in range(1 if i in (3, 5) or i > 21 else 2)]
    ax = plot_mean_shares(mean_shares(*model(len(labels), 2), labels))
    shown = [f"of {i}" for i in range(22) if i not in (3, 5)]
    assert [t.get_text() for t in ax.get_xticklabels()] == shown
    assert ax.get_title(loc="right") == "20 largest of 30 groups"
