"""Mutational signatures as bars over the 96 types of single base substitutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.plots.style import checked_result, panels_or_new, percent, selected_components
from klnmf.signatures import SBS96, SUBSTITUTIONS, standard_types
from klnmf.support.array_types import FloatArray
from klnmf.topics import component_shares
from klnmf.topics.checks import Names, checked_components, checked_names, dense, rows_scaled_to_one

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Those of the published catalogues, by which readers know the substitutions.
COLOURS = ("#03bcee", "#111111", "#e32926", "#cac9c9", "#a1ce63", "#ebc6c4")
_PER_BLOCK = len(SBS96) // len(SUBSTITUTIONS)


def plot_signatures(
    components: Any,
    feature_names: Names | None = None,
    *,
    intervals: Any = None,
    W: Any = None,
    component_names: Names | None = None,
    select: Sequence[int] | None = None,
    axes: npt.ArrayLike | None = None,
) -> npt.NDArray[np.object_]:
    """Plot signatures over the 96 types of mutations, in six blocks with the usual colours.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, 96)
        Signatures, such as ``components_`` of a fitted model. They are scaled to sum to 1.
    feature_names : sequence of str, optional
        Types in the order of the columns, such as ``A[C>T]G``. By default, that of
        ``klnmf.signatures.SBS96``.
    intervals : Bootstrap or Intervals, optional
        Intervals of the components, from `klnmf.uncertainty.bootstrap`, drawn as lines.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples. If given, each panel shows the share of all mutations.
    component_names : sequence of str, optional
        Titles of the panels.
    select : sequence of int, optional
        Components to plot, in this order. By default, all of them.
    axes : array of matplotlib Axes, optional
        One per component plotted. By default, those of a new figure, one below the other.

    Returns
    -------
    ndarray of matplotlib Axes, shape (n_drawn,)
        ``axes[0].figure`` is the figure.

    Examples
    --------
    >>> import numpy as np
    >>> from klnmf.plots import plot_signatures
    >>> signatures = np.random.default_rng(0).dirichlet(np.full(96, 0.2), size=2)
    >>> axes = plot_signatures(signatures, component_names=["SBS A", "SBS B"])
    >>> axes[0].texts[0].get_text()
    'SBS A'
    """
    H = checked_components(components)
    order = _order(feature_names, H.shape[1])
    shares = dense(rows_scaled_to_one(H))[:, order]
    drawn = selected_components(select, len(shares))
    names = checked_names(component_names, len(shares), "component")
    sizes = None if W is None else component_shares(H, W)
    limits = _limits(intervals, shares.shape, order)
    panels = panels_or_new(axes, len(drawn), 1, (10.0, 1.45))
    for component, ax in zip(drawn, panels, strict=True):
        _bars(ax, shares[component], None if limits is None else limits[:, component])
        where = {"transform": ax.transAxes, "va": "top"}
        ax.text(0.006, 0.94, names[component], fontsize=8.5, fontweight="bold", **where)
        if sizes is not None:
            text = f"{sizes[component]:.1%} of mutations"
            ax.text(0.994, 0.94, text, fontsize=7.5, color="0.4", ha="right", **where)
        ax.tick_params(axis="x", labelbottom=False)
    _name_substitutions(panels[0])
    _name_contexts(panels[-1])
    return panels


def _order(feature_names: Names | None, n_features: int) -> list[int]:
    """Columns in the order of the plot."""
    names = list(SBS96) if feature_names is None else list(map(str, feature_names))
    names = standard_types(names) or names
    if n_features != len(SBS96) or len(names) != n_features or set(names) != set(SBS96):
        raise ValueError(
            f"Signatures are plotted over the {len(SBS96)} types of klnmf.signatures.SBS96, such "
            f"as {SBS96[0]!r}; got {n_features} features and {len(names)} names, the first "
            f"{names[0]!r}. For other features use plot_top_features."
        )
    place = {name: j for j, name in enumerate(names)}
    return [place[name] for name in SBS96]


def _limits(intervals: Any, shape: tuple[int, ...], order: list[int]) -> FloatArray | None:
    """Lower and upper limits, in the order of the plot."""
    if intervals is None:
        return None
    of_components = getattr(intervals, "components", intervals)
    checked_result(of_components, "intervals", "klnmf.uncertainty.bootstrap", "lower")
    limits = np.array([of_components.lower, of_components.upper])
    if limits.shape[1:] != shape:
        raise ValueError(
            f"The intervals are for {limits.shape[1]} components and {limits.shape[2]} types, the "
            f"signatures are {shape[0]} and {shape[1]}."
        )
    return limits[:, :, order]


def _bars(ax: Axes, shares: FloatArray, limits: FloatArray | None) -> None:
    places = np.arange(len(SBS96))
    ax.bar(places, shares, width=0.72, color=np.repeat(COLOURS, _PER_BLOCK), linewidth=0)
    highest = shares.max(initial=0.0)
    if limits is not None:
        ax.vlines(places, *limits, color="0.45", linewidth=0.8)
        highest = max(highest, float(np.nanmax(limits[1], initial=0.0)))
    across = ax.get_xaxis_transform()  # heights relative to the panel
    for block, colour in enumerate(COLOURS):
        patches = ax.bar(
            (block + 0.5) * _PER_BLOCK - 0.5, 0.06, _PER_BLOCK - 0.2, 1.02, color=colour
        )
        patches[0].set(transform=across, clip_on=False)
        if block:
            ax.axvline(block * _PER_BLOCK - 0.5, color="0.88", linewidth=0.6, zorder=0)
    ax.set_xlim(-0.7, len(SBS96) - 0.3)
    ax.set_ylim(0.0, 1.25 * highest or 1.0)  # with space for the name
    ax.locator_params(axis="y", nbins=4)
    ax.yaxis.set_major_formatter(percent)
    ax.tick_params(axis="y", length=2, labelsize=7)
    ax.tick_params(axis="x", length=0)
    ax.grid(True, axis="y", color="0.92", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[:].set(color="0.7", linewidth=0.6)


def _name_substitutions(ax: Axes) -> None:
    """Write the substitution over each block."""
    for block, name in enumerate(SUBSTITUTIONS):
        middle = (block + 0.5) * _PER_BLOCK - 0.5
        looks: Any = {"ha": "center", "va": "bottom", "fontsize": 8.5, "fontweight": "bold"}
        ax.text(middle, 1.11, name, transform=ax.get_xaxis_transform(), **looks)


def _name_contexts(ax: Axes) -> None:
    """Write the three bases under each bar."""
    contexts = [name[0] + name[2] + name[-1] for name in SBS96]
    ax.set_xticks(np.arange(len(SBS96)), contexts)
    looks: Any = {"labelrotation": 90, "labelsize": 5, "labelfontfamily": "monospace"}
    ax.tick_params(axis="x", labelbottom=True, pad=1, **looks)
