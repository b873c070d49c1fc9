"""Held-out Poisson deviance of each sample, with rates that are never 0.

A maximum likelihood fit has rates of 0 for features that it has not seen, and a held-out count
there would have an infinite deviance. So a share ε of each sample's rate is spread over the
features in proportion to the training data,

    y'_ij = (1 − ε) y_ij + ε (t_i + 1) q_j,    t_i = Σ_j y_ij,    q_j = (Σ_i X_ij + 1) / (ΣX + m).

Any fixed ε would influence the choice of the rank: larger models need a larger ε, especially if
there are few counts. So ε is chosen for each rank by the held-out deviance itself. It is at most
one half: near 1, all models would be nearly equal to the one with one component, and chance
differences would count as gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import xlogy

from klnmf.data.sparse_data import CountData
from klnmf.support.array_types import Array, FloatArray

BACKGROUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5)

_ENTRIES_AT_ONCE = 1 << 22  # products W_ik H_jk in memory


def feature_shares(data: CountData) -> FloatArray:
    """Share q of each feature in the training data, with one count added to each."""
    columns = data.view(1)
    return np.asarray((columns.row_sums + 1.0) / (data.total + columns.n_rows))


def products(W: Array, H: Array, rows: Array, columns: Array) -> FloatArray:
    """(W Hᵀ)_ij at these cells, in float64 and bounded memory."""
    y = np.empty(len(rows))
    step = max(1, _ENTRIES_AT_ONCE // W.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        w, h = W[rows[part]].astype(np.float64), H[columns[part]].astype(np.float64)
        y[part] = np.einsum("pk,pk->p", w, h)
    return y


class Cells(NamedTuple):
    """Values at some cells of X."""

    x: FloatArray
    rows: Array
    columns: Array

    @classmethod
    def stored_in(cls, X: sp.csr_array) -> Cells:
        """Return the cells that X stores."""
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        return cls(X.data.astype(np.float64), rows, X.indices)


def deviances(
    cells: Cells,
    factors: tuple[Array, Array],
    shares: FloatArray,
    backgrounds: Sequence[float],
    *,
    rest_is_zero: bool,
    scale: float = 1.0,
) -> FloatArray:
    """Deviance 2 Σ_j [x log(x / μ) − x + μ] of every sample, for each background ε.

    μ = scale · y', with the `feature_shares` q and the expected held-out counts for each training
    count as ``scale``. The sum is over the given cells, or over all cells if the rest is 0. Returns
    an array of shape (n_backgrounds, n_samples).
    """
    (x, rows, columns), (W, H) = cells, factors
    totals = W.astype(np.float64) @ H.sum(axis=0, dtype=np.float64)
    y, floors = products(W, H, rows, columns), (totals[rows] + 1.0) * shares[columns]
    found = np.empty((len(backgrounds), len(W)))
    for row, background in zip(found, backgrounds, strict=True):
        mu = scale * ((1.0 - background) * y + background * floors)
        losses = xlogy(x, x / mu) - x
        if not rest_is_zero:
            losses += mu
        row[:] = np.bincount(rows, weights=losses, minlength=len(W))
        if rest_is_zero:
            row += scale * ((1.0 - background) * totals + background * (totals + 1.0))
    return 2.0 * found
