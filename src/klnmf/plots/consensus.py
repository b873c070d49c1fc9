"""How alike the components of many runs are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.plots.style import AREA_COLOURS, HEAT_COLOURS, axes_or_new, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_DRAWN = 2000


def plot_consensus(result: Any, ax: Axes | None = None) -> Axes:
    """Draw the similarity of every run's components, sorted by consensus component.

    Dark squares on the diagonal are components that the runs agree on; those that were left out
    stand at the end. The bar on the left says which consensus component a row belongs to.

    Parameters
    ----------
    result : Consensus
        What `klnmf.model_selection.consensus` returned.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib Axes
        The axes drawn on.

    Examples
    --------
    >>> from klnmf.model_selection import consensus
    >>> from klnmf.plots import plot_consensus
    >>> from klnmf.simulate import simulate_counts
    >>> X = simulate_counts(80, 50, 3, counts_per_sample=200, random_state=0).X
    >>> plot_consensus(consensus(X, 3, n_runs=5, random_state=0)).get_xlabel()
    'components of all runs'
    """
    labels = np.asarray(result.labels)
    last = len(result.components)
    # Left out at the end; within a group the closest to their neighbours first.
    order = np.lexsort((result.neighbour_distance, np.where(labels < 0, last, labels)))
    if len(order) > _MOST_DRAWN:
        order = order[np.linspace(0, len(order) - 1, _MOST_DRAWN).astype(int)]
    spectra = result.spectra[order]
    ax = axes_or_new(ax, 5.6, 4.8)
    image = ax.imshow(
        np.clip(spectra @ spectra.T, 0.0, 1.0),
        cmap=HEAT_COLOURS,
        vmin=0.0,
        vmax=1.0,
        interpolation="nearest",
    )
    size = len(order)
    groups, starts = np.unique(np.where(labels < 0, last, labels)[order], return_index=True)
    ends = np.append(starts[1:], size)
    for group, start, end in zip(groups, starts, ends, strict=True):
        colour = "0.75" if group == last else AREA_COLOURS[int(group) % len(AREA_COLOURS)]
        ax.axhspan(start - 0.5, end - 0.5, xmin=-0.045, xmax=-0.01, color=colour, clip_on=False)
    ax.set_yticks(
        (starts + ends - 1) / 2, ["left out" if group == last else str(group) for group in groups]
    )
    ax.tick_params(axis="y", length=0, pad=12)
    ax.set_xticks([])
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_xlabel("components of all runs")
    ax.set_ylabel("consensus component")
    ax.figure.colorbar(image, ax=ax, label="cosine similarity", shrink=0.8)
    n_runs = len(result.run_objectives)
    title(ax, f"{last} components that {n_runs} runs agree on")
    return ax
