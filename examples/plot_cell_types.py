"""
Programs of single cells
========================

Find gene programs in an AnnData of raw counts. The cells are simulated from known programs, so that
the result can be checked. Needs ``pip install "klnmf[anndata,plots]"``.
"""

# %%
# Cells with known types
# ----------------------
#
# Each of 900 cells uses a few of six programs. A program is a share for each of 1500 genes. The
# type of a cell is the program that it uses most. Depths differ from cell to cell, as in
# experiments.

import anndata as ad
import numpy as np
import pandas as pd

from klnmf import tl
from klnmf.simulate import simulate_counts

depths = np.random.default_rng(0).lognormal(np.log(1200), 0.4, size=900)
planted = simulate_counts(
    900, 1500, 6, counts_per_sample=depths, concentration_W=0.2, random_state=0
)
adata = ad.AnnData(planted.X)
adata.var_names = [f"gene {j}" for j in range(adata.n_vars)]
types = [f"type {'ABCDEF'[k]}" for k in planted.W.argmax(axis=1)]
adata.obs["cell_type"] = pd.Categorical(types)
cells, new_cells = adata[:700].copy(), adata[700:].copy()

# %%
# Fit
# ---
#
# Pass raw counts: the model is Poisson, and the depth of a cell goes into its row of W. The result
# is stored where scanpy expects it: cells × programs in ``obsm``, genes × programs in ``varm``.

tl.nmf(cells, n_components=6, random_state=0)
print(cells)

# %%
# Genes
# -----
#
# The genes that are frequent in a program and rare in the others.

print(tl.top_genes(cells, 6).groupby("program", observed=True)["gene"].agg(", ".join).to_string())

# %%
# Types
# -----
#
# Each cell is a bar, each program a colour.

from klnmf.plots import plot_structure

cells = cells[cells.obs["cell_type"].argsort()]  # groups stand in the order of the samples
W, components = cells.obsm["X_nmf"], cells.varm["nmf"].T
ax = plot_structure(W, components, cells.obs["cell_type"])

# %%
# Against the planted programs
# ----------------------------
#
# The order of the programs is arbitrary; the best pairs are on the diagonal. Each program was
# found.

from klnmf.plots import plot_component_similarity

ax = plot_component_similarity(components, planted.H.T)
ax.set(xlabel="planted program", ylabel="program of the fit")

# %%
# New cells
# ---------
#
# Cells of another experiment rarely have the same genes, so genes are matched by name. A gene that
# was not measured counts as not observed, not as zero. Here half of the genes are enough to
# recognise the types.

measured = np.random.default_rng(1).permutation(new_cells.n_vars)[:750]
new_cells = new_cells[:, measured].copy()
tl.project(new_cells, cells)
print(new_cells.uns["nmf"]["overlap"])

program = new_cells.obs["nmf"]  # the one with the largest share
print(pd.crosstab(new_cells.obs["cell_type"], program, rownames=[""], colnames=["program"]))
