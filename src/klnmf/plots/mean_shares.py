"""Mean shares of components over time or by group, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.plots.style import (
    LINE_COLOURS,
    axes_or_new,
    checked_result,
    label_ticks,
    legend_beside,
    light_frame,
    note,
    panel_titles,
    percent,
    selected_components,
    shortened,
    title,
)
from klnmf.support.array_types import FloatArray
from klnmf.support.optional_packages import require
from klnmf.topics.checks import Names
from klnmf.topics.shares_by_group import MeanShares

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WANTED, _MOST_SHOWN = 6, 12  # components, by default
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
    categories, the 20 with the most samples are shown. The legend says what the components that are
    not plotted amount to.

    Parameters
    ----------
    means : MeanShares
        Result of `klnmf.topics.mean_shares`.
    component_names : sequence of str, optional
        Names of the components for the legend. By default, their numbers.
    select : sequence of int, optional
        Components to plot. By default, the largest of every group, and the largest of all samples
        up to six; of more than twelve, those that are the largest for most samples.
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
    checked_result(means, "means", "klnmf.topics.mean_shares", "is_ordered")
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
        shown = _largest(shares, means.n_samples[filled])
    ax = axes_or_new(ax, 8.0 if means.is_ordered else max(5.0, 3.0 + 0.6 * filled.size), 4.0)
    places: Any = means.groups[filled] if means.is_ordered else np.arange(filled.size)
    if means.groups.dtype.kind == "M":
        places = places.astype("datetime64[s]")  # matplotlib knows no multiples of units
    for at, k in enumerate(shown):
        again, colour = divmod(at, len(LINE_COLOURS))
        looks: Any = {"color": LINE_COLOURS[colour], "marker": "os"[again % 2]}
        x, dashes = places, ("-", "--")[again % 2]
        if not means.is_ordered:  # side by side
            x, dashes = places + _SPREAD * ((at + 0.5) / len(shown) - 0.5), ""
        ax.plot(x, shares[:, k], linestyle=dashes, markersize=3.5, label=names[k], **looks)
        ax.vlines(x, lower[:, k], upper[:, k], color=looks["color"], alpha=0.6, linewidth=1.2)
        if means.is_ordered:
            looks = {"color": looks["color"], "alpha": 0.15, "linewidth": 0.0}
            ax.fill_between(x, lower[:, k], upper[:, k], **looks)
    ax.set_ylim(bottom=0.0)
    ax.yaxis.set_major_formatter(percent)
    ax.set_ylabel("mean share")
    light_frame(ax)
    rest = np.delete(shares, shown, axis=1)
    signs, texts = ax.get_legend_handles_labels()
    if rest.size:
        signs += ax.plot([], [], " ")  # none
        texts += [_what_is_left_out(rest)]
    legend_beside(ax, signs, texts)
    title(ax, f"Mean shares with {100 * means.level:g}% intervals")
    if means.groups.dtype.kind == "M":  # short labels, which do not run into each other
        dates = require("matplotlib.dates", "A plot", "plots")
        locator = dates.AutoDateLocator(maxticks=9)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    elif not means.is_ordered:  # in the width that the legend leaves
        label_ticks(ax, "x", [shortened(means.group_names[group]) for group in filled])
    note(ax, "; ".join(notes))
    return ax


def _largest(shares: FloatArray, sizes: npt.NDArray[np.intp]) -> list[int]:
    """Return the largest component of every group, and others up to the wanted number.

    Components are ranked by the samples of the groups that they lead, then by their mean share over
    all samples; those chosen are returned by that mean.
    """
    leads = np.bincount(shares.argmax(axis=1), weights=sizes, minlength=shares.shape[1])
    overall = sizes @ shares
    n_shown = int(np.clip(np.count_nonzero(leads), _WANTED, _MOST_SHOWN))
    chosen = np.lexsort((-overall, -leads))[:n_shown]
    return [int(k) for k in chosen[np.argsort(-overall[chosen], kind="stable")]]


def _what_is_left_out(shares: FloatArray) -> str:
    """Say how large the components are that are not plotted, in the group that has most of them."""
    most, n_others = percent(shares.max()), shares.shape[1]
    if n_others == 1:
        return f"1 other: up to\n{most} of a group"
    together = percent(shares.sum(axis=1).max())
    return f"{n_others} others: each up to\n{most}, together up to\n{together} of a group"
