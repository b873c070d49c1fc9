"""Plots of a fitted model; they need the extra ``plots`` (matplotlib).

Every function plots on the axes that it is given, or on those of a new figure, and returns them:
``plot_convergence(model.history_).figure.savefig("convergence.png")``.
"""

from klnmf.plots.convergence import (
    plot_convergence,
    plot_kkt_residual,
    plot_optimality_gap,
    plot_zeros,
)
from klnmf.plots.features import plot_component_sizes, plot_intervals, plot_top_features
from klnmf.plots.heat_maps import plot_component_similarity, plot_components_by_label
from klnmf.plots.images import plot_components_as_images
from klnmf.plots.intertopic import plot_intertopic_map
from klnmf.plots.mean_shares import plot_mean_shares
from klnmf.plots.model_selection import plot_consensus, plot_rank_selection
from klnmf.plots.signatures import plot_signatures
from klnmf.plots.structure import plot_structure

__all__ = [
    "plot_component_similarity",
    "plot_component_sizes",
    "plot_components_as_images",
    "plot_components_by_label",
    "plot_consensus",
    "plot_convergence",
    "plot_intertopic_map",
    "plot_intervals",
    "plot_kkt_residual",
    "plot_mean_shares",
    "plot_optimality_gap",
    "plot_rank_selection",
    "plot_signatures",
    "plot_structure",
    "plot_top_features",
    "plot_zeros",
]
