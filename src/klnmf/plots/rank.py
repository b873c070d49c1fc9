"""How many components: held-out deviance and stability against rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.plots.style import LINE_COLOURS, axes_or_new, light_frame, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_rank_selection(selection: Any, ax: Axes | None = None) -> Axes:
    """Draw the held-out deviance with its standard errors, and the stability, against rank.

    The deviance is that above the lowest one, a sample's mean, and its bars are one standard error
    of the difference. The stability, on the right, is the similarity of the components of two
    splits. A line marks the rank that was chosen.

    Parameters
    ----------
    selection : RankSelection
        What `klnmf.model_selection.select_rank` returned.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib Axes
        The axes of the deviance; those of the stability lie over it.

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
    table = selection.table()
    ranks, stability = table["rank"], table["stability"]
    blue, orange = LINE_COLOURS[:2]
    ax = axes_or_new(ax, 6.4, 3.8)
    from matplotlib.ticker import MaxNLocator  # after the message where there is no matplotlib

    ax.axvline(selection.best_rank, color="0.45", linestyle=":", linewidth=1.4, zorder=1)
    ax.errorbar(
        ranks,
        table["difference"],
        yerr=table["standard_error"],
        color=blue,
        marker="o",
        markersize=3.5,
        capsize=2,
        elinewidth=1,
        zorder=3,
    )
    ax.set_xlabel("rank")
    ax.set_ylabel("held-out deviance of a sample,\nabove the lowest", color=blue)
    ax.set_ylim(bottom=min(0.0, -0.04 * float(np.max(table["difference"]))))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(True, axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    light_frame(ax)
    if not np.isnan(stability).all():
        right = ax.twinx()
        right.plot(ranks, stability, "s--", color=orange, markersize=3, linewidth=1.2)
        right.set_ylim(0.0, 1.04)
        right.set_ylabel("stability of the components", color=orange)
        right.spines[["top", "left"]].set_visible(False)
    n = selection.best_rank
    title(ax, f"{n} component{'s' if n != 1 else ''} chosen")
    return ax
