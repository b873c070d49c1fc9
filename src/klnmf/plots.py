"""Pictures of a fitted model; they need the extra ``plots`` (matplotlib)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.topics import top_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Two colours that stay apart for colour-blind readers and in grey.
_BLUE, _ORANGE = "#2f6690", "#d9822b"
_LONGEST_NAME = 22
_PANELS_PER_ROW = 5


def plot_top_features(
    components: Any,
    feature_names: Sequence[str] | npt.NDArray[np.str_] | None = None,
    *,
    n_top: int = 8,
    axes: npt.ArrayLike | None = None,
) -> npt.NDArray[np.object_]:
    """Draw the leading features of each component as small bar charts on one scale.

    The length of a bar is the share of the component's mass, see `klnmf.topics.top_features`.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    feature_names : sequence of str, optional
        Names of the features.
    n_top : int, default=8
        Bars per component.
    axes : array of matplotlib Axes, optional
        One for each component, in any shape. By default a new figure, five charts to a row.

    Returns
    -------
    axes : ndarray of matplotlib Axes, shape (n_components,)
        The axes drawn on; ``axes[0].figure`` is the figure.

    Examples
    --------
    >>> from klnmf.plots import plot_top_features
    >>> axes = plot_top_features([[3.0, 1.0], [0.0, 2.0]], ["sea", "ship"])
    >>> axes[0].get_title(loc="left")
    'component 0'
    """
    topics = top_features(components, feature_names, n_top=n_top)
    panels = _new_panels(len(topics), n_top) if axes is None else _given_panels(axes, len(topics))
    longest_bar = max((share for topic in topics for _, share in topic[:1]), default=1.0)
    for component, (ax, topic) in enumerate(zip(panels, topics, strict=True)):
        positions = np.arange(len(topic))
        ax.barh(positions, [share for _, share in topic], height=0.7, color=_BLUE)
        ax.set_yticks(positions, [_shortened(name) for name, _ in topic])
        ax.set_ylim(n_top - 0.4, -0.6)  # the first feature on top; empty places stay empty
        ax.set_xlim(0.0, 1.05 * longest_bar)  # shared, so that bars compare across charts
        ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}" if share else "0")
        ax.locator_params(axis="x", nbins=3)
        ax.set_title(f"component {component}", loc="left", fontsize=9, fontweight="bold")
        ax.tick_params(axis="y", length=0, labelsize=8)
        ax.tick_params(axis="x", length=2, labelsize=7, colors="0.4")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color("0.7")
    return panels


def plot_convergence(history: Sequence[Mapping[str, Any]], ax: Axes | None = None) -> Axes:
    """Draw the KKT residual and the excess of the objective against time.

    Both are free of units and share one logarithmic axis. The excess is F_t / F_end - 1, where
    F_end is the last objective; points where it is not positive, the last one among them, cannot
    be drawn and are left out.

    Parameters
    ----------
    history : sequence of dict
        Records with the keys ``"seconds"``, ``"objective"`` and ``"kkt_residual"``, such as
        ``history_`` of a fitted model.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib Axes
        The axes drawn on.

    Examples
    --------
    >>> from klnmf.plots import plot_convergence
    >>> history = [
    ...     {"seconds": 0.1, "objective": 20.0, "kkt_residual": 0.3},
    ...     {"seconds": 0.2, "objective": 10.0, "kkt_residual": 0.01},
    ... ]
    >>> plot_convergence(history).get_yscale()
    'log'
    """
    if len(history) == 0:
        raise ValueError("history is empty: fit the model with at least one iteration first.")
    if ax is None:
        _, ax = _pyplot().subplots(figsize=(6.0, 3.6), layout="constrained")
    seconds = np.array([record["seconds"] for record in history], dtype=np.float64)
    objective = np.array([record["objective"] for record in history], dtype=np.float64)
    residual = np.array([record["kkt_residual"] for record in history], dtype=np.float64)
    scale = abs(objective[-1]) or 1.0
    excess = (objective - objective[-1]) / scale

    curves = (
        ("KKT residual", residual, _BLUE, "-"),
        ("objective above its final value, relative", excess, _ORANGE, "--"),
    )
    marker = "o" if len(history) <= 30 else None  # single points are told apart while few
    for label, values, colour, style in curves:
        # Nothing that is not positive can stand on a logarithmic axis.
        drawn = np.where(values > 0.0, values, np.nan)
        ax.plot(seconds, drawn, style, color=colour, label=label, marker=marker, markersize=3)
    ax.set_yscale("log")
    ax.set_xlabel("seconds")
    ax.grid(True, axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    # Above the curves, not over them: both may fill the whole height.
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return ax


def _pyplot() -> Any:
    """Import matplotlib only when a new figure is asked for."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'Plots need matplotlib: install it with  pip install "klnmf[plots]".'
        ) from error
    return plt


def _new_panels(n_panels: int, n_bars: int) -> npt.NDArray[np.object_]:
    """Make a new figure with one chart per component and the rest of the grid switched off."""
    n_columns = min(_PANELS_PER_ROW, n_panels)
    n_rows = math.ceil(n_panels / n_columns)
    _, grid = _pyplot().subplots(
        n_rows,
        n_columns,
        figsize=(2.4 * n_columns, (0.55 + 0.17 * n_bars) * n_rows),
        squeeze=False,
        layout="constrained",
    )
    grid[0, 0].figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    panels: npt.NDArray[np.object_] = grid.ravel()
    for unused in panels[n_panels:]:
        unused.set_axis_off()
    return panels[:n_panels]


def _given_panels(axes: npt.ArrayLike, n_panels: int) -> npt.NDArray[np.object_]:
    """Flatten the axes of the caller; there must be at least one for each component."""
    panels = np.asarray(axes, dtype=object).ravel()
    if panels.size < n_panels:
        raise ValueError(f"axes has {panels.size} places for {n_panels} components.")
    return panels[:n_panels]


def _shortened(name: str) -> str:
    """Cut long names, which would squeeze the bars."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
