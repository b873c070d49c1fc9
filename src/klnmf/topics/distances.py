"""Distances between components, and a map of them."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from klnmf.support.array_types import FloatArray
from klnmf.support.number_checks import checked_whole
from klnmf.topics.checks import checked_components, dense, positive_rows, rows_scaled_to_one

_NUMBERS_AT_ONCE = 1 << 20  # entries of components that are compared at once


def jensen_shannon_distances(components: Any) -> FloatArray:
    """Jensen-Shannon distances between components, as distributions over the features.

    The square of the distance between p and q is the Jensen-Shannon divergence to base 2,
    KL(p ‖ m)/2 + KL(q ‖ m)/2 with m = (p + q)/2. The distance is a metric: 0 for the same
    distribution, and 1 if no feature is shared. Distances from an empty component are NaN.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model. Their scale does not
        matter.

    Returns
    -------
    distances : ndarray of shape (n_components, n_components)
        Symmetric, from 0 to 1.

    Examples
    --------
    >>> from klnmf.topics import jensen_shannon_distances
    >>> jensen_shannon_distances([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    shares = rows_scaled_to_one(checked_components(components))
    by_columns = sp.csc_array(shares) if sp.issparse(shares) else shares
    n_components = shares.shape[0]
    divergences = np.zeros((n_components, n_components))
    for k, (features, p) in enumerate(positive_rows(shares)):
        if features.size == 0:
            divergences[k, :] = divergences[:, k] = np.nan
            continue
        for block in gen_batches(features.size, max(1, _NUMBERS_AT_ONCE // (n_components - k))):
            q = dense(by_columns[k + 1 :, features[block]])
            divergences[k, k + 1 :] += _shared_part(p[block], q)
        divergences[k, k + 1 :] = np.clip(1.0 + divergences[k, k + 1 :], 0.0, 1.0)
        divergences[k + 1 :, k] = divergences[k, k + 1 :]
    return np.asarray(np.sqrt(divergences))


def _shared_part(p: FloatArray, q: FloatArray) -> FloatArray:
    """½ Σ_j [p log p/(p + q) + q log q/(p + q)] to base 2, where p > 0: the divergence minus 1.

    Features that only one of the two has add nothing.
    """
    both = p + q
    terms = p * np.log2(p) + q * np.log2(np.where(q > 0.0, q, 1.0)) - both * np.log2(both)
    return np.asarray(0.5 * terms.sum(axis=1))


def intertopic_coordinates(components: Any, n_dimensions: int = 2) -> FloatArray:
    """Coordinates of the components on a map that shows their distances.

    Classical multidimensional scaling of the Jensen-Shannon distances (pyLDAvis uses their
    squares). The axes that explain most come first. Their signs have no meaning: the coordinate
    with the largest absolute value is positive on each axis.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.
    n_dimensions : int, default=2
        Number of coordinates per component. Axes beyond what the components span are 0.

    Returns
    -------
    coordinates : ndarray of shape (n_components, n_dimensions)
        The mean of each column is 0. The row of an empty component is NaN.

    Examples
    --------
    >>> from klnmf.topics import intertopic_coordinates
    >>> intertopic_coordinates([[1.0, 0.0], [0.0, 1.0]]).round(6).tolist()
    [[0.5, 0.0], [-0.5, 0.0]]
    """
    n_dimensions = checked_whole("n_dimensions", n_dimensions)
    return classical_scaling(jensen_shannon_distances(components), n_dimensions)[0]


def classical_scaling(distances: FloatArray, n_dimensions: int) -> tuple[FloatArray, FloatArray]:
    """Classical scaling: coordinates, and the share of the squared distances on each axis.

    With B = −½ J D² J, where J subtracts the mean, the coordinates are the first eigenvectors of B
    times the square roots of their eigenvalues.
    """
    placed = ~np.isnan(np.diagonal(distances))
    coordinates = np.full((distances.shape[0], n_dimensions), np.nan)
    explained = np.zeros(n_dimensions)
    n_placed = int(placed.sum())
    if n_placed == 0:
        return coordinates, explained
    squared = distances[np.ix_(placed, placed)] ** 2
    means = squared.mean(axis=0)
    products = -0.5 * (squared - means - means[:, np.newaxis] + means.mean())
    values, vectors = np.linalg.eigh(products)
    n_axes = min(n_dimensions, n_placed)
    values, vectors = np.maximum(values[::-1][:n_axes], 0.0), vectors[:, ::-1][:, :n_axes]
    points = vectors * np.sqrt(values)
    furthest = np.abs(points).argmax(axis=0)
    points *= np.where(points[furthest, np.arange(n_axes)] < 0.0, -1.0, 1.0)
    coordinates[placed] = 0.0
    coordinates[placed, :n_axes] = points
    total = float(np.trace(products))
    if total > 0.0:
        explained[:n_axes] = values / total
    return coordinates, explained
