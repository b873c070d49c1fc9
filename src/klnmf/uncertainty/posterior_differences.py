"""Comparison of components by the moments of a posterior.

With x_j the shares of feature j in the components, m_j their posterior mean and S_j their
covariance, a contrast g has the statistic gᵀ m_j / √(gᵀ S_j g). S_j holds the uncertainty of the
components and of all proportions, which a regression on an estimate of W does not.
"""

import math

import numpy as np

from klnmf.support.array_types import Array, FloatArray
from klnmf.uncertainty.comparison import ComparedShares
from klnmf.uncertainty.posterior_result import Posterior

# Shares that are 0 because they were barred count as this in fold changes.
SMALLEST_SHARE = 1e-12


def compared_posterior(
    found: Posterior, chosen: Array, against: str | int, references: Array
) -> ComparedShares:
    """Compare each chosen component with another one, the nearest one, or all others.

    The arguments are those of `compared_shares`.
    """
    if found.covariances is None:
        m, r = found.components.estimate.T.shape
        raise ValueError(
            f"The posterior has no covariances, because {m:,} features × {r}² components are too "
            "many for the memory. Pass the model and X: differential_features(model, X)."
        )
    x, S = found.components.estimate.T, found.covariances
    sizes = found.sizes.estimate[0]
    allowed = references if isinstance(against, str) else np.array([against])
    rows = []
    for k in chosen:
        others = np.array([other for other in allowed if other != k])
        if against == "others":
            rows.append(_contrast(x, S, k, sizes * np.isin(np.arange(len(sizes)), others), -1))
            continue
        pairs = [_contrast(x, S, k, np.eye(len(sizes))[other], int(other)) for other in others]
        z = np.array([np.nan_to_num(pair.z, nan=np.inf) for pair in pairs])
        nearest = z.argmin(axis=0)
        columns = (np.array(column) for column in zip(*pairs, strict=True))
        at = nearest[np.newaxis]
        rows.append(ComparedShares(*(np.take_along_axis(column, at, 0)[0] for column in columns)))
    return ComparedShares(*(np.array(column) for column in zip(*rows, strict=True)))


def _contrast(
    x: FloatArray, S: FloatArray, k: int, weights: FloatArray, reference: int
) -> ComparedShares:
    """Compare the shares of component k with those of others, weighted."""
    weights = weights / max(weights.sum(), 1e-300)
    g = -weights
    g[k] += 1.0
    shares, others = np.maximum(x[:, k], SMALLEST_SHARE), np.maximum(x @ weights, SMALLEST_SHARE)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (x @ g) / np.sqrt(np.einsum("k,jkl,l->j", g, S, g))
    z[~np.isfinite(z)] = np.nan  # both shares are known
    # The slopes of log x_k − log Σ_l weights_l x_l.
    slopes = -weights / others[:, np.newaxis]
    slopes[:, k] += 1.0 / shares
    error = np.sqrt(np.maximum(np.einsum("jk,jkl,jl->j", slopes, S, slopes), 0.0))
    known = np.where(np.isnan(z), np.nan, 1.0)
    change, error = known * np.log2(shares / others), known * error / math.log(2.0)
    references = np.where(np.isnan(z), -1, reference)
    return ComparedShares(change, error, z, known * shares, known * others, references)
