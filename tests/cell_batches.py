"""Cells of several types in two batches, drawn with plain NumPy."""

from __future__ import annotations

from typing import NamedTuple

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

N_TYPES = 4


class Batches(NamedTuple):
    """Cells with obs columns ``type`` and ``batch``."""

    cells: ad.AnnData
    types: np.ndarray
    batch: np.ndarray


def two_batches(
    kind: str,
    seed: int = 0,
    n_cells: int = 400,
    n_genes: int = 300,
) -> Batches:
    """Draw Poisson counts; batches differ by ambient RNA, efficiency of genes, or not.

    All types are in both batches.
    """
    generator = np.random.default_rng(seed)
    common = generator.gamma(0.5, size=n_genes)
    profiles = common * generator.lognormal(0.0, 0.3, (N_TYPES, n_genes))
    for profile in profiles:
        profile[generator.choice(n_genes, n_genes // 20, replace=False)] *= 10
    types = generator.integers(N_TYPES, size=n_cells)
    batch = generator.integers(2, size=n_cells)
    rates = profiles / profiles.sum(axis=1, keepdims=True)
    rates = rates[types]
    if kind == "ambient":
        ambient = generator.dirichlet(np.full(n_genes, 0.1), size=2)
        rates = 0.7 * rates + 0.3 * ambient[batch]
    elif kind == "efficiency":
        rates = rates * generator.lognormal(0.0, 0.6, (2, n_genes))[batch]
        rates = rates / rates.sum(axis=1, keepdims=True)
    depths = generator.lognormal(np.log(1200), 0.4, n_cells)
    cells = ad.AnnData(sp.csr_matrix(generator.poisson(depths[:, None] * rates)))
    cells.var_names = [f"gene {j}" for j in range(n_genes)]
    cells.obs["type"] = pd.Categorical([f"type {'ABCD'[t]}" for t in types])
    cells.obs["batch"] = pd.Categorical([f"day {b + 1}" for b in batch])
    return Batches(cells, types, batch)


def mixing(shares: np.ndarray, batch: np.ndarray, n_neighbours: int = 20) -> float:
    """Share of each cell's neighbours from other batches, relative to that of all cells."""
    finder = NearestNeighbors(n_neighbors=n_neighbours + 1).fit(shares)
    neighbours = finder.kneighbors(shares, return_distance=False)[:, 1:]
    others = (batch[neighbours] != batch[:, None]).mean()
    return float(others / (batch[:, None] != batch).mean())
