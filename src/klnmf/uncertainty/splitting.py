"""`split_counts`: counts in two independent parts, one for a model and one for its tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.validation import check_counts, is_integer_valued
from klnmf.simulate import one_for_each
from klnmf.support.number_checks import checked_fraction, seed_of
from klnmf.uncertainty.overdispersion import Dispersion


def split_counts(
    X: Any,
    share: float = 0.5,
    *,
    dispersion: Dispersion | npt.ArrayLike,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[sp.csr_array, sp.csr_array]:
    """Split counts at random into two parts, independent of each other, which sum to X.

    A model finds components even in noise, and the features that shaped a component will differ
    between components when they are tested with the same counts. With one part for the model and
    its W and the other for the tests, p-values hold whatever the model has found. This costs
    counts: fewer differences are found, and the components are less accurate. Fit the model from a
    new start: components of a fit to all counts have seen the second part.

    Poisson counts are split by a draw from a binomial distribution: each unit belongs to the first
    part with probability ``share``. The halves of counts that vary more would depend on each other.
    Such a count, with the variance y + α y², is split by a draw from a beta-binomial distribution
    with parameters share / α and (1 − share) / α. If the counts are negative binomial with this α,
    the parts are independent, with shares of the rate and the same ratio of variance to rate
    (Neufeld, Dharamshi, Gao and Witten, 2024). Other counts of the same variance have parts that
    are uncorrelated only. An α estimated around a model that fits noise is too small.

    Splitting the *samples* does not help: W of the second half would be fitted to the counts that
    are tested.

    Parameters
    ----------
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts: whole numbers.
    share : float, default=0.5
        Expected share of the first part.
    dispersion : Dispersion, float or array-like of shape (n_features,)
        α of all features or of each one, as estimated by `dispersion`; 0 for Poisson counts. If α
        is too small, the parts depend on each other; if it is too large, they do so in the opposite
        direction.
    random_state : int, RandomState instance or None, default=None
        Seed of the split.

    Returns
    -------
    tuple of two CSR arrays
        In the shape of X, in float32 or float64 (float64 for integers that float32 does not hold).

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> from klnmf.simulate import simulate_counts
    >>> from klnmf.uncertainty import differential_features, dispersion, split_counts
    >>> X = simulate_counts(100, 40, 3, counts_per_sample=400, random_state=0).X
    >>> variation = dispersion(KLNMF(3, random_state=0).fit(X), X)
    >>> for_model, for_tests = split_counts(X, dispersion=variation, random_state=0)
    >>> model = KLNMF(3, random_state=0).fit(for_model)
    >>> W = model.transform(for_model)
    >>> found = differential_features(model, for_tests, W=W)
    >>> found.q_value.shape
    (3, 40)
    """
    share = checked_fraction("share", share)
    if isinstance(X, SparseTensor):
        raise TypeError(
            "split_counts is for matrices; got a tensor. X.flattened(0) makes a matrix of it."
        )
    counts = check_counts(X, name="split_counts")
    if not is_integer_valued(counts):
        raise ValueError("X has values that are not whole numbers, and only counts can be split.")
    given = dispersion.by_feature if isinstance(dispersion, Dispersion) else dispersion
    alpha = one_for_each("dispersion", given, counts.shape[1], "features")
    generator = np.random.default_rng(seed_of(random_state))
    of_counts = alpha[counts.indices]
    p = np.full(counts.nnz, share)
    varied = of_counts > 0.0
    size = 1.0 / of_counts[varied]
    p[varied] = generator.beta(share * size, (1.0 - share) * size)
    first = counts.copy()
    first.data = generator.binomial(counts.data.astype(np.int64), p).astype(counts.dtype)
    first.eliminate_zeros()
    return first, sp.csr_array(counts - first)
