"""How sure a fitted model is: intervals for its parts, and features that tell components apart."""

from __future__ import annotations

from klnmf.uncertainty.bootstrap_result import Bootstrap, Draws
from klnmf.uncertainty.bootstrap_runs import bootstrap
from klnmf.uncertainty.differential import differential_features
from klnmf.uncertainty.differential_result import DifferentialFeatures
from klnmf.uncertainty.intervals import Intervals

__all__ = [
    "Bootstrap",
    "DifferentialFeatures",
    "Draws",
    "Intervals",
    "bootstrap",
    "differential_features",
]
