"""The way out of a local optimum: two components become one, and a new one takes the free place.

Where a fit is stuck, two topics often share one component while another topic has two. No small
step leads out of that. A swap does: it merges the two components that lose least by it, and fits a
new one to what the model explains worst. Both are chosen on a sample, at a cost that does not grow
with the data beyond a limit; whether the swap is kept, a few iterations must show.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.dominant_samples import dominant_rows, with_dominant
from klnmf.data.sparse_data import RowView
from klnmf.support.array_types import Array

# The sample: this share of the nonzeros, within limits, and rows for every component.
SAMPLE_SHARE = 1 / 16
SAMPLE_LEAST, SAMPLE_MOST = 50_000, 300_000
ROWS_PER_COMPONENT = 20
# Pairs whose merge is computed, out of those that an estimate ranks first.
PAIRS = 8
# New components that are tried, and the multiplicative updates that each gets.
CANDIDATES = 3
UPDATES = 10
# A trial is worth its time if the merge loses at most this many times what the new component gains
# next to all the old ones: the others make room for it, so that it gains more in the end.
LOSS_TO_GAIN = 5.0


class Swap(NamedTuple):
    """Merge the components of ``pair``, and put a new one into the place of the second.

    With masses s (column sums of W, where those of H are 1) the merged one has w = w_j + w_k and
    h = (s_j h_j + s_k h_k) / (s_j + s_k): every nonzero keeps its cover, and W Hᵀ its row sums.
    """

    pair: tuple[int, int]
    shares: tuple[float, float]  # s_j and s_k over their sum
    column: Array  # the new component's column of H, which sums to 1
    loss: float  # of the merge, in Σ v log y over the sample
    gain: float  # of the new component, next to all the old ones

    @property
    def is_promising(self) -> bool:
        """Whether a few iterations may make it pay."""
        return self.loss <= LOSS_TO_GAIN * self.gain


class Sample(NamedTuple):
    """Some rows of X, and the columns in which they have nonzeros."""

    rows: Array  # which rows, and
    columns: Array  # which columns of X; the matrix has these alone
    X: sp.csr_array
    is_dominant: Array  # whether each row is dominant in X, see klnmf.data.dominant_samples


def draw_sample(view: RowView, n_components: int, generator: np.random.Generator) -> Sample:
    """Draw random rows with a limited number of nonzeros in all, and the dominant ones.

    There are rows for every component even if rows are long: it is columns that are left out then.
    """
    size = np.clip(SAMPLE_SHARE * view.nnz, SAMPLE_LEAST, SAMPLE_MOST)
    own = dominant_rows(view.row_sums, n_components)
    rows = with_dominant(generator.permutation(view.n_rows), own)
    ends = np.cumsum(np.diff(view.indptr)[rows])
    n_rows = max(int(np.searchsorted(ends, size)) + 1, ROWS_PER_COMPONENT * n_components)
    rows = np.sort(rows[:n_rows])
    indptr, indices, values = view.take_rows(rows)
    used = np.zeros(view.n_columns, dtype=bool)
    used[indices] = True
    if len(values) > 2 * size:
        used &= generator.random(view.n_columns) < size / len(values)
    kept = used[indices]
    columns = np.flatnonzero(used)
    numbers = np.cumsum(used) - 1
    ends_of_kept = np.concatenate([[0], np.cumsum(kept)])
    X = sp.csr_array(
        (values[kept], numbers[indices[kept]], ends_of_kept[indptr]),
        shape=(len(rows), len(columns)),
    )
    return Sample(rows, columns, X, np.isin(rows, own))


def propose_swaps(
    X: sp.csr_array,
    W: Array,
    H: Array,
    masses: Array,
    generator: np.random.Generator,
    n_candidates: int = CANDIDATES,
    is_dominant: Array | bool = False,
) -> list[Swap]:
    """Return swaps to try, the best first; none if there is nothing to merge or to gain.

    They merge the same pair, and differ in the new component. W and H are the rows of the factors
    that belong to the sample X, in float64, scaled so that the columns of the whole H sum to 1;
    ``masses`` are the column sums of the whole W. ``is_dominant`` is that of a `Sample`.
    """
    sample = _covered(X, W, H)
    if sample is None or W.shape[1] < 2:
        return []
    merge = _cheapest_merge(sample, W, H, masses)
    if merge is None:
        return []
    pair, shares, loss = merge
    return [
        Swap(pair, shares, column, loss, gain)
        for gain, column in _additions(sample, generator, n_candidates, is_dominant)
        if gain > 0
    ]


def propose_addition(
    X: sp.csr_array,
    W: Array,
    H: Array,
    generator: np.random.Generator,
    n_candidates: int,
    is_dominant: Array | bool = False,
) -> Array | None:
    """Column of H, summing to 1, of the component that gains most next to all the old ones.

    The first arguments are those of `propose_swaps`. A few updates may not be enough for a gain:
    the best candidate is returned all the same. None if the fit is perfect or does not cover a
    nonzero.
    """
    sample = _covered(X, W, H)
    if sample is None:
        return None
    additions = _additions(sample, generator, n_candidates, is_dominant)
    return additions[0][1] if additions else None


def propose_merge(
    X: sp.csr_array, W: Array, H: Array, masses: Array, is_free: Array
) -> tuple[tuple[int, int], tuple[float, float]] | None:
    """Pair of components whose merge loses least on a sample, and their shares, as in `Swap`.

    The arguments are those of `propose_swaps`; components that are not ``is_free`` are not merged.
    None where the sample says nothing.
    """
    sample = _covered(X, W, H)
    if sample is None or W.shape[1] < 2:
        return None
    merge = _cheapest_merge(sample, W, H, masses, is_free)
    return None if merge is None else merge[:2]


def _covered(X: sp.csr_array, W: Array, H: Array) -> _Nonzeros | None:
    """Return the nonzeros of a sample; None if there are none, or one has no finite loss."""
    sample = _Nonzeros(X, W, H) if X.nnz else None
    return sample if sample is not None and sample.y.min() > 0 else None


class _Nonzeros:
    """The sampled nonzeros v and their products y = (W Hᵀ) there, row after row."""

    def __init__(self, X: sp.csr_array, W: Array, H: Array) -> None:
        self.shape, self.indptr, self.columns = X.shape, X.indptr, X.indices
        self.lengths = np.diff(X.indptr)
        self.v = X.data.astype(np.float64)
        self.y = np.zeros(X.nnz)
        for k in range(W.shape[1]):
            self.y += self.outer(W[:, k], H[:, k])

    def outer(self, w: Array, h: Array) -> Array:
        """Entries of w hᵀ at the nonzeros."""
        entries: Array = np.repeat(w, self.lengths) * h[self.columns]
        return entries

    def matrix(self, entries: Array) -> sp.csr_array:
        """Sparse matrix with these entries at the nonzeros, which it shares."""
        return sp.csr_array((entries, self.columns, self.indptr), shape=self.shape)


def _cheapest_merge(
    sample: _Nonzeros, W: Array, H: Array, s: Array, is_free: Array | bool = True
) -> tuple[tuple[int, int], tuple[float, float], float] | None:
    """Pair with the least Σ v log(y / y'), its shares, and that loss; y' is y after the merge.

    y' − y = s_j s_k / (s_j + s_k) · (w_j/s_j − w_k/s_k)(h_k − h_j) is a product of the
    difference of the two components' rows and that of their columns. So the pairs are ranked by the
    mass in front times the two (squared) Hellinger distances, and the first few are computed.
    """
    tiny = np.finfo(np.float64).tiny
    sampled = W.sum(axis=0)
    # A component that the sample hardly knows would seem to cost nothing.
    is_known = (sampled * s.sum() >= 0.1 * s * sampled.sum()) & is_free
    alike_W, alike_H = (_products(np.sqrt(F / np.maximum(F.sum(axis=0), tiny))) for F in (W, H))
    first, second = np.triu_indices(W.shape[1], 1)
    both_known = is_known[first] & is_known[second]
    first, second = first[both_known], second[both_known]
    share = s[first] / np.maximum(s[first] + s[second], tiny)
    distances = (1 - alike_W[first, second]) * (1 - alike_H[first, second])
    losses = {}
    for number in np.argsort(share * s[second] * distances, kind="stable")[:PAIRS]:
        j, k, of_j = int(first[number]), int(second[number]), float(share[number])
        change = sample.outer((1 - of_j) * W[:, j] - of_j * W[:, k], H[:, k] - H[:, j])
        # Rounding may take y' below 0 where nearly all of y was the pair's.
        relative = np.maximum(change / sample.y, -1 + 1e-9)
        losses[j, k] = (-float(np.sum(sample.v * np.log1p(relative))), of_j)
    if not losses:
        return None
    pair = min(losses, key=lambda pair: losses[pair])
    loss, of_j = losses[pair]
    return pair, (of_j, 1 - of_j), loss


def _products(F: Array) -> Array:
    """Return Fᵀ F.

    Without BLAS: with threads its order of summation varies, and its locks do not survive a fork.
    """
    products: Array = np.einsum("ij,ik->jk", F, F)
    return products


def _additions(
    sample: _Nonzeros,
    generator: np.random.Generator,
    n_candidates: int,
    is_dominant: Array | bool,
) -> list[tuple[float, Array]]:
    """Gains of components u hᵀ, Σ h = 1, next to the old ones, which do not change; best first.

    They maximise Σ v log(1 + u h / y) − Σ u by multiplicative updates, from the profiles of a few
    rows, drawn in proportion to their misfit Σ v log(v / y). None if there is no misfit. A dominant
    row would make every h its own profile, which it has already: it has u = 0, unless it was drawn.
    Where there is one, no row is drawn twice.
    """
    v, y = sample.v, sample.y
    ratios = np.empty_like(v)
    by_rows = sample.matrix(ratios)  # sees what is written to `ratios`
    by_columns = by_rows.T
    ratios[:] = v * np.log(v / y)
    misfit = np.maximum(by_rows.sum(axis=1), 0)
    if not misfit.sum() > 0:
        return []
    ratios[:] = v
    totals = by_rows.sum(axis=1)
    starts = np.where(is_dominant, 0.0, 0.1 * totals)
    ratios[np.repeat(starts == 0, sample.lengths)] = 0.0
    margins = by_rows.sum(axis=0) / (ratios.sum() or 1.0)
    found = []
    chances, is_again = misfit / misfit.sum(), not np.any(is_dominant)
    n_drawn = n_candidates if is_again else min(n_candidates, int(np.count_nonzero(misfit)))
    for row in generator.choice(len(misfit), size=n_drawn, p=chances, replace=is_again):
        own = slice(sample.indptr[row], sample.indptr[row + 1])
        u, h = starts.copy(), 0.1 * margins
        u[row] = 0.1 * totals[row]
        h[sample.columns[own]] += 0.9 * v[own] / totals[row]
        for _ in range(UPDATES):
            np.divide(v, y + sample.outer(u, h), out=ratios)
            u = u * (by_rows @ h)
            np.divide(v, y + sample.outer(u, h), out=ratios)
            h = h * (by_columns @ u)
            if not h.sum() > 0:
                break
            h /= h.sum()
        if h.sum() > 0:
            gain = float(np.sum(v * np.log1p(sample.outer(u, h) / y)) - u.sum())
            found.append((gain, h))
    return sorted(found, key=lambda addition: -addition[0])
