"""Each feature as a Poisson regression on the amounts of the components in the samples.

With W fixed and scaled so that component k has L_ik counts in sample i, feature j has the rates
L x_j, where x_jk is its share of component k. The features are independent row problems, which the
back-end solves all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.sums import row_ranges
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

_ENTRIES_AT_ONCE = 1 << 22  # products L_ik x_jk in memory
# The error of the log-likelihood is the square of this, far below 1, where differences matter.
_SOLVE = RowSolve(tolerance=1e-7, rounds=200)


class Block(NamedTuple):
    """Some features: their counts, with the feature, sample and rate of each count."""

    features: slice
    v: FloatArray
    feature: Array  # from 0
    sample: Array
    y: FloatArray


def solved_shares(by_feature: sp.csr_array, L: FloatArray, n_threads: int) -> FloatArray:
    """Maximum likelihood estimates of the shares x ≥ 0 of each feature (a row), in float64."""
    data = InMemoryData(sp.csr_array(by_feature, dtype=np.float64))
    problem = Problem(make_backend("auto", data, n_threads), Penalties())
    with closing(problem.backend) as backend:
        return backend.download(solved_rows(problem, 0, [None, backend.upload(L)], _SOLVE))


def blocks_of_features(by_feature: sp.csr_array, L: FloatArray, x: FloatArray) -> Iterator[Block]:
    """Yield blocks of features small enough for arrays of size nnz × r and m × r × r."""
    n_components = L.shape[1]
    n_features = max(1, _ENTRIES_AT_ONCE // n_components**2)
    for first, last in row_ranges(by_feature.indptr, max(1, _ENTRIES_AT_ONCE // n_components)):
        for start in range(first, last, n_features):
            features = slice(start, min(start + n_features, last))
            part = by_feature[features]
            feature = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
            y = np.einsum("pk,pk->p", L[part.indices], x[features][feature])
            yield Block(features, part.data.astype(np.float64), feature, part.indices, y)


def log_likelihoods(by_feature: sp.csr_array, L: FloatArray, x: FloatArray) -> FloatArray:
    """Σ_i [v_i log y_i − y_i] of each feature, without the constant Σ log v!."""
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
    """Shares that maximise the log-likelihood plus Σ_k a_k log x_k, so that none is 0.

    The added terms are those of a_k counts in a sample with a tiny amount of component k alone.
    """
    samples = np.diag(1e-9 * L.sum(axis=0))
    counts = np.tile(pseudo_counts, (by_feature.shape[0], 1))
    with_pseudo = sp.hstack([sp.csr_array(by_feature, dtype=np.float64), sp.csr_array(counts)])
    return solved_shares(sp.csr_array(with_pseudo), np.vstack([L, samples]), n_threads)


def log_share_covariances(
    by_feature: sp.csr_array, L: FloatArray, x: FloatArray, pseudo_counts: FloatArray
) -> Iterator[tuple[slice, FloatArray]]:
    """Yield blocks of features with the covariances (n_features × r × r) of their log x_j.

    The observed information of x_j is I_j = Σ_i v_i L_i L_iᵀ / y_i² + diag(a / x_j²). That of its
    log is diag(x_j) I_j diag(x_j) = Σ_i v_i s_i s_iᵀ + diag(a), where s_ik = L_ik x_jk / y_i is the
    part of component k in the rate. Its inverse is the covariance.
    """
    for block in blocks_of_features(by_feature, L, x):
        parts = L[block.sample] * x[block.features][block.feature]
        parts *= (np.sqrt(block.v) / block.y)[:, np.newaxis]
        size = block.features.stop - block.features.start
        ends = np.searchsorted(block.feature, np.arange(size + 1))
        information = np.empty((size, L.shape[1], L.shape[1]))
        for j in range(size):
            part = parts[ends[j] : ends[j + 1]]
            np.matmul(part.T, part, out=information[j])
        information += np.diag(pseudo_counts)
        yield block.features, np.linalg.inv(information)
