"""The top features of each component, with bars or intervals, and the sizes of components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.plots.style import (
    BLUE,
    axes_or_new,
    checked_result,
    component_labels,
    label_ticks,
    light_frame,
    panel_titles,
    panels_or_new,
    percent,
    selected_components,
    shortened,
    title,
)
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
    lambda_: float = 0.6,
    frex_weight: float = 0.5,
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
    by, lambda_, frex_weight
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
    leading = leading_features(components, n_top, by, W=W, lambda_=lambda_, frex_weight=frex_weight)
    names = checked_names(feature_names, leading.n_features)
    drawn = selected_components(select, len(leading.features))
    titles = panel_titles(len(leading.features), component_names)
    shares = None if W is None else component_shares(components, W)
    panels = panels_or_new(
        axes, len(drawn), 5, (2.6, 0.55 + 0.17 * n_top), "share of the component's mass"
    )
    limit = _common_limit([leading.weights[k].max(initial=0.0) for k in drawn])
    for component, ax in zip(drawn, panels, strict=True):
        weights = leading.weights[component]
        ax.barh(np.arange(weights.size), weights, height=0.7, color=BLUE)
        for position in np.flatnonzero(weights > limit):
            looks = {"ha": "right", "va": "center_baseline", "fontsize": 7, "color": "white"}
            ax.text(0.98 * limit, position, percent(weights[position]), **looks)
        ax.set_xlim(0.0, limit)  # shared, so that bars can be compared across charts
        _finish_panel(ax, titles[component], [names[j] for j in leading.features[component]], n_top)
        ax.locator_params(axis="x", nbins=3)
        if shares is not None:
            _show_share(ax, shares[component])
    return panels


def plot_intervals(
    bootstrap: Any,
    *,
    n_top: int = 8,
    select: Sequence[int] | None = None,
    component_names: Names | None = None,
    axes: npt.ArrayLike | None = None,
) -> npt.NDArray[np.object_]:
    """Plot the top features of each component as points with their intervals.

    A point is the feature's share of the component's mass. Filled points are in the interior;
    hollow ones are so near 0 or 1 that their interval is one-sided.

    Parameters
    ----------
    bootstrap : Bootstrap
        Result of `klnmf.uncertainty.bootstrap`.
    n_top, select, component_names, axes
        As in `plot_top_features`.

    Returns
    -------
    ndarray of matplotlib Axes, shape (n_drawn,)

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.plots import plot_intervals
    >>> from klnmf.simulate import simulate_counts
    >>> from klnmf.uncertainty import bootstrap
    >>> X = simulate_counts(60, 30, 2, counts_per_sample=200, random_state=0).X
    >>> result = bootstrap(KLNMF(2, random_state=0).fit(X), X, n_runs=10, random_state=0)
    >>> axes = plot_intervals(result)
    >>> axes[0].get_title(loc="left")
    'component 0'
    """
    checked_result(bootstrap, "bootstrap", "klnmf.uncertainty.bootstrap", "table")
    n_top = checked_whole("n_top", n_top)
    n_components = len(bootstrap.components.estimate)
    drawn = selected_components(select, n_components)
    titles = panel_titles(n_components, component_names)
    label = f"share of the component's mass, with {100 * bootstrap.level:.3g} % intervals"
    panels = panels_or_new(axes, len(drawn), 4, (3.0, 0.6 + 0.2 * n_top), label)
    for component, ax in zip(drawn, panels, strict=True):
        table = bootstrap.table(component, n_top)
        positions = np.arange(len(table["share"]))
        ax.hlines(positions, table["lower"], table["upper"], color=BLUE, linewidth=1.8)
        filling = [BLUE if inside else "white" for inside in table["is_interior"]]
        ax.scatter(table["share"], positions, s=13, zorder=3, edgecolors=BLUE, facecolors=filling)
        ax.set_xlim(0.0, 1.08 * (float(np.nanmax(table["upper"], initial=0.0)) or 1.0))
        _finish_panel(ax, titles[component], [str(name) for name in table["feature"]], n_top)
        ax.locator_params(axis="x", nbins=4)
        ax.grid(True, axis="x", color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
        _show_share(ax, bootstrap.sizes.estimate[0, component])
    return panels


def _finish_panel(ax: Axes, name: str, features: Sequence[str], n_top: int) -> None:
    """Name the features of one component, the first at the top; empty places stay empty."""
    ax.set_yticks(np.arange(len(features)), [shortened(name) for name in features])
    ax.set_ylim(n_top - 0.4, -0.6)
    ax.xaxis.set_major_formatter(percent)
    title(ax, name, size=8.5)
    ax.tick_params(axis="y", length=0, labelsize=8)
    ax.tick_params(axis="x", length=2, labelsize=7, colors="0.4")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color("0.7")


def _show_share(ax: Axes, share: float) -> None:
    ax.set_title(f"{share:.1%}", loc="right", fontsize=8, color="0.4")


def _common_limit(longest_bars: list[float]) -> float:
    """Right end of all charts: beyond the longest bar, unless that would make the others tiny."""
    filled = [longest for longest in longest_bars if longest > 0.0] or [1.0]
    return min(1.05 * max(filled), _LONGEST_TO_MEDIAN * float(np.median(filled)))


def plot_component_sizes(
    components: Any,
    W: Any = None,
    feature_names: Names | None = None,
    *,
    component_names: Names | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot each component's share of the total mass, largest at the top.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples. Without it, the shares depend on the scale of the components,
        see `klnmf.topics.component_shares`.
    feature_names : sequence of str, optional
        Names of the features, to label each component with the three leading ones.
    component_names : sequence of str, optional
        Names of the components, instead of their features.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_component_sizes
    >>> ax = plot_component_sizes([[1.0, 0.0], [1.0, 2.0]], feature_names=["sea", "ship"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['1  ship, sea', '0  sea']
    """
    shares = component_shares(components, W)
    names = component_labels(components, feature_names, component_names)
    order = np.argsort(-shares, kind="stable")
    ax = axes_or_new(ax, 6.0, max(1.6, 0.9 + 0.17 * shares.size))
    bars = ax.barh(np.arange(order.size), shares[order], height=0.75, color=BLUE)
    ax.set_ylim(order.size - 0.4, -0.6)
    label_ticks(ax, "y", [names[k] for k in order])
    if len(ax.get_yticks()) == order.size:  # else there is no space for a number at each bar
        size = ax.yaxis.get_tick_params()["labelsize"]
        ax.bar_label(bars, fmt=lambda share: f"{share:.1%}", padding=2, fontsize=size, color="0.4")
    ax.set_xlim(0.0, 1.12 * (shares.max(initial=0.0) or 1.0))
    ax.xaxis.set_major_formatter(percent)
    ax.tick_params(axis="x", labelsize=8)
    ax.set_xlabel("share of the total mass" if W is not None else "share of the components' mass")
    ax.set_ylabel("component")
    title(ax, "Component sizes")
    light_frame(ax)
    return ax
