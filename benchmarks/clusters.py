"""Clusters of cells by scanpy's Leiden, on shares of programs and on principal components.

    pip install scanpy igraph leidenalg
    python -m benchmarks.clusters --data DIR
    python -m benchmarks.clusters --data DIR --sets pbmc_facs --ranks 12 --seeds 1

DIR has NAME.npz and NAME.labels.txt (one type per cell, "NA" if it is not known) of two sets:

- pbmc3k, 2,700 blood cells. The types come from a clustering of principal components that somebody
  looked at, which favours principal components.
- pbmc_facs, 3,774 blood cells of ten populations that were sorted before they were sequenced
  (Zheng and others 2017), so that the types do not come from the counts. It is `pbmc_facs` of the R
  package fastTopics, with `celltype` as labels:

      pbmc = rdata.conversion.convert(rdata.parser.parse_file("pbmc_facs.RData"))["pbmc_facs"]
      m = pbmc["counts"]
      X = scipy.sparse.csc_array((m.x, m.i, m.p), shape=tuple(m.Dim)).tocsr().astype("int32")
      scipy.sparse.save_npz("pbmc_facs.npz", X)
      Path("pbmc_facs.labels.txt").write_text("\\n".join(pbmc["samples"]["celltype"]))

The neighbours are scanpy's, with all its defaults. The table has the adjusted Rand index (ARI) of
the clusters and the types, and the number of clusters, as means over the seeds of fits, neighbours
and Leiden, for several resolutions of Leiden, of which 1 is scanpy's default. "main program" needs
no clusters.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.extmath import randomized_svd

from benchmarks.common import add_data_argument, load_matrix
from klnmf import tl

RESOLUTIONS = (1.0, 0.5, 0.3, 0.2, 0.1)
N_COMPONENTS = 50  # principal components, scanpy's default


def principal(matrix: np.ndarray, n: int) -> np.ndarray:
    """Scores of the leading principal components."""
    centred = (matrix - matrix.mean(axis=0)).astype(np.float32)
    U, s, _ = randomized_svd(centred, n, n_iter=4, random_state=0)
    return np.asarray(U * s)


def without_programs(cells: ad.AnnData) -> Iterator[tuple[str, np.ndarray]]:
    """Principal components of the counts."""
    import scanpy

    usual = cells.copy()
    scanpy.pp.normalize_total(usual, target_sum=1e4)
    scanpy.pp.log1p(usual)
    scanpy.pp.highly_variable_genes(usual, n_top_genes=2000)
    scanpy.pp.pca(usual)
    yield "PCs of log counts, 2,000 genes", usual.obsm["X_pca"]
    roots = np.sqrt(sp.csr_array(cells.X / cells.X.sum(axis=1)).toarray())
    yield "PCs of √(counts / total)", principal(roots, N_COMPONENTS)


def of_programs(shares: np.ndarray, H: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Representations of a fit."""
    yield "shares", shares
    yield "√shares", np.sqrt(shares)
    yield "PCs of √(shares · H)", principal(np.sqrt(shares @ H.T), shares.shape[1])


def rand_indices(coordinates: np.ndarray, types: np.ndarray, seed: int) -> np.ndarray:
    """ARI and number of clusters for each resolution."""
    import scanpy

    cells = ad.AnnData(np.zeros((len(coordinates), 1), dtype=np.float32))
    cells.obsm["X_coordinates"] = coordinates.astype(np.float32)
    scanpy.pp.neighbors(cells, use_rep="X_coordinates", random_state=seed)
    rows = []
    for resolution in RESOLUTIONS:
        scanpy.tl.leiden(
            cells,
            resolution=resolution,
            flavor="igraph",
            n_iterations=2,
            directed=False,
            random_state=seed,
        )
        rows.append(compared(cells.obs["leiden"].to_numpy(), types))
    return np.array(rows)


def compared(clusters: np.ndarray, types: np.ndarray) -> tuple[float, int]:
    """ARI with the known types, and the number of clusters."""
    known = types != "NA"
    return float(adjusted_rand_score(types[known], clusters[known])), len(set(clusters))


def show(name: str, found: list[np.ndarray]) -> None:
    """Print means over seeds."""
    cells = [f"{rand:.2f} ({n:.0f})" for rand, n in np.mean(found, axis=0)]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def measure(name: str, args: argparse.Namespace) -> None:
    """Print the table of one set."""
    X = load_matrix(args.data, name)
    labels = (Path(args.data) / f"{name}.labels.txt").read_text(encoding="utf-8")
    types, cells = np.array(labels.splitlines()), ad.AnnData(sp.csr_matrix(X))
    print(f"\n| {name}, {X.shape[0]:,} cells | {' | '.join(map(str, RESOLUTIONS))} |")
    print("|---" * (1 + len(RESOLUTIONS)) + "|")
    for what, coordinates in without_programs(cells):
        show(what, [rand_indices(coordinates, types, seed) for seed in range(args.seeds)])
    for rank in args.ranks:
        found: dict[str, list[Any]] = {}
        main = []
        for seed in range(args.seeds):
            tl.nmf(cells, rank, random_state=seed, n_init=args.n_init, n_threads=1)
            main.append(compared(cells.obs["nmf"].to_numpy().astype(str), types)[0])
            for what, coordinates in of_programs(cells.obsm["X_nmf_shares"], cells.varm["nmf"]):
                found.setdefault(what, []).append(rand_indices(coordinates, types, seed))
        for what, rows in found.items():
            show(f"r = {rank}: {what}", rows)
        print(f"r = {rank}: main program {min(main):.2f} to {max(main):.2f}")


def main() -> None:
    """Measure all sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--sets", nargs="+", default=["pbmc3k", "pbmc_facs"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[6, 12, 20])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n-init", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.sets:
        measure(name, args)


if __name__ == "__main__":
    main()
