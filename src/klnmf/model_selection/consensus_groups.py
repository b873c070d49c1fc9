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


class RunGroups(NamedTuple):
    """Components of the runs, in groups."""

    labels: npt.NDArray[np.int64]  # of each component of the runs; −1: left out
    silhouettes: FloatArray  # of each component of the runs; 0: left out, NaN: given
    neighbour_distance: FloatArray  # of each component of the runs
    medians: FloatArray | None  # n_groups × n_features, rows summing to 1; None: too few are left
    n_kept: int

    def figures(self, spectra: Array, components: Array, n_runs: int) -> Figures:
        """How well the runs agree on the components; NaN for given ones, or if nothing agrees."""
        n_groups = len(components)
        if self.medians is None:
            return Figures(*np.full((3, n_groups), np.nan))
        members = [np.flatnonzero(self.labels == k) for k in range(n_groups)]
        figures = np.array(
            [
                [len(set(group // n_groups)) / n_runs for group in members],
                [self.silhouettes[group].mean() for group in members],
                stability(spectra, self.labels, components),
            ]
        )
        figures[:, np.isnan(figures[1])] = np.nan
        return Figures(*figures)


def stability(spectra: Array, labels: Array, components: Array) -> FloatArray:
    """Mean cosine similarity of the components of each group, of length 1, with that of all."""
    lengths = np.linalg.norm(components, axis=1, keepdims=True)
    unit = components / np.maximum(lengths, 1e-300)
    return np.array([(spectra[labels == k] @ unit[k]).mean() for k in range(len(unit))])


def grouped_runs(
    spectra: Array, n_runs: int, threshold: float, seed: int, n_given: int = 0
) -> RunGroups:
    """Group the components of all runs, each of length 1, without those that lie alone.

    The last ``n_given`` of each run belong to given columns of W: these are groups as they are.
    """
    of_run = len(spectra) // n_runs
    n_groups = of_run - n_given
    place = np.arange(len(spectra)) % of_run
    between = distances(spectra)
    to_neighbours = mean_distance_to_neighbours(between, n_runs)
    is_near = (to_neighbours <= threshold) & spectra.any(axis=1)
    kept = np.flatnonzero(is_near & (place < n_groups))
    labels = np.where(place < n_groups, -1, place)
    silhouettes = np.where(place < n_groups, 0.0, np.nan)
    medians = None
    if len(kept) >= n_groups:
        labels[kept] = KMeans(n_groups, n_init=10, random_state=seed).fit(spectra[kept]).labels_
        if 1 < n_groups < len(kept):
            of_kept = between[np.ix_(kept, kept)]
            silhouettes[kept] = silhouette_samples(of_kept, labels[kept], metric="precomputed")
        medians = np.array([_median(spectra[labels == k]) for k in range(of_run)])
    return RunGroups(labels, silhouettes, to_neighbours, medians, len(kept) + n_given * n_runs)


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


def _median(components: Array) -> FloatArray:
    """Median of each entry, scaled to a sum of 1."""
    median = np.median(components, axis=0).astype(np.float64)
    return np.asarray(median / (median.sum() or 1.0))
