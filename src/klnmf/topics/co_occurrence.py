"""Coherence: whether the top features of a component occur in the same samples."""

from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp

from klnmf.data.matrix_checks import checked_matrix
from klnmf.support.array_types import FloatArray
from klnmf.support.number_checks import checked_whole
from klnmf.topics.checks import IndexArray, checked_choice
from klnmf.topics.features import RANKING, Ranking, leading_features

Measure = Literal["npmi", "umass"]


def coherence(
    components: Any, X: Any, measure: Measure = "npmi", *, n_top: int = 10, by: Ranking = RANKING
) -> FloatArray:
    """Coherence of each component: how often its top features occur in the same samples.

    D_j is the number of samples of X in which feature j occurs, D_ij the number in which both i and
    j occur, and n the number of samples. The coherence is the mean over all pairs of the ``n_top``
    features, the highest score first, of

    - ``"npmi"``: log(n D_ij / (D_i D_j)) / log(n / D_ij), the normalised pointwise mutual
      information [1]_ [2]_: 1 for features that only occur together, 0 for independent ones, and
      −1 for a pair that never occurs together. A pair that occurs in every sample counts as 0;
    - ``"umass"``: log((D_ij + 1) / D_i), where i comes before j [3]_. Values near 0 are good. The
      original is a sum instead of a mean.

    Features that do not occur in X are left out. With fewer than two features left, the coherence
    is NaN. Higher is better in both measures. Compare only values for the same X, ``n_top`` and
    ``by``.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Counts of the fit or, better, of other samples. Only whether an entry is above 0 matters.
    measure : {"npmi", "umass"}, default="npmi"
        NPMI agrees better with human judgement [2]_.
    n_top : int, default=10
        Number of features per component, at least 2.
    by : {"lift", "weight", "frex", "relevance", "kl"}, default="lift"
        How to rank features, see `top_features`: by default it is the coherence of the features
        that tables and reports show. Published figures are for ``"weight"``.

    Returns
    -------
    coherence : ndarray of shape (n_components,)
        One value per component. Use ``numpy.nanmean`` for that of the model.

    References
    ----------
    .. [1] G. Bouma, Normalized (pointwise) mutual information in collocation extraction, GSCL 2009.
    .. [2] J. H. Lau, D. Newman and T. Baldwin, Machine reading tea leaves: automatically evaluating
       topic coherence and topic model quality, EACL 2014.
    .. [3] D. Mimno, H. Wallach, E. Talley, M. Leenders and A. McCallum, Optimizing semantic
       coherence in topic models, EMNLP 2011.

    Examples
    --------
    >>> from klnmf.topics import coherence
    >>> X = [[1, 1, 0, 0], [2, 1, 0, 0], [0, 0, 1, 3], [0, 0, 1, 0]]
    >>> coherence([[2.0, 1.0, 0.0, 0.0], [1.0, 0.0, 2.0, 0.0]], X).tolist()
    [1.0, -1.0]
    """
    checked_choice(measure, "measure", get_args(Measure))
    n_top = checked_whole("n_top", n_top, least=2)
    leading = leading_features(components, n_top, by)
    used = np.unique(np.concatenate([*leading.features, np.empty(0, np.intp)]))
    n_samples, occurs = _occurrences(X, used, leading.n_features)
    values = np.full(len(leading.features), np.nan)
    for component, features in enumerate(leading.features):
        if features.size < 2:
            continue
        columns = occurs[:, np.searchsorted(used, features)]
        together = (columns.T @ columns).toarray()
        seen = np.diagonal(together) > 0
        together = together[np.ix_(seen, seen)]
        if together.shape[0] >= 2:
            pairs = _npmi(together, n_samples) if measure == "npmi" else _umass(together)
            values[component] = pairs[np.triu_indices_from(pairs, k=1)].mean()
    return values


def _occurrences(X: Any, used: IndexArray, n_features: int) -> tuple[int, sp.csc_array]:
    """Return the number of samples, and ones where these features occur."""
    X = checked_matrix(X)
    matrix = X if sp.issparse(X) else np.asarray(X)
    if matrix.ndim != 2 or matrix.shape[1] != n_features:
        raise ValueError(
            f"X must have shape (n_samples, {n_features}), one column per feature of the "
            f"components; got {matrix.shape}."
        )
    taken = sp.csc_array(matrix[:, used])
    taken.sum_duplicates()
    taken.data = (taken.data > 0).astype(np.float64)  # counts of samples are exact up to 2⁵³
    taken.eliminate_zeros()
    return int(matrix.shape[0]), taken


def _npmi(together: FloatArray, n_samples: int) -> FloatArray:
    alone = np.diagonal(together)
    joint = together / n_samples
    ratio = n_samples * together / np.outer(alone, alone)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(ratio) / -np.log(joint)
    values[together == 0] = -1.0
    values[together == n_samples] = 0.0
    return np.asarray(values)


def _umass(together: FloatArray) -> FloatArray:
    """Entry (i, j) for the pair whose earlier feature is i."""
    return np.asarray(np.log((together + 1.0) / np.diagonal(together)[:, np.newaxis]))
