"""The held-out prediction of counts, by which `score` and `select_rank` compare models.

The features are dealt into groups at random. For each group, W is solved for from the features of
the other groups, with H fixed, and says which counts to expect in the group. H is from other
samples, so every cell is predicted once, from data that do not include it, neither a part of its
count nor its noise. This is bi-cross-validation (Owen and Perry 2009; docs/maths/held_out.md).
Nothing is assumed about the noise except that cells are independent given the rates: components
that fit noise predict worse, also if counts vary more than Poisson counts.

A maximum likelihood fit has rates of 0 for features that it has not seen, and a count there would
have an infinite deviance. So a share ε of each sample's rate is spread over the features in
proportion to the data of the fit, whose column sums are M,

    μ_ij = (1 − ε) y_ij + (ε t_i + ε₀ u) q_j,    t_i = Σ_j y_ij,
    q_j = (M_j + u) / Σ_l (M_l + u),

with u the median of the nonzeros, 1 for sparse counts: another unit of the counts changes nothing.
ε₀ = 0.001 is for samples of which nothing is known (t_i = 0): it costs them the same under all
models.

Any fixed ε would influence the choice of the rank: larger models need a larger ε, especially if
there are few counts, because ε also takes W of a sample, which few counts determine badly, towards
the mean of all samples. So ε is chosen for each model by the held-out deviance itself. It is at
most 0.7: near 1, all models would be nearly equal to the one with one component, and chance
differences would count as gains.

Of a tensor the features are the rows of the second mode, and all of the other modes are in every
group: y_i is predicted for each cell (j, l, ...), and q is the product of the shares of its modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy

from klnmf.constraints.constraints import Constraints
from klnmf.data.canonical import row_numbers
from klnmf.data.sparse_data import CountData, at_cells
from klnmf.data.sums import ROWS_PER_SUM
from klnmf.data.tensor_data import rows_in_memory
from klnmf.estimators.checked_counts import ConstrainedCounts
from klnmf.solvers.row_solve import RowSolve, row_solve_of, solved_W
from klnmf.support.array_types import Array, FloatArray

if TYPE_CHECKING:
    from klnmf.estimators.base import FactorModel

# More groups leave more of a sample to solve for its W, and take more time.
FEATURE_GROUPS = 10
# `score` has the same groups for all models.
GROUPS_OF_SCORES = 0
BACKGROUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7)
UNKNOWN = 0.001  # ε₀
# Samples from whose nonzeros the unit is taken.
SAMPLES_FOR_UNIT = 4096
# Sum of a component, in units of the smallest float, below which W could overflow.
VANISHED = 1e8


def groups_of_features(n_features: int, seed: int) -> list[Array]:
    """Draw the groups of features; their sizes differ by 1 at most."""
    generator = np.random.default_rng([seed, 2])
    numbers = generator.permutation(np.arange(n_features) % FEATURE_GROUPS)
    return [np.flatnonzero(numbers == g) for g in range(min(FEATURE_GROUPS, n_features))]


def unit_of(counts: ConstrainedCounts) -> float:
    """Return u: one count, or what comes closest to it in other data."""
    first = counts.equally_weighted.part(np.arange(min(counts.X.shape[0], SAMPLES_FOR_UNIT)))
    values = first.data.view(0).whole().values
    return float(np.median(values)) if len(values) else 1.0


def feature_shares(margins: Array, unit: float) -> FloatArray:
    """Return q, the share of each feature in the data of the fit, with one unit added to each."""
    return np.asarray((margins + unit) / (margins.sum() + unit * len(margins)))


class Predicted(NamedTuple):
    """Held-out predictions of all cells of some samples, as deviances of their counts."""

    deviances: FloatArray  # 2 Σ_j [x_ij log(x_ij / μ_ij) − x_ij + μ_ij], by background and sample
    masses: FloatArray  # Σ_j μ_ij, by background and sample
    log_totals: FloatArray  # by sample Σ_j x_ij log Σ_l μ_il, all of them by the W of j's group


@dataclass(frozen=True)
class Predictor:
    """A model that predicts groups of features of new samples from the others.

    The factors, and all counts, are in the units of a fit: weighted by feature.
    """

    others: list[Array]  # H, and the factors of the modes after it
    shares: list[FloatArray]  # q, by mode
    unit: float  # u
    groups: list[Array]
    backgrounds: Sequence[float]  # ε
    row_solve: RowSolve
    n_threads: int | None
    backend: str = "auto"

    def predicted(self, counts: ConstrainedCounts) -> Predicted:
        """Predict the counts of samples; weights of samples are not looked at."""
        counts, n = counts.equally_weighted, counts.X.shape[0]
        deviances, masses = np.zeros((2, len(self.backgrounds), n))
        log_totals = np.zeros(n)
        for features in self.groups:
            W = self.W_without(counts, features).astype(np.float64)
            cells = HeldOutCells.of(counts.of_features(features).data)
            totals = _total_rates(W, self.others)
            of_group = self._of_group(cells, W, totals, features)
            deviances += of_group[0]
            masses += of_group[1]
            sums = np.bincount(cells.rows, weights=cells.x, minlength=n)
            log_totals += sums * np.log(totals + UNKNOWN * self.unit)
        return Predicted(deviances, masses, log_totals)

    def W_without(self, counts: ConstrainedCounts, features: Array) -> Array:  # noqa: N802
        """W of samples from the other features."""
        H, *rest = self.others
        r = H.shape[1]
        others = np.setdiff1d(np.arange(len(H)), features, assume_unique=True)
        if not len(others):
            return np.zeros((counts.X.shape[0], r))
        problem = counts.of_features(others).problem(r, self.n_threads, self.backend)
        known = np.ascontiguousarray(H[others])
        # Of a component that has all but vanished from these features, any amount may be in a
        # sample: none is.
        vanished = VANISHED * np.finfo(known.dtype).tiny
        known[:, known.sum(axis=0, dtype=np.float64) < vanished] = 0
        return solved_W(problem, [known, *rest], self.row_solve)

    def _of_group(
        self, cells: HeldOutCells, W: FloatArray, totals: FloatArray, features: Array
    ) -> tuple[FloatArray, FloatArray]:
        """Deviances and masses of the cells of some features, by background and sample."""
        x, rows, columns, missing = cells
        others = [self.others[0][features], *self.others[1:]]
        of_features = self.shares[0][features]
        H, q = np.concatenate(others), np.concatenate([of_features, *self.shares[1:]])
        q_seen, q_missing = at_cells(q, columns), at_cells(q, missing[1])
        y, y_missing = rates_of_cells(W, H, rows, columns), rates_of_cells(W, H, *missing)
        of_group = _total_rates(W, others)
        deviances, masses = np.empty((2, len(self.backgrounds), len(W)))
        for deviance, mass, background in zip(deviances, masses, self.backgrounds, strict=True):
            spread = background * totals + UNKNOWN * self.unit
            mu = (1.0 - background) * y + spread[rows] * q_seen
            mass[:] = (1.0 - background) * of_group + spread * of_features.sum()
            if len(y_missing):
                unseen = (1.0 - background) * y_missing + spread[missing[0]] * q_missing
                mass -= np.bincount(missing[0], weights=unseen, minlength=len(W))
            deviance[:] = np.bincount(rows, weights=xlogy(x, x / mu) - x, minlength=len(W))
            deviance += mass
        return 2.0 * deviances, masses


class HeldOutCells(NamedTuple):
    """All cells of some samples and features, except for missing ones."""

    x: FloatArray  # the nonzeros, and
    rows: Array  # where they are
    columns: Array
    missing: tuple[Array, Array]  # rows and columns of the missing cells

    @classmethod
    def of(cls, data: CountData) -> HeldOutCells:
        """Return the cells of data as a fit sees them."""
        view = data.view(0).whole()
        constraints = view.row_constraints
        pattern = None if constraints is None else constraints.missing
        none = np.zeros(0, dtype=np.int64)
        missing = (
            (none, none) if pattern is None else (row_numbers(pattern.starts), pattern.columns)
        )
        return cls(view.values.astype(np.float64), row_numbers(view.indptr), view.indices, missing)


def rates_of_cells(W: Array, H: Array, rows: Array, columns: Array) -> FloatArray:
    """(W Hᵀ)_ij at some cells, in float64; nothing of size cells × r.

    Of a tensor, H are the factors of all modes but the first, one below the other.
    """
    y = np.zeros(len(rows))
    for w, h in zip(W.T.astype(np.float64), H.T.astype(np.float64), strict=True):
        y += w[rows] * at_cells(h, columns)
    return y


def _total_rates(W: FloatArray, others: list[Array]) -> FloatArray:
    """Σ_j (W Hᵀ)_ij; not by BLAS, whose threads sum in varying order."""
    sums = np.prod([H.sum(axis=0, dtype=np.float64) for H in others], axis=0)
    return np.asarray(np.einsum("ik,k->i", W, sums))


# ---- the score of a model ------------------------------------------------------------------------


class Likelihood(NamedTuple):
    """How likely new samples are, each feature predicted from those of the other groups."""

    per_sample: float  # weighted mean Poisson log-likelihood of a sample
    log_shares: float  # Σ w_i v_j X_ij log p_ij, with p_ij the share of feature j in a sample
    background: float  # ε
    n_features: int  # features with a weight above 0
    n_counts: float  # Σ w_i v_j X_ij


def held_out_likelihood(
    model: FactorModel, data: CountData, known: Constraints, backend: str
) -> Likelihood:
    """Predict each group of features from the others; return how likely their counts are.

    The constraints are those of ``transform`` with weights of the samples. One block of rows is in
    memory at a time.
    """
    n, m = data.shape[:2]
    v = np.ones(m) if known.feature_weight is None else known.feature_weight
    counted = np.flatnonzero(v)
    others = [known.in_fit(mode, factor) for mode, factor in enumerate(model._others(), 1)]
    others[0] = others[0][counted]
    of_rest = [
        np.ones(len(factor)) if weights is None else weights
        for weights, factor in zip(known.weights[2:], others[1:], strict=True)
    ]
    of_columns = np.concatenate([v[counted], *of_rest])

    def samples(first: int, n_rows: int) -> ConstrainedCounts:
        rows = np.arange(first, min(first + n_rows, n))
        X = rows_in_memory(data, rows)
        block = ConstrainedCounts(X, known.part(rows), model._penalties())
        return block if len(counted) == m else block.of_features(counted)

    unit = unit_of(samples(0, SAMPLES_FOR_UNIT))
    margins = expected_margins(others, model.W_sums_, unit)
    predictor = Predictor(
        others,
        [feature_shares(of_mode, unit) for of_mode in margins],
        unit,
        groups_of_features(len(counted), GROUPS_OF_SCORES),
        BACKGROUNDS,
        row_solve_of(model.tol),
        model.n_threads,
        backend,
    )
    deviances, log_rates = np.zeros((2, len(BACKGROUNDS)))
    constant = log_totals = n_counts = n_samples = 0.0
    n_rows = max(ROWS_PER_SUM, m // 8)  # every block takes some passes over H
    for first in range(0, n, n_rows):
        block = samples(first, n_rows)
        w, found = block.sample_weights, predictor.predicted(block)
        x, rows, columns, _ = HeldOutCells.of(block.equally_weighted.data)
        weights = at_cells(of_columns, columns)
        of_counts = x / weights
        # Σ_j x log μ = Σ_j (x log x − x) + Σ_j μ − deviance / 2, in the units of a fit.
        saturated = np.bincount(rows, weights=xlogy(x, x) - x, minlength=len(w))
        log_rates += np.sum(w * (saturated + found.masses - found.deviances / 2), axis=1)
        deviances += np.sum(w * found.deviances, axis=1)
        log_totals += float(np.sum(w * found.log_totals))
        # In the units of the counts, log-likelihood = Σ_j v_j [x log x − x − log Γ(x + 1)] −
        # deviance / 2.
        best_possible = xlogy(of_counts, of_counts) - of_counts - gammaln(of_counts + 1.0)
        constant += float(np.sum(w[rows] * weights * best_possible))
        n_counts += float(np.sum(w[rows] * x))
        n_samples += float(w.sum())
    best = int(np.argmin(deviances))
    return Likelihood(
        float((constant - deviances[best] / 2) / n_samples),
        float(log_rates[best] - log_totals),
        BACKGROUNDS[best],
        len(counted),
        n_counts,
    )


def expected_margins(
    others: list[Array], W_sums: Array | None, unit: float = 1.0
) -> list[FloatArray]:
    """Return the expected counts of each feature in the data of the fit: Σ_i w_i e_i (W Hᵀ)_ij.

    They are by mode, the first one left out. At the optimum of a fit without penalties or missing
    cells they are the sums of the columns of X. A model that was made from components alone has
    every component in equal parts, and one unit for each feature on average.
    """
    wide = [factor.astype(np.float64) for factor in others]
    lengths = [factor.sum(axis=0) for factor in wide]
    margins = []
    for mode, H in enumerate(wide):
        length = np.where(lengths[mode] > 0, lengths[mode], np.inf)
        sums = unit * len(H) / (H.shape[1] * length) if W_sums is None else W_sums
        if W_sums is not None and len(wide) > 1:
            sums = sums * np.prod(lengths[:mode] + lengths[mode + 1 :], axis=0)
        margins.append(np.asarray(np.einsum("jk,k->j", H, sums)))
    return margins
