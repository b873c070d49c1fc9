"""Every feature as a Poisson regression on the samples' parts in the components.

With W fixed and scaled so that component k has L_ik counts in sample i, feature j has the rates
L x_j, where x_jk is its share of component k. Features do not know of each other: each is a row
problem, and the core solves them all at once, under any hypothesis that leaves them so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData, row_ranges
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

_ENTRIES_AT_ONCE = 1 << 22  # of the products L_ik x_jk
# The log-likelihood is off by the square of this: 1e-7 and less, where differences of 1 matter.
_SOLVE = RowSolve(tolerance=1e-7, rounds=200)


class Block(NamedTuple):
    """Some features: their counts, the feature and the sample of each, and the rates there."""

    features: slice
    v: FloatArray
    feature: Array  # from 0
    sample: Array
    y: FloatArray


def solved_shares(by_feature: sp.csr_array, L: FloatArray, n_threads: int) -> FloatArray:
    """Shares x ≥ 0 of greatest likelihood for every feature (a row), in float64."""
    data = InMemoryData(sp.csr_array(by_feature, dtype=np.float64))
    problem = Problem(make_backend("auto", data, n_threads), Penalties())
    with closing(problem.backend) as backend:
        return backend.download(solved_rows(problem, 0, [None, backend.upload(L)], _SOLVE))


def blocks_of_features(by_feature: sp.csr_array, L: FloatArray, x: FloatArray) -> Iterator[Block]:
    """Go over the features, so many at a time that nnz × r or m × r × r numbers are few."""
    n_components = L.shape[1]
    n_features = max(1, _ENTRIES_AT_ONCE // n_components**2)
    for first, last in row_ranges(by_feature.indptr, max(1, _ENTRIES_AT_ONCE // n_components)):
        for start in range(first, last, n_features):
            features = slice(start, min(start + n_features, last))
            own = by_feature[features]
            feature = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
            y = np.einsum("pk,pk->p", L[own.indices], x[features][feature])
            yield Block(features, own.data.astype(np.float64), feature, own.indices, y)


def log_likelihoods(by_feature: sp.csr_array, L: FloatArray, x: FloatArray) -> FloatArray:
    """Σ_i [v_i log y_i − y_i] of every feature, without the constant Σ log v!."""
    found: FloatArray = -(x @ L.sum(axis=0))
    for block in blocks_of_features(by_feature, L, x):
        size = block.features.stop - block.features.start
        found[block.features] += np.bincount(
            block.feature, weights=block.v * np.log(block.y), minlength=size
        )
    return found


def moderated_shares(
    by_feature: sp.csr_array, L: FloatArray, pseudo_counts: FloatArray, n_threads: int
) -> FloatArray:
    """Shares that maximise the likelihood plus Σ_k a_k log x_k: none of them is 0.

    The added terms are those of a_k counts in a sample that has component k alone, and hardly any
    of it.
    """
    samples = np.diag(1e-9 * L.sum(axis=0))
    counts = np.tile(pseudo_counts, (by_feature.shape[0], 1))
    with_pseudo = sp.hstack([sp.csr_array(by_feature, dtype=np.float64), sp.csr_array(counts)])
    return solved_shares(sp.csr_array(with_pseudo), np.vstack([L, samples]), n_threads)


def log_share_covariances(
    by_feature: sp.csr_array, L: FloatArray, x: FloatArray, pseudo_counts: FloatArray
) -> Iterator[tuple[slice, FloatArray]]:
    """Covariance of log x_j for each feature, a block of features at a time.

    Fisher's observed information of x_j is I_j = Σ_i v_i L_i L_iᵀ / y_i² + diag(a / x_j²). That of
    log x_j is diag(x_j) I_j diag(x_j) = Σ_i v_i s_i s_iᵀ + diag(a) with s_ik = L_ik x_jk / y_i, the
    part that component k has in the rate; its inverse is the covariance.

    Yields
    ------
    features : slice
    covariances : ndarray of shape (n_features of the block, r, r)
    """
    for block in blocks_of_features(by_feature, L, x):
        parts = L[block.sample] * x[block.features][block.feature]
        parts *= (np.sqrt(block.v) / block.y)[:, np.newaxis]
        size = block.features.stop - block.features.start
        ends = np.searchsorted(block.feature, np.arange(size + 1))
        information = np.empty((size, L.shape[1], L.shape[1]))
        for j in range(size):
            own = parts[ends[j] : ends[j + 1]]
            np.matmul(own.T, own, out=information[j])
        information += np.diag(pseudo_counts)
        yield block.features, np.linalg.inv(information)
