"""The leading features of each component, with the intervals of a bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.plots.style import (
    BLUE,
    given_panels,
    new_panels,
    percent,
    selected_components,
    shortened,
    title,
)

_PANELS_PER_ROW = 4
_PANEL_WIDTH, _LINE_HEIGHT = 3.0, 0.2  # inches


def plot_intervals(
    bootstrap: Any,
    *,
    n_top: int = 8,
    select: Sequence[int] | None = None,
    axes: npt.ArrayLike | None = None,
) -> npt.NDArray[np.object_]:
    """Draw the leading features of each component as points with their intervals.

    A point is the share of the component's mass that the feature holds. Filled points are in the
    interior; hollow ones are so near 0 or 1 that their interval is one-sided.

    Parameters
    ----------
    bootstrap : Bootstrap
        What `klnmf.uncertainty.bootstrap` returned.
    n_top : int, default=8
        Features per component.
    select : sequence of int, optional
        The components to draw, in this order; by default all.
    axes : array of matplotlib Axes, optional
        One for each component drawn, in any shape. By default a new figure, four charts to a row.

    Returns
    -------
    axes : ndarray of matplotlib Axes, shape (n_drawn,)
        The axes drawn on; ``axes[0].figure`` is the figure.

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
    drawn = selected_components(select, len(bootstrap.components.estimate))
    if axes is None:
        panels = new_panels(len(drawn), _PANELS_PER_ROW, _PANEL_WIDTH, 0.6 + _LINE_HEIGHT * n_top)
        figure = panels[0].figure
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
        label = f"share of the component's mass, with {100 * bootstrap.level:.3g} % intervals"
        figure.supxlabel(label, fontsize=9, color="0.4")
    else:
        panels = given_panels(axes, len(drawn))
    for component, ax in zip(drawn, panels, strict=True):
        table = bootstrap.table(component, n_top)
        positions = np.arange(len(table["share"]))
        ax.hlines(positions, table["lower"], table["upper"], color=BLUE, linewidth=1.8)
        ax.scatter(
            table["share"],
            positions,
            s=13,
            zorder=3,
            edgecolors=BLUE,
            facecolors=[BLUE if inside else "white" for inside in table["is_interior"]],
        )
        ax.set_yticks(positions, [shortened(str(name)) for name in table["feature"]])
        ax.set_ylim(n_top - 0.4, -0.6)  # the first feature on top; empty places stay empty
        ax.set_xlim(0.0, 1.08 * (float(np.nanmax(table["upper"], initial=0.0)) or 1.0))
        ax.xaxis.set_major_formatter(percent)
        ax.locator_params(axis="x", nbins=4)
        ax.grid(True, axis="x", color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
        title(ax, f"component {component}", size=8.5)
        share = bootstrap.sizes.estimate[0, component]
        ax.set_title(f"{share:.1%}", loc="right", fontsize=8, color="0.4")
        ax.tick_params(axis="y", length=0, labelsize=8)
        ax.tick_params(axis="x", length=2, labelsize=7, colors="0.4")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color("0.7")
    return panels
