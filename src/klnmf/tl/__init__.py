"""Tools for AnnData in the style of scanpy. They need the extra ``anndata``.

>>> from klnmf import tl
>>> tl.select_rank(adata, layer="counts")  # doctest: +SKIP
>>> tl.nmf(adata, tl.result(adata, "nmf_rank").best_rank, layer="counts")  # doctest: +SKIP
>>> tl.differential(adata)  # doctest: +SKIP
>>> tl.top_genes(adata)  # doctest: +SKIP
>>> tl.project(new_cells, adata)  # doctest: +SKIP
"""

from klnmf.tl.factorisation import nmf, project
from klnmf.tl.fields import fitted_model, result
from klnmf.tl.inference import bootstrap, differential, posterior
from klnmf.tl.programs import name_programs, top_genes
from klnmf.tl.selection import consensus, select_rank

__all__ = [
    "bootstrap",
    "consensus",
    "differential",
    "fitted_model",
    "name_programs",
    "nmf",
    "posterior",
    "project",
    "result",
    "select_rank",
    "top_genes",
]
