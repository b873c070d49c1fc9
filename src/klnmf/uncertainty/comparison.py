"""Comparison of components by the shares of features: fold changes and tests."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from klnmf.support.array_types import Array, FloatArray
from klnmf.uncertainty.effective_score import effective_scores
from klnmf.uncertainty.feature_regressions import Regressions

# Counts that are added to every feature and component, on average over the components. They keep
# fold changes finite, and those of small counts small.
PSEUDO_COUNT = 0.5


@dataclass(frozen=True)
class ComparedShares:
    """Arrays of tested components × features, NaN where there is nothing to compare."""

    log2_fold_change: FloatArray
    standard_error: FloatArray
    z: FloatArray
    p_larger: FloatArray  # probability of a larger z under the hypothesis of equal shares
    p_smaller: FloatArray
    share: FloatArray
    reference_share: FloatArray
    reference: npt.NDArray[np.int64]  # component; −1 for all others together, or none


def compared_shares(
    regressions: Regressions,
    x: FloatArray,
    chosen: Array,
    against: str | int,
    alpha: FloatArray | None,
    groups: Iterable[tuple[Array, Regressions]],
) -> ComparedShares:
    """Compare each chosen component with another one, the nearest one, or all others.

    ``x`` are the shares of each feature, ``alpha`` its dispersion; None tests Poisson counts by the
    likelihood ratio. ``groups`` of features have the regressions in which these are tested.
    """
    shape = len(chosen), len(x)
    empty: list[Any] = [np.full(shape, np.nan) for _ in range(7)]
    found = ComparedShares(*[*empty, np.full(shape, -1, np.int64)])
    used = np.flatnonzero(regressions.sizes > 0.0)
    has_counts = np.diff(regressions.counts.indptr) > 0
    features = np.flatnonzero(has_counts)
    if len(used) < 2 or len(features) == 0 or (against not in ("nearest", "others", *used)):
        return found
    dispersion = np.zeros(len(x)) if alpha is None else alpha
    place = {int(component): k for k, component in enumerate(used)}
    other = against if isinstance(against, str) else place[int(against)]
    rows = [row for row, component in enumerate(chosen) if int(component) in place]
    positions = [place[int(chosen[row])] for row in rows]
    joint = regressions.of_features(features).on(np.ascontiguousarray(regressions.L[:, used]))
    changes = _fold_changes(joint, positions, other, dispersion[features])
    hypotheses = []
    for row, k, change in zip(rows, positions, changes, strict=True):
        found.log2_fold_change[row, features] = change.value / math.log(2.0)
        found.standard_error[row, features] = change.error / math.log(2.0)
        # Weights of the components in the reference of each feature.
        if change.other is None:
            weights = np.tile(_weights_of_others(joint.sizes, k), (len(features), 1))
        else:
            found.reference[row, features] = used[change.other]
            weights = np.eye(len(used))[change.other]
        found.share[row, features] = x[features, used[k]]
        found.reference_share[row, features] = (x[np.ix_(features, used)] * weights).sum(axis=1)
        hypotheses.append((row, k, weights))
    number = np.cumsum(has_counts) - 1  # of a feature among those with counts
    for members, group in groups:
        here = np.flatnonzero(np.diff(group.counts.indptr) > 0)
        at = members[here]
        part = group.of_features(here).on(np.ascontiguousarray(group.L[:, used]))
        best = part.shares() if alpha is None else None
        for row, k, weights in hypotheses:
            for same, of_all in _equal_rows(weights[number[at]]):
                alike = part.of_features(same)
                if best is not None:
                    tested = _likelihood_ratios(alike, best[same], k, of_all)
                else:
                    tested = _effective_scores(alike, k, of_all, dispersion[at[same]])
                arrays = (found.z, found.p_larger, found.p_smaller)
                for array, values in zip(arrays, tested, strict=True):
                    array[row, at[same]] = values
    return found


def _equal_rows(weights: FloatArray) -> Iterator[tuple[Array, FloatArray]]:
    """Yield groups of features with the same reference, and its weights."""
    references, which = np.unique(weights, axis=0, return_inverse=True)
    for number, reference in enumerate(references):
        yield np.flatnonzero(which.ravel() == number), reference


def _weights_of_others(sizes: FloatArray, k: int) -> FloatArray:
    weights = np.where(np.arange(len(sizes)) == k, 0.0, sizes)
    return np.asarray(weights / weights.sum())


# ---- tests of x_k = Σ_l weights_l x_l ------------------------------------------------------------


def _under_hypothesis(regressions: Regressions, k: int, weights: FloatArray) -> Regressions:
    """Return the regressions without component k, whose share follows from the others.

    L x = Σ_{l ≠ k} (L_l + weights_l L_k) x_l is the same problem with one component less.
    """
    L = regressions.L
    return regressions.on(np.delete(L + np.outer(L[:, k], weights), k, axis=1))


def _likelihood_ratios(
    regressions: Regressions, x: FloatArray, k: int, weights: FloatArray
) -> tuple[FloatArray, ...]:
    """Signed root of the likelihood ratio, with its normal probabilities."""
    null = _under_hypothesis(regressions, k, weights)
    ratio = regressions.log_likelihoods(x) - null.log_likelihoods(null.shares())
    z = np.sign(x[:, k] - x @ weights) * np.sqrt(np.maximum(2.0 * ratio, 0.0))
    return z, norm.sf(z), norm.cdf(z)


def _effective_scores(
    regressions: Regressions, k: int, weights: FloatArray, alpha: FloatArray
) -> tuple[FloatArray, ...]:
    """Effective score, with probabilities that allow for its skewness."""
    null = _under_hypothesis(regressions, k, weights)
    shares = null.moderated_shares(_pseudo_counts(null.sizes))
    others = np.delete(weights, k)
    x = np.insert(shares, k, shares @ others, axis=1)
    contrast = np.insert(-others, k, 1.0)
    score = effective_scores(regressions, x, contrast, alpha)
    return score.z, score.upper_tail(), score.lower_tail()


# ---- fold changes --------------------------------------------------------------------------------


@dataclass
class _Change:
    """Difference of log shares of each feature, its error, and the reference component."""

    value: FloatArray
    error: FloatArray
    other: npt.NDArray[np.int64] | None  # None: all others together


def _pseudo_counts(sizes: FloatArray) -> FloatArray:
    """In proportion to size: a feature without counts has the same share in each component."""
    return np.asarray(PSEUDO_COUNT * len(sizes) * sizes / sizes.sum())


def _fold_changes(
    regressions: Regressions, components: list[int], against: str | int, alpha: FloatArray
) -> list[_Change]:
    """Moderated fold changes of these components, with their errors."""
    sizes = regressions.sizes
    n_features = regressions.counts.shape[0]
    pseudo = _pseudo_counts(sizes)
    x = regressions.moderated_shares(pseudo)
    found = [
        _Change(
            np.empty(n_features),
            np.empty(n_features),
            None if against == "others" else np.empty(n_features, np.int64),
        )
        for _ in components
    ]
    for block, covariance in regressions.log_share_covariances(x, pseudo, alpha):
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
