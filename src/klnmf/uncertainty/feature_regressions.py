"""One regression per feature on the amounts of the components in the samples.

With W fixed and scaled so that component k has L_ik counts in sample i, feature j has the rates
L x_j, where x_jk is its share of component k. The features are independent row problems, which the
back-end solves all at once.
"""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.penalties import Penalties
from klnmf.data.sparse_data import InMemoryData
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_W
from klnmf.support.array_types import Array, FloatArray
from klnmf.uncertainty.row_blocks import row_blocks

# The error of the log-likelihood is the square of this, far below 1, where differences matter.
_SOLVE = RowSolve(tolerance=1e-7, rounds=200)


@dataclass(frozen=True)
class Regressions:
    """Poisson regressions with coefficients x ≥ 0: each row of ``counts`` on the columns of L."""

    counts: sp.csr_array  # features × samples
    L: FloatArray  # samples × components
    n_threads: int
    weight: FloatArray | None = None  # of the samples, positive; see `weighted`
    missing: sp.csr_array | None = None  # features × samples; its entries are the missing cells

    def of_samples(self, samples: Array) -> "Regressions":
        """Return the regressions on some of the samples: their numbers, or a mask."""
        return Regressions(
            sp.csr_array(self.counts[:, samples]),
            np.ascontiguousarray(self.L[samples]),
            self.n_threads,
            None if self.weight is None else self.weight[samples],
            None if self.missing is None else sp.csr_array(self.missing[:, samples]),
        )

    def of_features(self, features: Array) -> "Regressions":
        """Return the regressions of some features."""
        missing = None if self.missing is None else self.missing[features]
        return replace(self, counts=self.counts[features], missing=missing)

    def on(self, L: FloatArray) -> "Regressions":
        """Return the regressions of the same counts on other amounts."""
        return replace(self, L=L)

    def weighted(self, by: FloatArray | None = None) -> "Regressions":
        """Return the regressions with their weights times these, as many counts as without weights.

        So only the ratios of weights matter, also beside pseudo-counts.
        """
        given = [weight for weight in (self.weight, by) if weight is not None]
        if not given:
            return self
        weight, amounts = math.prod(given), self.L.sum(axis=1)
        return replace(self, weight=weight * (amounts.sum() / (amounts @ weight)))

    @property
    def sizes(self) -> FloatArray:
        """Expected number of counts of each component, in all samples."""
        return np.asarray(self.L.sum(axis=0))

    def shares(self) -> FloatArray:
        """Maximum likelihood estimates x ≥ 0 of the shares of each feature (a row), in float64."""
        given = Constraints(
            self.counts.shape,
            self.L.shape[1],
            weights=(None, self.weight),
            missing=self.missing,
        )
        return solved_rows_of(self.counts, self.L, given, self.n_threads)

    def moderated_shares(self, pseudo_counts: FloatArray) -> FloatArray:
        """Shares that maximise the log-likelihood plus Σ_k a_k log x_k, so that none is 0.

        The added terms are those of a_k counts in a sample with a tiny amount of component k alone.
        """
        n_features, n_components = self.counts.shape[0], len(pseudo_counts)
        added = sp.csr_array(np.tile(pseudo_counts, (n_features, 1)))
        weight, missing = self.weight, self.missing
        if weight is not None:
            weight = np.concatenate([weight, np.ones(n_components)])
        if missing is not None:
            observed = sp.csr_array((n_features, n_components), dtype=missing.dtype)
            missing = sp.csr_array(sp.hstack([missing, observed]))
        return Regressions(
            sp.csr_array(sp.hstack([self.counts, added])),
            np.vstack([self.L, np.diag(1e-9 * self.sizes)]),
            self.n_threads,
            weight,
            missing,
        ).shares()

    def log_share_covariances(
        self, x: FloatArray, pseudo_counts: FloatArray, alpha: FloatArray
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Yield blocks of features with the covariances (n_features × r × r) of their log x_j.

        The estimating equation of log x_j has the slope A = Σ_i w_i v_i s_i s_iᵀ + diag(a), where
        s_ik = L_ik x_jk / y_i is the part of component k in the rate. With variances y + α y² of
        the counts it has the covariance

            B = Σ_i w_i² v_i s_i s_iᵀ + diag(a) + α diag(x_j) (Σ_i w_i² L_i L_iᵀ) diag(x_j),

        and the covariance of log x_j is A⁻¹ B A⁻¹.
        """
        weight = np.ones(len(self.L)) if self.weight is None else self.weight
        weighted = self.L * weight[:, np.newaxis]
        squares = weighted.T @ weighted
        r = self.L.shape[1]
        for features, counts, feature, parts, y in row_blocks(
            self.counts, x, self.L, has_matrices=True
        ):
            parts *= x[features][feature]
            parts *= (np.sqrt(counts.values, dtype=np.float64) / y)[:, np.newaxis]
            w = weight[counts.indices][:, np.newaxis]
            slope, spread = np.empty((2, counts.n_rows, r, r))
            for j, (begin, end) in enumerate(pairwise(counts.indptr)):
                here = slice(begin, end)
                part = parts[here]
                slope[j] = part.T @ (part * w[here])
                spread[j] = slope[j] if self.weight is None else part.T @ (part * w[here] ** 2)
                observed = squares
                if self.missing is not None:
                    unseen = weighted[self.missing[[features.start + j]].indices]
                    observed = squares - unseen.T @ unseen
                scaled = x[features][j]
                spread[j] += alpha[features][j] * observed * np.outer(scaled, scaled)
            for matrices in (slope, spread):
                matrices += np.diag(pseudo_counts)
            inverse = np.linalg.inv(slope)
            yield features, inverse @ spread @ inverse


def solved_rows_of(
    counts: sp.csr_array, factor: FloatArray, constraints: Constraints, n_threads: int
) -> FloatArray:
    """Maximum likelihood estimates, in float64, of the rows of the other factor."""
    data = InMemoryData(sp.csr_array(counts, dtype=np.float64)).constrained(constraints)
    problem = Problem(make_backend("auto", data, n_threads), Penalties())
    with closing(problem.backend):
        return solved_W(problem, [constraints.in_fit(1, factor)], _SOLVE)
