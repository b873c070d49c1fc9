"""Groups of similar components from many runs.

As in cNMF (Kotliar et al. 2019), components are scaled to Euclidean length 1, those far from their
nearest neighbours are left out, k-means groups the others, and the median of a group is its
consensus component.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

# Number of neighbours as a share of the runs: each run should hold one of them.
NEIGHBOUR_SHARE = 0.3


class Clusters(NamedTuple):
    """Groups of components."""

    labels: npt.NDArray[np.int64]  # one per component
    silhouettes: FloatArray  # one per component
    medians: FloatArray  # n_clusters × n_features, rows summing to 1


def distances(components: Array) -> FloatArray:
    """Euclidean distances between rows of length 1."""
    products = components.astype(np.float64) @ components.astype(np.float64).T
    found = np.sqrt(np.maximum(2.0 - 2.0 * products, 0.0))
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def mean_distance_to_neighbours(between: FloatArray, n_runs: int) -> FloatArray:
    """Mean distance of each component to its nearest neighbours, excluding itself."""
    n_neighbours = min(max(1, round(NEIGHBOUR_SHARE * n_runs)), len(between) - 1)
    if n_neighbours < 1:
        return np.zeros(len(between))
    nearest = np.partition(between, n_neighbours, axis=1)[:, : n_neighbours + 1]
    return np.asarray(nearest.sum(axis=1) / n_neighbours)  # its distance to itself is 0


def clustered(components: Array, between: FloatArray, n_clusters: int, seed: int) -> Clusters:
    """Group components of length 1, with the distances ``between`` them, by k-means."""
    means = KMeans(n_clusters, n_init=10, random_state=seed).fit(components)
    labels = means.labels_.astype(np.int64)
    silhouettes = np.zeros(len(labels))
    if 1 < n_clusters < len(labels):
        silhouettes = silhouette_samples(between, labels, metric="precomputed")
    medians = np.array(
        [np.median(components[labels == cluster], axis=0) for cluster in range(n_clusters)],
        dtype=np.float64,
    )
    sums = medians.sum(axis=1, keepdims=True)
    return Clusters(labels, silhouettes, medians / np.where(sums > 0, sums, 1.0))
