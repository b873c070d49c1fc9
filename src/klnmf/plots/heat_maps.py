"""Heat maps: components against components, and runs against runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform

from klnmf.plots.style import (
    AREA_COLOURS,
    axes_or_new,
    component_labels,
    label_ticks,
    title,
)
from klnmf.support.array_types import FloatArray
from klnmf.topics import component_similarity
from klnmf.topics.checks import Names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUMBERED = 12  # larger tables show no numbers in their cells
_MOST_RUNS = 2000  # components of all runs in the plot of a consensus


def plot_component_similarity(
    components: Any,
    other: Any = None,
    *,
    feature_names: Names | None = None,
    component_names: Names | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot how similar components are, within one model or between two.

    Within one model, similar components are next to each other (average linkage). Between two
    models, the pairs of `klnmf.topics.match_components` are on the diagonal, followed by components
    without a partner.

    Parameters
    ----------
    components, other
        As in `klnmf.topics.component_similarity`.
    feature_names : sequence of str, optional
        Names of the features, to label the rows with the three leading ones.
    component_names : sequence of str, optional
        Names of the components, instead of their features.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_component_similarity
    >>> ax = plot_component_similarity([[1.0, 0.0], [0.0, 1.0]], other=[[0.0, 2.0], [3.0, 0.0]])
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['1', '0']
    """
    values = component_similarity(components, other)
    if other is None:
        rows = columns = _side_by_side(values)
    else:
        rows, columns = _matched_first(values)
    values = values[np.ix_(rows, columns)]
    labels = component_labels(components, feature_names, component_names)
    names = [labels[k] for k in rows]
    width = 1.6 + 0.25 * len(columns) + 0.07 * max(map(len, names))
    ax = axes_or_new(ax, max(4.5, width), max(3.0, 1.2 + 0.22 * len(rows)))
    _heat(ax, values)
    label_ticks(ax, "x", [str(k) for k in columns])
    label_ticks(ax, "y", names)
    if max(values.shape) <= _NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            text, colour = f"{value:.2f}".lstrip("0") or "0", "white" if value > 0.55 else "0.15"
            ax.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    ax.set_ylabel("component")
    ax.set_xlabel("component" if other is None else "component of the other model")
    title(ax, "Similarity of components")
    return ax


def draw_consensus(result: Any, ax: Axes | None) -> Axes:
    """Draw what `klnmf.model_selection.Consensus.plot` describes."""
    last = len(result.components)
    labels = np.where(np.asarray(result.labels) < 0, last, result.labels)
    # Left-out components last; within a group, those closest to their neighbours first.
    order = np.lexsort((result.neighbour_distance, labels))
    if len(order) > _MOST_RUNS:
        order = order[np.linspace(0, len(order) - 1, _MOST_RUNS).astype(int)]
    spectra = result.spectra[order]
    ax = axes_or_new(ax, 5.6, 4.8)
    _heat(ax, np.clip(spectra @ spectra.T, 0.0, 1.0))
    groups, starts = np.unique(labels[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    for group, start, end in zip(groups, starts, ends, strict=True):
        colour = "0.75" if group == last else AREA_COLOURS[int(group) % len(AREA_COLOURS)]
        ax.axhspan(start - 0.5, end - 0.5, xmin=-0.045, xmax=-0.01, color=colour, clip_on=False)
    names = ["left out" if group == last else str(group) for group in groups]
    ax.set_yticks((starts + ends - 1) / 2, names)
    ax.tick_params(axis="y", length=0, pad=18)
    ax.set_xticks([])
    ax.set_xlim(-0.5, len(order) - 0.5)
    ax.set_xlabel("components of all runs")
    ax.set_ylabel("consensus component")
    title(ax, f"Agreement of {len(result.run_objectives)} starts on {last} components")
    return ax


def _side_by_side(values: FloatArray) -> npt.NDArray[np.intp]:
    """Order in which neighbours are similar."""
    if values.shape[0] < 3:
        return np.arange(values.shape[0])
    distances = 1.0 - 0.5 * (values + values.T)
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(distances, checks=False), method="average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), dtype=np.intp)


def _matched_first(values: FloatArray) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns with the matched pairs first, in the order of the rows."""
    pairs = linear_sum_assignment(values, maximize=True)
    rows, columns = (
        np.concatenate([matched, np.setdiff1d(np.arange(size), matched)])
        for matched, size in zip(pairs, values.shape, strict=True)
    )
    return rows, columns


def _heat(ax: Axes, values: FloatArray) -> None:
    """Plot similarities in colours with their bar. White is 0 and darker is more, in print too."""
    image = ax.imshow(
        values, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest"
    )
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02, aspect=25)
    bar.set_label("cosine similarity", fontsize=8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)
    ax.spines[:].set_visible(False)
