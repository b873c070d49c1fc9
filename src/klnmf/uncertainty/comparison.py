"""Comparison of components by the shares of features: fold changes, tests and intervals."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from klnmf.support.array_types import Array, FloatArray
from klnmf.uncertainty.effective_score import effective_scores
from klnmf.uncertainty.feature_regressions import Regressions
from klnmf.uncertainty.sample_amounts import Group

# Counts that are added to every feature and component, on average over the components. They keep
# fold changes finite, and those of small counts small.
PSEUDO_COUNT = 0.5
# A share is above each of the others if every pair says so. The pair that is hardest to distinguish
# by its Wald ratio is tested first, all other pairs where its z is above this (p below 0.25).
_TEST_ALL_PAIRS_ABOVE = 0.67


@dataclass(frozen=True)
class ComparedShares:
    """Arrays of tested components × features, NaN where there is nothing to compare."""

    log2_fold_change: FloatArray  # log₂ of share / reference_share
    standard_error: FloatArray
    z: FloatArray  # standard normal where the shares are equal
    share: FloatArray
    reference_share: FloatArray
    reference: npt.NDArray[np.int64]  # component; −1 for all others together, or none


def compared_shares(
    groups: Iterable[Group],
    alpha: FloatArray | None,
    n_features: int,
    chosen: Array,
    against: str | int,
    references: Array,
) -> ComparedShares:
    """Compare each chosen component with another one, the nearest one, or all others.

    ``references`` are the components that "nearest" and "others" choose from; all components are in
    the regressions. ``alpha`` are the dispersions of the features; None tests Poisson counts by the
    likelihood ratio.
    """
    shape = len(chosen), n_features
    empty: list[Any] = [np.full(shape, np.nan) for _ in range(5)]
    found = ComparedShares(*[*empty, np.full(shape, -1, np.int64)])
    allowed = references if isinstance(against, str) else [against]
    for group in groups:
        used = np.flatnonzero(group.tested.sizes > 0.0)
        place = {int(component): k for k, component in enumerate(used)}
        for features, block in _blocks(group, used, alpha):
            for row, component in enumerate(chosen):
                others = [place[int(k)] for k in allowed if k in place and k != component]
                if int(component) not in place or not others:
                    continue
                one = block.compared(place[int(component)], others, against == "others")
                at = row, features
                found.log2_fold_change[at] = one.change / math.log(2.0)
                found.standard_error[at] = one.error / math.log(2.0)
                found.z[at] = one.z
                found.share[at] = one.share
                found.reference_share[at] = one.reference_share
                if against != "others":
                    found.reference[at] = used[one.weights.argmax(axis=1)]
    return found


def interval(change: FloatArray, error: FloatArray, z: FloatArray, q: float) -> FloatArray:
    """Return the ends of the intervals of fold changes, which exclude 0 exactly if |z| > q.

    An end is at the distance u from the estimate ψ where the test of this fold change would give q.
    Away from 0 that is u = q error. Towards 0, the curve u(z) begins with this slope, too, and runs
    through (|z|, |ψ|): as a cubic where |z| > q, and with the slope ``error`` beyond 0.
    """
    far = q * error
    distance, at_zero = np.abs(change), np.abs(z)
    wald = np.divide(distance, error, out=np.zeros_like(change), where=error > 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # u + c u³ = q error, or u = error (q + c q³): whichever is monotone.
        c = (at_zero - wald) * error / distance**3
        steep = 2.0 / np.sqrt(3.0 * c) * np.sinh(np.arcsinh(1.5 * far * np.sqrt(3.0 * c)) / 3.0)
        flat = error * (q + (wald - at_zero) * (q / np.maximum(at_zero, q)) ** 3)
    near = np.where(at_zero > wald, steep, flat)
    near = np.where(at_zero > q, near, distance + (q - at_zero) * error)
    is_larger = change >= 0.0
    return np.array(
        [change - np.where(is_larger, near, far), change + np.where(is_larger, far, near)]
    )


# ---- features of a group -------------------------------------------------------------------------


class _Comparison(NamedTuple):
    """Of each feature: log fold change with its error, test, shares, weights of the reference."""

    change: FloatArray
    error: FloatArray
    z: FloatArray
    share: FloatArray
    reference_share: FloatArray
    weights: FloatArray


@dataclass(frozen=True)
class _Block:
    """Some features: how they are tested, their moderated shares and covariances of the logs."""

    tested: Regressions
    alpha: FloatArray | None
    x: FloatArray
    covariance: FloatArray
    best: FloatArray | None  # shares of the greatest likelihood, for Poisson counts

    def compared(self, k: int, others: list[int], is_joint: bool) -> _Comparison:
        """Compare component k with all others together, or with the nearest one of them."""
        if is_joint:
            joint = np.zeros(self.x.shape[1])
            joint[others] = self.tested.sizes[others]
            weights = np.tile(joint / joint.sum(), (len(self.x), 1))
            return self._with_changes(k, weights, self._z(k, weights))
        pairs = np.eye(self.x.shape[1])
        nearest = np.array(others)[self._distances(k)[:, others].argmin(axis=1)]
        z = self._z(k, pairs[nearest])
        first = nearest.copy()
        for other in others:
            again = np.flatnonzero((z > _TEST_ALL_PAIRS_ABOVE) & (first != other))
            if len(again) == 0:
                continue
            z_of_pair = self.of_features(again)._z(k, np.tile(pairs[other], (len(again), 1)))
            nearer = z_of_pair < z[again]
            nearest[again[nearer]], z[again[nearer]] = other, z_of_pair[nearer]
        return self._with_changes(k, pairs[nearest], z)

    def of_features(self, features: Array) -> "_Block":
        """Return some of the features."""
        alpha = None if self.alpha is None else self.alpha[features]
        best = None if self.best is None else self.best[features]
        tested = self.tested.of_features(features)
        return _Block(tested, alpha, self.x[features], self.covariance[features], best)

    def _with_changes(self, k: int, weights: FloatArray, z: FloatArray) -> _Comparison:
        """Add the log fold changes, whose slopes in the log x_l are −weights_l x_l / Σ, and 1."""
        parts = self.x * weights
        reference = parts.sum(axis=1)
        slopes = -parts / reference[:, np.newaxis]
        slopes[:, k] = 1.0
        share = self.x[:, k]
        variance = np.einsum("jk,jkl,jl->j", slopes, self.covariance, slopes)
        change = np.log(share / reference)
        return _Comparison(change, np.sqrt(variance), z, share, reference, weights)

    def _distances(self, k: int) -> FloatArray:
        """(x_k − x_l) / error of each feature and component l.

        Shares are compared, not their logs. The errors of logs are so large near 0 that a component
        without the feature would seem to be near.
        """
        x, covariance = self.x, self.covariance
        products = covariance[:, k] * x[:, [k]] * x  # covariances of x_k and x_l
        variances = np.einsum("jll->jl", covariance) * x**2
        spread = np.sqrt(np.maximum(variances[:, [k]] + variances - 2.0 * products, 1e-300))
        return np.asarray((x[:, [k]] - x) / spread)

    def _z(self, k: int, weights: FloatArray) -> FloatArray:
        """Test x_k = Σ_l weights_l x_l for each feature, with its row of weights."""
        z = np.empty(len(weights))
        references, which = np.unique(weights, axis=0, return_inverse=True)
        for number, reference in enumerate(references):
            same = np.flatnonzero(which.ravel() == number)
            alike = self.tested.of_features(same)
            if self.best is not None:
                z[same] = _likelihood_ratios(alike, self.best[same], k, reference)
            elif self.alpha is not None:
                z[same] = _effective_scores(alike, k, reference, self.alpha[same])
        return z


def _blocks(group: Group, used: Array, alpha: FloatArray | None) -> Iterator[tuple[Array, _Block]]:
    """Yield features that have counts, in blocks whose covariances fit into memory."""
    here = np.flatnonzero(np.diff(group.tested.counts.indptr) > 0)
    if len(here) == 0 or len(used) < 2:
        return
    tested, estimated = (
        part.of_features(here).on(np.ascontiguousarray(part.L[:, used]))
        for part in (group.tested, group.estimated)
    )
    features = group.features[here]
    dispersion = None if alpha is None else alpha[features]
    pseudo = _pseudo_counts(estimated.sizes)
    x = estimated.moderated_shares(pseudo)
    noise = np.zeros(len(features)) if dispersion is None else dispersion
    for block, covariance in estimated.log_share_covariances(x, pseudo, noise):
        numbers = np.arange(len(features))[block]
        part = tested.of_features(numbers)
        of_block, best = (None, part.shares()) if dispersion is None else (dispersion[block], None)
        yield features[block], _Block(part, of_block, x[block], covariance, best)


def _pseudo_counts(sizes: FloatArray) -> FloatArray:
    """In proportion to size: a feature without counts has the same share in each component."""
    return np.asarray(PSEUDO_COUNT * len(sizes) * sizes / sizes.sum())


# ---- tests of x_k = Σ_l weights_l x_l ------------------------------------------------------------


def _under_hypothesis(regressions: Regressions, k: int, weights: FloatArray) -> Regressions:
    """Return the regressions without component k, whose share follows from the others.

    L x = Σ_{l ≠ k} (L_l + weights_l L_k) x_l is the same problem with one component less.
    """
    L = regressions.L
    return regressions.on(np.delete(L + np.outer(L[:, k], weights), k, axis=1))


def _likelihood_ratios(
    regressions: Regressions, x: FloatArray, k: int, weights: FloatArray
) -> FloatArray:
    """Signed root of the likelihood ratio; x are the shares of the greatest likelihood."""
    null = _under_hypothesis(regressions, k, weights)
    ratio = regressions.log_likelihoods(x) - null.log_likelihoods(null.shares())
    return np.asarray(np.sign(x[:, k] - x @ weights) * np.sqrt(np.maximum(2.0 * ratio, 0.0)))


def _effective_scores(
    regressions: Regressions, k: int, weights: FloatArray, alpha: FloatArray
) -> FloatArray:
    """Effective score, less its skewness."""
    null = _under_hypothesis(regressions, k, weights)
    shares = null.moderated_shares(_pseudo_counts(null.sizes))
    others = np.delete(weights, k)
    x = np.insert(shares, k, shares @ others, axis=1)
    contrast = np.insert(-others, k, 1.0)
    return effective_scores(regressions, x, contrast, alpha).normal()
