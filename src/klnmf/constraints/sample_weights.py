"""`capped_weights`: weights with which no sample counts for more than a given total."""

from typing import Any

import numpy as np

from klnmf.data.validation import check_counts
from klnmf.support.array_types import FloatArray
from klnmf.support.number_checks import checked_fraction, checked_positive


def capped_weights(X: Any, *, cap: float | None = None, quantile: float = 0.95) -> FloatArray:
    """Return sample weights with which no sample has more influence than ``cap`` counts.

    A sample of more counts than the cap gets the weight cap / total, others 1. Weighted by it,
    a sample with very many counts, such as a hypermutated tumour, has as much influence on the
    components as one of ``cap`` counts. Its profile is not changed, and neither is its row of W.

    Pass the same weights as ``sample_weight`` to ``KLNMF.fit``, `klnmf.model_selection.select_rank`
    and `klnmf.model_selection.consensus`, and to the functions of ``klnmf.uncertainty``.

    Parameters
    ----------
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts.
    cap : float, default=None
        Number of counts. None takes the quantile below.
    quantile : float, default=0.95
        The cap is this quantile of the totals of the samples that are not empty.

    Returns
    -------
    ndarray of shape (n_samples,)
        Weights from 0 to 1.

    Examples
    --------
    >>> from klnmf import capped_weights
    >>> capped_weights([[3, 1], [2, 2], [30, 10], [0, 0]], cap=8).tolist()
    [1.0, 1.0, 0.2, 1.0]
    """
    totals = np.asarray(check_counts(X, name="capped_weights").sum(axis=1, dtype=np.float64))
    if cap is not None:
        limit = checked_positive("cap", cap)
    else:
        quantile = checked_fraction("quantile", quantile)
        filled = totals[totals > 0.0]
        limit = float(np.quantile(filled, quantile)) if len(filled) else 1.0
    return np.asarray(limit / np.maximum(totals, limit))
