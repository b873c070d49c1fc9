"""Document completion: the score of a model on data that W was not estimated from.

The counts of every sample are split in two. W is estimated from one half with the components fixed,
and the other half is scored under the rates W Hᵀ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from klnmf.constraints.constraints import Constraints
from klnmf.data.cell_weights import without_cells
from klnmf.data.sums import ROWS_PER_SUM
from klnmf.support.array_types import Array

if TYPE_CHECKING:
    from klnmf.data.on_disk.matrix import OnDiskMatrix
    from klnmf.estimators.base import FactorModel

Block = tuple[sp.csr_array, sp.csr_array | None]  # counts of some samples, and missing cells

# Share of every sample's rate that is spread evenly over all features, so that a feature which no
# component uses has a small rate and not 0: one such count would otherwise cost −∞ under any model.
BACKGROUND_SHARE = 0.01
# All models are scored on the same halves.
SCORE_SEED = 0
# Larger values are halved: their binomial noise is less than 1e-8 of them.
_LARGEST_THINNED = 2.0**53


def completed(
    model: FactorModel, blocks: Callable[[], Iterable[Block]], missing: sp.csr_array | None
) -> Likelihood:
    """Estimate W from one half of the counts; return how likely the other half is.

    Each call of ``blocks`` gives the samples in order, in blocks of multiples of 4096 rows. W of
    all samples is in memory, but only one block. ``missing`` are the missing cells of all samples.
    """
    if model.n_fixed_W_:
        raise ValueError(
            "The model was fitted with fixed_W, which score does not support: the fixed columns of "
            "W of half a sample are not defined. Compute the likelihood of new samples from "
            "transform(X, fixed_W=...) and components_."
        )
    H, weights = model._H(), model.feature_weight_
    counted = None if weights is None else np.flatnonzero(weights)
    if weights is not None:
        H, weights = H[counted], weights[counted]

    def chosen(matrix: Any) -> Any:
        """Return the features with a weight above 0."""
        return matrix if matrix is None or counted is None else matrix[:, counted]

    def halves() -> Iterator[tuple[Split, sp.csr_array | None]]:
        splitter = Splitter(SCORE_SEED)
        return ((splitter.split(chosen(counts)), chosen(cells)) for counts, cells in blocks())

    def estimated(counts: sp.csr_array, cells: sp.csr_array | None) -> Array:
        if cells is not None and not cells.nnz:
            cells = None
        if weights is None and cells is None:
            return model._solve_W(counts, H)
        constraints = Constraints(
            counts.shape,
            H.shape[1],
            feature_weight=weights,
            missing=cells,
            penalties=model._penalties(),
        )
        return model._solve_W(counts, H, constraints)

    W = np.concatenate([estimated(split.estimate, cells) for split, cells in halves()])
    return likelihood((split.held_out for split, _ in halves()), W, H, chosen(missing))


def observed_blocks(X: OnDiskMatrix, missing: sp.csr_array | None) -> Iterator[Block]:
    """Blocks of rows of a matrix on disk, with 0 in the missing cells."""
    start = 0
    for block in X.row_blocks():
        cells = None if missing is None else missing[start : start + block.shape[0]]
        yield block if cells is None else without_cells(block, cells), cells
        start += block.shape[0]


class Split(NamedTuple):
    """Two parts of the same samples, which sum to the samples."""

    estimate: sp.csr_array
    held_out: sp.csr_array


def is_integer_valued(X: sp.csr_array) -> bool:
    """Whether every value is a whole number that a 64-bit integer holds exactly."""
    return bool(np.all(X.data == np.floor(X.data)) and X.data.max(initial=0) < 2**53)


def split_by_values(X: sp.csr_array, first: Array) -> Split:
    """Split a matrix into a part with these values and the rest, both without stored zeros."""
    first = first.astype(X.dtype)
    parts = [
        sp.csr_array((data, X.indices.copy(), X.indptr.copy()), shape=X.shape)
        for data in (first, X.data - first)
    ]
    for part in parts:
        part.eliminate_zeros()
    return Split(*parts)


class Splitter:
    """Splits samples that come in blocks into the same halves as all of them at once.

    Counts are thinned: each of the X_ij counts falls into either half with probability 1/2; if X is
    Poisson, the halves are independent with the same rates. The fraction of a value is one more
    unit, of that size, which falls into either half as a whole. So there is one scale: the halves
    of 2.9 or 3.1 are nearly those of 3.
    """

    def __init__(self, seed: int) -> None:
        self._of_counts, self._of_parts = (np.random.default_rng(s) for s in (seed, [seed, 1]))

    def split(self, X: sp.csr_array) -> Split:
        """Return two halves of the next samples."""
        return split_by_values(X, self._first_half(X.data.astype(np.float64)))

    def _first_half(self, values: Array) -> Array:
        """Return the part of each value that falls into the first half.

        The nearest whole number of units is drawn, at least one, and every value draws from both
        streams, so that nearly equal values, and all values after them, are split alike.
        """
        smaller = values - (np.ceil(values) - 1.0)  # in (0, 1]; 1 for whole numbers
        units = np.clip(np.rint(values), 1.0, _LARGEST_THINNED)
        first = self._of_counts.binomial(units.astype(np.int64), 0.5)
        was_drawn = units >= values  # the smaller unit is one of the units, else one more
        chance = np.where(was_drawn, first / units, 0.5)
        has_smaller = self._of_parts.random(len(values)) < chance
        half = first - (has_smaller & was_drawn) + np.where(has_smaller, smaller, 0.0)
        return np.where(values < _LARGEST_THINNED, half, 0.5 * values)


class Likelihood(NamedTuple):
    """How likely data are under the rates W Hᵀ with an even background mixed in."""

    per_sample: float  # mean Poisson log-likelihood of a sample
    log_shares: float  # Σ_ij X_ij log p_ij, with p_ij the share of feature j in sample i's rates
    n_features: int
    n_counts: float  # Σ X


def likelihood(
    X: Iterable[sp.csr_array], W: Array, H: Array, missing: sp.csr_array | None = None
) -> Likelihood:
    """Poisson and multinomial log-likelihood of blocks of rows under W Hᵀ with a background.

    The rates are (1 − ε) (WHᵀ)_ij + ε (t_i + 1) / m_i, with t_i = Σ_j (WHᵀ)_ij and ε = 0.01.
    log X! is log Γ(X + 1), so that any nonnegative value can be scored. Cells that are missing,
    the stored ones of a matrix of all rows, are in none of the sums, and the m_i features are those
    that are left; the blocks must be 0 there.
    """
    W64, H64 = W.astype(np.float64), H.astype(np.float64)
    totals = W64 @ H64.sum(axis=0)
    n_features: Any = len(H)
    if missing is not None:
        left_out = np.einsum("ik,ik->i", W64, missing.astype(np.float64) @ H64)
        totals = np.maximum(totals - left_out, 0.0)
        n_features = len(H) - np.diff(missing.indptr)
    background = BACKGROUND_SHARE * (totals + 1.0) / np.maximum(n_features, 1)
    log_rates = log_factorials = 0.0
    start, counts = 0, np.zeros(len(W))
    # 4096 rows at a time: the products take nnz × r numbers.
    for block in (
        part[first : first + ROWS_PER_SUM]
        for part in X
        for first in range(0, part.shape[0], ROWS_PER_SUM)
    ):
        rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr)) + start
        rates = np.einsum("pk,pk->p", W64[rows], H64[block.indices])
        rates = (1.0 - BACKGROUND_SHARE) * rates + background[rows]
        log_rates += float(np.sum(block.data * np.log(rates)))
        log_factorials += float(np.sum(gammaln(block.data + 1.0)))
        stop = start + block.shape[0]
        counts[start:stop] = np.asarray(block.sum(axis=1, dtype=np.float64)).ravel()
        start = stop
    masses = (1.0 - BACKGROUND_SHARE) * totals + background * n_features
    log_masses = np.log(masses, where=masses > 0, out=np.zeros(len(W)))  # 0: nothing was observed
    return Likelihood(
        float((log_rates - log_factorials - masses.sum()) / len(W)),
        log_rates - float(counts @ log_masses),
        len(H),
        float(counts.sum()),
    )
