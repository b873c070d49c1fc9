"""Held-out Poisson deviance of every sample, under rates that are never 0.

A count whose estimated rate is 0 would cost ∞ under any model that overfits a little. So a share ε
of every sample's rate is spread over the features as they occur in the training data,

    y'_ij = (1 − ε) y_ij + ε (t_i + 1) q_j,    t_i = Σ_j y_ij,    q_j = (Σ_i X_ij + 1) / (ΣX + m),

the same for every rank. With one component y is nearly t q, so that nothing changes there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import xlogy

from klnmf.sparse_data import SparseData

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

_ENTRIES_AT_ONCE = 1 << 22  # of the products W_ik H_jk


def feature_shares(data: SparseData) -> FloatArray:
    """Share q of each feature of the training data, a count added to each: none is 0."""
    columns = data.view(1)
    return np.asarray((columns.row_sums + 1.0) / (data.total + columns.n_rows))


def products(W: Array, H: Array, rows: Array, columns: Array) -> FloatArray:
    """(W Hᵀ)_ij at these cells, in float64, a bounded number of products at a time."""
    y = np.empty(len(rows))
    step = max(1, _ENTRIES_AT_ONCE // W.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        w, h = W[rows[part]].astype(np.float64), H[columns[part]].astype(np.float64)
        y[part] = np.einsum("pk,pk->p", w, h)
    return y


def rows_of(X: sp.csr_array) -> Array:
    """Row of every stored value."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def deviances_of_all_cells(
    X: sp.csr_array, W: Array, H: Array, shares: FloatArray, background: float, scale: float
) -> FloatArray:
    """Deviance 2 Σ_j [x log(x / μ) − x + μ] of every sample, with μ = scale · y' for every cell.

    Parameters
    ----------
    X : csr_array
        Held-out counts.
    W, H : ndarray
        The fit to the training counts.
    shares : ndarray of shape (n_features,)
        What `feature_shares` returns.
    background : float
        ε.
    scale : float
        Expected held-out counts for each training count.
    """
    rows = rows_of(X)
    totals = W.astype(np.float64) @ H.sum(axis=0, dtype=np.float64)
    floors = background * (totals + 1.0)
    y = (1.0 - background) * products(W, H, rows, X.indices) + floors[rows] * shares[X.indices]
    x = X.data.astype(np.float64)
    terms = xlogy(x, x / (scale * y)) - x
    of_rows = np.bincount(rows, weights=terms, minlength=X.shape[0])
    return np.asarray(2.0 * (of_rows + scale * ((1.0 - background) * totals + floors)))


def deviances_of_cells(
    x: FloatArray,
    rows: Array,
    columns: Array,
    W: Array,
    H: Array,
    shares: FloatArray,
    background: float,
) -> FloatArray:
    """Deviance of every sample over its held-out cells alone, with μ = y' there."""
    totals = W.astype(np.float64) @ H.sum(axis=0, dtype=np.float64)
    y = (1.0 - background) * products(W, H, rows, columns)
    y += background * (totals[rows] + 1.0) * shares[columns]
    terms = xlogy(x, x / y) - x + y
    return np.asarray(2.0 * np.bincount(rows, weights=terms, minlength=W.shape[0]))
