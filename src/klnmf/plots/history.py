"""The history of a fit, and the deviance of a rank selection, as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from klnmf.plots.style import LINE_COLOURS, axes_or_new, legend_beside, light_frame, percent, title
from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described
from klnmf.topics.checks import checked_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

History = Sequence[Mapping[str, Any]]
What = Literal["objective", "optimality_gap", "kkt_residual", "zeros"]
Against = Literal["seconds", "iteration"]

_LABELS = {
    "objective": ("Convergence of the objective", "relative height\nabove the lowest final value"),
    "optimality_gap": ("What changing only W or H could gain", "optimality gap"),
    "kkt_residual": ("Distance from a stationary point", "KKT residual"),
    "zeros": ("Exact zeros of the factors", "exact zeros"),
}
_MARKED = 30  # curves with more points have no markers


def plot_history(
    history: Any,
    what: What = "objective",
    *,
    against: Against = "seconds",
    tol: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot how a fit went, or several fits.

    Parameters
    ----------
    history : fitted model, its ``history_``, or dict of them by name
        One fit, or several by name, for instance ``{"srcd": first, "mu": second}``. The data and
        the penalties of these fits should be the same.
    what : {"objective", "optimality_gap", "kkt_residual", "zeros"}, default="objective"
        What to plot, all but the zeros on a log scale:

        - ``"objective"``: ``(F_t − F_end) / |F_end|``, where F_end is the lowest final value of all
          fits: the curve of a fit that ends in a worse optimum levels off. Points that are not
          above F_end are left out, such as the last point of the best fit;
        - ``"optimality_gap"``: the gap met in each iteration. It bounds what another W or another H
          alone could gain, as a share of the objective. The factors that a fit returns have a
          smaller one, because it ends with a solve for W;
        - ``"kkt_residual"``: 0 at a stationary point;
        - ``"zeros"``: the share of entries of W (solid) and H (dashed) that are exactly 0.
    against : {"seconds", "iteration"}, default="seconds"
        Whether the horizontal axis shows solver time or iterations.
    tol : float, optional
        Add a line at this height, such as ``tol`` of the model for its optimality gap.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_history
    >>> history = [
    ...     {"iteration": 1, "seconds": 0.1, "objective": 20.0, "zeros_W": 0.2, "zeros_H": 0.5},
    ...     {"iteration": 2, "seconds": 0.2, "objective": 10.0, "zeros_W": 0.3, "zeros_H": 0.5},
    ... ]
    >>> plot_history(history).get_yscale()
    'log'
    >>> [line.get_label() for line in plot_history(history, "zeros").get_lines()]
    ['W', 'H']
    """
    checked_choice(what, "what", get_args(What))
    checked_choice(against, "against", get_args(Against))
    fits = _named(history)
    parts = {"W": "zeros_W", "H": "zeros_H"} if what == "zeros" else {"": what}
    final = 0.0
    if what == "objective":
        final = min(float(_column(records, what)[-1]) for records in fits.values())
    ax = axes_or_new(ax, 6.0, 3.6)
    # If there are more fits than colours, lines are dashed too.
    looks = cycle(product(("-", "--", "-.", ":"), LINE_COLOURS))
    for (name, records), (dashes, colour) in zip(fits.items(), looks, strict=False):
        marker = "o" if len(records) <= _MARKED else None
        for part, column in parts.items():
            values = _column(records, column)
            if what == "objective":
                values = (values - final) / (abs(final) or 1.0)
            if what != "zeros":  # a logarithmic axis has no place for other values
                values = np.where(values > 0.0, values, np.nan)
            label = ", ".join(text for text in (name, part) if text) or "_"
            style: Any = {"linestyle": "--" if part == "H" else dashes, "color": colour}
            style |= {"marker": marker, "markersize": 3, "label": label}
            ax.plot(_column(records, against), values, **style)
    if what == "zeros":
        ax.set_ylim(0.0, 1.0)
        ax.yaxis.set_major_formatter(percent)
    else:
        ax.set_yscale("log")
    if tol is not None and tol > 0.0:
        ax.axhline(tol, color="0.4", linestyle=":", linewidth=1.2)
        ax.annotate("tol", (1.01, tol), xycoords=ax.get_yaxis_transform(), va="center", fontsize=8)
    heading, height = _LABELS[what]
    title(ax, heading)
    ax.set_ylabel(height)
    ax.set_xlabel("solver time (seconds)" if against == "seconds" else "iteration")
    light_frame(ax)
    if ax.get_legend_handles_labels()[1]:
        legend_beside(ax)
    return ax


def _named(history: Any) -> dict[str, History]:
    """Histories by name, none of them empty. A single one has the name ''."""
    given = dict(history) if isinstance(history, Mapping) else {"": history}
    fits = {name: getattr(fit, "history_", fit) for name, fit in given.items()}
    for name, records in fits.items():
        which = f"The history of {name!r}" if name else "history"
        if not isinstance(records, Sequence) or not all(isinstance(r, Mapping) for r in records):
            message = f"{which} must be a fitted model or its history_; got {described(records)}."
            raise TypeError(message)
    if not fits or not all(fits.values()):
        raise ValueError("A history is empty: pass fits of at least one iteration.")
    return fits


def _column(records: History, key: str) -> FloatArray:
    missing = next((record for record in records if key not in record), None)
    if missing is not None:
        raise ValueError(
            f"A record of the history has no {key!r}, only {', '.join(map(repr, missing))}; pass "
            "a fitted KLNMF, or its history_."
        )
    return np.array([record[key] for record in records], dtype=np.float64)


def draw_rank_selection(selection: Any, ax: Axes | None) -> Axes:
    """Draw what `klnmf.model_selection.RankSelection.plot` describes."""
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
    light_frame(ax)
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
