"""The null of a consensus: counts with the same margins and dispersion, and no structure."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.constraints import ComponentConstraints, Constraints
from klnmf.data.cell_weights import without_cells
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_alignment import tensor_of
from klnmf.data.validation import check_counts
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.poisson_cp import PoissonCP
from klnmf.estimators.run_options import RunOptions
from klnmf.uncertainty import dispersion
from klnmf.uncertainty.refits import drawn_counts


class NullCounts(NamedTuple):
    """Counts without structure."""

    X: sp.csr_array | SparseTensor
    dispersion: float  # common α: a count with mean y has the variance y + α y²


def null_counts(
    X: sp.csr_array | SparseTensor,
    n_components: int,
    constraints: Constraints,
    seed: int,
    n_threads: int,
) -> NullCounts:
    """Draw counts whose means are the best ones of rank 1, with the dispersion of X.

    The dispersion of each feature is that of X around a fit with ``n_components``: what these
    describe is structure, and the rest is noise. The draws are negative binomial, or Poisson if X
    varies no more than that. Components of fixed columns of W stay beside the one of rank 1. There
    are no zeros; missing cells are 0. For a tensor, rank 1 is the product of its margins.
    """
    given, is_tensor = constraints.as_given(), isinstance(X, SparseTensor)
    own = {name: given.pop(name) for name in given.keys() & ComponentConstraints.__annotations__}

    def model(rank: int) -> Any:
        return (PoissonCP if is_tensor else KLNMF)(
            rank,
            **own,
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
        H, sizes = np.concatenate(margins._others()), X.shape[1:]
        counts = drawn_counts(W, H, sizes, generator, found.by_feature, X.dtype)
    if is_tensor:  # a fit leaves out missing cells
        return NullCounts(tensor_of(counts, "consensus"), found.common)
    counts = check_counts(counts, dtype=X.dtype)
    if constraints.missing is not None:
        counts = without_cells(counts, constraints.missing)
    return NullCounts(counts, found.common)
