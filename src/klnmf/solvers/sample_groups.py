"""Groups of similar samples, found among few of them: what the components of a fit start from."""

import numpy as np
import scipy.sparse as sp

from klnmf.data.sparse_data import RowView
from klnmf.support.array_types import Array

# Samples to look at for each group, and the largest share of all samples: this costs about one
# multiplicative update of W, or three if every sample has most of the features. With fewer than
# FEWEST_PER_GROUP samples per group, groups mean nothing.
SAMPLES_PER_GROUP = 32
MOST_SAMPLES = 1 / 12
FEWEST_PER_GROUP = 16
# Candidates for the seeds of all groups, for each group, and how many are compared for each seed.
CANDIDATES_PER_GROUP = 4
TRIES = 2


def group_means(
    view: RowView, nonempty: Array, n_groups: int, generator: np.random.Generator
) -> Array | None:
    """Mean shares of the features (rows) in groups of similar samples; None if there are too few.

    One step of k-means from seeds that are far from each other (k-means++), on the square roots of
    the shares p: their scalar product Σ √(p q) is 1 − Hellinger distance², and does not grow with
    the number of counts. A group that is left without samples has zeros. ``nonempty`` are the
    samples with a count.
    """
    n_samples = min(SAMPLES_PER_GROUP * n_groups, int(len(nonempty) * MOST_SAMPLES))
    if n_samples < FEWEST_PER_GROUP * n_groups:
        return None
    rows = np.sort(generator.choice(nonempty, n_samples, replace=False))
    shares, used = _without_empty_columns(shares_of_rows(view, rows))
    shares.sum_duplicates()
    n_modes = len(view.sizes)
    roots = (shares if n_modes == 1 else shares / n_modes).sqrt()
    centres = np.sqrt(_means(_groups_of_seeds(roots, n_groups, generator), n_groups, shares))
    means = np.zeros((view.n_columns, n_groups), dtype=shares.dtype)
    means[used] = _means((roots @ centres).argmax(axis=1), n_groups, shares)
    return means


def shares_of_rows(view: RowView, rows: Array) -> sp.csr_array:
    """Rows of X, each divided by its sum, without reading any other row.

    A row of a tensor is the sums over its slice by each of the other modes, side by side, in
    which a column may come more than once: ``sum_duplicates`` adds them up.
    """
    indptr, indices, values = view.take_rows(rows)
    sums = view.row_sums[rows].astype(values.dtype)
    shares = values / np.repeat(sums, np.diff(indptr))
    shape = (len(rows), view.n_columns)
    if indices.ndim == 1:
        return sp.csr_array((shares, indices, indptr), shape=shape)
    n_modes = len(indices)
    stacked = (np.repeat(shares, n_modes), indices.T.ravel(), n_modes * indptr)
    return sp.csr_array(stacked, shape=shape)


def _without_empty_columns(X: sp.csr_array) -> tuple[sp.csr_array, Array]:
    """Return X without its empty columns, and the numbers of the others."""
    is_used = np.zeros(X.shape[1], dtype=bool)
    is_used[X.indices] = True
    used = np.flatnonzero(is_used)
    number = np.zeros(X.shape[1], dtype=X.indices.dtype)
    number[used] = np.arange(len(used))
    parts = (X.data, number[X.indices], X.indptr)
    return sp.csr_array(parts, shape=(X.shape[0], len(used))), used


def _groups_of_seeds(roots: sp.csr_array, n_groups: int, generator: np.random.Generator) -> Array:
    """For each sample, the number of the seed it is most similar to."""
    n_samples = roots.shape[0]
    n_candidates = min(n_samples, CANDIDATES_PER_GROUP * n_groups)
    candidates = np.sort(generator.choice(n_samples, n_candidates, replace=False))
    similarity = roots @ roots[candidates].T.toarray(order="C")  # dense: faster than sparse
    distance = np.maximum(1 - similarity, 0)
    nearest = np.ones(n_samples, dtype=distance.dtype)  # distance to the nearest seed so far
    seeds = []
    for _ in range(n_groups):
        reach = np.cumsum(nearest[candidates], dtype=np.float64)
        drawn = np.searchsorted(reach, generator.random(TRIES) * reach[-1], side="right")
        drawn = np.minimum(drawn, n_candidates - 1)  # where no distance is left
        remaining = np.minimum(nearest[:, None], distance[:, drawn])
        best = int(remaining.sum(axis=0).argmin())
        nearest = remaining[:, best]
        seeds.append(drawn[best])
    groups: Array = similarity[:, seeds].argmax(axis=1)
    return groups


def _means(groups: Array, n_groups: int, shares: sp.csr_array) -> Array:
    """Mean of the rows of each group, zeros where there are none: features × groups."""
    is_in = (groups[:, None] == np.arange(n_groups)).astype(shares.dtype)
    sizes = np.maximum(np.bincount(groups, minlength=n_groups), 1).astype(shares.dtype)
    means: Array = shares.T @ is_in
    means /= sizes
    return means
