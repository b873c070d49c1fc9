"""What all plots share: colours, figures, and labels that fit into the space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from klnmf.support.descriptions import described
from klnmf.support.optional_packages import require
from klnmf.topics.checks import Names, checked_components, checked_names, checked_numbers
from klnmf.topics.features import name_components

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colour-blind readers can tell all colours apart: lines after Okabe and Ito, areas after Paul Tol.
BLUE = "#2f6690"
LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
AREA_COLOURS = (
    *("#332288", "#DDCC77", "#44AA99", "#CC6677", "#88CCEE", "#882255", "#117733", "#AA4499"),
    "#999933",
)
REST_COLOURS = ("#dcdcdc", "#c8c8c8")

_LONGEST_NAME = 22
# Font size in points, and the height of a line and the width of a letter relative to it.
_LARGEST, _SMALLEST = 8.5, 5.0
_LINE, _LETTER = 1.2, 0.62


def pyplot() -> Any:
    """Import matplotlib, when a new figure is needed."""
    return require("matplotlib.pyplot", "A plot", "plots")


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the axes of the caller, or those of a new figure of this size in inches."""
    if ax is not None:
        return checked_axes(ax)
    new: Axes = pyplot().subplots(figsize=(width, height), layout="constrained")[1]
    return new


def checked_axes(ax: Any, name: str = "ax") -> Axes:
    """Refuse what nothing can be drawn on."""
    if not hasattr(ax, "set_title") or not hasattr(ax, "plot"):
        raise TypeError(
            f"{name} must be matplotlib Axes, as plt.subplots() makes; got {described(ax)}."
        )
    return ax  # type: ignore[no-any-return]


def checked_result(result: Any, name: str, made_by: str, attribute: str) -> None:
    """Refuse what is not the result of a function, which has this attribute."""
    if not hasattr(result, attribute):
        raise TypeError(f"{name} must be what {made_by} returns; got {described(result)}.")


def panels_or_new(
    axes: npt.ArrayLike | None,
    n_panels: int,
    n_columns: int,
    size: tuple[float, float],
    label: str = "",
) -> npt.NDArray[np.object_]:
    """Return the caller's axes, or those of a new figure: size of each in inches, common label."""
    if axes is not None:
        given = np.asarray(axes, dtype=object).ravel()
        if given.size < n_panels:
            raise ValueError(f"axes has {given.size} places for {n_panels} components.")
        return np.array([checked_axes(each, "axes") for each in given[:n_panels]], dtype=object)
    n_columns = min(n_columns, n_panels)
    n_rows = math.ceil(n_panels / n_columns)
    figure, grid = pyplot().subplots(
        n_rows,
        n_columns,
        figsize=(size[0] * n_columns, size[1] * n_rows),
        squeeze=False,
        layout="constrained",
    )
    if label:
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
        figure.supxlabel(label, fontsize=9, color="0.4")
    panels: npt.NDArray[np.object_] = grid.ravel()
    for unused in panels[n_panels:]:
        unused.set_axis_off()
    return panels[:n_panels]


def selected_components(select: Sequence[int] | None, n_components: int) -> list[int]:
    """Components to plot, in this order; all by default."""
    if select is None:
        return list(range(n_components))
    return checked_numbers(select, "select", n_components)


def component_labels(
    components: Any,
    feature_names: Names | None,
    component_names: Names | None = None,
) -> list[str]:
    """Label each component with its number and its name, or else its leading features."""
    n_components = checked_components(components).shape[0]
    if component_names is not None:
        given = checked_names(component_names, n_components, "component")
        names = [shortened(name) for name in given]
    elif feature_names is not None:
        names = name_components(components, feature_names)
    else:
        return [str(k) for k in range(n_components)]
    return [f"{k}  {name}" for k, name in enumerate(names)]


def panel_titles(n_components: int, component_names: Names | None) -> list[str]:
    """Titles of charts of one component each."""
    if component_names is None:
        return [f"component {k}" for k in range(n_components)]
    names = checked_names(component_names, n_components, "component")
    return [f"{k}  {shortened(name)}" for k, name in enumerate(names)]


def shortened(name: str) -> str:
    """Cut long names, which would leave no space for the plot."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def light_frame(ax: Axes) -> None:
    """Keep only the left and the lower side of the frame, with horizontal lines."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)


def legend_beside(ax: Axes, *entries: Any, **looks: Any) -> None:
    """Put the legend beside the plot, not over it: curves may fill the whole height."""
    looks |= {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)}
    ax.legend(*entries, frameon=False, fontsize=8, **looks)


def title(ax: Axes, text: str, size: float = 10.0) -> None:
    """Put a title on the left."""
    ax.set_title(text, loc="left", fontsize=size, fontweight="bold")


def note(ax: Axes, text: str) -> None:
    """Put a remark on the right above the plot."""
    ax.set_title(text, loc="right", fontsize=8, color="0.4")


def percent(share: float, _: Any = None) -> str:
    """Write a share as a tick label."""
    return f"{100 * share:.3g}%" if share else "0"


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in points, after the layout of what is drawn so far."""
    root = ax.figure.canvas.figure  # of a subfigure too
    root.draw_without_rendering()
    box = ax.get_window_extent()
    return box.width * 72.0 / root.dpi, box.height * 72.0 / root.dpi


def label_ticks(ax: Axes, which: Literal["x", "y"], labels: Sequence[str]) -> None:
    """Label positions 0, 1, ... of an axis: in a smaller font, or not all, if space is short."""
    width, height = size_in_points(ax)
    room = (width if which == "x" else height) / max(1, len(labels))  # points for each label
    widest = _LETTER * _LARGEST * max((len(label) for label in labels), default=0)
    lies_flat = which == "y" or widest < 0.9 * room
    size = min(_LARGEST, max(_SMALLEST, room / _LINE))
    step = 1 if lies_flat and which == "x" else max(1, math.ceil(_LINE * _SMALLEST / room - 0.01))
    places = range(0, len(labels), step)
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_ticks(places, [labels[place] for place in places])
    rotation = 0 if lies_flat else 90
    ax.tick_params(axis=which, length=0, labelsize=size, labelrotation=rotation)
