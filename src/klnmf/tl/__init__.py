"""Tools for AnnData in the style of scanpy. They need the extra ``anndata``.

>>> from klnmf import tl
>>> tl.select_rank(adata, layer="counts")  # doctest: +SKIP
>>> tl.nmf(adata, tl.result(adata, "nmf_rank").best_rank, layer="counts")  # doctest: +SKIP
>>> tl.differential(adata)  # doctest: +SKIP
>>> tl.top_genes(adata)  # doctest: +SKIP
>>> tl.project(new_cells, adata)  # doctest: +SKIP
"""

from klnmf.tl.factorisation import nmf
from klnmf.tl.fields import fitted_model
from klnmf.tl.inference import bootstrap, differential
from klnmf.tl.programs import name_programs, summary, top_genes
from klnmf.tl.selection import consensus, select_rank
from klnmf.tl.stored_results import result
from klnmf.tl.transfer import project

__all__ = [
    "bootstrap",
    "consensus",
    "differential",
    "fitted_model",
    "name_programs",
    "nmf",
    "project",
    "result",
    "select_rank",
    "summary",
    "top_genes",
]
