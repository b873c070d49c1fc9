"""Uncertainty of a fitted model: dispersion, intervals, and tests for differential features."""

from klnmf.uncertainty.bootstrap_result import Bootstrap, Draws
from klnmf.uncertainty.differential import DifferentialFeatures, differential_features
from klnmf.uncertainty.intervals import Intervals
from klnmf.uncertainty.overdispersion import Dispersion, dispersion
from klnmf.uncertainty.parametric_bootstrap import bootstrap

__all__ = [
    "Bootstrap",
    "DifferentialFeatures",
    "Dispersion",
    "Draws",
    "Intervals",
    "bootstrap",
    "differential_features",
    "dispersion",
]
