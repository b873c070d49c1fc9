"""Convergence of a fit: objective, optimality gap, KKT residual and zeros in its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from klnmf.plots.style import LINE_COLOURS, axes_or_new, light_frame, percent, title
from klnmf.support.array_types import FloatArray
from klnmf.topics.checks import checked_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

History = Sequence[Mapping[str, Any]]
# Fitted models or their histories.
Histories = Any
Against = Literal["seconds", "iteration"]

_MARKED = 30  # curves with more points have no markers


def plot_convergence(
    history: Histories, ax: Axes | None = None, *, against: Against = "seconds"
) -> Axes:
    """Plot how far the objective F is above its final value, on a log scale.

    The height is ``(F_t − F_end) / |F_end|``. For several fits, F_end is the lowest final value of
    all: the curve of a fit that ends in a worse optimum levels off. Points that are not above F_end
    are left out, such as the last point of the best fit.

    Parameters
    ----------
    history : fitted model, its ``history_``, or dict of them by name
        One fit, or several by name, for instance ``{"srcd": first, "mu": second}``. The data and
        the penalties of these fits should be the same.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.
    against : {"seconds", "iteration"}, default="seconds"
        Whether the horizontal axis shows solver time or iterations.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_convergence
    >>> history = [
    ...     {"iteration": 1, "seconds": 0.1, "objective": 20.0},
    ...     {"iteration": 2, "seconds": 0.2, "objective": 10.0},
    ... ]
    >>> plot_convergence(history).get_yscale()
    'log'
    """
    fits = _named(history, against)
    final = min(float(records[-1]["objective"]) for records in fits.values())
    curves = {
        name: (_column(records, "objective") - final) / (abs(final) or 1.0)
        for name, records in fits.items()
    }
    ax = axes_or_new(ax, 6.0, 3.6)
    _draw_on_log_scale(ax, fits, curves, against)
    which = "its final value" if len(fits) == 1 else "the lowest final value"
    ax.set_ylabel(f"relative height\nabove {which}")
    title(ax, "Convergence of the objective")
    return ax


def plot_optimality_gap(
    history: Histories,
    ax: Axes | None = None,
    *,
    against: Against = "seconds",
    tol: float | None = None,
) -> Axes:
    """Plot the optimality gap met in each iteration on a log scale.

    It bounds what another W or another H alone could gain, as a share of the objective. The
    factors that a fit returns have a smaller one, because it ends with a solve for W.

    Parameters
    ----------
    history, ax, against
        As in `plot_convergence`.
    tol : float, optional
        Add a line at this tolerance, such as ``tol`` of the model.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_optimality_gap
    >>> history = [{"iteration": 1, "seconds": 0.1, "optimality_gap": 0.03}]
    >>> plot_optimality_gap(history, tol=1e-4).get_ylabel()
    'optimality gap'
    """
    ax = _plot_figure(history, ax, against, "optimality_gap", "optimality gap")
    if tol is not None and tol > 0.0:
        ax.axhline(tol, color="0.4", linestyle=":", linewidth=1.2)
        ax.annotate("tol", (1.01, tol), xycoords=ax.get_yaxis_transform(), va="center", fontsize=8)
    title(ax, "What changing only W or H could gain")
    return ax


def plot_kkt_residual(
    history: Histories, ax: Axes | None = None, *, against: Against = "seconds"
) -> Axes:
    """Plot the KKT residual of each iteration on a log scale; it is 0 at a stationary point.

    Parameters
    ----------
    history, ax, against
        As in `plot_convergence`.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_kkt_residual
    >>> history = [{"iteration": 1, "seconds": 0.1, "kkt_residual": 0.3}]
    >>> plot_kkt_residual(history).get_ylabel()
    'KKT residual'
    """
    ax = _plot_figure(history, ax, against, "kkt_residual", "KKT residual")
    title(ax, "Distance from a stationary point")
    return ax


def _plot_figure(
    history: Histories, ax: Axes | None, against: Against, figure: str, label: str
) -> Axes:
    """Plot one figure of the records on a log scale."""
    fits = _named(history, against)
    curves = {name: _column(records, figure) for name, records in fits.items()}
    ax = axes_or_new(ax, 6.0, 3.6)
    _draw_on_log_scale(ax, fits, curves, against)
    ax.set_ylabel(label)
    return ax


def plot_zeros(history: Histories, ax: Axes | None = None, *, against: Against = "seconds") -> Axes:
    """Plot the share of entries of W (solid) and H (dashed) that are exactly 0.

    Parameters
    ----------
    history, ax, against
        As in `plot_convergence`.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_zeros
    >>> history = [{"iteration": 1, "seconds": 0.1, "zeros_W": 0.2, "zeros_H": 0.5}]
    >>> [line.get_label() for line in plot_zeros(history).get_lines()]
    ['W', 'H']
    """
    fits = _named(history, against)
    ax = axes_or_new(ax, 6.0, 3.6)
    for (name, records), colour in zip(fits.items(), cycle(LINE_COLOURS), strict=False):
        for factor, style in (("W", "-"), ("H", "--")):
            label = f"{name}, {factor}" if name else factor
            zeros = _column(records, f"zeros_{factor}")
            _draw_curve(ax, records, zeros, against, style, color=colour, label=label)
    ax.set_ylim(0.0, 1.0)
    ax.yaxis.set_major_formatter(percent)
    ax.set_ylabel("exact zeros")
    _finish(ax, against)
    title(ax, "Exact zeros of the factors")
    return ax


def _named(history: Histories, against: Against) -> dict[str, History]:
    """Histories by name, none of them empty. A single one has the name ''."""
    checked_choice(against, "against", get_args(Against))
    given = dict(history) if isinstance(history, Mapping) else {"": history}
    fits: dict[str, History] = {name: getattr(fit, "history_", fit) for name, fit in given.items()}
    if not fits:
        raise ValueError("history is empty: pass at least one name with its history.")
    for name, records in fits.items():
        if len(records) == 0:
            which = f"The history of {name!r}" if name else "history"
            raise ValueError(f"{which} is empty: fit with at least one iteration first.")
    return fits


def _column(records: History, key: str) -> FloatArray:
    missing = next((record for record in records if key not in record), None)
    if missing is not None:
        raise ValueError(
            f"A record of the history has no {key!r}, only {', '.join(map(repr, missing))}; pass "
            "history_ of a fitted model."
        )
    return np.array([record[key] for record in records], dtype=np.float64)


def _draw_on_log_scale(
    ax: Axes, fits: dict[str, History], curves: dict[str, FloatArray], against: Against
) -> None:
    """Plot one curve per fit. If there are more fits than colours, lines are dashed too."""
    looks = cycle(product(("-", "--", "-.", ":"), LINE_COLOURS))
    for (name, records), (style, colour) in zip(fits.items(), looks, strict=False):
        # A logarithmic axis has no place for other values.
        drawn = np.where(curves[name] > 0.0, curves[name], np.nan)
        _draw_curve(ax, records, drawn, against, style, color=colour, label=name or "_")
    ax.set_yscale("log")
    _finish(ax, against)


def _draw_curve(
    ax: Axes, records: History, values: FloatArray, against: Against, style: str, **looks: Any
) -> None:
    marker = "o" if len(records) <= _MARKED else None
    ax.plot(_column(records, against), values, style, marker=marker, markersize=3, **looks)


def _finish(ax: Axes, against: Against) -> None:
    ax.set_xlabel("solver time (seconds)" if against == "seconds" else "iteration")
    light_frame(ax, with_grid=True)
    if ax.get_legend_handles_labels()[1]:
        # Beside the curves, not over them: they may fill the whole height.
        ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
