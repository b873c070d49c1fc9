"""`sparse_assignment`: as few components in each sample as its likelihood allows.

Components are taken away from a sample one by one, always the one that costs the least likelihood,
until every further one would cost more than chance explains. docs/maths/assignment.md has the test.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, Unpack, get_args

import numpy as np
import scipy.sparse as sp
from scipy.stats import chi2

from klnmf.constraints.constraints import FitConstraints
from klnmf.data.sums import row_ranges
from klnmf.estimators.base import FactorModel
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.number_checks import checked_fraction
from klnmf.topics.checks import checked_choice
from klnmf.uncertainty.data_of_fit import DataOfFit, check_matrix_model, data_of_any
from klnmf.uncertainty.overdispersion import estimated_dispersion
from klnmf.uncertainty.residual_moments import nonzeros

Noise = Literal["estimated", "poisson"]
# Nonzeros of the row problems that are solved together: a row for each component of a sample.
_NONZEROS_AT_ONCE = 1 << 20
# Relative to its diagonal, what is added to an information matrix so that it has an inverse.
_RIDGE = 1e-9


def sparse_assignment(
    model: FactorModel,
    X: Any,
    *,
    level: float = 0.95,
    noise: Noise = "estimated",
    **constraints: Unpack[FitConstraints],
) -> sp.csr_array:
    """Return W with as few components in each sample as its likelihood allows.

    The most likely W of a sample has small amounts of components that only fit its noise. Here
    components are taken away one by one, always the one that costs the least likelihood, until
    every further one would cost more than chance explains: a likelihood-ratio test of its absence
    with an error rate of (1 − level) / n_components. The other amounts are estimated anew at each
    step, so that the result is the most likely W with these zeros.

    Each test is one-sided (amounts cannot be negative) and allows for counts that vary more than
    Poisson counts. The components are taken as known. With known components, fewer than
    5 % of the samples got more components than they have in every simulation (``level=0.95``); with
    components learned from the same counts more than a quarter did, and 5 to 8 % after two refits
    with these zeros.
    Where a sample has too few counts to tell two components apart, one may stand for the other.
    docs/maths/assignment.md has the test, docs/performance.md the measured rates.

    Models with penalties or feature weights are not supported,
    because they have no likelihood; ``KLNMF.from_components(model.components_)`` has one.

    Parameters
    ----------
    model : KLNMF or MiniBatchKLNMF
        A fitted model, or known components (``KLNMF.from_components``).
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        Counts, of the fit or of other samples.
    level : float, default=0.95
        Level of the tests of a sample together: the probability of no error. Larger values remove
        more.
    noise : {"estimated", "poisson"}, default="estimated"
        The variance of the counts: that of X around the model, see `dispersion`, or that of Poisson
        counts. Use "poisson" if X has too few samples for an estimate.
    **constraints
        ``exposure``, ``missing``, ``fixed_W`` and ``zero_W`` of these samples, as in ``transform``.
        Fixed columns are kept. ``sample_weight``, if the model was fitted to these samples with it,
        is for the estimate of the variance.

    Returns
    -------
    CSR array of shape (n_samples, n_components)
        In the units of ``transform``. Components that were taken away are exactly 0.

    Examples
    --------
    >>> import numpy as np
    >>> from klnmf import KLNMF
    >>> from klnmf.uncertainty import sparse_assignment
    >>> generator = np.random.default_rng(0)
    >>> signatures = generator.dirichlet(np.full(96, 0.2), size=8)
    >>> W = np.zeros((50, 8))
    >>> W[:, :3] = 100.0
    >>> X = generator.poisson(W @ signatures)
    >>> model = KLNMF.from_components(signatures)
    >>> float((model.transform(X) > 0).sum(axis=1).mean())
    4.3
    >>> float((sparse_assignment(model, X) > 0).sum(axis=1).mean())
    3.02
    """
    level = checked_fraction("level", level)
    checked_choice(noise, "noise", get_args(Noise))
    check_matrix_model(model, X, "sparse_assignment")
    if model._penalties().penalised_modes[0] or model.feature_weight_ is not None:
        raise ValueError(
            "sparse_assignment compares likelihoods, which a model with penalties on W or feature "
            "weights does not have. Pass KLNMF.from_components(model.components_) for the plain "
            "likelihood of the same components."
        )
    data = data_of_any(model, X, {**constraints}, "sparse_assignment")
    # Half of the probability is at 0: an amount that would be negative is 0.
    critical = np.full(data.W.shape, chi2.isf(2.0 * (1.0 - level) / data.W.shape[1], 1))
    if noise == "estimated":
        critical *= _variance_factors(data)
    return sp.csr_array(_Elimination(model, data).until(critical))


class _Elimination:
    """Components are taken away from many samples at a time, one per sample and round."""

    def __init__(self, model: FactorModel, data: DataOfFit) -> None:
        self.model = model
        self.constraints = data.constraints
        self.is_fixed = self.constraints.is_frozen(0)
        self.counts, self.H = _explained(data), data.H
        self.W: Array = data.W.copy()
        self.likelihood = self._likelihood(np.arange(len(self.W)), self.W)

    def until(self, critical: FloatArray) -> Array:
        """Return W when taking away any other component k of sample i costs critical[i, k]."""
        left = np.arange(len(self.W))
        while len(left):
            numbers = self._candidates(left).sum(axis=1)
            sizes = numbers * np.maximum(1, np.diff(self.counts.indptr)[left])
            ends = np.concatenate([[0], np.cumsum(sizes)])
            batches = [left[a:b] for a, b in row_ranges(ends, _NONZEROS_AT_ONCE)]
            left = np.concatenate([self._round(batch, critical) for batch in batches])
        return self.W

    def _candidates(self, samples: Array) -> Array:
        """By sample and component, whether it may be taken away; the last one is not."""
        is_there: Array = self.W[samples] > 0.0
        is_last = is_there.sum(axis=1, keepdims=True) <= 1
        return np.asarray(is_there & ~(self.is_fixed | is_last))

    def _round(self, samples: Array, critical: FloatArray) -> Array:
        """Take away one component from each of these samples; return those that lost one."""
        sample, component = np.nonzero(self._candidates(samples))
        rows = samples[sample]
        if not len(rows):
            return rows
        barred = self.W[rows] <= 0.0
        barred[np.arange(len(rows)), component] = True
        barred[:, self.is_fixed] = False
        W = self._solved(rows, barred)
        likelihood = self._likelihood(rows, W)
        cost = 2.0 * (self.likelihood[rows] - likelihood) / critical[rows, component]
        order = np.lexsort((cost, rows))
        cheapest = order[np.diff(rows[order], prepend=-1) > 0]
        taken = cheapest[cost[cheapest] < 1.0]
        self.W[rows[taken]], self.likelihood[rows[taken]] = W[taken], likelihood[taken]
        return rows[taken]

    def _solved(self, rows: Array, barred: Array) -> Array:
        constraints = self.constraints.part(rows).with_sample_weight(None)
        zeros = (sp.csr_array(barred), constraints.zeros[1])
        constraints = replace(constraints, zeros=zeros)
        solved: Array = self.model._solve_W(self.counts[rows], constraints)
        return solved

    def _likelihood(self, rows: Array, W: Array) -> FloatArray:
        """Σ_j x_j log y_j − y_j over the observed cells of each row."""
        constraints = self.constraints.part(rows)
        data = DataOfFit(self.counts[rows], constraints, W, self.H)
        W, H = data.rates
        found = -W @ H.sum(axis=0)
        with np.errstate(divide="ignore"):
            for x, i, _, y in nonzeros(data.counts, W, H):
                found += np.bincount(i, x * np.log(y), minlength=len(found))
        if constraints.missing is not None:
            for _, i, _, y in nonzeros(constraints.missing, W, H):
                found += np.bincount(i, y, minlength=len(found))
        return np.asarray(found)


def _explained(data: DataOfFit) -> sp.csr_array:
    """Return the counts that some component explains; the others have the likelihood 0."""
    rates = np.concatenate([y for *_, y in nonzeros(data.counts, *data.rates)] or [np.zeros(0)])
    counts = data.counts.copy()
    counts.data[rates <= 0.0] = 0.0
    counts.eliminate_zeros()
    return counts


def _variance_factors(data: DataOfFit) -> FloatArray:
    """By sample and component, how much more than for Poisson counts an amount in W varies.

    With information I = Σ_j x_j h_j h_jᵀ / y_j² and J = Σ_j x_j (1 + α_j y_j) h_j h_jᵀ / y_j², its
    variance is that of I⁻¹ J I⁻¹ instead of I⁻¹. It is 1 for components that are not there.
    """
    found = np.ones(data.W.shape)
    excess = estimated_dispersion(data.fitted_rates)
    if excess.is_poisson:
        return found
    W, H = data.rates
    for x, row, column, y in nonzeros(_explained(data), W, H):
        ends = np.flatnonzero(np.diff(row, prepend=-1, append=-1))
        scaled = np.sqrt(x) / y
        inflated = 1.0 + excess.by_feature[column] * y
        for a, b in pairwise(ends):
            there = np.flatnonzero(W[row[a]] > 0.0)
            h = H[np.ix_(column[a:b], there)] * scaled[a:b, np.newaxis] * W[row[a], there]
            information = h.T @ h
            information[np.diag_indices(len(there))] *= 1.0 + _RIDGE
            inverse = np.linalg.pinv(information, hermitian=True)
            variance = np.diag(inverse @ (h.T @ (h * inflated[a:b, np.newaxis])) @ inverse)
            found[row[a], there] = np.maximum(variance / np.diag(inverse), 1.0)
    return found
