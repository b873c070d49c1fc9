"""Pictures: what is drawn, and the message where matplotlib is missing."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from klnmf.plots import plot_convergence, plot_top_features  # noqa: E402
from klnmf.topics import top_features  # noqa: E402

HISTORY = [
    {"seconds": 0.1 * t, "divergence": 0.0, "objective": 10.0 + 2.0**-t, "kkt_residual": 10.0**-t}
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
    axes = plot_top_features(components, names, n_top=6)
    assert axes.shape == (7,)
    for component, (ax, topic) in enumerate(
        zip(axes, top_features(components, names, n_top=6), strict=True)
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


def test_convergence_is_on_a_log_axis_relative_to_the_end() -> None:
    ax = plot_convergence(HISTORY)
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == "seconds"
    residual, excess = (np.asarray(line.get_xydata()) for line in ax.get_lines())
    assert ax.get_lines()[0].get_label() == "KKT residual"
    steps = np.arange(6.0)
    np.testing.assert_allclose(residual[:, 0], 0.1 * steps)
    np.testing.assert_allclose(residual[:, 1], 10.0**-steps)
    final = 10.0 + 2.0**-5
    np.testing.assert_allclose(excess[:5, 1], (10.0 + 2.0 ** -steps[:5]) / final - 1.0, rtol=1e-10)
    assert np.isnan(excess[5, 1])  # zero has no place on a logarithmic axis


def test_convergence_draws_on_given_axes_and_survives_one_record(tmp_path: Path) -> None:
    figure, ax = plt.subplots()
    record = {"seconds": 0.1, "objective": 0.0, "kkt_residual": 0.0}
    assert plot_convergence([record], ax=ax) is ax
    assert plt.get_fignums() == [figure.number]
    figure.savefig(tmp_path / "convergence.png")  # no warning about the empty logarithmic axis
    assert (tmp_path / "convergence.png").stat().st_size > 1000


def test_empty_history_is_refused() -> None:
    with pytest.raises(ValueError, match="history is empty"):
        plot_convergence([])


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "klnmf\[plots\]"'):
        plot_top_features(np.eye(2))
    with pytest.raises(ImportError, match=r'pip install "klnmf\[plots\]"'):
        plot_convergence(HISTORY)
