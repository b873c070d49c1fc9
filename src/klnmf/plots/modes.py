"""The components of a tensor: one row of charts for each, one chart per mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.plots.features import common_limit, draw_bars, finish_panel
from klnmf.plots.style import (
    BLUE,
    light_frame,
    note,
    panel_titles,
    panels_or_new,
    percent,
    selected_components,
    title,
)
from klnmf.support.number_checks import checked_whole
from klnmf.support.printable_text import printable
from klnmf.topics.checks import Names
from klnmf.topics.features import RANKING, Ranking, leading_features
from klnmf.topics.modes import Mode, modes_of, sizes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_TICKS = 3


def plot_components(
    model: Any,
    *,
    n_top: int = 6,
    by: Ranking = RANKING,
    select: Sequence[int] | None = None,
    component_names: Names | None = None,
    axes: npt.ArrayLike | None = None,
) -> npt.NDArray[np.object_]:
    """Plot the components of a tensor: bars of the top labels in each mode, and lines over time.

    The charts of a mode have one scale, so they can be compared from component to component. In a
    line, the thin grey one is that of all counts. Modes whose labels are rising dates and, except
    for the first mode, up to 200 rising numbers are drawn as lines.

    Parameters
    ----------
    model : PoissonCP
        A fitted model.
    n_top : int, default=6
        Bars per component and mode.
    by, select, component_names
        As in `plot_top_features`, for labels. By default, the largest component comes first.
    axes : array of matplotlib Axes, optional
        One for each component plotted and mode. By default, those of a new figure.

    Returns
    -------
    ndarray of matplotlib Axes, shape (n_drawn, n_modes)
        ``axes[0, 0].figure`` is the figure.

    Examples
    --------
    >>> from klnmf import PoissonCP, SparseTensor
    >>> from klnmf.plots import plot_components
    >>> sales = {"who": ["Ann", "Bo", "Cy"], "what": ["tea", "tea", "ink"], "n": [3, 3, 2]}
    >>> X = SparseTensor.from_events(sales, ["who", "what"], "n")
    >>> axes = plot_components(PoissonCP(2, random_state=0).fit(X))
    >>> axes.shape, axes[0, 1].get_title(loc="left")
    ((2, 2), 'what')
    """
    modes, sizes = modes_of(model), sizes_of(model)
    n_top = checked_whole("n_top", n_top)
    titles = panel_titles(len(sizes), component_names)
    if select is None:
        drawn = [int(k) for k in np.argsort(-sizes, kind="stable")]
    else:
        drawn = selected_components(select, len(sizes))
    n_panels, height = len(drawn) * len(modes), 0.75 + 0.17 * n_top
    label = "share of the component's counts"
    panels = panels_or_new(axes, n_panels, len(modes), (3.2, height), label)
    grid: npt.NDArray[np.object_] = panels.reshape(len(drawn), len(modes))
    for column, mode in zip(grid.T, modes, strict=True):
        if mode.is_line:
            _draw_lines(column, mode, drawn, sizes @ mode.shares)
        else:
            _draw_top(column, mode, drawn, n_top, by, sizes)
    for row, component in zip(grid, drawn, strict=True):
        for ax, mode in zip(row, modes, strict=True):
            title(ax, mode.name, size=8.5)
        title(row[0], f"{titles[component]}: {modes[0].name}", size=8.5)
        note(row[-1], f"{sizes[component]:.1%}")
    return grid


def _draw_top(
    column: Sequence[Axes], mode: Mode, drawn: list[int], n_top: int, by: Ranking, sizes: Any
) -> None:
    leading = leading_features(mode.shares, n_top, by, W=sizes[np.newaxis])
    limit = common_limit([leading.weights[k].max(initial=0.0) for k in drawn])
    for ax, component in zip(column, drawn, strict=True):
        draw_bars(ax, leading.weights[component], limit)
        labels = [printable(mode.labels[j]) for j in leading.features[component]]
        finish_panel(ax, mode.name, labels, n_top)
        ax.locator_params(axis="x", nbins=3)


def _draw_lines(column: Sequence[Axes], mode: Mode, drawn: list[int], overall: Any) -> None:
    highest = max(mode.shares[drawn].max(initial=0.0), overall.max(initial=0.0)) or 1.0
    ticks = np.unique(np.linspace(0, len(mode.labels) - 1, _MOST_TICKS).astype(int))
    for ax, component in zip(column, drawn, strict=True):
        shares = mode.shares[component]
        ax.plot(mode.at, overall, color="0.6", linewidth=0.8)
        ax.plot(mode.at, shares, color=BLUE, linewidth=1.5)
        ax.fill_between(mode.at, shares, color=BLUE, alpha=0.15, linewidth=0)
        ax.set_ylim(0.0, 1.05 * highest)
        ax.yaxis.set_major_formatter(percent)
        ax.locator_params(axis="y", nbins=3)
        light_frame(ax)
        ax.tick_params(length=2, labelsize=7, colors="0.4")
        ax.set_xticks(mode.at[ticks], [mode.labels[tick] for tick in ticks])
