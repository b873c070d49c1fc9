"""Tools for AnnData in the style of scanpy. They need the extra ``anndata``.

>>> from klnmf import tl
>>> tl.nmf(adata, n_components=20, layer="counts")  # doctest: +SKIP
>>> tl.project(new_cells, adata)  # doctest: +SKIP
"""

from klnmf.tl.factorisation import nmf
from klnmf.tl.fields import fitted_model
from klnmf.tl.transfer import project

__all__ = ["fitted_model", "nmf", "project"]
