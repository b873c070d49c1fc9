"""The way out of a local optimum: two components become one, and a new one takes the free place.

Where a fit is stuck, two topics often share one component while another topic has two. No small
step leads out of that. A swap does: it merges the two components that lose least by it, and fits a
new one to what the model explains worst. Both are chosen on a sample, at a cost that does not grow
with the data beyond a limit; whether the swap is kept, a few iterations must show.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.dominant_samples import dominant_rows, with_dominant
from klnmf.data.sparse_data import InMemoryView, RowView, at_cells
from klnmf.data.tensor_data import restricted
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
    Of a tensor, the factors of all modes but the first are merged like H, and each keeps its sums.
    """

    pair: tuple[int, int]
    shares: tuple[float, float]  # s_j and s_k over their sum
    column: Array  # the new component's column of H, which sums to 1; of all of them, stacked
    loss: float  # of the merge, in Σ v log y over the sample
    gain: float  # of the new component, next to all the old ones

    @property
    def is_promising(self) -> bool:
        """Whether a few iterations may make it pay."""
        return self.loss <= LOSS_TO_GAIN * self.gain


class Sample(NamedTuple):
    """Some rows of X, and the columns in which they have nonzeros."""

    rows: Array  # which rows, and
    columns: list[Array]  # which columns of each other mode
    X: InMemoryView  # the rows, with these columns alone
    is_dominant: Array  # whether each row is dominant in X, see klnmf.data.dominant_samples

    def in_all(self, entries: Array, view: RowView) -> Array:
        """Return entries of the columns of X in those of the view that it was drawn from."""
        of_all = np.zeros(view.n_columns)
        for target, columns, part in zip(
            view.split(of_all), self.columns, self.X.split(entries), strict=True
        ):
            target[columns] = part
        return of_all


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
    taken = view.take_rows(rows)
    used = np.zeros(view.n_columns, dtype=bool)
    used[taken[1]] = True
    if len(taken[2]) > 2 * size:
        used &= generator.random(view.n_columns) < size / len(taken[2])
    X = restricted(taken, used, view)
    columns = [np.flatnonzero(part) for part in view.split(used)]
    return Sample(rows, columns, X, np.isin(rows, own))


