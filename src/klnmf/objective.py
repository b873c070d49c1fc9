"""KL divergence, penalised objective and optimality in plain NumPy: the specification.

Nothing here is fast. Every kernel is tested against these functions, and they define what the
numbers reported by the library mean. All of them compute in float64, whatever the type of their
arguments.

Notation: X (n × m) counts, W (n × r), H (m × r), X ≈ W Hᵀ.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from klnmf.data.canonical import canonical, row_numbers
from klnmf.data.cell_weights import without_cells
from klnmf.data.matrix_checks import checked_matrix
from klnmf.support.array_types import Array


@dataclass(frozen=True)
class Penalties:
    """The four penalties: l1_W ‖W‖₁ + l2_W/2 ‖W‖² + l1_H ‖H‖₁ + l2_H/2 ‖H‖²."""

    l1_W: float = 0.0  # noqa: N815
    l2_W: float = 0.0  # noqa: N815
    l1_H: float = 0.0  # noqa: N815
    l2_H: float = 0.0  # noqa: N815

    @property
    def l1(self) -> tuple[float, float]:
        """L1 weights by mode: (W, H)."""
        return (self.l1_W, self.l1_H)

    @property
    def l2(self) -> tuple[float, float]:
        """L2 weights by mode: (W, H)."""
        return (self.l2_W, self.l2_H)

    @property
    def penalised_modes(self) -> tuple[bool, bool]:
        """Whether each factor carries a penalty."""
        return (self.l1_W > 0 or self.l2_W > 0, self.l1_H > 0 or self.l2_H > 0)

    @property
    def has_best_scale(self) -> bool:
        """Whether both factors are penalised, so that each component has one best scale."""
        return all(self.penalised_modes)

    @property
    def is_one_sided(self) -> bool:
        """Whether one factor alone is penalised: shrinking it and growing the other voids that."""
        return any(self.penalised_modes) and not self.has_best_scale

    def of(self, mode: int, sums: Array, squares: Array) -> float:
        """Penalty of one factor from the sums and the sums of squares of its columns."""
        return float(self.l1[mode] * sums.sum() + 0.5 * self.l2[mode] * squares.sum())


NO_PENALTIES = Penalties()


def _nonzeros(X: Any) -> sp.csr_array:
    """X in float64, in canonical form."""
    return canonical(sp.csr_array(checked_matrix(X)).astype(np.float64, copy=False))


def products_at_nonzeros(X: sp.csr_array, W: Array, H: Array) -> Array:
    """(W Hᵀ)_ij at the nonzeros of X, in the order of ``X.data``."""
    rows = row_numbers(X.indptr)
    W64, H64 = np.asarray(W, dtype=np.float64), np.asarray(H, dtype=np.float64)
    return np.asarray(np.einsum("pk,pk->p", W64[rows], H64[X.indices]))


def _column_sums(factor: Array) -> Array:
    return np.asarray(np.sum(factor, axis=0, dtype=np.float64))


def kl_divergence(
    X: Any,
    W: Array,
    H: Array,
    *,
    sample_weight: Any = None,
    feature_weight: Any = None,
    exposure: Any = None,
    missing: Any = None,
) -> float:
    """Σ_ij [X log(X / WHᵀ) − X + WHᵀ], at a cost that grows with the nonzeros of X.

    With weights w and v, exposures e and missing cells it is Σ w_i v_j KL(X_ij, e_i (WHᵀ)_ij) over
    the cells that are not missing: ``divergence_`` of a model that was fitted with these.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> ones = np.ones((2, 1))
    >>> round(kl_divergence(X, ones, ones), 6)  # 4 log 2: every cell is estimated as 1
    2.772589
    >>> round(kl_divergence(X, ones, ones, sample_weight=[3, 0]), 6)  # 6 log 2
    4.158883
    >>> round(kl_divergence(X, ones, ones, missing=[[0, 1], [1, 0]]), 6)  # 4 log 2 − 2
    0.772589
    """
    cells = None if missing is None else _nonzeros(missing).astype(bool)
    # NaN may stand in missing cells.
    X = _nonzeros(X if cells is None else without_cells(checked_matrix(X), cells))
    n, m = X.shape
    w, v, e = (
        np.ones(size) if weights is None else np.asarray(weights, dtype=np.float64)
        for weights, size in ((sample_weight, n), (feature_weight, m), (exposure, n))
    )
    W, H = np.asarray(W, dtype=np.float64) * e[:, None], np.asarray(H, dtype=np.float64)
    unseen = sp.csr_array((n, m)) if cells is None else cells.astype(np.float64)
    unseen.data = (
        w[row_numbers(unseen.indptr)] * v[unseen.indices] * products_at_nonzeros(unseen, W, H)
    )
    fitted = _column_sums(w[:, None] * W) @ _column_sums(v[:, None] * H) - unseen.data.sum()
    y, weights = products_at_nonzeros(X, W, H), w[row_numbers(X.indptr)] * v[X.indices]
    counts = weights > 0
    x, y, weights = X.data[counts], y[counts], weights[counts]
    with np.errstate(divide="ignore"):
        return float(np.sum(weights * (xlogy(x, x / y) - x)) + fitted)


def poisson_deviance(X: Any, W: Array, H: Array) -> float:
    """Twice the KL divergence: the deviance of the Poisson model X_ij ~ Poisson((WHᵀ)_ij)."""
    return 2.0 * kl_divergence(X, W, H)


def poisson_log_likelihood(X: Any, W: Array, H: Array) -> float:
    """Σ_ij log Poisson(X_ij; (WHᵀ)_ij), with log X! extended to non-integers by log Γ(X + 1)."""
    X = _nonzeros(X)
    y = products_at_nonzeros(X, W, H)
    fitted = _column_sums(W) @ _column_sums(H)
    with np.errstate(divide="ignore"):
        return float(np.sum(xlogy(X.data, y) - gammaln(X.data + 1.0)) - fitted)


def penalty(W: Array, H: Array, penalties: Penalties = NO_PENALTIES) -> float:
    """l1_W ‖W‖₁ + l2_W/2 ‖W‖² + l1_H ‖H‖₁ + l2_H/2 ‖H‖²."""
    total = 0.0
    for mode, factor in enumerate((W, H)):
        # With the other factor penalised alone this one grows for ever: its squares may overflow.
        if penalties.l1[mode]:
            total += penalties.l1[mode] * float(np.sum(factor, dtype=np.float64))
        if penalties.l2[mode]:
            squares = np.square(factor, dtype=np.float64)
            total += 0.5 * penalties.l2[mode] * float(squares.sum())
    return total


def penalised_objective(X: Any, W: Array, H: Array, penalties: Penalties = NO_PENALTIES) -> float:
    """KL divergence plus the penalties: what every solver minimises."""
    return kl_divergence(X, W, H) + penalty(W, H, penalties)


def _row_residuals(X: sp.csr_array, x: Array, A: Array, l1: float, l2: float) -> Array:
    """|min(x_ik c_k / Σ_j X_ij, g_ik / c_k)| for every entry of x; 0 for empty rows and dead k."""
    x, A = np.asarray(x, dtype=np.float64), np.asarray(A, dtype=np.float64)
    c = A.sum(axis=0) + l1
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = X.copy()
        ratios.data /= products_at_nonzeros(X, x, A)
        gradient = c + l2 * x - ratios @ A
        totals = np.asarray(X.sum(axis=1)).reshape(-1, 1)
        residuals = np.abs(np.minimum(x * c / totals, gradient / c))
    return np.where((totals > 0) & (c > 0), residuals, 0.0)


def kkt_residual(X: Any, W: Array, H: Array, penalties: Penalties = NO_PENALTIES) -> float:
    """Largest violation of the optimality conditions of both factors; 0 at a stationary point.

    For W it is the largest ``|min(W_ik c_k / Σ_j X_ij, g_ik / c_k)|`` over the nonempty rows, where
    c_k = Σ_j H_jk + l1_W and g = c + l2_W W − (X / WHᵀ) H is the gradient; the same for H with Xᵀ.
    It does not change when a component is scaled up in W and down in H.
    """
    X = _nonzeros(X)
    of_W = _row_residuals(X, W, H, penalties.l1_W, penalties.l2_W)
    of_H = _row_residuals(sp.csr_array(X.T), H, W, penalties.l1_H, penalties.l2_H)
    return float(max(of_W.max(initial=0.0), of_H.max(initial=0.0)))


def _row_gaps(X: sp.csr_array, x: Array, A: Array, l1: float, l2: float) -> Array:
    """Bound on f(x) − min f of every row problem: c̃·x − V + V log max_k S_k / c̃_k.

    Here c̃ = c + l2 x, V = Σ_j X_ij and S = (X / xAᵀ) A.
    """
    x, A = np.asarray(x, dtype=np.float64), np.asarray(A, dtype=np.float64)
    slopes = A.sum(axis=0) + l1 + l2 * x
    totals = np.asarray(X.sum(axis=1)).reshape(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = X.copy()
        ratios.data /= products_at_nonzeros(X, x, A)
        steepest = np.where(slopes > 0, ratios @ A / slopes, 0.0).max(axis=1)
        bounds = (slopes * x).sum(axis=1) - totals + xlogy(totals, steepest)
    covered = np.ones(len(totals), dtype=bool)
    covered[row_numbers(X.indptr)[~np.isfinite(ratios.data)]] = False
    return np.where(covered, np.maximum(bounds, 0.0), np.inf)


def optimality_gap(X: Any, W: Array, H: Array, penalties: Penalties = NO_PENALTIES) -> float:
    """Bound on what another W, or another H, could gain, as a share of the objective.

    With H as it is, no W has an objective that is lower by more than this share, and the same holds
    for H with W as it is. Changing both at once may gain more: the problem has many local optima.
    It is 0 at a stationary point, infinite if a nonzero has rate 0, and does not change when a
    component is scaled up in W and down in H (without penalties). The proof is in docs/maths.md.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[4.0, 0.0], [1.0, 1.0]])
    >>> W, H = np.array([[1.0], [1.0]]), np.array([[1.5], [1.0]])
    >>> round(optimality_gap(X, W, H), 6)
    0.341951
    >>> best_H = X.sum(axis=0)[:, None] / W.sum()  # for this W
    >>> round(1 - kl_divergence(X, W, best_H) / kl_divergence(X, W, H), 6)
    0.341951
    """
    X = _nonzeros(X)
    of_W = _row_gaps(X, W, H, penalties.l1_W, penalties.l2_W)
    of_H = _row_gaps(sp.csr_array(X.T), H, W, penalties.l1_H, penalties.l2_H)
    gap = float(max(of_W.sum(), of_H.sum()))
    if gap == 0 or not np.isfinite(gap):
        return gap
    return float(np.divide(gap, abs(penalised_objective(X, W, H, penalties))))
