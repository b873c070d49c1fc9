"""KL divergence, penalised objective and optimality in plain NumPy: the specification.

Nothing here is fast. Every kernel is tested against these functions, and they define what the
numbers reported by the library mean. All of them compute in float64, whatever the type of their
arguments.

In the formulas X (n × m) holds counts and X ≈ W Hᵀ, with W (n × r) and H (m × r). The arguments
are X, W as ``transform`` returns it, and H as ``components_`` has it and ``fit`` takes it: r × m,
the transpose of H in the formulas. Other shapes are refused. If r = m, both orientations have the
same shape, and nothing can tell them apart.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from klnmf.constraints.checks import checked_weights, missing_cells
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.canonical import row_numbers
from klnmf.data.validation import check_counts, checked_factor
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described

__all__ = [
    "Penalties",
    "kkt_residual",
    "kl_divergence",
    "optimality_gap",
    "penalised_objective",
    "penalty",
    "poisson_deviance",
    "poisson_log_likelihood",
]


def _checked(X: Any, W: Any, H: Any, missing: Any = None) -> tuple[sp.csr_array, Array, Array]:
    """Return canonical X, W (n × r) and H (m × r) in float64."""
    X = check_counts(
        X,
        dtype=np.float64,
        name="klnmf.objective",
        takes_missing=True,
        missing=missing,
        ensure_min_samples=0,
        ensure_min_features=0,
    )
    return X, *_checked_factors(W, H, *X.shape)


def _checked_factors(W: Any, H: Any, n: int | None, m: int | None) -> tuple[Array, Array]:
    """Return W (n × r) and H (m × r) in float64; None stands for any size."""
    W = checked_factor(W, "W", (n, None))
    H = checked_factor(H, "H", (W.shape[1], m))
    return W.astype(np.float64, copy=False), H.T.astype(np.float64, copy=False)


def _weights(given: Any, name: str, size: int) -> Array:
    weights = checked_weights(given, name, size, np.dtype(np.float64))
    return np.ones(size) if weights is None else weights


def _checked_penalties(penalties: Penalties) -> Penalties:
    if not isinstance(penalties, Penalties):
        raise TypeError(
            "penalties must be a klnmf.objective.Penalties, such as "
            f"Penalties.of_matrix(l1_W=0.1); got {described(penalties)}."
        )
    return penalties


def _products_at_nonzeros(X: sp.csr_array, W: Array, H: Array) -> Array:
    """(W Hᵀ)_ij at the nonzeros of X, in the order of ``X.data``; H is m × r."""
    return np.asarray(np.einsum("pk,pk->p", W[row_numbers(X.indptr)], H[X.indices]))


def _sum_of_products(W: Array, H: Array) -> float:
    """Σ_ij (W Hᵀ)_ij; H is m × r."""
    return float(W.sum(axis=0) @ H.sum(axis=0))


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
    >>> W, H = [[1.0], [1.0]], [[1.0, 1.0]]
    >>> round(kl_divergence(X, W, H), 6)  # 4 log 2: every cell is estimated as 1
    2.772589
    >>> round(kl_divergence(X, W, H, sample_weight=[3, 0]), 6)  # 6 log 2
    4.158883
    >>> round(kl_divergence(X, W, H, missing=[[0, 1], [1, 0]]), 6)  # 4 log 2 − 2
    0.772589
    """
    cells = missing_cells(X, missing)
    X, W, H = _checked(X, W, H, cells)  # NaN may stand in missing cells
    n, m = X.shape
    w = _weights(sample_weight, "sample_weight", n)
    v = _weights(feature_weight, "feature_weight", m)
    W = W * _weights(exposure, "exposure", n)[:, None]
    fitted = _sum_of_products(w[:, None] * W, v[:, None] * H)
    if cells is not None:
        unseen = w[row_numbers(cells.indptr)] * v[cells.indices]
        fitted -= float((unseen * _products_at_nonzeros(cells, W, H)).sum())
    y, weights = _products_at_nonzeros(X, W, H), w[row_numbers(X.indptr)] * v[X.indices]
    counts = weights > 0
    x, y, weights = X.data[counts], y[counts], weights[counts]
    with np.errstate(divide="ignore"):
        return float(np.sum(weights * (xlogy(x, x / y) - x)) + fitted)


