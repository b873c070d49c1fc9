"""The score of a model on new samples: each feature is predicted from the others.

The features are dealt into groups at random. For each group, W is solved for from the features of
the other groups, with the components fixed, and says which counts to expect in the group. So every
cell is predicted once, by a W that has not seen it. This is bi-cross-validation (Owen and Perry
2009) with H from the samples of the fit. Where the noise of a sample's features is independent,
nothing else is assumed about it: components that fit noise predict worse, also if the counts vary
more than Poisson counts. (Both halves of a count that is split in two would share that excess.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from klnmf.constraints.constraints import Constraints
from klnmf.data.canonical import row_numbers
from klnmf.data.cell_weights import without_cells
from klnmf.data.sums import ROWS_PER_SUM
from klnmf.support.array_types import Array, FloatArray

if TYPE_CHECKING:
    from klnmf.data.on_disk.matrix import OnDiskMatrix
    from klnmf.estimators.base import FactorModel

N_GROUPS = 5
# All models are scored with the same groups.
GROUPS_SEED = 0
# Shares ε of a sample's rate that follow the margins of the fit; the best one is taken. Not nearer
# to 1, where all models would be nearly equal to the one with one component.
BACKGROUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7)


class Likelihood(NamedTuple):
    """How likely new samples are, each feature predicted from those of the other groups."""

    per_sample: float  # weighted mean Poisson log-likelihood of a sample
    log_shares: float  # Σ w_i v_j X_ij log p_ij, with p_ij the share of feature j in a sample
    background: float  # ε, the share of the margins in the rates
    n_features: int  # features with a weight above 0
    n_counts: float  # Σ w_i v_j X_ij


def held_out_likelihood(
    model: FactorModel, blocks: Iterable[sp.csr_array], constraints: Constraints
) -> Likelihood:
    """Predict each group of features from the others; return how likely their counts are.

    The rates are μ_ij = (1 − ε) y_ij + ε (t_i + 1) q_j, with y_i = e_i W_i Hᵀ for the W of the
    group of j, t_i = Σ_j y_ij, and the shares q of the features in the fit, with one count added to
    each. A maximum likelihood fit has rates of 0 for what it has not seen, and any fixed ε would
    decide between ranks, because larger models need a larger one. So ε is the one of nine values
    with the highest likelihood, for each model.

    ``blocks`` are the samples in order, in blocks of multiples of 4096 rows, with 0 in missing
    cells; only one of them is in memory at a time.
    """
    if model.backend == "dask":  # a cluster is not worth it
        model = copy.copy(model)
        model.backend = "cpu"
    prediction = _Prediction(model, constraints)
    sums, start = _Sums(np.zeros(len(BACKGROUNDS)), np.zeros(len(BACKGROUNDS)), 0.0, 0.0), 0
    for block in blocks:
        for first in range(0, block.shape[0], ROWS_PER_SUM):
            counts = block[first : first + ROWS_PER_SUM]
            rows = np.arange(start, start + counts.shape[0])
            start += counts.shape[0]
            sums = sums.plus(prediction.of_rows(counts, rows))
    best = int(np.argmax(sums.log_likelihoods))
    weight = constraints.sample_weight
    n_samples = start if weight is None else float(weight.sum())
    return Likelihood(
        float((sums.log_likelihoods[best] - sums.constant) / n_samples),
        float(sums.log_shares[best]),
        BACKGROUNDS[best],
        prediction.n_features,
        sums.n_counts,
    )


class _Sums(NamedTuple):
    """Sums over some samples; arrays have an entry for each background."""

    log_likelihoods: FloatArray  # Σ w_i v_j [X_ij log μ_ij − μ_ij]
    log_shares: FloatArray  # Σ w_i v_j X_ij log(μ_ij / Σ_j μ_ij), all of them by the W of one group
    constant: float  # Σ w_i v_j log Γ(X_ij + 1)
    n_counts: float

    def plus(self, more: _Sums) -> _Sums:
        """Return the sums with those over other samples added."""
        return _Sums(
            self.log_likelihoods + more.log_likelihoods,
            self.log_shares + more.log_shares,
            self.constant + more.constant,
            self.n_counts + more.n_counts,
        )


class _Prediction:
    """A model, and the groups of features that it predicts."""

    def __init__(self, model: FactorModel, constraints: Constraints) -> None:
        self._model, self._constraints = model, constraints
        self._H = model._H()
        self._H64 = self._H.astype(np.float64)
        m = len(self._H)
        weights = constraints.feature_weight
        self._weights = np.ones(m) if weights is None else weights
        self._is_counted = (self._weights > 0).astype(np.float64)
        self.n_features = int(self._is_counted.sum())
        self._groups = np.random.default_rng(GROUPS_SEED).permutation(m) % N_GROUPS
        self._groups[self._is_counted == 0] = -1
        margins = (expected_margins(model) + 1.0) * self._is_counted
        self._shares = margins / margins.sum()

    def of_rows(self, X: sp.csr_array, rows: Array) -> _Sums:
        """Return the sums over some samples."""
        constraints = self._constraints.of_rows(rows)
        missing = constraints.missing
        n, every = len(rows), self._constraints.sample_weight
        sample_weights = np.ones(n) if every is None else every[rows]
        kept = self._is_counted[X.indices] > 0
        of_row, columns = row_numbers(X.indptr)[kept], X.indices[kept]
        x = X.data[kept].astype(np.float64)
        # Of each count: what the model and the background expect there, and in the whole sample.
        expected, in_sample = np.zeros((2, len(x))), np.zeros((2, len(x)))
        hidden_masses = np.zeros((2, n))  # Σ_j v_j μ_ij, of the model and of the background
        sums = np.einsum("j,jk->k", self._is_counted, self._H64)
        for group in range(N_GROUPS):
            hidden = self._groups == group
            if not hidden.any():
                continue
            visible = np.where(hidden, 0.0, self._weights)
            known = replace(constraints, feature_weight=visible)
            W = self._model._solve_W(X, self._H, known).astype(np.float64)
            if constraints.exposure is not None:
                W *= constraints.exposure[:, None]
            totals = np.einsum("ik,k->i", W, sums) + 1.0
            inside = hidden[columns]
            its_rows, its_columns = of_row[inside], columns[inside]
            expected[0, inside] = products(W, self._H64, its_rows, its_columns)
            expected[1, inside] = totals[its_rows] * self._shares[its_columns]
            in_sample[:, inside] = self._masses(W, totals, self._is_counted, missing)[:, its_rows]
            hidden_masses += self._masses(W, totals, hidden * self._weights, missing)
        weights = sample_weights[of_row] * self._weights[columns]
        log_likelihoods, log_shares = np.zeros((2, len(BACKGROUNDS)))
        for number, share in enumerate(BACKGROUNDS):
            mixture = np.array([1.0 - share, share])
            log_rates = np.log(np.einsum("s,sp->p", mixture, expected))
            log_totals = np.log(np.einsum("s,sp->p", mixture, in_sample))
            masses = np.einsum("s,si,i->", mixture, hidden_masses, sample_weights)
            log_likelihoods[number] = np.sum(weights * x * log_rates) - masses
            log_shares[number] = np.sum(weights * x * (log_rates - log_totals))
        constant = float(np.sum(weights * gammaln(x + 1.0)))
        return _Sums(log_likelihoods, log_shares, constant, float(np.sum(weights * x)))

    def _masses(
        self, W: Array, totals: Array, weights: Array, missing: sp.csr_array | None
    ) -> FloatArray:
        """Σ_j weights_j y_ij and Σ_j weights_j (t_i + 1) q_j, over cells that are not missing."""
        of_model = np.einsum("ik,k->i", W, np.einsum("j,jk->k", weights, self._H64))
        of_shares = np.full(len(W), float(np.sum(weights * self._shares)))
        if missing is not None:
            cells = missing.astype(np.float64)
            of_model -= np.einsum("ik,ik->i", W, cells @ (self._H64 * weights[:, None]))
            of_shares -= cells @ (self._shares * weights)
        return np.maximum([of_model, totals * of_shares], 0.0)


def expected_margins(model: FactorModel) -> FloatArray:
    """Return the expected counts of each feature in the data of the fit: Σ_i w_i e_i (W Hᵀ)_ij.

    At the optimum of a fit without penalties or missing cells they are the sums of the columns of
    X. A model that was made from components alone has every component in equal parts, and one
    count for each feature on average.
    """
    H = model._H().astype(np.float64)
    sums = model.W_sums_
    if sums is None:
        lengths = H.sum(axis=0)
        sums = len(H) / (H.shape[1] * np.where(lengths > 0, lengths, np.inf))
    return np.asarray(np.einsum("jk,k->j", H, sums))


def products(W: Array, H: Array, rows: Array, columns: Array) -> FloatArray:
    """(W Hᵀ)_ij at some cells, in float64; nothing of size cells × r."""
    y = np.zeros(len(rows))
    for w, h in zip(W.T.astype(np.float64), H.T.astype(np.float64), strict=True):
        y += w[rows] * h[columns]
    return y


def observed_blocks(X: OnDiskMatrix, missing: sp.csr_array | None) -> Iterator[sp.csr_array]:
    """Blocks of rows of a matrix on disk, with 0 in the missing cells."""
    start = 0
    for block in X.row_blocks():
        stop = start + block.shape[0]
        yield block if missing is None else without_cells(block, missing[start:stop])
        start = stop
