"""A map of the components."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.plots.style import BLUE, axes_or_new, size_in_points, title
from klnmf.support.array_types import FloatArray
from klnmf.topics import component_shares, jensen_shannon_distances
from klnmf.topics.distances import classical_scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COVERED = 0.15  # total area of the circles, relative to the plot
_LABEL_SIZE = 8.0  # points


def plot_intertopic_map(components: Any, W: Any = None, *, ax: Axes | None = None) -> Axes:
    """Plot a map of the components: similar ones are close, and the area of a circle is its share.

    The positions are those of `klnmf.topics.intertopic_coordinates`. The axis labels say how much
    of the squared distances each axis shows. With many components this is little, and neighbours on
    the map need not be similar: see `plot_component_similarity`. Empty components are left out.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples, for the shares of the total mass. Without it, all circles
        have the same size.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes
        ``ax.collections[0]`` holds the circles.

    Examples
    --------
    >>> from klnmf.plots import plot_intertopic_map
    >>> ax = plot_intertopic_map([[1.0, 0.0], [0.0, 1.0]])
    >>> [text.get_text() for text in ax.texts]
    ['0', '1']
    """
    distances = jensen_shannon_distances(components)
    coordinates, explained = classical_scaling(distances, 2)
    placed = np.flatnonzero(~np.isnan(coordinates[:, 0]))
    if placed.size == 0:
        raise ValueError("There is nothing to plot: all components are empty.")
    shares = np.full(len(distances), 1.0) if W is None else component_shares(components, W)
    points, sizes = coordinates[placed], shares[placed] / shares[placed].sum()

    ax = axes_or_new(ax, 6.5, 6.0)
    ax.set_aspect("equal")
    side = min(size_in_points(ax))
    diameters = side * np.sqrt(_COVERED * sizes * 4.0 / np.pi)
    # Half the side of a plot that holds all circles.
    reach = 1.05 * float((np.abs(points).max(axis=1) / (1.0 - diameters / side)).max()) or 1.0
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[])
    ax.axhline(0.0, color="0.9", linewidth=0.8, zorder=0)
    ax.axvline(0.0, color="0.9", linewidth=0.8, zorder=0)
    looks: dict[str, Any] = {"color": BLUE, "alpha": 0.35, "edgecolors": BLUE, "linewidths": 1.0}
    ax.scatter(points[:, 0], points[:, 1], s=diameters**2, **looks)
    largest_first = np.argsort(-sizes, kind="stable")
    labels = [str(placed[i]) for i in largest_first]
    _number(ax, points[largest_first], labels, points_per_unit=side / (2.0 * reach))
    ax.spines[:].set_color("0.8")
    ax.set_xlabel(f"{explained[0]:.0%} of the squared Jensen-Shannon distances")
    ax.set_ylabel(f"{explained[1]:.0%} of the squared Jensen-Shannon distances")
    n_empty = len(distances) - placed.size
    title(ax, "Map of the components" + (f" ({n_empty} empty, left out)" if n_empty else ""))
    return ax


def _number(ax: Axes, points: FloatArray, labels: list[str], points_per_unit: float) -> None:
    """Write each number into its circle, or beside it with a line if that place is taken."""
    taken: list[tuple[FloatArray, FloatArray]] = []
    for point, label in zip(points, labels, strict=True):
        room = _LABEL_SIZE * np.array([0.62 * len(label) + 0.2, 1.15])
        centre = point * points_per_unit
        offset = next(
            shift
            for shift in _shifts()
            if all(
                (np.abs(centre + shift - other) >= (room + size) / 2).any() for other, size in taken
            )
        )
        taken.append((centre + offset, room))
        line = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.6, "shrinkA": 0.0, "shrinkB": 0.0}
        looks: Any = {"ha": "center", "va": "center", "fontsize": _LABEL_SIZE}
        looks["arrowprops"] = line if offset.any() else None
        ax.annotate(label, point, xytext=tuple(offset), textcoords="offset points", **looks)


def _shifts() -> Iterator[FloatArray]:
    """No shift, then shifts in points on wider and wider rings."""
    yield np.zeros(2)
    radius = 10.0
    while True:
        for angle in np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False) + np.pi / 4.0:
            yield radius * np.array([np.cos(angle), np.sin(angle)])
        radius += 4.0
