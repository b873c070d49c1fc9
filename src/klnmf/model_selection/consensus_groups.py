"""Groups of similar components from many runs, and how well the runs agree on them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples

from klnmf.support.array_types import Array, FloatArray

# Number of neighbours as a share of the runs: each run should hold one of them.
NEIGHBOUR_SHARE = 0.3


class Figures(NamedTuple):
    """How well the runs agree on each component."""

    run_share: FloatArray  # share of the runs that found it
    silhouette: FloatArray  # mean silhouette of the runs' components
    stability: FloatArray  # mean cosine similarity of the runs' components with it


class Groups(NamedTuple):
    """Components of the runs, in groups."""

    labels: npt.NDArray[np.int64]  # of each component of the runs; −1: left out
    silhouettes: FloatArray  # of each component of the runs; 0: left out
    neighbour_distance: FloatArray  # of each component of the runs
    medians: FloatArray | None  # n_groups × n_features, rows summing to 1; None: too few are left
    n_kept: int

    def figures(self, spectra: Array, components: Array, n_runs: int) -> Figures:
        """How well the runs agree on the components; NaN if they do not agree at all."""
        n_groups = len(components)
        if self.medians is None:
            return Figures(*np.full((3, n_groups), np.nan))
        lengths = np.linalg.norm(components, axis=1, keepdims=True)
        unit = components / np.maximum(lengths, 1e-300)
        members = [np.flatnonzero(self.labels == k) for k in range(n_groups)]
        return Figures(
            np.array([len(set(group // n_groups)) / n_runs for group in members]),
            np.array([self.silhouettes[group].mean() for group in members]),
            np.array([(spectra[group] @ unit[k]).mean() for k, group in enumerate(members)]),
        )


def grouped(spectra: Array, n_runs: int, threshold: float, seed: int) -> Groups:
    """Group the components of all runs, each of length 1, without those that lie alone."""
    n_groups = len(spectra) // n_runs
    between = distances(spectra)
    to_neighbours = mean_distance_to_neighbours(between, n_runs)
    kept = np.flatnonzero((to_neighbours <= threshold) & spectra.any(axis=1))
    labels, silhouettes = np.full(len(spectra), -1, dtype=np.int64), np.zeros(len(spectra))
    medians = None
    if len(kept) >= n_groups:
        clusters = clustered(spectra[kept], between[np.ix_(kept, kept)], n_groups, seed)
        labels[kept], silhouettes[kept] = clusters.labels, clusters.silhouettes
        medians = clusters.medians
    return Groups(labels, silhouettes, to_neighbours, medians, len(kept))


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
