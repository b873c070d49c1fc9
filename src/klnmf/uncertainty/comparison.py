"""Comparison of components by the shares of features: fold changes and likelihood ratios.

Each feature is a Poisson regression on the amounts of the components in the samples. With W fixed
and scaled so that component k has L_ik counts in sample i, feature j has the rates L x_j, where
x_jk is its share of component k. The features are independent row problems, which the back-end
solves all at once.
"""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
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
from klnmf.support.array_types import Array, FloatArray

# Counts that are added to every feature and component, on average over the components. They keep
# fold changes finite, and those of small counts small.
PSEUDO_COUNT = 0.5
_ENTRIES_AT_ONCE = 1 << 22  # products L_ik x_jk in memory
# The error of the log-likelihood is the square of this, far below 1, where differences matter.
_SOLVE = RowSolve(tolerance=1e-7, rounds=200)


@dataclass(frozen=True)
class ComparedShares:
    """Arrays of tested components × features, NaN where there is nothing to compare."""

    log2_fold_change: FloatArray
    standard_error: FloatArray
    z: FloatArray
    share: FloatArray
    reference_share: FloatArray
    reference: npt.NDArray[np.int64]  # component; −1 for all others together, or none


def compared_shares(
    counts: sp.csr_array, L: FloatArray, chosen: Array, against: str | int, n_threads: int
) -> ComparedShares:
    """Compare each chosen component with another one, the nearest one, or all others.

    L (n_samples × n_components) holds the expected counts of the components in the samples.
    """
    shape = len(chosen), counts.shape[1]
    empty: list[Any] = [np.full(shape, np.nan) for _ in range(5)]
    found = ComparedShares(*[*empty, np.full(shape, -1, np.int64)])
    used = np.flatnonzero(L.sum(axis=0) > 0.0)
    # Samples without any component carry no information about the shares.
    filled = L.sum(axis=1) > 0.0
    by_feature = sp.csr_array(counts[filled].T)
    features = np.flatnonzero(np.diff(by_feature.indptr))
    if len(used) < 2 or len(features) == 0 or (against not in ("nearest", "others", *used)):
        return found
    X, L = by_feature[features], np.ascontiguousarray(L[np.ix_(filled, used)])
    sizes = L.sum(axis=0)
    place = {int(component): k for k, component in enumerate(used)}
    other = against if isinstance(against, str) else place[int(against)]
    rows = [row for row, component in enumerate(chosen) if int(component) in place]
    positions = [place[int(chosen[row])] for row in rows]

    changes = _fold_changes(X, L, sizes, positions, other, n_threads)
    x = solved_shares(X, L, n_threads)
    best = log_likelihoods(X, L, x)
    for row, k, change in zip(rows, positions, changes, strict=True):
        found.log2_fold_change[row, features] = change.value / math.log(2.0)
        found.standard_error[row, features] = change.error / math.log(2.0)
        found.share[row, features] = x[:, k]
        if change.other is None:
            weights = _weights_of_others(sizes, k)
            reference = x @ weights
            null = _null_likelihoods(X, L, k, weights, n_threads)
        else:
            found.reference[row, features] = used[change.other]
            reference = x[np.arange(len(x)), change.other]
            null = np.empty(len(x))
            for partner in np.unique(change.other):
                at = np.flatnonzero(change.other == partner)
                weights = np.eye(len(sizes))[partner]
                null[at] = _null_likelihoods(X[at], L, k, weights, n_threads)
        found.reference_share[row, features] = reference
        root = np.sqrt(np.maximum(2.0 * (best - null), 0.0))
        found.z[row, features] = np.sign(x[:, k] - reference) * root
    return found


def _weights_of_others(sizes: FloatArray, k: int) -> FloatArray:
    weights = np.where(np.arange(len(sizes)) == k, 0.0, sizes)
    return np.asarray(weights / weights.sum())


def _null_likelihoods(
    X: sp.csr_array, L: FloatArray, k: int, weights: FloatArray, n_threads: int
) -> FloatArray:
    """Maximum log-likelihood of each feature under x_k = Σ_l weights_l x_l.

    Then L x = Σ_{l ≠ k} (L_l + weights_l L_k) x_l, the same problem with one component less.
    """
    merged = np.delete(L + np.outer(L[:, k], weights), k, axis=1)
    return log_likelihoods(X, merged, solved_shares(X, merged, n_threads))


@dataclass
class _Change:
    """Difference of log shares of each feature, its error, and the reference component."""

    value: FloatArray
    error: FloatArray
    other: npt.NDArray[np.int64] | None  # None: all others together


def _fold_changes(
    X: sp.csr_array,
    L: FloatArray,
    sizes: FloatArray,
    components: list[int],
    against: str | int,
    n_threads: int,
) -> list[_Change]:
    """Moderated fold changes of these components, with errors from the Fisher information."""
    n_features, n_components = X.shape[0], len(sizes)
    # In proportion to size, so that a feature without counts has the same share in each component.
    pseudo = PSEUDO_COUNT * n_components * sizes / sizes.sum()
    x = moderated_shares(X, L, pseudo, n_threads)
    found = [
        _Change(
            np.empty(n_features),
            np.empty(n_features),
            None if against == "others" else np.empty(n_features, np.int64),
        )
        for _ in components
    ]
    for block, covariance in log_share_covariances(X, L, x, pseudo):
        logs = np.log(x[block])
        variances = np.einsum("jkk->jk", covariance)
        every = np.arange(len(logs))
        for k, change in zip(components, found, strict=True):
            if change.other is None:
                parts = x[block] * _weights_of_others(sizes, k)
                reference = parts.sum(axis=1)
                # Slopes of log x_k − log Σ_l weights_l x_l with respect to the log x.
                slopes = -parts / reference[:, np.newaxis]
                slopes[:, k] = 1.0
                change.value[block] = logs[:, k] - np.log(reference)
                variance = np.einsum("jk,jkl,jl->j", slopes, covariance, slopes)
                change.error[block] = np.sqrt(variance)
                continue
            if against == "nearest":
                other = _hardest_to_distinguish(x[block], covariance, k)
            else:
                other = np.full(len(logs), int(against))
            variance = variances[:, k] + variances[every, other] - 2.0 * covariance[every, k, other]
            change.value[block] = logs[:, k] - logs[every, other]
            change.error[block] = np.sqrt(variance)
            change.other[block] = other
    return found


def _hardest_to_distinguish(x: FloatArray, covariance: FloatArray, k: int) -> npt.NDArray[np.int64]:
    """Find the component l with the smallest (x_k − x_l) / error for each feature.

    Shares are compared, not their logs. The errors of logs are so large near 0 that a component
    without the feature would seem to be near.
    """
    products = covariance[:, k] * x[:, [k]] * x  # covariances of x_k and x_l
    variances = np.einsum("jll->jl", covariance) * x**2
    spread = np.sqrt(np.maximum(variances[:, [k]] + variances - 2.0 * products, 1e-300))
    ratios = (x[:, [k]] - x) / spread
    ratios[:, k] = np.inf
    return np.asarray(np.argmin(ratios, axis=1))


# ---- Poisson regressions -------------------------------------------------------------------------


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
