"""Structure plot: the proportions of all samples, group by group."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from sklearn.isotonic import isotonic_regression

from klnmf.plots.style import (
    AREA_COLOURS,
    REST_COLOURS,
    axes_or_new,
    component_labels,
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
    checked_choice,
    checked_components,
    checked_representation,
    dense,
    sums,
)
from klnmf.topics.grouping import groups_of
from klnmf.topics.mixture import plsi_probabilities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Order = Literal["main", "embedding"]

_GAP, _ALL_GAPS = 0.008, 0.2  # largest gap, and sum of all gaps, relative to the samples
_LABEL_SIZE = 7.0  # points
_LINE_HEIGHT = 12.0  # points between a group and its name, if a line joins them


def plot_structure(
    W: Any,
    components: Any,
    labels: Any = None,
    feature_names: Names | None = None,
    *,
    component_names: Names | None = None,
    order: Order = "main",
    select: Sequence[int] | None = None,
    max_samples: int = 2000,
    random_state: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Plot the proportions P(z | d) of the samples as stacked bars, side by side.

    Groups are in the order of first appearance, with gaps between them. Samples without counts have
    no proportions and are left out.

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
    order : {"main", "embedding"}, default="main"
        Order of the samples within a group. ``"main"``: by their largest component, the most
        frequent one first, and by its share. ``"embedding"``: along an axis on which similar
        samples are close, the first one of the correspondence analysis of √P(z | d).
    select : sequence of int, optional
        Components to plot in colour, from the bottom up; the others are above them in two shades of
        grey. At most nine, because more colours are hard to tell apart. By default, those with the
        largest mean share, where each group has the same weight.
    max_samples : int, default=2000
        Largest number of samples to plot. If there are more, a random selection is plotted, with
        the groups in proportion and at least one sample of each. A note above the plot says so.
    random_state : int, default=0
        Seed of the random selection.
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
    checked_choice(order, "order", get_args(Order))
    max_samples = checked_whole("max_samples", max_samples)
    sample = _sampled(W, components, labels, max_samples, random_state)
    ranked = _by_mean(sample)
    shown = ranked[: len(AREA_COLOURS)] if select is None else _chosen(select, len(ranked))
    others = [k for k in ranked if k not in shown]
    greys = itertools.islice(itertools.cycle(REST_COLOURS), len(others))
    colours = [*AREA_COLOURS[: len(shown)], *greys]

    ax = axes_or_new(ax, min(20.0, max(10.0, 3.5 + 0.13 * len(sample.groups))), 4.0)
    rows, edges, ends = _laid_out(sample, order)
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
    _note(ax, sample)
    title(ax, "Proportions of the components in the samples")
    _name_groups(ax, sample.groups, ends, is_grouped=labels is not None)  # measures what is left
    return ax


class _Sample(NamedTuple):
    """Proportions of the samples drawn, the position of their group, and how many there were."""

    proportions: FloatArray
    member: IndexArray
    groups: list[str]
    n_filled: int
    n_empty: int


def _sampled(W: Any, components: Any, labels: Any, max_samples: int, random_state: Any) -> _Sample:
    """Select samples first, so that the proportions of the others are never computed."""
    H = checked_components(components)
    representation = checked_representation(W, H.shape[0])
    n_samples = representation.shape[0]
    groups, member = groups_of(np.zeros(n_samples) if labels is None else labels, n_samples)
    in_use = (sums(H, axis=1) > 0.0).astype(representation.dtype)
    filled = np.flatnonzero(representation @ in_use > 0.0)
    generator = np.random.default_rng(checked_whole("random_state", random_state, least=0))
    rows = _drawn_from_groups(filled, member[filled], max_samples, generator)
    if rows.size == 0:
        raise ValueError("There is nothing to plot: W holds no sample with a positive entry.")
    proportions = dense(plsi_probabilities(representation[rows], H).component_given_sample)
    present, position = np.unique(member[rows], return_inverse=True)
    names = [str(groups[group]) for group in present]
    return _Sample(proportions, position, names, filled.size, n_samples - filled.size)


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


def _drawn_from_groups(
    rows: IndexArray, member: IndexArray, max_samples: int, generator: np.random.Generator
) -> IndexArray:
    """Select rows at random, with the groups in proportion and none left out."""
    if rows.size <= max_samples:
        return rows
    drawn = []
    for group in np.unique(member):
        of_group = rows[member == group]
        n_drawn = max(1, int(max_samples * of_group.size / rows.size))
        drawn.append(generator.choice(of_group, n_drawn, replace=False))
    return np.sort(np.concatenate(drawn))


def _arranged(proportions: FloatArray, order: Order) -> IndexArray:
    """Order of the samples of one group."""
    main = proportions.argmax(axis=1)
    if order == "main":
        often = np.bincount(main, minlength=proportions.shape[1])
        share = proportions[np.arange(main.size), main]
        return np.lexsort((-share, main, -often[main]))  # the last key counts first
    # Rows of √P divided by the roots of both margins: the first singular vectors are those margins,
    # and the second ones are the axis.
    roots = np.sqrt(proportions)
    by_row, by_column = (np.sqrt(roots.sum(axis=axis)) for axis in (1, 0))
    scaled = roots / by_row[:, np.newaxis] / np.where(by_column > 0.0, by_column, 1.0)
    left, _, right = np.linalg.svd(scaled, full_matrices=False)
    if left.shape[1] < 2:
        return np.arange(main.size)
    axis = left[:, 1] / by_row
    if right[1, np.abs(right[1]).argmax()] < 0.0:  # fixes the sign, which is arbitrary
        axis = -axis
    return np.argsort(-axis, kind="stable")


def _laid_out(
    sample: _Sample, order: Order
) -> tuple[IndexArray, FloatArray, list[tuple[float, float]]]:
    """Return the samples from left to right (-1: a gap), the edges of bars, the ends of groups."""
    gap = min(_GAP, _ALL_GAPS / len(sample.groups)) * len(sample.member)
    rows, widths, ends = [], [], []
    left = 0.0
    for group in range(len(sample.groups)):
        members = np.flatnonzero(sample.member == group)
        if group > 0:
            rows.append(np.array([-1]))
            widths.append(np.array([gap]))
            left += gap
        rows.append(members[_arranged(sample.proportions[members], order)])
        widths.append(np.ones(members.size))
        ends.append((left, left + members.size))
        left += members.size
    return np.concatenate(rows), np.concatenate([[0.0], *widths]).cumsum(), ends


def _name_groups(
    ax: Axes, groups: list[str], ends: list[tuple[float, float]], *, is_grouped: bool
) -> None:
    """Name the groups below their middle; if space is short, upright, apart and joined by lines."""
    ax.tick_params(axis="x", length=0, labelsize=_LABEL_SIZE)
    if not is_grouped:
        ax.set_xticks([])
        ax.set_xlabel("samples")
        return
    total = ax.get_xlim()[1]
    points, _ = size_in_points(ax)
    texts = [shortened(group) for group in groups]
    middles = np.array([(left + right) / 2.0 for left, right in ends])
    widths = np.array([right - left for left, right in ends])
    room = points / total * widths
    if all(0.62 * _LABEL_SIZE * len(text) < w for text, w in zip(texts, room, strict=True)):
        ax.set_xticks(middles, texts)
        ax.set_xlabel("samples by group")
        return
    line = 1.2 * _LABEL_SIZE * total / points
    n_named = min(len(groups), 1 + int(total / line))
    named = np.sort(np.argsort(-widths, kind="stable")[:n_named])
    places = _apart(middles[named], line, total)
    ax.set_xticks(places, [texts[group] for group in named], rotation=90)
    ax.tick_params(axis="x", pad=_LINE_HEIGHT)
    missing = len(groups) - n_named
    small = f" ({missing} of {len(groups)} groups are too small for their name)" if missing else ""
    ax.set_xlabel(f"samples by group{small}")
    below = -_LINE_HEIGHT / size_in_points(ax)[1]
    gaps = np.full(places.size, np.nan)
    x = np.column_stack([middles[named], places, gaps]).ravel()
    y = np.column_stack([np.zeros(places.size), np.full(places.size, below), gaps]).ravel()
    looks: Any = {"color": "0.6", "linewidth": 0.6, "clip_on": False, "in_layout": False}
    ax.plot(x, y, transform=ax.get_xaxis_transform(), scalex=False, scaley=False, **looks)


def _apart(wanted: FloatArray, distance: float, total: float) -> FloatArray:
    """Places at least this far apart, within [0, total] and as close as possible to the wanted."""
    steps = distance * np.arange(wanted.size)
    slack = max(0.0, total - float(steps[-1]))
    return np.asarray(isotonic_regression(wanted - steps, y_min=0.0, y_max=slack) + steps)


def _legend(ax: Axes, names: list[str], shown: list[int], n_others: int) -> None:
    """Name the colours in the order of the stack, from top to bottom."""
    from matplotlib.patches import Patch

    entries = [Patch(color=AREA_COLOURS[i], label=names[k]) for i, k in enumerate(shown)]
    if n_others:
        text = f"{n_others} other component{'s' if n_others > 1 else ''}"
        entries.append(Patch(color=REST_COLOURS[0], label=text))
    looks: Any = {"frameon": False, "fontsize": 8, "title_fontsize": 8, "alignment": "left"}
    place: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)}
    ax.legend(handles=entries[::-1], title="component", **looks, **place)


def _note(ax: Axes, sample: _Sample) -> None:
    """Say above the plot what is not in it."""
    notes = []
    if len(sample.member) < sample.n_filled:
        notes.append(f"{len(sample.member):,} of {sample.n_filled:,} samples, chosen at random")
    if sample.n_empty:
        notes.append(f"{sample.n_empty:,} empty sample{'s' if sample.n_empty > 1 else ''} left out")
    ax.set_title("; ".join(notes), loc="right", fontsize=8, color="0.4")
