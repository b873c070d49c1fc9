"""Heat maps: components against components, and components against labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform

from klnmf.plots.style import (
    HEAT_COLOURS,
    axes_or_new,
    component_labels,
    label_ticks,
    percent,
    title,
)
from klnmf.support.array_types import FloatArray
from klnmf.topics import component_similarity, mean_shares
from klnmf.topics.checks import Names
from klnmf.topics.matching import Similarity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUMBERED = 12  # larger tables show no numbers in their cells


def plot_component_similarity(
    components: Any,
    other: Any = None,
    similarity: Similarity = "cosine",
    *,
    feature_names: Names | None = None,
    other_feature_names: Names | None = None,
    component_names: Names | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot how similar components are, within one model or between two.

    Within one model, similar components are next to each other (average linkage). Between two
    models, the pairs of `klnmf.topics.match_components` are on the diagonal, followed by components
    without a partner.

    Parameters
    ----------
    components, other, similarity
        As in `klnmf.topics.component_similarity`.
    feature_names, other_feature_names : sequence of str, optional
        Names of the features, to label the rows with the three leading ones. With both,
        the features of the two models are matched by name.
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
    both_named = other_feature_names is not None
    values = component_similarity(
        components,
        other,
        similarity,
        feature_names=feature_names if both_named else None,
        other_feature_names=other_feature_names,
    )
    if other is None:
        rows = columns = _side_by_side(values)
    else:
        rows, columns = _matched_first(values)
    names = component_labels(components, feature_names, component_names)
    height, width = (1.0 + 0.22 * n for n in values.shape)
    ax = axes_or_new(ax, max(4.0, width + 0.07 * max(map(len, names))), max(3.0, height))
    _draw(
        ax,
        values[np.ix_(rows, columns)],
        [names[k] for k in rows],
        [str(k) for k in columns],
        largest=1.0,
        number=lambda value: f"{value:.2f}".lstrip("0") or "0",
        meaning=f"{similarity} similarity" if similarity == "cosine" else "Hellinger similarity",
    )
    ax.set_ylabel("component")
    ax.set_xlabel("component" if other is None else "component of the other model")
    title(ax, "Similarity of components")
    return ax


def plot_components_by_label(
    W: Any,
    components: Any,
    labels: Any,
    feature_names: Names | None = None,
    *,
    component_names: Names | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the mean share of each component in the samples of each label.

    Components are sorted by the label in which their share is largest: those of one label only are
    near the diagonal. Each column adds up to 100 %. Colours follow the square root of the share, so
    that small shares are visible.

    Parameters
    ----------
    W, components
        As in `klnmf.topics.mean_shares`, which gives the numbers.
    labels : sequence of shape (n_samples,)
        Label of each sample: its groups there.
    feature_names : sequence of str, optional
        Names of the features, to label each component with the three leading ones.
    component_names : sequence of str, optional
        Names of the components, instead of their features.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from klnmf.plots import plot_components_by_label
    >>> W = [[1.0, 3.0], [2.0, 0.0]]
    >>> ax = plot_components_by_label(W, [[1.0, 0.0], [0.0, 1.0]], ["sea", "land"])
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['sea', 'land']
    """
    means = mean_shares(W, components, labels)
    filled = means.n_samples > 0
    table = means.shares[filled].T  # components × labels
    names = component_labels(components, feature_names, component_names)
    rows = np.lexsort((-table.max(axis=1), table.argmax(axis=1)))
    texts = [name for name, is_filled in zip(means.group_names, filled, strict=True) if is_filled]
    label_width, label_height = (0.07 * max(map(len, side)) for side in (names, texts))
    width, height = 1.6 + 0.25 * len(texts), 1.0 + 0.2 * len(names)
    ax = axes_or_new(ax, max(4.5, width + label_width), max(3.0, height + label_height))
    _draw(
        ax,
        table[rows],
        [names[k] for k in rows],
        texts,
        largest=float(table.max(initial=0.0)) or 1.0,
        number=lambda value: f"{100 * value:.0f}",
        meaning="mean share in the samples",
        gamma=0.5,
        tick=percent,
    )
    ax.set_ylabel("component")
    ax.set_xlabel("label")
    title(ax, "Components by label")
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


def _draw(
    ax: Axes,
    values: FloatArray,
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    largest: float,
    number: Callable[[float], str],
    meaning: str,
    gamma: float = 1.0,
    tick: Callable[[float, Any], str] | None = None,
) -> None:
    """Plot a table with its colour bar, and with numbers in the cells if it is small."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import FuncFormatter

    scale = PowerNorm(gamma, vmin=0.0, vmax=largest)
    image = ax.imshow(values, cmap=HEAT_COLOURS, norm=scale, aspect="auto")
    form = FuncFormatter(tick) if tick is not None else None
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02, aspect=25, format=form)
    bar.set_label(meaning, fontsize=8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)
    label_ticks(ax, "x", column_names)
    label_ticks(ax, "y", row_names)
    ax.spines[:].set_visible(False)
    if max(values.shape) <= _NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if scale(value) > 0.55 else "0.15"
            ax.text(column, row, number(value), ha="center", va="center", fontsize=7, color=colour)
