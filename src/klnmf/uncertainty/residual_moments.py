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

Of a tensor, the features are the rows of the second mode, and A holds the products of one row of
each other mode. Sums over the cells of several modes are entrywise products of those of each:
Σ_il a_i c_l y_ijl² = H_jᵀ [(Σ_i a_i W_i W_iᵀ) ∘ (Σ_l c_l C_l C_lᵀ)] H_j.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.sparse_data import CountData, InMemoryView, at_cells
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_data import data_in_memory
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.caching import cached_property
from klnmf.uncertainty.row_blocks import row_blocks

# Events added to the information of every component in a row, so that it has an inverse.
_ADDED_EVENTS = 0.1


@dataclass(frozen=True)
class FittedRates:
    """Rates W Hᵀ of whole counts, and how they were fitted.

    Of a tensor, H are the factors of all modes but the first, one below the other. ``weights`` are
    by mode those of the rows in the fit; ``is_free`` says by mode which components were estimated
    from these counts. Counts are 0 in cells that are ``missing``.
    """

    counts: sp.csr_array | SparseTensor
    W: FloatArray
    H: FloatArray
    weights: tuple[FloatArray | None, ...] = (None, None)
    is_free: tuple[Array | None, ...] = (None, None)
    missing: sp.csr_array | SparseTensor | None = None

    @cached_property
    def data(self) -> CountData:
        """Return the counts by the rows of each mode."""
        return data_in_memory(self.counts)

    @cached_property
    def factors(self) -> list[FloatArray]:
        """Return the factors by mode."""
        return [self.W, *self.data.view(0).split(self.H)]

    def stacked(self, mode: int) -> tuple[FloatArray, FloatArray | None]:
        """Return the factors of the other modes, one below the other, and their weights."""
        others = [other for other in range(len(self.factors)) if other != mode]
        factor = np.concatenate([self.factors[other] for other in others])
        if all(self.weights[other] is None for other in others):
            return factor, None
        known = ((self.weights[other], self.factors[other]) for other in others)
        return factor, np.concatenate([np.ones(len(x)) if w is None else w for w, x in known])


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


def residual_sums(
    fit: FittedRates, a: FloatArray, corrected: bool = True, rest: Sequence[FloatArray] = ()
) -> Residuals:
    """Compute the sums for weights a of the samples, in time O(nnz r² + (n + m) r³).

    ``rest`` are the weights of the modes after the second.
    """
    H, weights = fit.factors[1], [a, np.ones(len(fit.factors[1])), *rest]
    sums = _MomentsOfModes(fit, weights)
    squares = _forms(H, product(sums.grams, but=(1,)))
    excess = squares.copy()
    for x, i, j, y in nonzeros(fit.counts, fit.W, fit.H):
        terms = weights_of_cells(weights, i, j) * (x * x - 2.0 * x * y - x)
        excess += np.bincount(feature_of(j), terms, minlength=len(H))
    observed = np.ones(len(H))
    if fit.missing is not None:
        unseen = np.zeros(len(H))
        for _, i, j, y in nonzeros(fit.missing, fit.W, fit.H):
            terms = weights_of_cells(weights, i, j) * y * y
            unseen += np.bincount(feature_of(j), terms, minlength=len(H))
        # The corrections are small, and are reduced in proportion.
        observed = 1.0 - np.divide(unseen, squares, out=np.zeros(len(H)), where=squares > 0.0)
        squares, excess = squares - unseen, excess - unseen
    if not corrected:
        nothing = np.zeros(len(H))
        return Residuals(excess, squares, nothing, nothing, nothing, nothing)
    parts = sum(sums.of_mode(mode) for mode in range(len(weights)))
    taken, crossed, inflated, spread = observed * parts
    return Residuals(excess, squares, 2.0 * taken - inflated, 2.0 * crossed, spread, inflated)


def nonzeros(
    counts: sp.csr_array | SparseTensor, W: FloatArray, H: FloatArray
) -> Iterator[tuple[FloatArray, Array, Array, FloatArray]]:
    """Yield blocks of nonzeros: counts, rows, columns and rates."""
    for rows, part, row, _, y in row_blocks(data_in_memory(counts).view(0).whole(), W, H):
        yield part.values.astype(np.float64), row + rows.start, part.indices, y


def feature_of(columns: Array) -> Array:
    """Return the rows of the second mode of some cells."""
    return columns if columns.ndim == 1 else columns[0]


def weights_of_cells(weights: Sequence[FloatArray], rows: Array, columns: Array) -> FloatArray:
    """Return the products of weights of the rows of each mode at some cells."""
    of_rows = weights[0][rows]
    return of_rows if len(weights) == 2 else of_rows * at_cells(np.hstack(weights[1:]), columns)


def product(parts: Sequence[FloatArray], but: tuple[int, ...] = ()) -> Any:
    """Entrywise product of what is given by mode, without some modes; of nothing, 1."""
    return np.prod([part for mode, part in enumerate(parts) if mode not in but], axis=0)


def _forms(x: FloatArray, matrix: FloatArray) -> FloatArray:
    """x_jᵀ matrix x_j of each row."""
    return np.asarray(np.einsum("jk,jk->j", x @ matrix, x))


