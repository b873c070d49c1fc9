"""Second moments of the residuals of a fit, by feature, in sums over the nonzeros.

With rates y = W Hᵀ and counts of mean y and variance y + α y², the statistic (x − y)² − x has the
mean α y². At α = 0 it is uncorrelated with x and has the variance 2 y², so that its plain sum
estimates α as well as the likelihood does; for larger α, cells of large y get less weight. Zeros of
X cost nothing: Σ_ij a_i y_ij² over all cells comes from the Gram matrix Σ_i a_i W_i W_iᵀ.

Residuals of a *fitted* model are too small. In the row problem of W_i (and likewise for H_j), the
fitted rates differ from y by P (x − y), where P = A M Aᵀ diag(ω / y), A holds the rows H_j, ω their
weights, and M⁻¹ = Σ_j ω_j x_ij H_j H_jᵀ / y_ij² is the observed information. So, with
q = H_jᵀ M H_j and to first order,

    E (x − ŷ)² = y − 2 ω q + u + α (y² − 2 ω y q + g),

    u = H_jᵀ M (Σ ω² x H Hᵀ / y²) M H_j,      g = H_jᵀ M (Σ ω² H Hᵀ) M H_j,

and ŷ² has the mean y² + u + α g. The corrections of the two row problems add up. All their sums
over cells are contractions of arrays of r² and r³ numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.support.array_types import Array, FloatArray
from klnmf.uncertainty.row_blocks import row_blocks

# Events added to the information of every component in a row, so that it has an inverse.
_ADDED_EVENTS = 0.1


@dataclass(frozen=True)
class FittedRates:
    """Rates W Hᵀ of whole counts, and how they were fitted.

    ``weights`` are those of the rows of W and H in the fit; ``is_free`` says for W and for H which
    components were estimated from these counts. Counts are 0 in cells that are ``missing``.
    """

    counts: sp.csr_array
    W: FloatArray
    H: FloatArray
    weights: tuple[FloatArray | None, FloatArray | None] = (None, None)
    is_free: tuple[Array | None, Array | None] = (None, None)
    missing: sp.csr_array | None = None


class Residuals(NamedTuple):
    """Sums over the samples, with weights a_i, for each feature; y are the fitted rates."""

    excess: FloatArray  # Σ a [(x − y)² − x]
    squares: FloatArray  # Σ a y²
    lost: FloatArray  # Σ a (2 ω q − u): what the fit has taken from `excess` of Poisson counts
    crossed: FloatArray  # Σ a 2 ω y q
    spread: FloatArray  # Σ a g
    inflated: FloatArray  # Σ a u: what the noise of the fit has added to `squares`

    def dispersion(self, features: FloatArray | float = 1.0) -> float:
        """α from the sums over all features, with these weights."""
        sums = Residuals(*(np.array([np.sum(part * features)]) for part in self))
        return float(sums.by_feature()[0])

    def by_feature(self, around: float | None = None) -> FloatArray:
        """α of each feature; ``around`` is the value at which second-order terms are taken."""
        above = self.excess + self.lost
        with np.errstate(divide="ignore", invalid="ignore"):
            alpha: Array = np.asarray(
                np.nan_to_num(above / self.squares).clip(0.0) if around is None else around
            )
            # Fitted rates, and all that is quadratic in them, are too large by this factor.
            true_part = 1.0 - (self.inflated + alpha * self.spread) / self.squares
            left = 1.0 - (self.crossed - self.spread) / self.squares
            slope = self.squares * np.maximum(true_part, 0.2) * np.maximum(left, 0.2)
            return np.asarray(above / slope)


def residual_sums(fit: FittedRates, a: FloatArray, corrected: bool = True) -> Residuals:
    """Compute the sums for weights a of the samples, in time O(nnz r² + (n + m) r³)."""
    W, H = fit.W, fit.H
    gram = (W * a[:, np.newaxis]).T @ W
    squares = _forms(H, gram)
    excess = squares.copy()
    for x, i, j, y in nonzeros(fit.counts, W, H):
        excess += np.bincount(j, a[i] * (x * x - 2.0 * x * y - x), minlength=len(H))
    observed = np.ones(len(H))
    if fit.missing is not None:
        unseen = np.zeros(len(H))
        for _, i, j, y in nonzeros(fit.missing, W, H):
            unseen += np.bincount(j, a[i] * y * y, minlength=len(H))
        # The corrections are small, and are reduced in proportion.
        observed = 1.0 - np.divide(unseen, squares, out=np.zeros(len(H)), where=squares > 0.0)
        squares, excess = squares - unseen, excess - unseen
    if not corrected:
        nothing = np.zeros(len(H))
        return Residuals(excess, squares, nothing, nothing, nothing, nothing)
    parts = _of_samples(fit, a) + _of_features(fit, a, gram)
    taken, crossed, inflated, spread = observed * parts
    return Residuals(excess, squares, 2.0 * taken - inflated, 2.0 * crossed, spread, inflated)


def nonzeros(
    counts: sp.csr_array, W: FloatArray, H: FloatArray
) -> Iterator[tuple[FloatArray, Array, Array, FloatArray]]:
    """Yield blocks of nonzeros: counts, rows, columns and rates."""
    for rows, part, row, _, y in row_blocks(counts, W, H):
        yield part.data.astype(np.float64), row + rows.start, part.indices, y


def _forms(x: FloatArray, matrix: FloatArray) -> FloatArray:
    """x_jᵀ matrix x_j of each row."""
    return np.asarray(np.einsum("jk,jk->j", x @ matrix, x))


def _of_samples(fit: FittedRates, a: FloatArray) -> FloatArray:
    """Return the sums over the samples of ωq, ωyq, u and g of the row problems of W."""
    H, v = fit.H, fit.weights[1]
    r = H.shape[1]
    plain, sandwich, spread = np.zeros((3, r, r))
    cubic = np.zeros((r, r, r))
    outer = _weighted_gram(H, v)
    for rows, M, between in _inverses(fit.counts, fit.W, H, fit.is_free[0], v):
        scaled = M * a[rows, np.newaxis, np.newaxis]
        plain += scaled.sum(axis=0)
        cubic += np.tensordot(fit.W[rows], scaled, axes=(0, 0))
        sandwich += (scaled @ between @ M).sum(axis=0)
        spread += (scaled @ outer @ M).sum(axis=0)
    crossed = np.zeros(len(H))
    for k in range(r):
        crossed += H[:, k] * _forms(H, cubic[k])
    own = 1.0 if v is None else v
    return np.array([own * _forms(H, plain), own * crossed, _forms(H, sandwich), _forms(H, spread)])


def _of_features(fit: FittedRates, a: FloatArray, gram: FloatArray) -> FloatArray:
    """Return the sums over the samples of ωq, ωyq, u and g of the row problems of H."""
    W, H, w = fit.W, fit.H, fit.weights[0]
    r = W.shape[1]
    weighted = W * (a if w is None else a * w)[:, np.newaxis]
    own_gram = weighted.T @ W  # Σ a ω W Wᵀ
    cubic = np.empty((r, r, r))
    for k in range(r):
        cubic[k] = (weighted * W[:, [k]]).T @ W
    outer = _weighted_gram(W, w)
    found = np.zeros((4, len(H)))
    for features, M, between in _inverses(sp.csr_array(fit.counts.T), H, W, fit.is_free[1], w):
        flat = M.reshape(len(M), -1)
        found[0, features] = flat @ own_gram.ravel()
        found[1, features] = np.einsum("jk,jk->j", flat @ cubic.reshape(r, -1).T, H[features])
        found[2, features] = (M @ between @ M).reshape(len(M), -1) @ gram.ravel()
        found[3, features] = (M @ outer @ M).reshape(len(M), -1) @ gram.ravel()
    return found


def _weighted_gram(factor: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Σ ω² A Aᵀ over the rows."""
    scaled = factor if weights is None else factor * (weights**2)[:, np.newaxis]
    return scaled.T @ factor


