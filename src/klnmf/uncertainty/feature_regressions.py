"""One regression per feature on the amounts of the components in the samples.

With W fixed and scaled so that component k has L_ik counts in sample i, feature j has the rates
L x_j, where x_jk is its share of component k. The features are independent row problems, which the
back-end solves all at once.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.penalties import Penalties
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.sums import row_ranges
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.support.array_types import Array, FloatArray

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

    def weighted(self, weight: FloatArray | None) -> "Regressions":
        """Return the regressions with these weights, scaled to leave the number of counts as it is.

        So only their ratios matter, also beside pseudo-counts.
        """
        if weight is None:
            return replace(self, weight=None)
        amounts = self.L.sum(axis=1)
        return replace(self, weight=weight * (amounts.sum() / (amounts @ weight)))

    def weighted_also(self, weight: FloatArray) -> "Regressions":
        """Return the regressions with their weights times these."""
        return self.weighted(weight if self.weight is None else self.weight * weight)

    @property
    def sizes(self) -> FloatArray:
        """Expected number of counts of each component, in all samples."""
        return np.asarray(self.L.sum(axis=0))

    def shares(self) -> FloatArray:
        """Maximum likelihood estimates x ≥ 0 of the shares of each feature (a row), in float64."""
        return solved_rows_of(
            self.counts, self.L, self.n_threads, weight=self.weight, missing=self.missing
        )

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

    def log_likelihoods(self, x: FloatArray) -> FloatArray:
        """Σ_i [v_i log y_i − y_i] of each feature, without weights and the constant Σ log v!."""
        observed = self.sizes - (0.0 if self.missing is None else self.missing @ self.L)
        found: FloatArray = -(x * observed).sum(axis=1)
        for block in self.blocks(x):
            size = block.features.stop - block.features.start
            found[block.features] += np.bincount(
                block.feature, weights=block.v * np.log(block.y), minlength=size
            )
        return found

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
        for block in self.blocks(x):
            parts = self.L[block.sample] * x[block.features][block.feature]
            parts *= (np.sqrt(block.v) / block.y)[:, np.newaxis]
            w = weight[block.sample][:, np.newaxis]
            size = block.features.stop - block.features.start
            ends = np.searchsorted(block.feature, np.arange(size + 1))
            slope, spread = np.empty((2, size, self.L.shape[1], self.L.shape[1]))
            for j in range(size):
                here = slice(ends[j], ends[j + 1])
                part = parts[here]
                slope[j] = part.T @ (part * w[here])
                spread[j] = slope[j] if self.weight is None else part.T @ (part * w[here] ** 2)
                observed = squares
                if self.missing is not None:
                    row = block.features.start + j
                    ends_of_row = self.missing.indptr[row : row + 2]
                    unseen = weighted[self.missing.indices[slice(*ends_of_row)]]
                    observed = squares - unseen.T @ unseen
                scaled = x[block.features][j]
                spread[j] += alpha[block.features][j] * observed * np.outer(scaled, scaled)
            for matrices in (slope, spread):
                matrices += np.diag(pseudo_counts)
            inverse = np.linalg.inv(slope)
            yield block.features, inverse @ spread @ inverse

    def blocks(self, x: FloatArray) -> Iterator[Block]:
        """Yield blocks of features small enough for arrays of size nnz × r and m × r × r."""
        n_components = self.L.shape[1]
        n_features = max(1, _ENTRIES_AT_ONCE // n_components**2)
        n_counts = max(1, _ENTRIES_AT_ONCE // n_components)
        for first, last in row_ranges(self.counts.indptr, n_counts):
            for start in range(first, last, n_features):
                features = slice(start, min(start + n_features, last))
                part = self.counts[features]
                feature = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
                y = np.einsum("pk,pk->p", self.L[part.indices], x[features][feature])
                yield Block(features, part.data.astype(np.float64), feature, part.indices, y)


def solved_rows_of(
    counts: sp.csr_array,
    factor: FloatArray,
    n_threads: int,
    *,
    weight: FloatArray | None = None,
    missing: sp.csr_array | None = None,
    fixed: FloatArray | None = None,
    zeros: sp.csr_array | None = None,
) -> FloatArray:
    """Maximum likelihood estimates, in float64, of the rows of the other factor.

    ``weight`` has a number for each column of ``counts``; the last columns of the result may be
    fixed, and some of its entries be zeros.
    """
    constraints = Constraints(
        counts.shape,
        factor.shape[1],
        feature_weight=weight,
        missing=missing,
        fixed=(fixed, None),
        zeros=(zeros, None),
    )
    data = InMemoryData(sp.csr_array(counts, dtype=np.float64)).with_constraints(
        lambda *_: constraints if constraints.names else None
    )
    problem = Problem(make_backend("auto", data, n_threads), Penalties())
    with closing(problem.backend) as backend:
        factors = [None, backend.upload(constraints.in_fit(1, factor))]
        return backend.download(solved_rows(problem, 0, factors, _SOLVE))