def propose_swaps(
    X: InMemoryView,
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
    ``masses`` are the column sums of the whole W. Of a tensor, H has the rows of all modes but the
    first, one mode after the other. ``is_dominant`` is that of a `Sample`.
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
    X: InMemoryView,
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
    X: InMemoryView, W: Array, H: Array, masses: Array, is_free: Array
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


def _covered(X: InMemoryView, W: Array, H: Array) -> _Nonzeros | None:
    """Return the nonzeros of a sample; None if there are none, or one has no finite loss."""
    sample = _Nonzeros(X, W, H) if X.nnz else None
    return sample if sample is not None and sample.y.min() > 0 else None


class _Nonzeros:
    """The sampled nonzeros v and their products y = (W Hᵀ) there, row after row."""

    def __init__(self, X: InMemoryView, W: Array, H: Array) -> None:
        self.split, self.indptr = X.split, X.indptr
        self.columns = X.indices.astype(np.intp)  # NumPy gathers by others half as fast
        self.by_mode: list[Array] = list(np.atleast_2d(X.indices))
        self.shape = (X.n_rows, X.n_columns)
        self.lengths = np.diff(X.indptr)
        self.v = X.values.astype(np.float64)
        self.y = np.zeros(X.nnz)
        for k in range(W.shape[1]):
            self.y += self.outer(W[:, k], H[:, k])

    def outer(self, w: Array, h: Array) -> Array:
        """Entries of w hᵀ at the nonzeros; h holds the profiles of all modes but the first."""
        entries: Array = np.repeat(w, self.lengths) * at_cells(h, self.columns)
        return entries

    def change_by_merge(self, W: Array, H: Array, j: int, k: int, of_j: float) -> Array:
        """Return y' − y at the nonzeros; see `_cheapest_merge`."""
        if len(self.by_mode) == 1:
            return self.outer((1 - of_j) * W[:, j] - of_j * W[:, k], H[:, k] - H[:, j])
        merged = self.outer(W[:, j] + W[:, k], of_j * H[:, j] + (1 - of_j) * H[:, k])
        return merged - self.outer(W[:, j], H[:, j]) - self.outer(W[:, k], H[:, k])

    def matrix(self, entries: Array, mode: int = 0) -> sp.csr_array:
        """Sparse matrix with these entries at the nonzeros, by rows and the columns of a mode."""
        return sp.csr_array((entries, self.by_mode[mode], self.indptr), shape=self.shape)


def _cheapest_merge(
    sample: _Nonzeros, W: Array, H: Array, s: Array, is_free: Array | bool = True
) -> tuple[tuple[int, int], tuple[float, float], float] | None:
    """Pair with the least Σ v log(y / y'), its shares, and that loss; y' is y after the merge.

    y' − y = s_j s_k / (s_j + s_k) · (w_j/s_j − w_k/s_k)(h_k − h_j) is a product of the
    difference of the two components' rows and that of their columns. So the pairs are ranked by the
    mass in front times the two (squared) Hellinger distances, and the first few are computed. Of a
    tensor y' − y is of the order of such products, one for each two modes: their sum ranks.
    """
    tiny = np.finfo(np.float64).tiny
    sampled = W.sum(axis=0)
    # A component that the sample hardly knows would seem to cost nothing.
    is_known = (sampled * s.sum() >= 0.1 * s * sampled.sum()) & is_free
    alike = [_products(np.sqrt(F / np.maximum(F.sum(axis=0), tiny))) for F in (W, *sample.split(H))]
    first, second = np.triu_indices(W.shape[1], 1)
    both_known = is_known[first] & is_known[second]
    first, second = first[both_known], second[both_known]
    share = s[first] / np.maximum(s[first] + s[second], tiny)
    apart = [1 - of_mode[first, second] for of_mode in alike]
    distances = sum(one * another for one, another in combinations(apart, 2))
    losses = {}
    for number in np.argsort(share * s[second] * distances, kind="stable")[:PAIRS]:
        j, k, of_j = int(first[number]), int(second[number]), float(share[number])
        change = sample.change_by_merge(W, H, j, k, of_j)
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
    v, y, modes = sample.v, sample.y, range(len(sample.by_mode))
    ratios = np.empty_like(v)
    of_modes = [sample.matrix(ratios, mode) for mode in modes]  # see what is written to `ratios`
    by_rows = of_modes[0]
    ratios[:] = v * np.log(v / y)
    misfit = np.maximum(by_rows.sum(axis=1), 0)
    if not misfit.sum() > 0:
        return []
    ratios[:] = v
    totals = by_rows.sum(axis=1)
    starts = np.where(is_dominant, 0.0, 0.1 * totals)
    ratios[np.repeat(starts == 0, sample.lengths)] = 0.0
    margins = sum(matrix.sum(axis=0) for matrix in of_modes) / (ratios.sum() or 1.0)

    def set_ratios(u_at_nonzeros: Array, h_at_nonzeros: list[Array], mode: int) -> None:
        """Set v / (y + u h), times the profiles of the other modes than the first and this one."""
        np.divide(v, y + math.prod(h_at_nonzeros, start=u_at_nonzeros), out=ratios)
        for other in modes:
            if other != mode:
                np.multiply(ratios, h_at_nonzeros[other], out=ratios)

    found = []
    chances, is_again = misfit / misfit.sum(), not np.any(is_dominant)
    n_drawn = n_candidates if is_again else min(n_candidates, int(np.count_nonzero(misfit)))
    for row in generator.choice(len(misfit), size=n_drawn, p=chances, replace=is_again):
        own = slice(sample.indptr[row], sample.indptr[row + 1])
        u, h = starts.copy(), 0.1 * margins
        u[row] = 0.1 * totals[row]
        for columns in sample.by_mode:
            np.add.at(h, columns[own], 0.9 * v[own] / totals[row])
        profiles = sample.split(h)  # views
        places = list(np.atleast_2d(sample.columns))
        h_at_nonzeros = [h[columns] for columns in places]
        u_at_nonzeros = np.repeat(u, sample.lengths)
        for _ in range(UPDATES):
            set_ratios(u_at_nonzeros, h_at_nonzeros, 0)
            u = u * (by_rows @ h)
            u_at_nonzeros = np.repeat(u, sample.lengths)
            for mode in modes:
                set_ratios(u_at_nonzeros, h_at_nonzeros, mode)
                new = sample.split(h * (of_modes[mode].T @ u))[mode]
                profiles[mode][:] = new / (new.sum() or 1.0)
                h_at_nonzeros[mode] = h[places[mode]]
            if not all(profile.sum() > 0 for profile in profiles):
                break
        if all(profile.sum() > 0 for profile in profiles):
            gain = float(np.sum(v * np.log1p(sample.outer(u, h) / y)) - u.sum())
            found.append((gain, h))
    return sorted(found, key=lambda addition: -addition[0])
