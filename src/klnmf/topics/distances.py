"""A map of the components."""

from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from klnmf.support.array_types import FloatArray
from klnmf.topics.checks import checked_components, dense, rows_scaled_to_one


def intertopic_coordinates(components: Any) -> FloatArray:
    """Coordinates of the components on a map that shows their distances.

    Classical multidimensional scaling of the Jensen-Shannon distances (pyLDAvis uses their
    squares) of the components as distributions over the features. Their squares are the
    divergences to base 2, KL(p ‖ m)/2 + KL(q ‖ m)/2 with m = (p + q)/2: 0 for the same distribution
    and 1 if no feature is shared. The axes that explain most come first. Their signs have no
    meaning: the coordinate with the largest absolute value is positive on each axis.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components, such as ``components_`` of a fitted model.

    Returns
    -------
    coordinates : ndarray of shape (n_components, 2)
        The mean of each column is 0. The row of an empty component is NaN.

    Examples
    --------
    >>> from klnmf.topics import intertopic_coordinates
    >>> intertopic_coordinates([[1.0, 0.0], [0.0, 1.0]]).round(6).tolist()
    [[0.5, 0.0], [-0.5, 0.0]]
    """
    shares = rows_scaled_to_one(dense(checked_components(components)))
    placed = shares.any(axis=1)
    coordinates = np.full((len(shares), 2), np.nan)
    coordinates[placed] = 0.0
    if np.count_nonzero(placed) < 2:
        return coordinates
    # Rounding may make the square of a tiny distance negative, and so a NaN.
    distances = squareform(np.nan_to_num(pdist(shares[placed], "jensenshannon")))
    # With B = −½ J D² J, where J subtracts the mean, the coordinates are the first eigenvectors of
    # B times the square roots of their eigenvalues.
    squared = distances**2 / np.log(2.0)
    means = squared.mean(axis=0)
    products = -0.5 * (squared - means - means[:, np.newaxis] + means.mean())
    values, vectors = np.linalg.eigh(products)
    points = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0.0))
    furthest = np.abs(points).argmax(axis=0)
    coordinates[placed] = points * np.where(points[furthest, [0, 1]] < 0.0, -1.0, 1.0)
    return coordinates
