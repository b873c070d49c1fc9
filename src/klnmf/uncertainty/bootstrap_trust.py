"""Whether the intervals of a bootstrap can be trusted: a short run of `posterior` says it.

A fit pulls components apart that share features, by an amount that does not fall with the number of
samples, while the spread of the refits does. The refits show only a part of that. The sampler of
`posterior` starts at the fit, and leaves it quickly where the fit is off by much of an interval.
"""

import math
import warnings
from typing import Any

import numpy as np

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.uncertainty.intervals import Intervals

N_SWEEPS = 300
FEWEST_RUNS = 20
MOST_CELLS = 1_000_000  # of counts that vary more than Poisson counts


def shift_of_posterior(
    model: Any, X: Any, intervals: Intervals, n_runs: int, n_cells: int, **options: Any
) -> float:
    """Distance of the fit from the means of a short chain, in half-lengths of the intervals.

    It is the root mean square over the interior entries of components; NaN without such entries,
    with runs so few that the lengths are mostly chance, for models that `posterior` does not take
    (weighted, penalised, or with what is known of W), and where the chain would take longer than
    the refits: with many ``n_cells`` whose factors it has to draw.
    """
    from klnmf.uncertainty.integrated import REFUSED, posterior

    inside = intervals.is_interior & (intervals.upper > intervals.lower)
    if (
        not isinstance(model, KLNMF)
        or any(model._penalties().penalised_modes)
        or set(REFUSED).intersection([*model.constraint_names_, *options])
        or not inside.any()
        or n_runs < FEWEST_RUNS
        or n_cells > MOST_CELLS
    ):
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the sweeps are few
        try:
            found = posterior(model, X, n_sweeps=N_SWEEPS, samples=[], **options)
        except ValueError:  # more counts than it takes, or a component without features
            return math.nan
    moved = -found.components.bias
    reach = np.where(
        moved > 0.0, intervals.upper - intervals.estimate, intervals.estimate - intervals.lower
    )
    return float(np.sqrt(np.mean((moved[inside] / np.maximum(reach[inside], 1e-300)) ** 2)))
