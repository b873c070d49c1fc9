"""Uncertainty of a fitted model: dispersion, intervals, tests, and sparse assignment."""

from klnmf.uncertainty.assignment import sparse_assignment
from klnmf.uncertainty.bootstrap_result import Bootstrap
from klnmf.uncertainty.differential import differential_features
from klnmf.uncertainty.differential_result import DifferentialFeatures
from klnmf.uncertainty.equal_fits import equal_fits
from klnmf.uncertainty.integrated import posterior
from klnmf.uncertainty.intervals import Intervals
from klnmf.uncertainty.overdispersion import Dispersion, dispersion
from klnmf.uncertainty.parametric_bootstrap import bootstrap
from klnmf.uncertainty.posterior_result import Posterior
from klnmf.uncertainty.splitting import split_counts

__all__ = [
    "Bootstrap",
    "DifferentialFeatures",
    "Dispersion",
    "Intervals",
    "Posterior",
    "bootstrap",
    "differential_features",
    "dispersion",
    "equal_fits",
    "posterior",
    "sparse_assignment",
    "split_counts",
]