def _inverses(
    X: sp.csr_array, x: FloatArray, A: FloatArray, is_free: Array | None, weights: FloatArray | None
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Yield blocks of rows of x with M and Σ ω² v A Aᵀ / y² of their row problems.

    In terms of log x the information is Σ ω v s sᵀ, with the parts s_k = x_k A_k / y, and a
    component that is 0 or fixed drops out.
    """
    r = x.shape[1]
    free = x if is_free is None else x * is_free
    for rows, part, _, a, y in row_blocks(X, x, A, has_matrices=True):
        root = np.sqrt(part.data, dtype=np.float64)
        a *= np.divide(root, y, out=np.zeros(len(y)), where=y > 0.0)[:, np.newaxis]
        omega = np.ones(len(y)) if weights is None else weights[part.indices]
        information, between = np.empty((2, part.shape[0], r, r))
        for i, (begin, end) in enumerate(pairwise(part.indptr)):
            of_row = a[begin:end]
            scaled = of_row * omega[begin:end, np.newaxis]
            np.matmul(of_row.T, scaled, out=information[i])
            between[i] = information[i] if weights is None else scaled.T @ scaled
        own = free[rows]
        J = information * own[:, :, np.newaxis] * own[:, np.newaxis, :]
        J[:, np.arange(r), np.arange(r)] += _ADDED_EVENTS
        yield rows, own[:, :, np.newaxis] * np.linalg.inv(J) * own[:, np.newaxis, :], between
