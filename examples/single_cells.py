"""Programs of single cells: from raw counts in a file to a figure.

Run with ``python examples/single_cells.py``; it needs ``pip install "klnmf[anndata,plots]"``.

A small experiment with known programs is simulated. ``--counts FILE.h5ad`` takes a file of yours,
such as PBMC3k (2700 blood cells): ``scanpy.datasets.pbmc3k().write_h5ad("FILE.h5ad")`` writes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp

from klnmf import tl
from klnmf.simulate import simulate_counts
from klnmf.topics import format_topics, top_features

# Ribosomal and mitochondrial genes and MALAT1: much of every cell, little about its kind.
EVERYWHERE = ("RPL", "RPS", "MT-", "MALAT1")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--counts", type=Path, help="raw counts, cells x genes, as .h5ad")
    parser.add_argument("--cell-types", default="cell_type", help="column of obs, if there is one")
    parser.add_argument("--genes", type=int, default=2000, help="number of genes to keep")
    parser.add_argument("--components", type=int, help="number of programs")
    parser.add_argument("--output", type=Path, default=Path("klnmf-single-cells.png"))
    return parser.parse_args()


# ---- counts --------------------------------------------------------------------------------------


def simulated_cells() -> ad.AnnData:
    """Cells that use few of six planted programs each; the type is the one they use most."""
    depths = np.random.default_rng(0).lognormal(np.log(1500), 0.4, size=800)
    planted = simulate_counts(
        800, 3000, 6, counts_per_sample=depths, concentration_W=0.15, random_state=0
    )
    adata = ad.AnnData(planted.X)
    adata.var_names = [f"g{j}" for j in range(adata.n_vars)]
    adata.obs["cell_type"] = pd.Categorical([f"type {k}" for k in planted.W.argmax(axis=1)])
    return adata


def informative_genes(
    X: Any, candidates: np.ndarray, n_genes: int, least_cells: int = 10
) -> np.ndarray:
    """Of the candidates found in some cells, those that vary most beyond chance; a boolean a gene.

    Were all cells alike but for their depth d_i, a count would be Poisson with the mean d_i g_j,
    g_j being the gene's share of all counts. What counts is Σ_i (x_ij − d_i g_j)² / Σ_i d_i g_j,
    about 1 for such a gene.
    """
    X = sp.csr_array(X, dtype=np.float64)
    depths, totals = X.sum(axis=1), X.sum(axis=0)
    shares = totals / totals.sum()
    squares = X.power(2).sum(axis=0) - 2 * shares * (X.T @ depths) + shares**2 * (depths @ depths)
    excess = np.divide(squares, totals, out=np.zeros_like(totals), where=totals > 0)
    excess[~candidates | (np.bincount(X.indices, minlength=X.shape[1]) < least_cells)] = 0
    mask = np.zeros(X.shape[1], dtype=bool)
    mask[np.argsort(-excess, kind="stable")[:n_genes]] = True
    return mask & (excess > 0)


# ---- programs ------------------------------------------------------------------------------------


def shares_of_cells(adata: ad.AnnData) -> pd.DataFrame:
    """Share of each cell's expected counts that comes from each program, cells × programs."""
    return pd.DataFrame(adata.obsm["X_nmf_shares"], index=adata.obs_names)


def group_of_cells(adata: ad.AnnData, shares: pd.DataFrame, column: str) -> pd.Series:
    """The cell type where it is known, else the leading program."""
    if column in adata.obs:
        return adata.obs[column].astype(str).replace("NA", "not typed")
    return shares.idxmax(axis=1).map(lambda program: f"mostly {program}")