def poisson_deviance(X: Any, W: Array, H: Array) -> float:
    """Twice the KL divergence: the deviance of the Poisson model X_ij ~ Poisson((WHᵀ)_ij)."""
    return 2.0 * kl_divergence(X, W, H)


def poisson_log_likelihood(X: Any, W: Array, H: Array) -> float:
    """Σ_ij log Poisson(X_ij; (WHᵀ)_ij), with log X! extended to non-integers by log Γ(X + 1)."""
    X, W, H = _checked(X, W, H)
    y = _products_at_nonzeros(X, W, H)
    with np.errstate(divide="ignore"):
        likelihoods = xlogy(X.data, y) - gammaln(X.data + 1.0)
        return float(np.sum(likelihoods) - _sum_of_products(W, H))


def penalty(W: Array, H: Array, penalties: Penalties = NO_PENALTIES) -> float:
    """l1_W ‖W‖₁ + l2_W/2 ‖W‖² + l1_H ‖H‖₁ + l2_H/2 ‖H‖²."""
    _checked_penalties(penalties)
    total = 0.0
    for mode, factor in enumerate(_checked_factors(W, H, None, None)):
        # With the other factor penalised alone this one grows for ever: its squares may overflow.
        if penalties.l1[mode]:
            total += penalties.l1[mode] * float(np.sum(factor))
        if penalties.l2[mode]:
            total += 0.5 * penalties.l2[mode] * float(np.square(factor).sum())
    return total


def penalised_objective(X: Any, W: Array, H: Array, penalties: Penalties = NO_PENALTIES) -> float:
    """KL divergence plus the penalties: what every solver minimises."""
    return kl_divergence(X, W, H) + penalty(W, H, penalties)


def _row_residuals(X: sp.csr_array, x: Array, A: Array, l1: float, l2: float) -> Array:
    """|min(x_ik c_k / Σ_j X_ij, g_ik / c_k)| for every entry of x; 0 for empty rows and dead k."""
    c = A.sum(axis=0) + l1
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = X.copy()
        ratios.data /= _products_at_nonzeros(X, x, A)
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
    X, W, H = _checked(X, W, H)
    _checked_penalties(penalties)
    of_W = _row_residuals(X, W, H, penalties.l1[0], penalties.l2[0])
    of_H = _row_residuals(sp.csr_array(X.T), H, W, penalties.l1[1], penalties.l2[1])
    return float(max(of_W.max(initial=0.0), of_H.max(initial=0.0)))


def _row_gaps(X: sp.csr_array, x: Array, A: Array, l1: float, l2: float) -> Array:
    """Bound on f(x) − min f of every row problem: c̃·x − V + V log max_k S_k / c̃_k.

    Here c̃ = c + l2 x, V = Σ_j X_ij and S = (X / xAᵀ) A.
    """
    slopes = A.sum(axis=0) + l1 + l2 * x
    totals = np.asarray(X.sum(axis=1)).reshape(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = X.copy()
        ratios.data /= _products_at_nonzeros(X, x, A)
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
    component is scaled up in W and down in H (without penalties). docs/maths/stopping.md has the
    proof.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[4.0, 0.0], [1.0, 1.0]])
    >>> W, H = np.array([[1.0], [1.0]]), np.array([[1.5, 1.0]])
    >>> round(optimality_gap(X, W, H), 6)
    0.341951
    >>> best_H = X.sum(axis=0, keepdims=True) / W.sum()  # for this W
    >>> round(1 - kl_divergence(X, W, best_H) / kl_divergence(X, W, H), 6)
    0.341951
    """
    X, W, H = _checked(X, W, H)
    _checked_penalties(penalties)
    of_W = _row_gaps(X, W, H, penalties.l1[0], penalties.l2[0])
    of_H = _row_gaps(sp.csr_array(X.T), H, W, penalties.l1[1], penalties.l2[1])
    gap = float(max(of_W.sum(), of_H.sum()))
    if gap == 0 or not np.isfinite(gap):
        return gap
    return float(np.divide(gap, abs(penalised_objective(X, W, H.T, penalties))))