class _MomentsOfModes:
    """Sums over the rows of modes, with weights a, and of the corrections over all cells."""

    def __init__(self, fit: FittedRates, weights: Sequence[FloatArray]) -> None:
        self.fit, self.weights = fit, weights
        self.grams = [_weighted(x, a).T @ x for x, a in zip(fit.factors, weights, strict=True)]

    @cached_property
    def _own(self) -> list[FloatArray]:
        """Factors times a ω, by mode."""
        parts = zip(self.fit.factors, self.weights, self.fit.weights, strict=True)
        return [_weighted(x, a if w is None else a * w) for x, a, w in parts]

    @cached_property
    def _own_grams(self) -> list[FloatArray]:
        """Σ a ω A Aᵀ."""
        return [own.T @ x for own, x in zip(self._own, self.fit.factors, strict=True)]

    @cached_property
    def _own_cubes(self) -> list[FloatArray]:
        """Σ a ω A_k A Aᵀ."""
        pairs = zip(self._own, self.fit.factors, strict=True)
        return [np.array([(own * x[:, [k]]).T @ x for k in range(x.shape[1])]) for own, x in pairs]

    def of_mode(self, mode: int) -> FloatArray:
        """By feature, return the sums of ωq, ωyq, u and g of the row problems of a mode."""
        known = zip(self.fit.factors, self.fit.weights, strict=True)
        outer = product([_weighted_gram(x, w) for x, w in known], but=(mode,))
        return self._of_features(outer) if mode == 1 else self._of_others(mode, outer)

    def _of_others(self, mode: int, outer: FloatArray) -> FloatArray:
        fit, H, v = self.fit, self.fit.factors[1], self.fit.weights[1]
        x, a, r = fit.factors[mode], self.weights[mode], H.shape[1]
        plain, sandwich, spread = np.zeros((3, r, r))
        cubic = np.zeros((r, r, r))
        for rows, M, between in _inverses(fit, mode):
            scaled = M * a[rows, np.newaxis, np.newaxis]
            plain += scaled.sum(axis=0)
            cubic += np.tensordot(x[rows], scaled, axes=(0, 0))
            sandwich += (scaled @ between @ M).sum(axis=0)
            spread += (scaled @ outer @ M).sum(axis=0)
        gram = product(self.grams, but=(mode, 1))
        plain, cubic = (
            part * product(of_rest, but=(mode, 1))
            for part, of_rest in ((plain, self._own_grams), (cubic, self._own_cubes))
        )
        crossed = np.zeros(len(H))
        for k in range(r):
            crossed += H[:, k] * _forms(H, cubic[k])
        own = 1.0 if v is None else v
        taken = own * _forms(H, plain)
        return np.array(
            [taken, own * crossed, _forms(H, sandwich * gram), _forms(H, spread * gram)]
        )

    def _of_features(self, outer: FloatArray) -> FloatArray:
        H, r = self.fit.factors[1], self.fit.W.shape[1]
        gram, own_gram = (product(parts, but=(1,)) for parts in (self.grams, self._own_grams))
        cubic = product(self._own_cubes, but=(1,))
        found = np.zeros((4, len(H)))
        for features, M, between in _inverses(self.fit, 1):
            flat = M.reshape(len(M), -1)
            found[0, features] = flat @ own_gram.ravel()
            found[1, features] = np.einsum("jk,jk->j", flat @ cubic.reshape(r, -1).T, H[features])
            found[2, features] = (M @ between @ M).reshape(len(M), -1) @ gram.ravel()
            found[3, features] = (M @ outer @ M).reshape(len(M), -1) @ gram.ravel()
        return found


def _weighted(factor: FloatArray, weights: FloatArray) -> FloatArray:
    return factor * weights[:, np.newaxis]


def _weighted_gram(factor: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Σ ω² A Aᵀ over the rows."""
    scaled = factor if weights is None else factor * (weights**2)[:, np.newaxis]
    return scaled.T @ factor


def _inverses(fit: FittedRates, mode: int) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Yield blocks of rows x of a mode with M and Σ ω² v A Aᵀ / y² of their row problems.

    In terms of log x the information is Σ ω v s sᵀ, with the parts s_k = x_k A_k / y, and a
    component that is 0 or fixed drops out.
    """
    x, (A, weights) = fit.factors[mode], fit.stacked(mode)
    r, is_free = x.shape[1], fit.is_free[mode]
    free = x if is_free is None else x * is_free
    view: InMemoryView = fit.data.view(mode).whole()
    for rows, part, _, a, y in row_blocks(view, x, A, has_matrices=True):
        root = np.sqrt(part.values, dtype=np.float64)
        a *= np.divide(root, y, out=np.zeros(len(y)), where=y > 0.0)[:, np.newaxis]
        omega = np.ones(len(y)) if weights is None else at_cells(weights, part.indices)
        information, between = np.empty((2, part.n_rows, r, r))
        for i, (begin, end) in enumerate(pairwise(part.indptr)):
            of_row = a[begin:end]
            scaled = of_row * omega[begin:end, np.newaxis]
            np.matmul(of_row.T, scaled, out=information[i])
            between[i] = information[i] if weights is None else scaled.T @ scaled
        own = free[rows]
        J = information * own[:, :, np.newaxis] * own[:, np.newaxis, :]
        J[:, np.arange(r), np.arange(r)] += _ADDED_EVENTS
        yield rows, own[:, :, np.newaxis] * np.linalg.inv(J) * own[:, np.newaxis, :], between
