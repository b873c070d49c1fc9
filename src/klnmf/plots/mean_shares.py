"""Mean shares of components over time or by group, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.plots.style import (
    LINE_COLOURS,
    axes_or_new,
    label_ticks,
    light_frame,
    panel_titles,
    percent,
    selected_components,
    shortened,
    title,
)
from klnmf.support.array_types import FloatArray
from klnmf.topics.checks import Names
from klnmf.topics.shares_by_group import MeanShares

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SHOWN = 6  # components, by default
_MOST_CATEGORIES = 20  # more would be too small to read
_SPREAD = 0.6  # width that the points of one category share, of the distance between categories


def plot_mean_shares(
    means: MeanShares,
    component_names: Names | None = None,
    *,
    select: Sequence[int] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot mean shares with their intervals: lines for times and numbers, points for categories.

    Groups of fewer than two samples have no interval; groups of empty samples are left out. Of many
    categories, the 20 with the most samples are shown.

    Parameters
    ----------
    means : MeanShares
        Result of `klnmf.topics.mean_shares`.
    component_names : sequence of str, optional
        Names of the components for the legend. By default, their numbers.
    select : sequence of int, optional
        Components to plot. By default, the six with the largest mean share over the samples.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_mean_shares
    >>> from klnmf.topics import mean_shares
    >>> W = [[1.0, 3.0], [1.0, 1.0], [2.0, 0.0]]
    >>> means = mean_shares(W, [[1.0, 0.0], [0.0, 1.0]], [1990, 1990, 1991])
    >>> ax = plot_mean_shares(means, ["sea", "land"])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['0  sea', '1  land']
    """
    filled = np.flatnonzero(means.n_samples > 0)
    if filled.size == 0:
        raise ValueError("There is nothing to plot: no group has a sample with counts.")
    notes = [f"{means.n_missing:,} samples without a group left out"] if means.n_missing else []
    if not means.is_ordered and filled.size > _MOST_CATEGORIES:
        notes.append(f"{_MOST_CATEGORIES} largest of {filled.size:,} groups")
        order = np.argsort(-means.n_samples[filled], kind="stable")
        filled = np.sort(filled[order[:_MOST_CATEGORIES]])
    n_components = means.shares.shape[1]
    names = panel_titles(n_components, component_names)
    shares, lower, upper = (x[filled] for x in (means.shares, means.lower, means.upper))
    shown = selected_components(select, n_components)
    if select is None:
        sizes = means.n_samples[filled]  # otherwise a group of two samples counts like a thousand
        shown = np.argsort(-(sizes @ shares), kind="stable")[:_MOST_SHOWN].tolist()
    ax = axes_or_new(ax, 8.0 if means.is_ordered else max(5.0, 3.0 + 0.6 * filled.size), 4.0)
    texts = [shortened(means.group_names[group]) for group in filled]
    if not means.is_ordered:
        label_ticks(ax, "x", texts)
    for at, k in enumerate(shown):
        looks: Any = {"color": LINE_COLOURS[at % len(LINE_COLOURS)], "label": names[k]}
        values = shares[:, k], lower[:, k], upper[:, k]
        if means.is_ordered:
            _draw_line(ax, means.groups[filled], *values, looks=looks)
        else:
            shift = _SPREAD * ((at + 0.5) / len(shown) - 0.5)
            _draw_points(ax, np.arange(filled.size) + shift, *values, looks=looks)
    ax.set_ylim(bottom=0.0)
    ax.yaxis.set_major_formatter(percent)
    ax.set_ylabel("mean share")
    light_frame(ax, with_grid=True)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.02))
    title(ax, f"Mean shares with {100 * means.confidence_level:g}% intervals")
    if notes:
        ax.set_title("; ".join(notes), loc="right", fontsize=8, color="0.4")
    return ax


def _draw_line(
    ax: Axes, at: Any, shares: FloatArray, lower: FloatArray, upper: FloatArray, looks: Any
) -> None:
    """Draw a line through the means with a band, which is a bar beside a group without interval."""
    if at.dtype.kind == "M":
        at = at.astype("datetime64[s]")  # matplotlib knows no multiples of units
    ax.plot(at, shares, marker="o", markersize=3.5, linewidth=1.6, **looks)
    ax.fill_between(at, lower, upper, color=looks["color"], alpha=0.15, linewidth=0.0)
    known = ~np.isnan(lower)
    # A band between two groups has no width at a single one.
    alone = known & ~np.append(False, known[:-1]) & ~np.append(known[1:], False)
    if alone.any():
        ax.vlines(at[alone], lower[alone], upper[alone], color=looks["color"], alpha=0.5)


def _draw_points(
    ax: Axes, at: Any, shares: FloatArray, lower: FloatArray, upper: FloatArray, looks: Any
) -> None:
    """Draw points with bars."""
    bars = np.nan_to_num(np.stack([shares - lower, upper - shares]))
    ax.errorbar(at, shares, yerr=bars, fmt="o", markersize=4, elinewidth=1.2, capsize=2, **looks)
