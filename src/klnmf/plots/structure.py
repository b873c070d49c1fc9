"""Structure plot: the proportions of all samples, group by group."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from klnmf.plots.style import (
    AREA_COLOURS,
    REST_COLOURS,
    axes_or_new,
    component_labels,
    legend_beside,
    note,
    percent,
    selected_components,
    shortened,
    size_in_points,
    title,
)
from klnmf.support.array_types import FloatArray
from klnmf.support.number_checks import checked_whole
from klnmf.topics.checks import (
    IndexArray,
    Names,
    checked_components,
    checked_representation,
    dense,
    sums,
)
from klnmf.topics.grouping import by_largest_component, drawn_from_groups, grouped
from klnmf.topics.mixture import plsi_probabilities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GAP, _ALL_GAPS = 0.008, 0.2  # largest gap, and sum of all gaps, relative to the samples
_LABEL_SIZE = 7.0  # points


def plot_structure(
    W: Any,
    components: Any,
    labels: Any = None,
    feature_names: Names | None = None,
    *,
    component_names: Names | None = None,
    select: Sequence[int] | None = None,
    max_samples: int = 2000,
    ax: Axes | None = None,
) -> Axes:
    """Plot the proportions P(z | d) of the samples as stacked bars, side by side.

    Groups are in the order of first appearance, those of numbers and dates in their own, with gaps
    between them; within a group, samples are in the order of their largest component, the most
    frequent one first, and of its share. Samples without counts or without a label are left out.

    Parameters
    ----------
    W : array-like or sparse matrix of shape (n_samples, n_components)
        Representation of the samples.
    components : array-like or sparse matrix of shape (n_components, n_features)
        Components, such as ``components_`` of a fitted model.
    labels : array-like of shape (n_samples,), optional
        Group of each sample. By default, all samples are one group.
    feature_names : sequence of str, optional
        Names of the features. The legend shows the three leading ones of each component.
    component_names : sequence of str, optional
        Names of the components, instead of their features.
    select : sequence of int, optional
        Components to plot in colour, from the bottom up; the others are above them in two shades of
        grey. At most nine, because more colours are hard to tell apart. By default, those with the
        largest mean share, where each group has the same weight.
    max_samples : int, default=2000
        Largest number of samples to plot. If there are more, a random selection is plotted, with
        the groups in proportion and at least one sample of each. A note above the plot says so.
    ax : matplotlib Axes, optional
        Axes to plot on. By default, those of a new figure.

    Returns
    -------
    matplotlib Axes
        Its ``patches`` are the components from the bottom up.

    References
    ----------
    K. Dey, C. J. Hsiao and M. Stephens, Visualizing the structure of RNA-seq expression data using
    grade of membership models, PLOS Genetics 13, 2017.

    Examples
    --------
    >>> from klnmf.plots import plot_structure
    >>> W = [[1.0, 3.0], [2.0, 0.0], [1.0, 1.0]]
    >>> ax = plot_structure(W, [[1.0, 0.0], [0.0, 1.0]], labels=["sea", "land", "sea"])
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['sea', 'land']
    """
    max_samples = checked_whole("max_samples", max_samples)
    sample = _sampled(W, components, labels, max_samples)
    ranked = _by_mean(sample)
    shown = ranked[: len(AREA_COLOURS)] if select is None else _chosen(select, len(ranked))
    others = [k for k in ranked if k not in shown]
    greys = itertools.islice(itertools.cycle(REST_COLOURS), len(others))
    colours = [*AREA_COLOURS[: len(shown)], *greys]

    ax = axes_or_new(ax, min(20.0, max(10.0, 3.5 + 0.13 * len(sample.groups))), 4.0)
    rows, edges = _laid_out(sample)
    heights = sample.proportions[rows][:, [*shown, *others]]
    heights[rows < 0] = np.nan  # the gaps
    tops = np.cumsum(heights, axis=1)
    bottoms = np.nan_to_num(tops - heights)
    for k, colour in enumerate(colours):
        layer = ax.stairs(tops[:, k], edges, baseline=bottoms[:, k], fill=True)
        # No outline, which would show components that are 0; smooth edges would let white through.
        layer.set(facecolor=colour, linewidth=0.0, antialiased=False)
    ax.set_xlim(0.0, edges[-1])
    ax.set_ylim(0.0, 1.0)
    ax.yaxis.set_major_formatter(percent)
    ax.set_ylabel("proportion")
    ax.spines[:].set_visible(False)
    _legend(ax, component_labels(components, feature_names, component_names), shown, len(others))
    note(ax, sample.left_out)
    title(ax, "Proportions of the components in the samples")
    if labels is None:
        ax.set_xticks([])
        ax.set_xlabel("samples")
    else:
        _name_groups(ax, sample.groups, rows, edges)  # measures what is left
    return ax


class _Sample(NamedTuple):
    """Proportions of the samples drawn, the position of their group, and what is left out."""

    proportions: FloatArray
    member: IndexArray
    groups: list[str]
    left_out: str


def _sampled(W: Any, components: Any, labels: Any, max_samples: int) -> _Sample:
    """Select samples first, so that the proportions of the others are never computed."""
    H = checked_components(components)
    representation = checked_representation(W, H.shape[0])
    n_samples = representation.shape[0]
    groups, member = grouped(["all"] * n_samples if labels is None else labels, n_samples)
    in_use = (sums(H, axis=1) > 0.0).astype(representation.dtype)
    is_empty = representation @ in_use == 0.0
    filled = np.flatnonzero(~is_empty & (member >= 0))
    rows = filled[drawn_from_groups(member[filled], max_samples)]
    if rows.size == 0:
        raise ValueError("There is nothing to plot: W holds no sample with a positive entry.")
    proportions = dense(plsi_probabilities(representation[rows], H).component_given_sample)
    present, position = np.unique(member[rows], return_inverse=True)
    names = [str(groups[group]) for group in present]
    notes = []
    if rows.size < filled.size:
        notes.append(f"{rows.size:,} of {filled.size:,} samples, chosen at random")
    for why, are in (("without counts", is_empty), ("without a label", member < 0)):
        if are.any():
            notes.append(f"{are.sum():,} sample{'s' if are.sum() > 1 else ''} {why} left out")
    return _Sample(proportions, position, names, "; ".join(notes))


def _by_mean(sample: _Sample) -> list[int]:
    """Components by mean share, largest first; each group has the same weight."""
    groups = range(len(sample.groups))
    means = [sample.proportions[sample.member == group].mean(axis=0) for group in groups]
    return [int(k) for k in np.argsort(-np.mean(means, axis=0), kind="stable")]


def _chosen(select: Sequence[int], n_components: int) -> list[int]:
    """Components to plot in colour."""
    most = len(AREA_COLOURS)
    shown = selected_components(select, n_components)
    if len(shown) > most or len(set(shown)) < len(shown):
        raise ValueError(f"select must name at most {most} components, each once; got {shown}.")
    return shown


def _laid_out(sample: _Sample) -> tuple[IndexArray, FloatArray]:
    """Return the samples from left to right, -1 for a gap between groups, and the edges of bars."""
    order = by_largest_component(sample.proportions, sample.member)
    starts = np.flatnonzero(np.diff(sample.member[order])) + 1
    rows = np.insert(order, starts, -1)
    gap = min(_GAP, _ALL_GAPS / len(sample.groups)) * len(order)
    widths = np.where(rows < 0, gap, 1.0)
    return rows, np.concatenate([[0.0], widths]).cumsum()


def _name_groups(ax: Axes, groups: list[str], rows: IndexArray, edges: FloatArray) -> None:
    """Name the groups below their middle: upright, and not the smallest, if space is short."""
    gaps = np.flatnonzero(rows < 0)
    starts, ends = np.append(0.0, edges[gaps + 1]), np.append(edges[gaps], edges[-1])
    middles, widths = (starts + ends) / 2.0, ends - starts
    ax.tick_params(axis="x", length=0, labelsize=_LABEL_SIZE)
    texts = [shortened(group) for group in groups]
    point = edges[-1] / size_in_points(ax)[0]
    lengths = 0.62 * _LABEL_SIZE * point * np.array([len(text) for text in texts])
    if (lengths < widths).all():
        ax.set_xticks(middles, texts)
        ax.set_xlabel("samples by group")
        return
    named: list[int] = []
    for group in np.argsort(-widths, kind="stable"):
        if all(
            abs(middles[group] - middles[other]) >= 1.2 * _LABEL_SIZE * point for other in named
        ):
            named.append(int(group))
    ax.set_xticks(middles[named], [texts[group] for group in named], rotation=90)
    missing = len(groups) - len(named)
    small = f" ({missing} of {len(groups)} groups are too small for their name)" if missing else ""
    ax.set_xlabel(f"samples by group{small}")


def _legend(ax: Axes, names: list[str], shown: list[int], n_others: int) -> None:
    """Name the colours in the order of the stack, from top to bottom."""
    from matplotlib.patches import Patch

    entries = [Patch(color=AREA_COLOURS[i], label=names[k]) for i, k in enumerate(shown)]
    if n_others:
        text = f"{n_others} other component{'s' if n_others > 1 else ''}"
        entries.append(Patch(color=REST_COLOURS[0], label=text))
    looks: Any = {"handles": entries[::-1], "title": "component", "title_fontsize": 8}
    legend_beside(ax, alignment="left", **looks)
