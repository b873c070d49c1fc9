"""Pictures of features, images and histories: what is drawn, and where."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from klnmf import KLNMF  # noqa: E402
from klnmf.plots import (  # noqa: E402
    plot_component_similarity,
    plot_history,
    plot_structure,
    plot_top_features,
)
from klnmf.plots.history import What  # noqa: E402
from klnmf.topics import component_shares, top_features  # noqa: E402

HISTORY = [
    {
        "iteration": t + 1,
        "seconds": 0.1 * t,
        "objective": 10.0 + 2.0**-t,
        "optimality_gap": 10.0**-t,
        "kkt_residual": 2 * 10.0**-t,
        "zeros_W": 0.1 * t,
        "zeros_H": 0.05 * t,
    }
    for t in range(6)
]


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture
def components() -> np.ndarray:
    return np.random.default_rng(0).gamma(0.3, size=(7, 40))


def test_bars_show_the_leading_shares_from_the_top(components: np.ndarray) -> None:
    names = [f"word{j}" for j in range(40)]
    axes = plot_top_features(components, names, n_top=6, by="weight")
    assert axes.shape == (7,)
    for component, (ax, topic) in enumerate(
        zip(axes, top_features(components, names, n_top=6, by="weight"), strict=True)
    ):
        assert ax.get_title(loc="left") == f"component {component}"
        assert [bar.get_width() for bar in ax.patches] == [share for _, share in topic]
        assert [label.get_text() for label in ax.get_yticklabels()] == [name for name, _ in topic]
        bottom, top = ax.get_ylim()
        assert top < 0.0 < bottom  # the first bar is the highest
    # One scale for all, and no bar cut off.
    assert len({ax.get_xlim() for ax in axes}) == 1
    longest = max(bar.get_width() for ax in axes for bar in ax.patches)
    assert axes[0].get_xlim()[1] > longest


def test_unused_places_of_the_grid_are_off(components: np.ndarray) -> None:
    axes = plot_top_features(components)
    everything = axes[0].figure.axes
    assert len(everything) == 10
    assert [ax.axison for ax in everything] == [True] * 7 + [False] * 3


def test_draws_on_given_axes(components: np.ndarray) -> None:
    figure, grid = plt.subplots(2, 4)
    axes = plot_top_features(components, axes=grid)
    assert list(axes) == list(grid.ravel()[:7])
    assert plt.get_fignums() == [figure.number]  # no second figure
    with pytest.raises(ValueError, match="axes has 2 places for 7 components"):
        plot_top_features(components, axes=grid[:1, :2])


def test_names_do_not_overlap_and_long_ones_are_cut(tmp_path: Path) -> None:
    components = np.vstack([np.eye(1, 12), np.ones((1, 12)), np.zeros((1, 12))])
    names = ["a very long name of a feature, longer than any"] + [f"feature {j}" for j in range(11)]
    axes = plot_top_features(components, names)
    assert axes[0].get_yticklabels()[0].get_text() == "a very long name of a…"
    assert len(axes[2].patches) == 0
    figure = axes[0].figure
    figure.savefig(tmp_path / "topics.png")
    assert (tmp_path / "topics.png").stat().st_size > 1000
    renderer = figure.canvas.get_renderer()
    boxes = [label.get_window_extent(renderer) for label in axes[1].get_yticklabels()]
    for upper, lower in itertools.pairwise(boxes):
        assert lower.y1 <= upper.y0 + 1.0  # pixels
    # The names of the second chart start right of the first chart's frame.
    assert min(box.x0 for box in boxes) > axes[0].get_window_extent(renderer).x1


def test_bars_are_shares_whatever_ranks_them(components: np.ndarray) -> None:
    W = np.random.default_rng(1).gamma(0.5, size=(9, 7))
    axes = plot_top_features(components, n_top=5, by="kl", W=W, select=[4, 0])
    ranked = top_features(components, n_top=5, by="kl", W=W)
    shares = component_shares(components, W)
    for ax, k in zip(axes, (4, 0), strict=True):
        names = [label.get_text() for label in ax.get_yticklabels()]
        assert names == [name for name, _ in ranked[k]]
        expected = [
            components[k, int(name.split()[1])] / components[k].sum() for name, _ in ranked[k]
        ]
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], expected)
        assert ax.get_title(loc="left") == f"component {k}"
        assert ax.get_title(loc="right") == f"{shares[k]:.1%}"


def test_a_bar_far_longer_than_the_others_is_cut_and_numbered() -> None:
    components = np.full((6, 20), 1.0)
    components[2, 7] = 500.0
    axes = plot_top_features(components, n_top=3)
    limit = axes[0].get_xlim()[1]
    assert limit == pytest.approx(3.0 * 0.05)
    assert max(bar.get_width() for bar in axes[2].patches) == pytest.approx(500 / 519)
    [number] = axes[2].texts
    assert number.get_text() == "96.3%"
    assert number.get_position()[0] < limit
    assert not any(ax.texts for k, ax in enumerate(axes) if k != 2)


@pytest.mark.parametrize("select", [[7], [-1], []])
def test_unknown_components_are_refused(components: np.ndarray, select: list[int]) -> None:
    with pytest.raises(ValueError, match=r"select must be a list of numbers from 0 to 6; got \["):
        plot_top_features(components, select=select)


# ---- histories -----------------------------------------------------------------------------------


def test_convergence_is_on_a_log_axis_relative_to_the_end() -> None:
    ax = plot_history(HISTORY)
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == "solver time (seconds)"
    [line] = ax.get_lines()
    steps = np.arange(6.0)
    np.testing.assert_allclose(line.get_xdata(), 0.1 * steps)
    final = 10.0 + 2.0**-5
    heights = np.asarray(line.get_ydata())
    np.testing.assert_allclose(heights[:5], (10.0 + 2.0 ** -steps[:5]) / final - 1.0, rtol=1e-10)
    assert np.isnan(heights[5])  # zero has no place on a logarithmic axis
    assert ax.get_legend() is None


def test_convergence_of_fitted_models() -> None:
    X = np.arange(1.0, 31.0).reshape(6, 5) % 7
    models = {str(seed): KLNMF(2, random_state=seed).fit(X) for seed in (0, 1)}
    by_model, by_history = plt.subplots(1, 2)[1]
    plot_history(models, ax=by_model, against="iteration")
    histories = {name: model.history_ for name, model in models.items()}
    plot_history(histories, ax=by_history, against="iteration")
    for one, other in zip(by_model.lines, by_history.lines, strict=True):
        np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())
    assert plot_history(models["0"]).get_yscale() == "log"


def test_several_fits_are_above_the_lowest_end_of_all() -> None:
    worse = [record | {"objective": record["objective"] + 1.0} for record in HISTORY[:4]]
    ax = plot_history({"good": HISTORY, "bad": worse}, against="iteration")
    assert ax.get_xlabel() == "iteration"
    good, bad = ax.get_lines()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["good", "bad"]
    assert good.get_color() != bad.get_color()
    np.testing.assert_array_equal(bad.get_xdata(), [1, 2, 3, 4])
    final = 10.0 + 2.0**-5
    expected = (11.0 + 2.0 ** -np.arange(4.0) - final) / final
    np.testing.assert_allclose(bad.get_ydata(), expected, rtol=1e-10)


def test_more_fits_than_colours_differ_in_their_dashes() -> None:
    ax = plot_history({str(i): HISTORY for i in range(20)})
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.get_lines()}
    assert len(looks) == 20


def test_gaps_are_drawn_with_their_tolerance() -> None:
    ax = plot_history(HISTORY, "optimality_gap", tol=1e-3)
    line, limit = ax.get_lines()
    assert list(limit.get_ydata()) == [1e-3, 1e-3]
    np.testing.assert_allclose(line.get_ydata(), 10.0 ** -np.arange(6.0))
    assert ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.texts] == ["tol"]
    assert len(plot_history(HISTORY, "optimality_gap").get_lines()) == 1


def test_residuals_are_drawn_on_a_log_scale() -> None:
    ax = plot_history(HISTORY, "kkt_residual")
    (line,) = ax.get_lines()
    np.testing.assert_allclose(line.get_ydata(), 2 * 10.0 ** -np.arange(6.0))
    assert ax.get_yscale() == "log"


def test_zeros_of_both_factors_are_drawn() -> None:
    of_W, of_H = plot_history(HISTORY, "zeros").get_lines()
    np.testing.assert_allclose(of_W.get_ydata(), 0.1 * np.arange(6.0))
    np.testing.assert_allclose(of_H.get_ydata(), 0.05 * np.arange(6.0))
    assert (of_W.get_label(), of_H.get_label()) == ("W", "H")
    lines = plot_history({"a": HISTORY, "b": HISTORY}, "zeros").get_lines()
    assert [line.get_label() for line in lines] == ["a, W", "a, H", "b, W", "b, H"]


@pytest.mark.parametrize("what", get_args(What))
def test_histories_are_drawn_on_given_axes_and_one_record_is_enough(what: What) -> None:
    figure, ax = plt.subplots()
    record = {
        "iteration": 1,
        "seconds": 0.1,
        "objective": 0.0,
        "optimality_gap": 0.0,
        "kkt_residual": 0.0,
        "zeros_W": 0.0,
        "zeros_H": 0.0,
    }
    assert plot_history([record], what, ax=ax) is ax
    assert plt.get_fignums() == [figure.number]
    figure.canvas.draw()  # no warning about an empty logarithmic axis


def test_history_of_a_fit_has_what_the_plots_need() -> None:
    model = KLNMF(2, random_state=0, n_threads=1).fit(np.random.default_rng(0).poisson(2.0, (9, 5)))
    for what in get_args(What):
        for against in ("seconds", "iteration"):
            line = plot_history(model, what, against=against).get_lines()[-1]
            assert len(line.get_xdata()) == model.n_iter_


def test_wrong_histories_are_refused() -> None:
    for empty in ([], {"srcd": HISTORY, "mu": []}, {}):
        with pytest.raises(ValueError, match="A history is empty: pass"):
            plot_history(empty, "zeros")
    with pytest.raises(TypeError, match="must be a fitted model or its history_; got a KLNMF"):
        plot_history(KLNMF(3))
    with pytest.raises(ValueError, match=r"what must be 'objective', .* or 'zeros'; got 'loss'"):
        plot_history(HISTORY, "loss")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="against must be 'seconds' or 'iteration'; got 'time'"):
        plot_history(HISTORY, against="time")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no 'zeros_W', only 'seconds', 'iteration'"):
        plot_history([{"seconds": 1.0, "iteration": 1}], "zeros")


# ---- without matplotlib --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_top_features(np.eye(2)),
        lambda: plot_component_similarity(np.eye(2)),
        lambda: plot_structure(np.eye(2), np.eye(2)),
        lambda: plot_history(HISTORY),
    ],
)
def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, draw: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "klnmf\[plots\]"'):
        draw()
