"""`dispersion`: how much more than Poisson counts the counts vary around a fitted model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from klnmf.estimators.base import FactorModel
from klnmf.support.array_types import FloatArray
from klnmf.uncertainty.data_of_fit import data_of_fit
from klnmf.uncertainty.residual_moments import (
    FittedRates,
    Residuals,
    feature_of,
    nonzeros,
    product,
    residual_sums,
    weights_of_cells,
)

# Standard errors above 0 from which on the counts are taken to vary more than Poisson counts.
ERRORS_ABOVE_POISSON = 2.0
# Times the Poisson variance from which on a number says no more than that.
FACTOR_OF_BULK = 100


@dataclass(frozen=True, eq=False)
class Dispersion:
    """Variance of counts around a model: y + α y² for a rate of y.

    Attributes
    ----------
    common : float
        α of all features together; 0 if the estimate is not two standard errors above 0.
    standard_error : float
        Standard error of the estimate.
    by_feature : ndarray of shape (n_features,)
        α of each feature, never negative: its own estimate, moved towards the common one by as much
        as it is uncertain. All are 0 if the common one is 0. The features of a tensor are the rows
        of its second mode.
    factor : float
        Mean of 1 + α y over the counts: how many times the variance of Poisson counts they have on
        average. A few large samples may decide it.
    """

    common: float
    standard_error: float
    by_feature: FloatArray
    factor: float

    @property
    def is_poisson(self) -> bool:
        """Whether the counts do not clearly vary more than Poisson counts."""
        return self.common == 0.0

    def __str__(self) -> str:
        """Say it in a sentence."""
        if self.is_poisson:
            return "The counts do not clearly vary more around the model than Poisson counts do."
        low, high = np.quantile(self.by_feature, [0.05, 0.95])
        features = (
            "" if high - low < 0.05 * self.common else f", {low:.2g} to {high:.2g} by feature"
        )
        average = (
            f"On average over the counts that is {self.factor:.2g} times the Poisson variance."
            if self.factor < FACTOR_OF_BULK
            else f"On average over the counts that is more than {FACTOR_OF_BULK} times the Poisson "
            "variance: these are amounts, not counts of events that happen one at a time. "
            "Intervals from them are rough; count the events themselves if you can."
        )
        return (
            f"The counts vary more than Poisson counts: a count with mean y has the variance y + "
            f"{self.common:.2g} y²{features}. {average}"
        )


def dispersion(model: FactorModel, X: Any, **constraints: Any) -> Dispersion:
    """Estimate how much more than Poisson counts the counts vary around a fitted model.

    Real counts often vary more than Poisson counts: words repeat, cells of one type differ. The
    model of the variance is y + α y² for a rate of y = (W Hᵀ)_ij, as for negative binomial counts
    of size 1 / α, and as for Poisson counts whose rates vary with the relative variance α,
    independently in each cell. The estimate compares squared residuals with the counts, gives
    little weight to the largest cells, and makes up for the residuals that the fit itself has taken
    away (docs/maths/intervals.md). It takes few seconds: no model is fitted.

    If the model has too few components, what they do not explain counts as variation. If it has
    about as many parameters as there are counts, the estimate is too low.

    Parameters
    ----------
    model : KLNMF, MiniBatchKLNMF or PoissonCP
        A fitted model.
    X : {array-like, sparse matrix or array, DataFrame} of shape (n_samples, n_features)
        The counts that the model was fitted to; a SparseTensor for a PoissonCP.
    **constraints
        ``sample_weight``, ``exposure``, ``missing``, ``fixed_W`` and ``zero_W``, as in
        ``KLNMF.fit``, if the model was fitted with them; for a PoissonCP all constraints of its
        ``fit``.

    Returns
    -------
    Dispersion

    Examples
    --------
    >>> import numpy as np
    >>> from klnmf import KLNMF
    >>> from klnmf.simulate import simulate_counts
    >>> from klnmf.uncertainty import dispersion
    >>> _, W, H = simulate_counts(200, 50, 3, counts_per_sample=400, random_state=0)
    >>> generator = np.random.default_rng(0)
    >>> X = generator.poisson(W @ H.T * generator.gamma(2.0, 0.5, size=(200, 50)))
    >>> found = dispersion(KLNMF(3, random_state=0).fit(X), X)
    >>> bool(0.4 < found.common < 0.6), found.by_feature.shape
    (True, (50,))
    """
    return estimated_dispersion(data_of_fit(model, X, {**constraints}, "dispersion").fitted_rates)


def estimated_dispersion(fit: FittedRates) -> Dispersion:
    """Estimate α by weighted second moments of the residuals (see ``residual_moments``).

    The best weights, 1 / (1 + α y)², would need all cells, and with fitted rates they would favour
    cells that the noise made small. Products of a weight of the sample and one of the feature,
    1 / (1 + α y) with typical rates y, are biased far less.
    """
    typical = typical_rates(*fit.factors)
    m, n_modes = len(typical[1]), len(typical)
    # A sample counts as much as it did in the fit.
    given = np.ones(len(fit.W)) if fit.weights[0] is None else fit.weights[0]
    is_fitted = [
        np.ones(len(rates)) if known is None else (known > 0.0).astype(np.float64)
        for rates, known in zip(typical[1:], fit.weights[1:], strict=True)
    ]
    common, weights = 0.0, [given, *is_fitted]
    for corrected in (False, False, True):
        rows, columns, *rest = weights
        sums = residual_sums(fit, rows, corrected, rest)
        common = sums.dispersion(columns)
        if not corrected:
            known = max(common, 0.0)
            # With more modes, each has a smaller part in the weight of a cell.
            parts = zip([given, *is_fitted], typical, strict=True)
            weights = [of / (1.0 + known * rates) ** (2.0 / n_modes) for of, rates in parts]
    variances = _variances(fit, weights, max(common, 0.0))  # of Σ a [(x − y)² − x]
    total = float(columns @ sums.squares)
    error = math.sqrt(float(columns**2 @ variances)) / total if total > 0.0 else 0.0
    if not common > ERRORS_ABOVE_POISSON * error:
        return replace(poisson_dispersion(m), standard_error=error)
    by_feature = _shrunk(sums, common, variances)
    return Dispersion(common, error, by_feature, _mean_factor(fit, by_feature))


def poisson_dispersion(n_features: int) -> Dispersion:
    """Dispersion of Poisson counts."""
    return Dispersion(0.0, 0.0, np.zeros(n_features), 1.0)


def typical_rates(*factors: FloatArray) -> list[FloatArray]:
    """Mean rate of the cell of a count, Σ y² / Σ y, by the rows of each mode."""
    found = []
    for mode, one in enumerate(factors):
        gram = product([other.T @ other for other in factors], but=(mode,))
        squares = np.einsum("ik,ik->i", one @ gram, one)
        masses = one @ product([other.sum(axis=0) for other in factors], but=(mode,))
        found.append(np.divide(squares, masses, out=np.zeros(len(one)), where=masses > 0.0))
    return found


def _variances(fit: FittedRates, weights: list[FloatArray], alpha: float) -> FloatArray:
    """Variance of Σ a [(x − y)² − x] for each feature, for negative binomial counts.

    That of a cell is y² (1 + α y) (2 + 2 α + (2 + 6 α) α y). Sums over all cells of y f(y) are
    estimated by those of x f(y).
    """
    H, weights = fit.factors[1], [weights[0], np.ones(len(fit.factors[1])), *weights[2:]]
    parts = zip(fit.factors, weights, strict=True)
    gram = product([(x * (a**2)[:, np.newaxis]).T @ x for x, a in parts], but=(1,))
    found = (2.0 + 2.0 * alpha) * np.einsum("jk,jk->j", H @ gram, H)
    if alpha > 0.0:
        cubic, quartic = alpha * (4.0 + 8.0 * alpha), alpha**2 * (2.0 + 6.0 * alpha)
        for x, i, j, y in nonzeros(fit.counts, fit.W, fit.H):
            terms = weights_of_cells(weights, i, j) ** 2 * x * y * y * (cubic + quartic * y)
            found += np.bincount(feature_of(j), terms, minlength=len(H))
    return np.asarray(found)


def _shrunk(sums: Residuals, common: float, variances: FloatArray) -> FloatArray:
    """Move the estimate of each feature towards the common one.

    The spread τ² of the true values follows from the scatter of the estimates beyond their sampling
    errors (DerSimonian and Laird), and an estimate of variance s² gets the weight τ² / (τ² + s²).
    """
    informed = (sums.squares > 0.0) & (variances > 0.0)
    own = sums.by_feature(common)[informed]
    precision = sums.squares[informed] ** 2 / variances[informed]
    scatter = float(precision @ (own - common) ** 2)
    total = float(precision.sum())
    room = total - float(precision @ precision) / total
    spread = max(0.0, (scatter - (len(own) - 1)) / room) if room > 0.0 else 0.0
    found = np.full(len(sums.squares), common)
    weight = spread * precision / (spread * precision + 1.0)
    found[informed] = np.maximum(common + weight * (own - common), 0.0)
    return found


def _mean_factor(fit: FittedRates, alpha: FloatArray) -> float:
    """Σ y (1 + α y) / Σ y over all cells."""
    W, H, *rest = fit.factors
    total = float(W.sum(axis=0) @ product([other.sum(axis=0) for other in (H, *rest)]))
    of_features = (H * alpha[:, np.newaxis]).T @ H
    squares = float(np.sum(product([W.T @ W, of_features, *(other.T @ other for other in rest)])))
    return 1.0 + squares / total if total > 0.0 else 1.0
