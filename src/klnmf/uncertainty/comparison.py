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


class ComparedShares(NamedTuple):
    """Numbers of each feature, or tables of tested components × features.

    They are NaN where there is nothing to compare.
    """

    log2_fold_change: FloatArray  # log₂ of share / reference_share
    standard_error: FloatArray
    z: FloatArray  # standard normal where the shares are equal
    share: FloatArray
    reference_share: FloatArray
    reference: npt.NDArray[np.int64]  # component; −1 for all others together, or none


def compared_shares(
    groups: Iterable[Group],
    alpha: FloatArray,
    n_features: int,
    chosen: Array,
    against: str | int,
    references: Array,
) -> ComparedShares:
    """Compare each chosen component with another one, the nearest one, or all others.

    ``references`` are the components that "nearest" and "others" choose from; all components are in
    the regressions. ``alpha`` are the dispersions of the features.
    """
    shape = len(chosen), n_features
    numbers: list[Any] = [np.full(shape, np.nan) for _ in range(5)]
    found = ComparedShares(*[*numbers, np.full(shape, -1, np.int64)])
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
                for table, of_row in zip(found, one, strict=True):
                    table[row, features] = of_row
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


@dataclass(frozen=True)
class _Block:
    """Some features: how they are tested, their moderated shares and covariances of the logs."""

    components: Array  # that are not empty: their numbers in the model
    tested: Regressions
    alpha: FloatArray
    x: FloatArray
    covariance: FloatArray

    def compared(self, k: int, others: list[int], is_joint: bool) -> ComparedShares:
        """Compare component k with all others together, or with the nearest one of them."""
        if is_joint:
            weights = np.zeros(self.x.shape[1])
            weights[others] = self.tested.sizes[others] / self.tested.sizes[others].sum()
            z = self._z(k, weights, np.arange(len(self.x)))
            reference = np.full(len(self.x), -1)
        else:
            nearest, z = self._nearest(k, others)
            weights, reference = np.eye(self.x.shape[1])[nearest], self.components[nearest]
        share, parts = self.x[:, k], self.x * weights
        reference_share = parts.sum(axis=1)
        # The slopes of the log fold change in the log x_l are −weights_l x_l / Σ, and 1.
        slopes = -parts / reference_share[:, np.newaxis]
        slopes[:, k] = 1.0
        variance = np.einsum("jk,jkl,jl->j", slopes, self.covariance, slopes)
        change, error = np.log(share / reference_share), np.sqrt(variance)
        log_2 = math.log(2.0)
        return ComparedShares(change / log_2, error / log_2, z, share, reference_share, reference)

    def _nearest(self, k: int, others: list[int]) -> tuple[Array, FloatArray]:
        """Of each feature, the component that is hardest to tell from k, and the test."""
        first = np.array(others)[self._distances(k)[:, others].argmin(axis=1)]
        nearest, z, pairs = first.copy(), np.empty(len(first)), np.eye(self.x.shape[1])
        for other in np.unique(first):
            z[first == other] = self._z(k, pairs[other], np.flatnonzero(first == other))
        for other in others:
            again = np.flatnonzero((z > _TEST_ALL_PAIRS_ABOVE) & (first != other))
            if len(again):
                z_of_pair = self._z(k, pairs[other], again)
                nearer = z_of_pair < z[again]
                nearest[again[nearer]], z[again[nearer]] = other, z_of_pair[nearer]
        return nearest, z

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

    def _z(self, k: int, weights: FloatArray, features: Array) -> FloatArray:
        """Effective score of x_k = Σ_l weights_l x_l for some features, less its skewness.

        Under this hypothesis L x = Σ_{l ≠ k} (L_l + weights_l L_k) x_l is the same problem with one
        component less.
        """
        tested = self.tested.of_features(features)
        null = tested.on(np.delete(tested.L + np.outer(tested.L[:, k], weights), k, axis=1))
        shares = null.moderated_shares(_pseudo_counts(null.sizes))
        others = np.delete(weights, k)
        x = np.insert(shares, k, shares @ others, axis=1)
        contrast = np.insert(-others, k, 1.0)
        return effective_scores(tested, x, contrast, self.alpha[features]).normal()


def _blocks(group: Group, used: Array, alpha: FloatArray) -> Iterator[tuple[Array, _Block]]:
    """Yield features that have counts, in blocks whose covariances fit into memory."""
    here = np.flatnonzero(np.diff(group.tested.counts.indptr) > 0)
    if len(here) == 0 or len(used) < 2:
        return
    tested, estimated = (
        part.of_features(here).on(np.ascontiguousarray(part.L[:, used]))
        for part in (group.tested, group.estimated)
    )
    features = group.features[here]
    pseudo = _pseudo_counts(estimated.sizes)
    x = estimated.moderated_shares(pseudo)
    for block, covariance in estimated.log_share_covariances(x, pseudo, alpha[features]):
        part = tested.of_features(np.arange(len(features))[block])
        yield features[block], _Block(used, part, alpha[features[block]], x[block], covariance)


def _pseudo_counts(sizes: FloatArray) -> FloatArray:
    """In proportion to size: a feature without counts has the same share in each component."""
    return np.asarray(PSEUDO_COUNT * len(sizes) * sizes / sizes.sum())
