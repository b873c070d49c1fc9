"""Amounts L of the components in the samples: on what the counts of a feature are regressed.

L is W, scaled to counts. With fitted W and counts that may vary more than Poisson counts, two
things keep the noise of a feature out of the W with which it is tested:

- W and the shares x are estimated once more, with the weights 1 / (1 + α y) of a variance of
  y + α y²: without them the noise of the largest rates decides. The back-end has weights of rows
  and columns, so y is the typical rate of the feature (for W) or of the sample (for x).
- The features are dealt out to groups, and each group is tested with the W that the features of the
  *other* groups give.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.constraints import Constraints
from klnmf.support.array_types import Array, FloatArray
from klnmf.uncertainty.data_of_fit import DataOfFit
from klnmf.uncertainty.feature_regressions import Regressions, solved_rows_of
from klnmf.uncertainty.overdispersion import Dispersion, estimated_dispersion, typical_rates
from klnmf.uncertainty.residual_moments import FittedRates

N_GROUPS = 10


class Group(NamedTuple):
    """Some features, and the regressions in which they are tested and their shares estimated.

    Tests weigh the cells of each feature by their variances; estimates have weights of the samples.
    Estimates come from the W of all features: one without the feature is less exact, which would
    draw the shares of the components together.
    """

    features: Array
    tested: Regressions
    estimated: Regressions


class Amounts(NamedTuple):
    """Groups of features with the amounts of the components for each."""

    dispersion: Dispersion
    groups: Iterable[Group]


def regressions_on(
    L: FloatArray, counts: sp.csr_array, constraints: Constraints, n_threads: int
) -> Regressions:
    """Regressions of the columns of the counts (samples × features) on amounts in the samples."""
    missing = constraints.missing
    return Regressions(
        sp.csr_array(counts.T),
        L,
        n_threads,
        constraints.sample_weight,
        None if missing is None else sp.csr_array(missing.T),
    )


def given_amounts(regressions: Regressions) -> Amounts:
    """Take the amounts as known."""
    regressions = _of_informative_samples(regressions).weighted()
    everything = np.arange(regressions.counts.shape[0])
    x = regressions.shares()
    variation = _dispersion(regressions, x, np.zeros(x.shape[1], dtype=bool))
    of_samples = _inverse_variances(variation, regressions.L, x)[0]
    estimated = regressions.weighted(of_samples)
    return Amounts(variation, [Group(everything, regressions, estimated)])


def fitted_amounts(fit: DataOfFit, n_threads: int) -> Amounts:
    """Estimate the amounts from the counts, given the components."""
    W, H = fit.rates
    shares, sizes = _normalised(H)
    constraints = fit.constraints
    regressions = regressions_on(W * sizes, fit.counts, constraints, n_threads)
    used = np.flatnonzero(_is_informative(regressions))
    regressions = regressions.of_samples(used).weighted()
    rows = _RowsOfW(fit.counts[used], constraints.part(used), n_threads)
    L = regressions.L

    first, x = _scaled(regressions)
    is_free = ~constraints.is_frozen(0)
    variation = _dispersion(first, x, is_free, constraints.feature_weight)
    of_samples, of_features = _inverse_variances(variation, first.L, x)
    L = rows.solved(shares, of_features, L)
    second, x = _scaled(regressions.on(L).weighted(of_samples))
    variation = _dispersion(second, x, is_free, rows.weights(of_features))
    # What is known of the components is in those of the model, not in x.
    known = {"fixed_components", "zero_components"}.intersection(constraints.names)
    pair = (shares, L) if known else (x, second.L)
    of_features = _inverse_variances(variation, second.L, x)[1]
    return Amounts(variation, rows.groups(regressions, *pair, of_features, second))


def _dispersion(
    regressions: Regressions,
    x: FloatArray,
    is_free: Array,
    feature_weight: FloatArray | None = None,
) -> Dispersion:
    """Dispersion around the shares x, where the amounts of some components were estimated."""
    missing = regressions.missing
    fit = FittedRates(
        sp.csr_array(regressions.counts.T),
        regressions.L,
        x,
        weights=(regressions.weight, feature_weight),
        is_free=(is_free, None),
        missing=None if missing is None else sp.csr_array(missing.T),
    )
    return estimated_dispersion(fit)


def _is_informative(regressions: Regressions) -> Array:
    """Find samples with components and weight; others say nothing about the shares."""
    positive = regressions.L.sum(axis=1) > 0.0
    if regressions.weight is not None:
        positive &= regressions.weight > 0.0
    return np.asarray(positive)


def _of_informative_samples(regressions: Regressions) -> Regressions:
    informative = _is_informative(regressions)
    return regressions if informative.all() else regressions.of_samples(informative)


def _scaled(regressions: Regressions) -> tuple[Regressions, FloatArray]:
    """Scale the amounts so that the shares of each component sum to 1; return these too."""
    x, sums = _normalised(regressions.shares())
    return regressions.on(regressions.L * sums), x


def _normalised(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Shares that sum to 1 in each component, and the sums that they had."""
    sums = x.sum(axis=0)
    return x / np.where(sums > 0.0, sums, 1.0), sums


def _inverse_variances(
    variation: Dispersion, L: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weights 1 / (1 + α y) of the samples and of the features, for their typical rates y."""
    of_samples, of_features = typical_rates(L, x)
    return (
        1.0 / (1.0 + variation.common * of_samples),
        1.0 / (1.0 + variation.by_feature * of_features),
    )


@dataclass(frozen=True)
class _RowsOfW:
    """The row problems of W, with the constraints of the fit."""

    counts: sp.csr_array  # samples × features
    constraints: Constraints
    n_threads: int

    def weights(self, of_features: FloatArray) -> FloatArray:
        given = self.constraints.feature_weight
        return of_features if given is None else of_features * given

    def solved(self, x: FloatArray, of_features: FloatArray, L: FloatArray) -> FloatArray:
        """Amounts for shares x; columns that were fixed in the fit stay as in L."""
        is_fixed = self.constraints.is_frozen(0)
        given = Constraints(
            self.counts.shape,
            x.shape[1],
            weights=(None, self.weights(of_features)),
            missing=self.constraints.missing,
            fixed=(np.ascontiguousarray(L[:, is_fixed]) if is_fixed.any() else None, None),
            zeros=(self.constraints.zeros[0], None),
        )
        return solved_rows_of(self.counts, x, given, self.n_threads)

    def groups(
        self,
        regressions: Regressions,
        x: FloatArray,
        L: FloatArray,
        of_features: FloatArray,
        estimated: Regressions,
    ) -> Iterator[Group]:
        """Yield features, dealt out by their counts, with regressions on the W of all others."""
        order = np.argsort(self.counts.sum(axis=0), kind="stable")
        n_groups = min(N_GROUPS, len(order))
        for first in range(n_groups):
            members = np.sort(order[first::n_groups])
            of_others = of_features.copy()
            of_others[members] = 0.0
            tested = regressions.of_features(members).on(self.solved(x, of_others, L))
            yield Group(members, _of_informative_samples(tested), estimated.of_features(members))
