"""Comparison of components by the shares of features: fold changes and likelihood ratios."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.uncertainty.regressions import (
    log_likelihoods,
    log_share_covariances,
    moderated_shares,
    solved_shares,
)

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

# Counts that are added to every feature and component, on average over the components. They keep
# fold changes finite, and those of small counts small.
PSEUDO_COUNT = 0.5


@dataclass(frozen=True)
class ComparedShares:
    """Arrays of tested components × features, NaN where there is nothing to compare."""

    log2_fold_change: FloatArray
    standard_error: FloatArray
    z: FloatArray
    share: FloatArray
    reference_share: FloatArray
    reference: npt.NDArray[np.int64]  # component; −1 for all others together, or none

    @classmethod
    def of_nothing(cls, shape: tuple[int, int]) -> Self:
        """Return arrays to be filled."""
        change, error, z, share, reference_share = (np.full(shape, np.nan) for _ in range(5))
        return cls(change, error, z, share, reference_share, np.full(shape, -1, np.int64))


def compared_shares(
    counts: sp.csr_array, L: FloatArray, chosen: Array, against: str | int, n_threads: int
) -> ComparedShares:
    """Compare each chosen component with another one, the nearest one, or all others.

    L (n_samples × n_components) holds the expected counts of the components in the samples.
    """
    found = ComparedShares.of_nothing((len(chosen), counts.shape[1]))
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
