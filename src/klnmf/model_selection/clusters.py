"""Components of many runs: which lie alone, and which belong together.

As in cNMF (Kotliar et al. 2019): components of Euclidean length 1; those far from their nearest
neighbours are left out; k-means puts the others together; a cluster's median is the consensus.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

# Neighbours of a component that count: this share of the runs, as each run should have one of them.
NEIGHBOUR_SHARE = 0.3


class Clusters(NamedTuple):
    """Groups of components."""

    labels: npt.NDArray[np.int64]  # of each component that was kept
    silhouettes: FloatArray  # of each component that was kept
    medians: FloatArray  # n_clusters × n_features, each summing to 1


def distances(components: Array) -> FloatArray:
    """Euclidean distances between rows of length 1."""
    products = components.astype(np.float64) @ components.astype(np.float64).T
    found = np.sqrt(np.maximum(2.0 - 2.0 * products, 0.0))
    np.fill_diagonal(found, 0.0)
    return np.asarray(found)


def mean_distance_to_neighbours(between: FloatArray, n_runs: int) -> FloatArray:
    """Mean distance of every component to its nearest neighbours, itself left out."""
    n_neighbours = min(max(1, round(NEIGHBOUR_SHARE * n_runs)), len(between) - 1)
    if n_neighbours < 1:
        return np.zeros(len(between))
    nearest = np.partition(between, n_neighbours, axis=1)[:, : n_neighbours + 1]
    return np.asarray(nearest.sum(axis=1) / n_neighbours)  # one of them is itself, at 0


def clustered(components: Array, between: FloatArray, n_clusters: int, seed: int) -> Clusters:
    """Put components together by k-means.

    Parameters
    ----------
    components : ndarray of shape (n_kept, n_features)
        Components of length 1.
    between : ndarray of shape (n_kept, n_kept)
        Their distances.
    n_clusters : int
        How many groups.
    seed : int
        Of the starts of k-means, of which there are ten.
    """
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
