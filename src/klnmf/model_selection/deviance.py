"""Held-out Poisson deviance of each sample, with rates that are never 0.

A maximum likelihood fit has rates of 0 for features that it has not seen, and a held-out count
there would have an infinite deviance. So a share ε of each sample's rate is spread over the
features in proportion to the training data,

    y'_ij = (1 − ε) y_ij + (ε t_i + ε₀ u) q_j,    t_i = Σ_j y_ij,
    q_j = (Σ_i X_ij + u) / (ΣX + m u),

with u the median of the nonzeros, 1 for sparse counts. ε₀ = 0.001 is for samples of which nothing
is known (t_i = 0): it costs them the same under all models.

Any fixed ε would influence the choice of the rank: larger models need a larger ε, especially if
there are few counts, because ε also takes W of a sample, which few counts determine badly, towards
the mean of all samples. So ε is chosen for each rank by the held-out deviance itself. It is at most
0.7: near 1, all models would be nearly equal to the one with one component, and chance differences
would count as gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from klnmf.data.canonical import row_numbers
from klnmf.data.sparse_data import CountData
from klnmf.estimators.held_out import products
from klnmf.support.array_types import Array, FloatArray

UNKNOWN = 0.001  # ε₀


def feature_shares(data: CountData, unit: float) -> FloatArray:
    """Share q of each feature in the training data, with one ``unit`` added to each."""
    columns = data.view(1)
    return np.asarray((columns.row_sums + unit) / (data.total + unit * columns.n_rows))


class HeldOutCells(NamedTuple):
    """All cells of some samples and features, except for missing ones."""

    x: FloatArray  # the nonzeros, and
    rows: Array  # where they are
    columns: Array
    missing: tuple[Array, Array]  # rows and columns of the missing cells

    @classmethod
    def of(cls, data: CountData) -> HeldOutCells:
        """Return the cells of data as a fit sees them."""
        view = data.view(0).whole()
        constraints = view.row_constraints
        pattern = None if constraints is None else constraints.missing
        none = np.zeros(0, dtype=np.int64)
        missing = (
            (none, none) if pattern is None else (row_numbers(pattern.starts), pattern.columns)
        )
        return cls(view.values.astype(np.float64), row_numbers(view.indptr), view.indices, missing)


def deviances(
    cells: HeldOutCells,
    W: Array,
    H: Array,
    features: Array,
    shares: FloatArray,
    unit: float,
    backgrounds: Sequence[float],
) -> FloatArray:
    """Deviance 2 Σ_j [x log(x / y') − x + y'] of every sample, for each background ε.

    The cells are those of some ``features``; H and the `feature_shares` q are those of all. Returns
    an array of shape (n_backgrounds, n_samples).
    """
    x, rows, columns, missing = cells
    known, q = H[features], shares[features]
    totals, of_cells = (
        W.astype(np.float64) @ part.sum(axis=0, dtype=np.float64) for part in (H, known)
    )
    y, y_missing = products(W, known, rows, columns), products(W, known, *missing)
    found = np.empty((len(backgrounds), len(W)))
    for row, background in zip(found, backgrounds, strict=True):
        spread = background * totals + UNKNOWN * unit
        mu = (1.0 - background) * y + spread[rows] * q[columns]
        row[:] = np.bincount(rows, weights=xlogy(x, x / mu) - x, minlength=len(W))
        row += (1.0 - background) * of_cells + spread * q.sum()
        if len(y_missing):
            unseen = (1.0 - background) * y_missing + spread[missing[0]] * q[missing[1]]
            row -= np.bincount(missing[0], weights=unseen, minlength=len(W))
    return 2.0 * found
