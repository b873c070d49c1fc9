"""Results of model selection: how many components, and which ones many runs agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.plots.style import (
    AREA_COLOURS,
    HEAT_COLOURS,
    LINE_COLOURS,
    axes_or_new,
    checked_result,
    light_frame,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 2000  # of the plot of a consensus


def plot_rank_selection(selection: Any, ax: Axes | None = None) -> Axes:
    """Plot the held-out deviance with its standard errors, and the stability, against rank.

    The deviance is the mean per sample above the lowest one; bars are one standard error of this
    difference. The stability (right axis) is the similarity of the components of two folds. A line
    marks the chosen rank, and a larger square the rank for reading.

    Parameters
    ----------
    selection : RankSelection
        Result of `klnmf.model_selection.select_rank`.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes
        Those of the deviance. Those of the stability lie over them.

    Examples
    --------
    >>> from klnmf.model_selection import select_rank
    >>> from klnmf.plots import plot_rank_selection
    >>> from klnmf.simulate import simulate_counts
    >>> X = simulate_counts(100, 60, 3, counts_per_sample=200, random_state=0).X
    >>> selection = select_rank(X, range(1, 6), n_splits=2, random_state=0)
    >>> plot_rank_selection(selection).get_xlabel()
    'rank'
    """
    checked_result(selection, "selection", "klnmf.model_selection.select_rank", "best_rank")
    table = selection.table()
    ranks, stability = table["rank"], table["stability"]
    blue, orange = LINE_COLOURS[:2]
    ax = axes_or_new(ax, 6.4, 3.8)
    from matplotlib.ticker import MaxNLocator  # after the message if matplotlib is missing

    ax.axvline(selection.best_rank, color="0.45", linestyle=":", linewidth=1.4, zorder=1)
    looks: Any = {"color": blue, "marker": "o", "markersize": 3.5, "capsize": 2, "elinewidth": 1}
    ax.errorbar(ranks, table["difference"], yerr=table["standard_error"], zorder=3, **looks)
    ax.set_xlabel("rank")
    ax.set_ylabel("held-out deviance per sample,\nabove the lowest", color=blue)
    ax.set_ylim(bottom=min(0.0, -0.04 * float(np.max(table["difference"]))))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    light_frame(ax, with_grid=True)
    if not np.isnan(stability).all():
        right = ax.twinx()
        right.plot(ranks, stability, "s--", color=orange, markersize=3, linewidth=1.2)
        reading = ranks == selection.stable_rank
        right.plot(ranks[reading], stability[reading], "s", color=orange, markersize=7)
        right.set_ylim(0.0, 1.04)
        right.set_ylabel("stability of the components", color=orange)
        right.spines[["top", "left"]].set_visible(False)
    n, for_reading = selection.best_rank, ""
    if selection.stable_rank < n:
        for_reading = f", {selection.stable_rank} for reading"
    title(ax, f"{n} component{'s' if n != 1 else ''} chosen{for_reading}")
    return ax


def plot_consensus(result: Any, ax: Axes | None = None) -> Axes:
    """Plot the similarity of the components of all runs, sorted by consensus component.

    Dark squares on the diagonal are components that the runs agree on, which noise can be too: see
    the null of `klnmf.model_selection.consensus`. Components that were left
    out come last. The bar on the left shows the consensus component of each row.

    Parameters
    ----------
    result : Consensus
        Result of `klnmf.model_selection.consensus`.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.model_selection import consensus
    >>> from klnmf.plots import plot_consensus
    >>> from klnmf.simulate import simulate_counts
    >>> X = simulate_counts(80, 50, 3, counts_per_sample=200, random_state=0).X
    >>> plot_consensus(consensus(X, 3, n_runs=5, random_state=0)).get_xlabel()
    'components of all runs'
    """
    checked_result(result, "result", "klnmf.model_selection.consensus", "spectra")
    labels = np.asarray(result.labels)
    last = len(result.components)
    # Left-out components last; within a group, those closest to their neighbours first.
    order = np.lexsort((result.neighbour_distance, np.where(labels < 0, last, labels)))
    if len(order) > _MOST_ROWS:
        order = order[np.linspace(0, len(order) - 1, _MOST_ROWS).astype(int)]
    spectra = result.spectra[order]
    ax = axes_or_new(ax, 5.6, 4.8)
    cosines = np.clip(spectra @ spectra.T, 0.0, 1.0)
    image = ax.imshow(cosines, cmap=HEAT_COLOURS, vmin=0.0, vmax=1.0, interpolation="nearest")
    size = len(order)
    groups, starts = np.unique(np.where(labels < 0, last, labels)[order], return_index=True)
    ends = np.append(starts[1:], size)
    for group, start, end in zip(groups, starts, ends, strict=True):
        colour = "0.75" if group == last else AREA_COLOURS[int(group) % len(AREA_COLOURS)]
        ax.axhspan(start - 0.5, end - 0.5, xmin=-0.045, xmax=-0.01, color=colour, clip_on=False)
    ax.set_yticks(
        (starts + ends - 1) / 2, ["left out" if group == last else str(group) for group in groups]
    )
    ax.tick_params(axis="y", length=0, pad=12)
    ax.set_xticks([])
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_xlabel("components of all runs")
    ax.set_ylabel("consensus component")
    ax.figure.colorbar(image, ax=ax, label="cosine similarity", shrink=0.8)
    title(ax, f"Agreement of {len(result.run_objectives)} starts on {last} components")
    return ax
