"""How large an entry of a factor could be: upper limits from the likelihood of its row.

An entry that is 0 is 0 in data drawn from the model as well, more often than not or always, and a
bootstrap cannot say how far above 0 it might be. The likelihood can. With the rest of the row and
the other factor A fixed, adding u to x_k costs

    F(u) = c_k u − Σ_i v_i log(1 + u A_ik / y_i),

a convex function of u. The limit is where F has risen by log(1 / α). Where nothing in the data
speaks for the component F is c_k u, and the limit log(1/α) / c_k is the exact one for a Poisson
count of 0: three counts for α = 0.05.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.sparse_data import row_ranges

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

_ENTRIES_AT_ONCE = 1 << 22  # of the products x_ik A_jk
_NEWTON_STEPS = 100  # at most; five or six are the rule


def upper_limits(X: sp.csr_array, x: Array, A: Array, wanted: Array, alpha: float) -> FloatArray:
    """Find what may be added to entries of x before the likelihood falls by the factor α.

    Parameters
    ----------
    X : csr_array of shape (n_rows, n_columns)
        Counts, by the rows of ``x``.
    x, A : ndarray of shape (n_rows, r) and (n_columns, r)
        The factor in question, and the other one.
    wanted : ndarray of bool, shape (n_rows, r)
        The entries to do; the others get 0.
    alpha : float
        1 − level.

    Returns
    -------
    ndarray of shape (n_rows, r)
        u ≥ 0; ∞ where the component is empty, so that nothing limits it.
    """
    sums = A.sum(axis=0, dtype=np.float64)
    limits = np.zeros(x.shape)
    for start, stop in row_ranges(X.indptr, max(1, _ENTRIES_AT_ONCE // A.shape[1])):
        block = slice(start, stop)
        own = X[block]
        rows = np.repeat(np.arange(stop - start), np.diff(own.indptr))
        a = A[own.indices].astype(np.float64)
        y = np.einsum("pk,pk->p", x[block][rows].astype(np.float64), a)
        with np.errstate(divide="ignore", invalid="ignore"):
            a /= y[:, np.newaxis]
        for k in range(A.shape[1]):
            ours = wanted[block, k]
            if not ours.any():
                continue
            if sums[k] == 0.0:
                limits[block, k][ours] = np.inf
                continue
            used = ours[rows] & (a[:, k] > 0.0) & np.isfinite(a[:, k])
            place = np.cumsum(ours) - 1  # of a row among those that are done
            limits[block, k][ours] = _roots(
                sums[k],
                place[rows[used]],
                own.data[used].astype(np.float64),
                a[used, k],
                int(ours.sum()),
                -np.log(alpha),
            )
    return limits


def _roots(
    c: float, rows: Array, v: FloatArray, t: FloatArray, n_rows: int, rise: float
) -> FloatArray:
    """Root u > 0 of c u − Σ v log(1 + u t) = rise for each row.

    The parabola at 0 lies above F, because F's third derivative is negative. So its root is left of
    F's; Newton's next point is right of it, and from there on it descends to it. Where F falls
    first, as with a penalty or in a fit that is not over, u is doubled until it rises.
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
