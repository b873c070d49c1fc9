"""Uncertainty of a fitted model: bootstrap intervals, and tests for differential features."""

from klnmf.uncertainty.bootstrap_result import Bootstrap, Draws
from klnmf.uncertainty.differential import DifferentialFeatures, differential_features
from klnmf.uncertainty.intervals import Intervals
from klnmf.uncertainty.parametric_bootstrap import bootstrap

__all__ = [
    "Bootstrap",
    "DifferentialFeatures",
    "Draws",
    "Intervals",
    "bootstrap",
    "differential_features",
]
