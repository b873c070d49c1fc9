"""tf-idf weights, in the form that the published text sets used for NMF have."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import canonical
from klnmf.data.validation import checked_input


def tf_idf(X: Any, *, log_counts: bool = True, normalise: bool = True) -> sp.csr_matrix:
    """Weights of the counts X: (1 + log X_ij) log(n / d_j), rows scaled to length 1.

    d_j is the number of samples that have feature j. A feature that every sample has gets the
    weight 0, and so no entry. This is the weighting that goes with Deng Cai's text data sets, which
    the SRCD paper used.

    Parameters
    ----------
    X : sparse matrix or array-like of shape (n_samples, n_features)
        Counts.
    log_counts : bool, default=True
        1 + log X_ij; otherwise X_ij.
    normalise : bool, default=True
        Scale each row to Euclidean length 1.

    Returns
    -------
    scipy.sparse.csr_matrix of float64

    Examples
    --------
    >>> from klnmf.datasets import tf_idf
    >>> tf_idf([[1, 1], [0, 1], [0, 2]]).toarray()
    array([[1., 0.],
           [0., 0.],
           [0., 0.]])
    """
    counts = canonical(sp.csr_array(checked_input(X)).astype(np.float64))
    if counts.nnz and counts.data.min() < 0:
        raise ValueError(f"Counts cannot be negative; the smallest given is {counts.data.min():g}.")
    n_samples = counts.shape[0]
    with_feature = np.bincount(counts.indices, minlength=counts.shape[1])
    if log_counts:
        # A weight below 1 would turn negative below 1/e: that is not what is meant by counts.
        counts.data = 1 + np.log(np.maximum(counts.data, 1))
    counts.data *= np.log(n_samples / np.maximum(with_feature, 1))[counts.indices]
    counts.eliminate_zeros()
    if normalise:
        lengths = np.sqrt(counts.multiply(counts).sum(axis=1))
        counts.data /= np.repeat(lengths, np.diff(counts.indptr))
    return sp.csr_matrix(counts)