def draw(
    path: Path, adata: ad.AnnData, shares: pd.DataFrame, groups: pd.Series, title: str
) -> None:
    """Save a figure: who uses what on the left, the genes of each program on the right."""
    import matplotlib

    matplotlib.use("Agg")  # a file is all that is wanted, so no window and no display
    import matplotlib.pyplot as plt

    # Programs by how much the group that uses them most does so, and groups by their first one.
    means = shares.groupby(groups).mean()
    programs = list(means.max().sort_values(ascending=False).index)
    order = sorted(means.index, key=lambda group: programs.index(means.loc[group].idxmax()))
    programs.sort(key=lambda program: order.index(means[program].idxmax()))

    n_columns = min(5, -(-len(programs) // 2))
    n_rows = -(-len(programs) // n_columns)
    size = (5.5 + 2.1 * n_columns, max(6.0, 2.5 * n_rows))
    figure = plt.figure(figsize=size, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    left, right = figure.subfigures(1, 2, width_ratios=[5.0, 2.1 * n_columns])
    draw_cells(left, shares[programs], groups, order)
    genes = top_features(adata.varm["nmf"].T, list(adata.var_names), n_top=8, by="lift")
    panels = right.subplots(n_rows, n_columns, squeeze=False, sharex=True).ravel()
    for panel in panels[len(programs) :]:
        panel.set_axis_off()
    for panel, program in zip(panels, programs, strict=False):
        draw_genes(panel, f"program {program}", genes[program], len(programs))
    right.supxlabel("weight of the gene over its mean weight in all programs", fontsize=9)
    figure.savefig(path, dpi=150)


def draw_cells(figure: Any, shares: pd.DataFrame, groups: pd.Series, order: list[str]) -> None:
    """One stripe for each group of cells; stripes of few cells are drawn thicker than to scale."""
    sizes = groups.value_counts()
    stripes = figure.subplots(
        len(order), 1, squeeze=False, sharex=True, height_ratios=np.sqrt(sizes[order])
    ).ravel()
    for ax, group in zip(stripes, order, strict=True):
        members = shares[groups == group]
        members = members.sort_values(members.mean().idxmax(), ascending=False)
        image = ax.imshow(
            members, aspect="auto", interpolation="nearest", cmap="BuPu", vmin=0, vmax=1
        )
        ax.set_yticks([(len(members) - 1) / 2], [f"{group} ({len(members)})"])
        ax.set_xticks(range(shares.shape[1]), shares.columns)
        ax.tick_params(length=0, labelsize=9)
        ax.spines[:].set_color("0.85")
    stripes[0].set_title("Share of each cell's counts", loc="left", fontsize=10)
    stripes[-1].set_xlabel("program")
    bar = figure.colorbar(
        image, ax=list(stripes), orientation="horizontal", shrink=0.5, aspect=30, pad=0.02
    )
    bar.ax.tick_params(labelsize=8, length=2)
    bar.ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    bar.outline.set_visible(False)


def draw_genes(ax: Any, title: str, genes: list[tuple[str, float]], longest: float) -> None:
    """Bars of the leading genes of one program, on the same scale for all of them."""
    ax.barh(range(len(genes)), [lift for _, lift in genes], height=0.7, color="#2f6690")
    ax.set_yticks(range(len(genes)), [name for name, _ in genes])
    ax.set_ylim(7.6, -0.6)
    ax.set_xlim(0, longest)
    ax.locator_params(axis="x", nbins=3, integer=True)
    ax.set_title(title, loc="left", fontsize=9, fontweight="bold")
    ax.tick_params(axis="y", length=0, labelsize=8)
    ax.tick_params(axis="x", length=2, labelsize=7, colors="0.4", labelbottom=True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color("0.7")


def main() -> None:
    """Read, filter, fit, print, draw."""
    options = parse_options()
    if options.counts is None:
        adata, what, n_programs = simulated_cells(), "simulated cells", 6
    else:
        adata, what, n_programs = ad.read_h5ad(options.counts), str(options.counts), 10
        adata.var_names_make_unique()
    n_programs = options.components or n_programs
    print(f"{what}: {adata.n_obs:,} cells x {adata.n_vars:,} genes")

    told_apart = ~adata.var_names.str.startswith(EVERYWHERE)
    adata.var["informative"] = informative_genes(adata.X, told_apart, options.genes)
    print(f"{adata.var['informative'].sum():,} genes vary most beyond chance")

    tl.nmf(adata, n_programs, mask_var="informative", random_state=0)
    fit = adata.uns["nmf"]
    print(f"{fit['n_iter']} iterations, KL divergence {fit['divergence']:,.0f}\n")
    W, components = adata.obsm["X_nmf"], adata.varm["nmf"].T
    print(format_topics(components, list(adata.var_names), n_top=8, by="lift", W=W))

    shares = shares_of_cells(adata)
    groups = group_of_cells(adata, shares, options.cell_types)
    print("\nMean share of each program (columns) in the cells of a group, in %:\n")
    table = (100 * shares.groupby(groups).mean()).round().astype(int)
    print(table.assign(cells=groups.value_counts()).to_string(index_names=False))

    draw(options.output, adata, shares, groups, f"{what}: {n_programs} programs")
    print(f"\nfigure: {options.output.resolve()}")


if __name__ == "__main__":
    main()
