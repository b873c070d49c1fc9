"""Neyman's C(α) test of a contrast of shares, for counts that may vary more than Poisson counts.

Feature j has the rates y = L x in the samples and the variances V = y + α y². A hypothesis is a
contrast g with gᵀx = 0. With the score U = Lᵀ((v − y) / V) and the information I = Lᵀ diag(1/V) L,
both at an estimate of x under the hypothesis,

    z = gᵀ I⁻¹ U / √(gᵀ I⁻¹ g)

is the score along g without its projection on the scores of the other parameters. It is linear in
the counts v, with weights that do not move the mean: whatever x is, on the boundary or not, its
mean is 0 and its variance 1 under the hypothesis. Derivation: docs/maths/differential.md.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.stats import gamma, norm

from klnmf.support.array_types import FloatArray
from klnmf.uncertainty.feature_regressions import Regressions

_RATES_AT_ONCE = 1 << 20  # samples × features, for each thread
_SAMPLES_AT_ONCE = 1 << 12
# Relative to the diagonal of the information. A contrast that the samples do not determine, as of
# two components with the same W, gets a large variance instead of an arbitrary estimate.
_RIDGE = 1e-10
_NO_SKEWNESS = 1e-3  # below it the gamma distribution is the normal one, to three digits


class EffectiveScore(NamedTuple):
    """Statistic of each feature, and its skewness under the hypothesis."""

    z: FloatArray
    skewness: FloatArray

    def normal(self) -> FloatArray:
        """Return the statistic transformed to a standard normal one: without its skewness.

        z is taken for a shifted gamma variable with mean 0, variance 1 and this skewness s: with
        the shape k = 4 / s², (G − k) / √k has the skewness 2 / √k. z is kept where its tail cannot
        be represented.
        """
        skewed = np.abs(self.skewness) > _NO_SKEWNESS
        s = np.where(skewed, self.skewness, 1.0)
        shape = 4.0 / s**2
        at = np.maximum(shape + 2.0 * self.z / s, 0.0)
        tails = np.array([gamma.cdf(at, shape), gamma.sf(at, shape)])
        below, above = np.where(s > 0.0, tails, tails[::-1])
        found = np.where(above < 0.5, norm.isf(above), norm.ppf(below))
        return np.asarray(np.where(skewed & np.isfinite(found), found, self.z))


def effective_scores(
    regressions: Regressions, x: FloatArray, contrast: FloatArray, alpha: FloatArray
) -> EffectiveScore:
    """Test contrast · x_j = 0 for each feature j.

    ``x`` are estimates under the hypothesis, such that all rates L x are positive; ``alpha`` are
    the dispersions of the features. Time grows with samples × features × components², memory with
    the number of threads. Rounding depends on the threads of BLAS alone.
    """
    z, skewness = np.empty(len(x)), np.empty(len(x))
    step = max(1, _RATES_AT_ONCE // min(len(regressions.L), _SAMPLES_AT_ONCE))

    def compute(start: int) -> None:
        block = slice(start, start + step)
        part = regressions.of_features(np.arange(len(x))[block])
        z[block], skewness[block] = _of_block(part, x[block], contrast, alpha[block, np.newaxis])

    starts = range(0, len(x), step)
    if len(starts) <= 1:  # most often: a thread would take longer to start than to end
        list(map(compute, starts))
    else:
        with ThreadPoolExecutor(regressions.n_threads) as pool:
            list(pool.map(compute, starts))
    return EffectiveScore(z, skewness)


class _Chunk(NamedTuple):
    """Some samples: their amounts, and the rates, counts and weights w / V of some features."""

    L: FloatArray  # samples × components
    y: FloatArray  # features × samples, as the next two
    weights: FloatArray
    counts: sp.csc_array
    sample_weight: FloatArray | float


def _chunks(regressions: Regressions, x: FloatArray, alpha: FloatArray) -> Iterator[_Chunk]:
    counts, missing = sp.csc_array(regressions.counts), regressions.missing
    for start in range(0, len(regressions.L), _SAMPLES_AT_ONCE):
        samples = slice(start, start + _SAMPLES_AT_ONCE)
        L = regressions.L[samples]
        y = x @ L.T
        w = 1.0 if regressions.weight is None else regressions.weight[samples]
        weights = w / (y * (1.0 + alpha * y))
        if missing is not None:
            cells = sp.coo_array(missing[:, samples])
            weights[cells.row, cells.col] = 0.0
        yield _Chunk(L, y, weights, counts[:, samples], w)


def _of_block(
    regressions: Regressions, x: FloatArray, contrast: FloatArray, alpha: FloatArray
) -> tuple[FloatArray, FloatArray]:
    n_features, n_components = x.shape
    first, second = np.triu_indices(n_components)
    packed = np.zeros((n_features, len(first)))
    for chunk in _chunks(regressions, x, alpha):
        packed += chunk.weights @ (chunk.L[:, first] * chunk.L[:, second])
    information = np.empty((n_features, n_components, n_components))
    information[:, first, second] = information[:, second, first] = packed
    directions = _solved(information, contrast)  # I⁻¹ g

    total, third = np.zeros((2, n_features))
    # gᵀ I⁻¹ g; weights change Σ_i c_i² V_i, and what the ridge has added must stay.
    variance = directions @ contrast
    for chunk in _chunks(regressions, x, alpha):
        # z is a sum of c_i v_i with c = b w / V and b = L I⁻¹ g; its mean gᵀx is 0. The third
        # central moment of a negative binomial count is V (1 + 2 α y).
        along = directions @ chunk.L.T
        c = along * chunk.weights
        cells = sp.coo_array(chunk.counts)
        values = cells.data * c[cells.row, cells.col]
        total += np.bincount(cells.row, values, minlength=n_features)
        spread = c * along * chunk.sample_weight  # c² V
        if regressions.weight is not None:
            variance += (spread - c * along).sum(axis=1)
        third += np.einsum("ji,ji,ji->j", spread, c, 1.0 + 2.0 * alpha * chunk.y)
    return total / np.sqrt(variance), third / variance**1.5


def _solved(information: FloatArray, contrast: FloatArray) -> FloatArray:
    """Solve I d = g for each feature, with the information scaled to a diagonal of 1."""
    diagonal = np.einsum("jkk->jk", information)
    scales = 1.0 / np.sqrt(np.maximum(diagonal, 1e-30 * diagonal.max(axis=1, keepdims=True)))
    scaled = information * scales[:, :, np.newaxis] * scales[:, np.newaxis, :]
    scaled += _RIDGE * np.eye(len(contrast))
    return np.asarray(
        np.linalg.solve(scaled, (contrast * scales)[..., np.newaxis])[..., 0] * scales
    )
