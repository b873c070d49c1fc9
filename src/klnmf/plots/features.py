"""The top features of each component, with bars or intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.plots.style import (
    BLUE,
    note,
    panel_titles,
    panels_or_new,
    percent,
    selected_components,
    shortened,
    title,
)
from klnmf.support.array_types import FloatArray
from klnmf.support.number_checks import checked_whole
from klnmf.topics import component_shares
from klnmf.topics.checks import Names, checked_names
from klnmf.topics.features import RANKING, Ranking, leading_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_TO_MEDIAN = 3.0  # longer bars are cut, relative to the median of the longest ones


def plot_top_features(
    components: Any,
    feature_names: Names | None = None,
    *,
    n_top: int = 8,
    by: Ranking = RANKING,
    W: Any = None,
    select: Sequence[int] | None = None,
    component_names: Names | None = None,
    axes: npt.ArrayLike | None = None,
) -> npt.NDArray[np.object_]:
    """Plot the top features of each component as small bar charts on one scale.

    The length of a bar is the feature's share of the component's mass, whatever the features are
    ranked by, so bars can be compared across charts. Bars that are far longer than those of most
    components are cut, with their number written into them.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    feature_names : sequence of str, optional
        Names of the features.
    n_top : int, default=8
        Bars per component.
    by
        How to rank features, see `klnmf.topics.top_features`.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples. If given, each chart shows the component's share of the total
        mass; ``"relevance"`` and ``"kl"`` compare with all of the data.
    select : sequence of int, optional
        Components to plot, in this order. By default, all of them.
    component_names : sequence of str, optional
        Names of the components, instead of their numbers alone.
    axes : array of matplotlib Axes, optional
        One per component plotted, in any shape. By default, those of a new figure.

    Returns
    -------
    ndarray of matplotlib Axes, shape (n_drawn,)
        ``axes[0].figure`` is the figure.

    Examples
    --------
    >>> from klnmf.plots import plot_top_features
    >>> axes = plot_top_features([[3.0, 1.0], [0.0, 2.0]], ["sea", "ship"])
    >>> axes[0].get_title(loc="left")
    'component 0'
    """
    leading = leading_features(components, n_top, by, W=W)
    names = checked_names(feature_names, leading.n_features)
    drawn = selected_components(select, len(leading.features))
    titles = panel_titles(len(leading.features), component_names)
    shares = None if W is None else component_shares(components, W)
    panels = panels_or_new(
        axes, len(drawn), 5, (2.6, 0.55 + 0.17 * n_top), "share of the component's mass"
    )
    limit = common_limit([leading.weights[k].max(initial=0.0) for k in drawn])
    for component, ax in zip(drawn, panels, strict=True):
        weights = leading.weights[component]
        draw_bars(ax, weights, limit)
        finish_panel(ax, titles[component], [names[j] for j in leading.features[component]], n_top)
        ax.locator_params(axis="x", nbins=3)
        if shares is not None:
            note(ax, f"{shares[component]:.1%}")
    return panels


def draw_bars(ax: Axes, weights: FloatArray, limit: float) -> None:
    """Draw shares as bars on a scale that all charts have; longer ones get their number."""
    ax.barh(np.arange(weights.size), weights, height=0.7, color=BLUE)
    for position in np.flatnonzero(weights > limit):
        looks: Any = {"ha": "right", "va": "center_baseline", "fontsize": 7, "color": "white"}
        ax.text(0.98 * limit, int(position), percent(weights[position]), **looks)
    ax.set_xlim(0.0, limit)


def draw_intervals(
    bootstrap: Any,
    *,
    n_top: int,
    select: Sequence[int] | None,
    axes: npt.ArrayLike | None,
) -> npt.NDArray[np.object_]:
    """Draw what `klnmf.uncertainty.Bootstrap.plot` describes."""
    n_top = checked_whole("n_top", n_top)
    n_components = len(bootstrap.components.estimate)
    drawn = selected_components(select, n_components)
    titles = panel_titles(n_components, None)
    label = f"share of the component's mass, with {100 * bootstrap.level:.3g} % intervals"
    panels = panels_or_new(axes, len(drawn), 4, (3.0, 0.6 + 0.2 * n_top), label)
    for component, ax in zip(drawn, panels, strict=True):
        table = bootstrap.table(component, n_top)
        positions = np.arange(len(table["share"]))
        ax.hlines(positions, table["lower"], table["upper"], color=BLUE, linewidth=1.8)
        filling = [BLUE if inside else "white" for inside in table["is_interior"]]
        ax.scatter(table["share"], positions, s=13, zorder=3, edgecolors=BLUE, facecolors=filling)
        ax.set_xlim(0.0, 1.08 * (float(np.nanmax(table["upper"], initial=0.0)) or 1.0))
        finish_panel(ax, titles[component], [str(name) for name in table["feature"]], n_top)
        ax.locator_params(axis="x", nbins=4)
        ax.grid(True, axis="x", color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
        note(ax, f"{bootstrap.sizes.estimate[0, component]:.1%}")
    return panels


def finish_panel(ax: Axes, name: str, features: Sequence[str], n_top: int) -> None:
    """Name the features of one component, the first at the top; empty places stay empty."""
    ax.set_yticks(np.arange(len(features)), [shortened(name) for name in features])
    ax.set_ylim(n_top - 0.4, -0.6)
    ax.xaxis.set_major_formatter(percent)
    title(ax, name, size=8.5)
    ax.tick_params(axis="y", length=0, labelsize=8)
    ax.tick_params(axis="x", length=2, labelsize=7, colors="0.4")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color("0.7")


def common_limit(longest_bars: list[float]) -> float:
    """Right end of all charts: beyond the longest bar, unless that would make the others tiny."""
    filled = [longest for longest in longest_bars if longest > 0.0] or [1.0]
    return min(1.05 * max(filled), _LONGEST_TO_MEDIAN * float(np.median(filled)))
