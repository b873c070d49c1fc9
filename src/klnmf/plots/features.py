"""The leading features of each component, and how large the components are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.plots.style import (
    BLUE,
    axes_or_new,
    component_names,
    given_panels,
    label_ticks,
    light_frame,
    new_panels,
    percent,
    selected_components,
    shortened,
    title,
)
from klnmf.topics import component_shares
from klnmf.topics.checks import Names, checked_names
from klnmf.topics.features import Ranking, leading_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS_PER_ROW = 5
_LONGEST_TO_MEDIAN = 3.0  # bars are cut past this, relative to the median of the longest ones
_PANEL_WIDTH, _BAR_HEIGHT = 2.6, 0.17  # inches


def plot_top_features(
    components: Any,
    feature_names: Names | None = None,
    *,
    n_top: int = 8,
    by: Ranking = "weight",
    W: Any = None,
    lambda_: float = 0.6,
    frex_weight: float = 0.5,
    select: Sequence[int] | None = None,
    axes: npt.ArrayLike | None = None,
) -> npt.NDArray[np.object_]:
    """Draw the leading features of each component as small bar charts on one scale.

    The length of a bar is the share of the component's mass that the feature holds, whatever the
    features are ranked by, so that bars compare across charts. Where a few bars are far longer than
    those of most components, they are cut, with their number written into them.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    feature_names : sequence of str, optional
        Names of the features.
    n_top : int, default=8
        Bars per component.
    by, lambda_, frex_weight
        Which features lead, see `klnmf.topics.top_features`.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples. The share of the total mass that the component holds then
        stands on the right above the chart, and the rankings other than by weight compare with all
        of the data.
    select : sequence of int, optional
        The components to draw, in this order; by default all.
    axes : array of matplotlib Axes, optional
        One for each component drawn, in any shape. By default a new figure, five charts to a row.

    Returns
    -------
    axes : ndarray of matplotlib Axes, shape (n_drawn,)
        The axes drawn on; ``axes[0].figure`` is the figure.

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
    shares = None if W is None else component_shares(components, W)
    if axes is None:
        panels = new_panels(len(drawn), _PANELS_PER_ROW, _PANEL_WIDTH, 0.55 + _BAR_HEIGHT * n_top)
        figure = panels[0].figure
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
        figure.supxlabel("share of the component's mass", fontsize=9, color="0.4")
    else:
        panels = given_panels(axes, len(drawn))
    limit = _common_limit([leading.weights[k].max(initial=0.0) for k in drawn])
    for component, ax in zip(drawn, panels, strict=True):
        weights = leading.weights[component]
        positions = np.arange(weights.size)
        ax.barh(positions, weights, height=0.7, color=BLUE)
        ax.set_yticks(positions, [shortened(names[j]) for j in leading.features[component]])
        ax.set_ylim(n_top - 0.4, -0.6)  # the first feature on top; empty places stay empty
        ax.set_xlim(0.0, limit)  # shared, so that bars compare across charts
        for position in np.flatnonzero(weights > limit):
            ax.text(
                0.98 * limit,
                position,
                percent(weights[position]),
                ha="right",
                va="center_baseline",
                fontsize=7,
                color="white",
            )
        ax.xaxis.set_major_formatter(percent)
        ax.locator_params(axis="x", nbins=3)
        title(ax, f"component {component}", size=8.5)
        if shares is not None:
            ax.set_title(f"{shares[component]:.1%}", loc="right", fontsize=8, color="0.4")
        ax.tick_params(axis="y", length=0, labelsize=8)
        ax.tick_params(axis="x", length=2, labelsize=7, colors="0.4")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color("0.7")
    return panels


def _common_limit(longest_bars: list[float]) -> float:
    """Right end of all charts: past the longest bar, unless that would leave the others tiny."""
    filled = [longest for longest in longest_bars if longest > 0.0] or [1.0]
    return min(1.05 * max(filled), _LONGEST_TO_MEDIAN * float(np.median(filled)))


def plot_component_sizes(
    components: Any,
    W: Any = None,
    feature_names: Names | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of the total mass that each component holds, largest on top.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples. Without it the shares are those of ``components`` alone,
        which depend on their scale; see `klnmf.topics.component_shares`.
    feature_names : sequence of str, optional
        Names of the features; each component is then labelled with the three most
        relevant ones.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure, higher for more components.

    Returns
    -------
    ax : matplotlib Axes
        The axes drawn on.

    Examples
    --------
    >>> from klnmf.plots import plot_component_sizes
    >>> ax = plot_component_sizes([[1.0, 0.0], [1.0, 2.0]], feature_names=["sea", "ship"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['1  ship, sea', '0  sea']
    """
    shares = component_shares(components, W)
    names = component_names(components, feature_names)
    order = np.argsort(-shares, kind="stable")
    ax = axes_or_new(ax, 6.0, max(1.6, 0.9 + 0.17 * shares.size))
    bars = ax.barh(np.arange(order.size), shares[order], height=0.75, color=BLUE)
    ax.set_ylim(order.size - 0.4, -0.6)
    label_ticks(ax, "y", [names[k] for k in order])
    if len(ax.get_yticks()) == order.size:  # else there is no room for a number at each bar
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
