"""The null of a consensus: counts with the same margins and dispersion, and no structure."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.constraints import Constraints
from klnmf.data.cell_weights import without_cells
from klnmf.data.validation import check_counts
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.run_options import RunOptions
from klnmf.simulate import draw_counts
from klnmf.uncertainty import dispersion


class NullCounts(NamedTuple):
    """Counts without structure."""

    X: sp.csr_array
    dispersion: float  # common α: a count with mean y has the variance y + α y²


def null_counts(
    X: sp.csr_array, n_components: int, constraints: Constraints, seed: int, n_threads: int
) -> NullCounts:
    """Draw counts whose means are the best ones of rank 1, with the dispersion of X.

    The dispersion of each feature is that of X around a fit with ``n_components``: what these
    describe is structure, and the rest is noise. The draws are negative binomial, or Poisson if X
    varies no more than that. Components of fixed columns of W stay beside the one of rank 1. There
    are no zeros; missing cells are 0.
    """
    names = ("sample_weight", "exposure", "missing")
    given: dict[str, Any] = {name: getattr(constraints, name) for name in names}
    given["fixed_W"] = constraints.fixed[0]

    def model(rank: int) -> KLNMF:
        return KLNMF(
            rank,
            feature_weight=constraints.feature_weight,
            tol=1e-3,
            random_state=seed,
            n_threads=n_threads,
            run=RunOptions(progress=False),
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the consensus has warned of X; some gap is good enough
        found = dispersion(model(n_components).fit(X, **given), X, **given)
        margins = model(1 + int(constraints.is_frozen(0).sum()))
        W = margins.fit_transform(X, **given).astype(np.float64)
        if constraints.exposure is not None:
            W *= constraints.exposure[:, None]
        generator = np.random.default_rng([seed, 1])
        drawn = draw_counts(W, margins.components_, generator, dispersion=found.by_feature)
        counts = check_counts(drawn, dtype=X.dtype)
    if constraints.missing is not None:
        counts = without_cells(counts, constraints.missing)
    return NullCounts(counts, found.common)
