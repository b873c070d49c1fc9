"""Upper limits for entries of a factor, from the likelihood of their row.

An entry that is 0 usually stays 0 in refits to simulated data, so a bootstrap cannot show how large
it could be. The likelihood can. With the rest of the row and the other factor A fixed, adding u to
x_k changes the negative log-likelihood by the convex function

    F(u) = c_k u − Σ_i v_i log(1 + u A_ik / y_i).

The limit is the u at which F reaches log(1 / α). If no count supports the component, F is c_k u,
and the limit log(1 / α) / c_k is exact for a Poisson count of 0: three counts for α = 0.05.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.sums import row_ranges

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

_ENTRIES_AT_ONCE = 1 << 22  # products x_ik A_jk in memory
_NEWTON_STEPS = 100  # the largest number; five or six are usual


def upper_limits(X: sp.csr_array, x: Array, A: Array, wanted: Array, alpha: float) -> FloatArray:
    """Find how much can be added to entries of x before the likelihood falls by the factor α.

    X (n_rows × n_columns) holds the counts by rows of x (n_rows × r); A (n_columns × r) is the
    other factor. The result is 0 where ``wanted`` is False, and ∞ for an empty component.
    """
    sums = A.sum(axis=0, dtype=np.float64)
    limits = np.zeros(x.shape)
    for start, stop in row_ranges(X.indptr, max(1, _ENTRIES_AT_ONCE // A.shape[1])):
        block = slice(start, stop)
        part = X[block]
        rows = np.repeat(np.arange(stop - start), np.diff(part.indptr))
        a = A[part.indices].astype(np.float64)
        y = np.einsum("pk,pk->p", x[block][rows].astype(np.float64), a)
        with np.errstate(divide="ignore", invalid="ignore"):
            a /= y[:, np.newaxis]
        for k in range(A.shape[1]):
            here = wanted[block, k]
            if sums[k] == 0.0:
                limits[block, k][here] = np.inf
            elif here.any():
                used = here[rows] & (a[:, k] > 0.0) & np.isfinite(a[:, k])
                position = np.cumsum(here) - 1  # of a row among the wanted ones
                limits[block, k][here] = _roots(
                    sums[k],
                    position[rows[used]],
                    part.data[used].astype(np.float64),
                    a[used, k],
                    int(here.sum()),
                    -np.log(alpha),
                )
    return limits


def _roots(
    c: float, rows: Array, v: FloatArray, t: FloatArray, n_rows: int, rise: float
) -> FloatArray:
    """Root u > 0 of c u − Σ v log(1 + u t) = rise for each row.

    The parabola at 0 lies above F, because the third derivative of F is negative. So its root is to
    the left of F's. Newton's next point is to the right, and from there the steps decrease to the
    root. If F falls first, because of a penalty or an unfinished fit, u is doubled until F rises.
    """

    def total(values: FloatArray) -> FloatArray:
        return np.bincount(rows, weights=values, minlength=n_rows).astype(np.float64, copy=False)

    slope = np.maximum(c - total(v * t), 0.0)
    bend = total(v * t * t)
    u = 2.0 * rise / (slope + np.sqrt(slope**2 + 2.0 * bend * rise))
    for _ in range(_NEWTON_STEPS):
        at = u[rows] * t
        value = c * u - total(v * np.log1p(at)) - rise
        slope = c - total(v * t / (1.0 + at))
        steps = np.where(slope > 0.0, value / np.where(slope > 0.0, slope, 1.0), -u)
        u = u - steps
        if np.all(np.abs(steps) <= 1e-6 * u):
            break
    return np.asarray(u)
