"""Plots of a fitted model; they need the extra ``plots`` (matplotlib).

Every function plots on the axes that it is given, or on those of a new figure, and returns them:
``plot_history(model).figure.savefig("convergence.png")``.
"""

from klnmf.plots.features import plot_top_features
from klnmf.plots.heat_maps import plot_component_similarity
from klnmf.plots.history import plot_history
from klnmf.plots.mean_shares import plot_mean_shares
from klnmf.plots.modes import plot_components
from klnmf.plots.signatures import plot_signatures
from klnmf.plots.structure import plot_structure

__all__ = [
    "plot_component_similarity",
    "plot_components",
    "plot_history",
    "plot_mean_shares",
    "plot_signatures",
    "plot_structure",
    "plot_top_features",
]
