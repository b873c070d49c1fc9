"""The way out of a local optimum: two components become one, and a new one takes the free place.

Where a fit is stuck, two topics often share one component while another topic has two. No small
step leads out of that. A swap does: it merges the two components that lose least by it, and fits a
new one to what the model explains worst. Both are chosen on a sample, at a cost that does not grow
with the data beyond a limit; whether the swap is kept, a few iterations must show.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.dominant_samples import dominant_rows, with_dominant
from klnmf.data.passes import SampledNonzeros, products_of_roots
from klnmf.data.sparse_data import InMemoryView, RowView
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
    merge = _cheapest_merge(sample, X, W, H, masses)
    if merge is None:
        return []
    pair, shares, loss = merge
    return [
        Swap(pair, shares, column, loss, gain)
        for gain, column in _additions(sample, X, generator, n_candidates, is_dominant)
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
    additions = _additions(sample, X, generator, n_candidates, is_dominant)
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
    merge = _cheapest_merge(sample, X, W, H, masses, is_free)
    return None if merge is None else merge[:2]


def _covered(X: InMemoryView, W: Array, H: Array) -> SampledNonzeros | None:
    """Return the nonzeros of a sample; None if there are none, or one has no finite loss."""
    sample = SampledNonzeros(X.indptr, X.indices, X.values, W, H, X.n_threads) if X.nnz else None
    return sample if sample is not None and sample.y.min() > 0 else None


def _cheapest_merge(
    sample: SampledNonzeros,
    X: InMemoryView,
    W: Array,
    H: Array,
    s: Array,
    is_free: Array | bool = True,
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
    alike = [products_of_roots(F, X.n_threads) for F in (W, *X.split(H))]
    first, second = np.triu_indices(W.shape[1], 1)
    both_known = is_known[first] & is_known[second]
    first, second = first[both_known], second[both_known]
    share = s[first] / np.maximum(s[first] + s[second], tiny)
    apart = [1 - of_mode[first, second] for of_mode in alike]
    distances = sum(one * another for one, another in combinations(apart, 2))
    losses = {}
    for number in np.argsort(share * s[second] * distances, kind="stable")[:PAIRS]:
        j, k, of_j = int(first[number]), int(second[number]), float(share[number])
        losses[j, k] = (-sample.gain(*_change_by_merge(W, H, j, k, of_j, len(X.sizes))), of_j)
    if not losses:
        return None
    pair = min(losses, key=lambda pair: losses[pair])
    loss, of_j = losses[pair]
    return pair, (of_j, 1 - of_j), loss


def _change_by_merge(
    W: Array, H: Array, j: int, k: int, of_j: float, n_others: int
) -> tuple[Array, Array]:
    """Return y' − y as a sum of components; see `_cheapest_merge`."""
    if n_others == 1:
        return ((1 - of_j) * W[:, j] - of_j * W[:, k])[None], (H[:, k] - H[:, j])[None]
    rows = np.stack([W[:, j] + W[:, k], -W[:, j], -W[:, k]])
    return rows, np.stack([of_j * H[:, j] + (1 - of_j) * H[:, k], H[:, j], H[:, k]])


def _additions(
    sample: SampledNonzeros,
    X: InMemoryView,
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
    v, by_mode = sample.v, np.atleast_2d(X.indices)

    def row_sums(entries: Array) -> Array:
        rows = sp.csr_array((entries, by_mode[0], X.indptr), shape=(X.n_rows, X.n_columns))
        return np.asarray(rows.sum(axis=1))

    misfit = np.maximum(row_sums(v * np.log(v / sample.y)), 0)
    if not misfit.sum() > 0:
        return []
    totals = row_sums(v)
    starts = np.where(is_dominant, 0.0, 0.1 * totals)
    used = np.where(np.repeat(starts == 0, np.diff(X.indptr)), 0.0, v)
    margins = np.zeros(X.n_columns)
    for columns in by_mode:
        margins += np.bincount(columns, used, X.n_columns)
    margins /= used.sum() or 1.0
    chances, is_again = misfit / misfit.sum(), not np.any(is_dominant)
    n_drawn = n_candidates if is_again else min(n_candidates, int(np.count_nonzero(misfit)))
    drawn = generator.choice(len(misfit), size=n_drawn, p=chances, replace=is_again)
    u, h = np.tile(starts, (n_drawn, 1)), np.tile(0.1 * margins, (n_drawn, 1))
    for number, row in enumerate(drawn):
        own = slice(X.indptr[row], X.indptr[row + 1])
        u[number, row] = 0.1 * totals[row]
        for columns in by_mode:
            np.add.at(h[number], columns[own], 0.9 * v[own] / totals[row])
    ends = np.cumsum(X.sizes)
    profiles = np.split(h, ends[:-1], axis=1)  # views
    for _ in range(UPDATES):
        u *= sample.ratio_sums(u, h)
        for mode, profile in enumerate(profiles):
            profile *= np.split(sample.ratio_sums(u, h, mode), ends[:-1], axis=1)[mode]
            sums = np.array([row.sum() for row in profile])[:, None]
            profile /= np.where(sums > 0, sums, 1.0)
    found = [
        (sample.gain(u[[number]], h[[number]]) - float(u[number].sum()), h[number])
        for number in range(n_drawn)
        if all(profile[number].sum() > 0 for profile in profiles)
    ]
    return sorted(found, key=lambda addition: -addition[0])
