"""A map of the components."""

from __future__ import annotations

import textwrap
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.plots.style import (
    BLUE,
    LINE_COLOURS,
    axes_or_new,
    component_labels,
    size_in_points,
    title,
)
from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described
from klnmf.topics import component_shares, jensen_shannon_distances
from klnmf.topics.checks import Names
from klnmf.topics.distances import classical_scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# As on the map of the report: the area of all circles, and the smallest and the largest circle.
_COVERED = 0.3
_SMALLEST, _CROWDED, _LARGEST = 7.5, 0.4, 0.16
_APART = 1.5  # points between circles
_LARGEST_FONT, _SMALLEST_FONT = 8.5, 5.0  # points
_LINE, _LETTER = 1.15, 0.6  # height of a line and width of a letter, relative to the font size


def plot_intertopic_map(
    components: Any,
    W: Any = None,
    feature_names: Names | None = None,
    component_names: Names | None = None,
    *,
    select: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a map of the components: similar ones are close, and the area of a circle is its share.

    The layout is that of the report (`klnmf.report.write_report`). The axes are those of
    `klnmf.topics.intertopic_coordinates`, in units of the Jensen-Shannon distance; their labels say
    how much of the squared distances each shows. With many components this is little, and
    neighbours on the map need not be similar: see `plot_component_similarity`. Overlapping circles
    are moved apart, and no circle is smaller than its number. Names that do not fit into their
    circle are cut. Empty components are left out.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples, for the shares of the total mass. Without it, all circles
        have the same size.
    feature_names : sequence of str, optional
        Names of the features, to label each component with the three leading ones.
    component_names : sequence of str, optional
        Names of the components, instead of their features.
    select : int, optional
        Component to highlight.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes
        ``ax.collections[0]`` holds the circles, the largest first.

    Examples
    --------
    >>> from klnmf.plots import plot_intertopic_map
    >>> ax = plot_intertopic_map([[1.0, 0.0], [0.0, 1.0]], component_names=["sea", "land"])
    >>> [text.get_text().split() for text in ax.texts]
    [['0', 'sea'], ['1', 'land']]
    """
    distances = jensen_shannon_distances(components)
    coordinates, explained = classical_scaling(distances, 2)
    placed = np.flatnonzero(~np.isnan(coordinates[:, 0]))
    if placed.size == 0:
        raise ValueError("There is nothing to plot: all components are empty.")
    if select is not None and not (isinstance(select, Integral) and select in placed):
        raise ValueError(f"select must be a component that is not empty; got {described(select)}.")
    shares = np.full(len(distances), 1.0) if W is None else component_shares(components, W)
    placed = placed[np.argsort(-shares[placed], kind="stable")]
    points, sizes = coordinates[placed], shares[placed] / (shares[placed].sum() or 1.0)

    ax = axes_or_new(ax, 7.5, 6.5)
    ax.set_xlabel(f"Jensen-Shannon distance ({explained[0]:.0%} of the squared distances)")
    ax.set_ylabel(f"Jensen-Shannon distance ({explained[1]:.0%} of the squared distances)")
    n_empty = len(distances) - placed.size
    title(ax, "Map of the components" + (f" ({n_empty} empty, left out)" if n_empty else ""))
    ax.tick_params(labelsize=8, colors="0.4")
    room = np.array(size_in_points(ax))
    radii = _radii(sizes, room)
    middle = (points.max(axis=0) + points.min(axis=0)) / 2.0
    span = np.maximum(np.ptp(points, axis=0), 1e-6)
    scale = float(((room - 2.0 * (radii.max() + 4.0)) / span).min())  # points per unit of distance
    centres = _apart(scale * (points - middle), radii, room)
    reach = room / (2.0 * scale)
    ax.set_aspect("equal")
    ax.set(
        xlim=middle[0] + reach[0] * np.array([-1, 1]), ylim=middle[1] + reach[1] * np.array([-1, 1])
    )
    ax.locator_params(nbins=6)
    ax.grid(True, color="0.93", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[:].set_color("0.8")
    colours = [LINE_COLOURS[1] if k == select else BLUE for k in placed]
    where = middle + centres / scale
    looks: dict[str, Any] = {"c": colours, "alpha": 0.45, "edgecolors": colours, "linewidths": 1.0}
    ax.scatter(where[:, 0], where[:, 1], s=(2.0 * radii) ** 2, **looks)
    names = [""] * len(distances)
    if feature_names is not None or component_names is not None:
        names = component_labels(components, feature_names, component_names, numbered=False)
    for k, place, radius in zip(placed, where, radii, strict=True):
        size, lines = _fitted(names[k], radius)
        looks = {"fontsize": size, "fontweight": "bold" if k == select else "normal"}
        looks |= {"ha": "center", "va": "center", "linespacing": _LINE, "color": "0.1"}
        ax.annotate("\n".join([str(k), *lines]), place, **looks)
    return ax


def _radii(sizes: FloatArray, room: FloatArray) -> FloatArray:
    """Radii in points: areas in proportion, except for circles that would be tiny or huge."""
    area = float(room.prod())
    smallest = min(_SMALLEST, np.sqrt(_CROWDED * area / (sizes.size * np.pi)))
    largest = max(smallest, _LARGEST * float(room.min()))
    return np.clip(np.sqrt(_COVERED * area * sizes / np.pi), smallest, largest)


def _apart(centres: FloatArray, radii: FloatArray, room: FloatArray) -> FloatArray:
    """Move circles just enough that they do not overlap, and stay within the room around 0."""
    centres = centres.copy()
    wanted = radii + radii[:, np.newaxis] + _APART
    inside = room / 2.0 - radii[:, np.newaxis] - 2.0
    for _ in range(400):
        gaps = np.hypot(*(centres[:, np.newaxis] - centres).transpose(2, 0, 1))
        near = np.argwhere(np.triu(gaps < wanted - 0.1, k=1))
        if near.size == 0:
            break
        for i, j in near:
            step = centres[j] - centres[i]
            distance = float(np.hypot(*step))
            if distance < 1e-6:  # the same place
                step, distance = np.array([np.cos(j), np.sin(j)]), 1.0
            push = max(wanted[i, j] - distance, 0.0) / 2.0 / distance * step
            centres[i] -= push
            centres[j] += push
        centres = np.clip(centres, -inside, inside)
    return centres


def _fitted(name: str, radius: float) -> tuple[float, list[str]]:
    """Font size and lines of a name that fits into a circle below a number, cut if need be."""
    for size in np.arange(_LARGEST_FONT, _SMALLEST_FONT - 0.1, -0.5):
        for width in (10, 14, 20):
            lines = textwrap.wrap(name, width, break_long_words=False)
            if _fits(lines, float(size), radius):
                return float(size), lines
    for n_letters in range(len(name) - 1, 2, -1):
        lines = textwrap.wrap(name[:n_letters] + "…", 14)
        if _fits(lines, _SMALLEST_FONT, radius):
            return _SMALLEST_FONT, lines
    return min(_LARGEST_FONT, 1.1 * radius), []


def _fits(lines: list[str], size: float, radius: float) -> bool:
    """Whether a number and the lines below it fit into a circle, around its centre.

    At the height y, the circle is 2 √(radius² − y²) wide.
    """
    heights = np.abs(np.arange(len(lines) + 1) - len(lines) / 2.0) + 0.5  # of the far edges
    lengths = np.array([1, *map(len, lines)])
    return bool((np.hypot(_LINE * size * heights, 0.5 * _LETTER * size * lengths) < radius).all())
