"""`top_genes` and `name_programs`: what the programs of a fit are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf.data.matrix_checks import checked_matrix
from klnmf.estimators.arguments import explains_misplaced
from klnmf.support.descriptions import listed
from klnmf.tl.fields import KEY, entries_of, program_names, result
from klnmf.topics.features import RANKING, Ranking, leading_features

if TYPE_CHECKING:
    from anndata import AnnData


@explains_misplaced
def top_genes(adata: AnnData, n_top: int = 10, *, by: Ranking = RANKING, key: str = KEY) -> Any:
    """List the genes that distinguish each program.

    Parameters
    ----------
    adata : AnnData
        Data that went through `klnmf.tl.nmf` or `klnmf.tl.consensus`.
    n_top : int, default=10
        Number of genes per program.
    by : {"lift", "weight", "frex", "relevance", "kl"}, default="lift"
        How to rank genes, see `klnmf.topics.top_features`. By weight, ribosomal genes lead most
        programs.
    key : str, default="nmf"
        The ``key_added`` of that call.

    Returns
    -------
    pandas.DataFrame
        One row per program and gene, best first: program (its name), gene, the score (named after
        ``by``), share (of the gene in the counts of the program); after `klnmf.tl.differential`
        also log2_fold_change, lower, upper and q_value.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3, random_state=0)
    >>> table = tl.top_genes(adata, 4)
    >>> table.groupby("program", observed=True)["gene"].agg(", ".join).shape
    (3,)
    """
    import pandas as pd

    names = program_names(adata, key)
    H = checked_matrix(adata.varm[key], f"adata.varm[{key!r}]")
    leading = leading_features(H.T, n_top, by)
    lengths = [len(features) for features in leading.features]
    genes, program = np.concatenate(leading.features), np.repeat(np.arange(len(names)), lengths)
    table = pd.DataFrame({"program": pd.Categorical.from_codes(program, names)})
    table["gene"] = adata.var_names.to_numpy()[genes]
    table[by] = np.concatenate(leading.scores)
    table["share"] = np.concatenate(leading.weights)
    if f"{key}_differential" in adata.uns:
        tests = result(adata, f"{key}_differential")
        mask = adata.var.get(f"{key}_mask")
        column = np.arange(adata.n_vars) if mask is None else np.cumsum(mask) - 1
        rows = {int(k): row for row, k in enumerate(tests.components)}
        row = np.array([rows.get(int(k), -1) for k in program], dtype=np.intp)
        for name in ("log2_fold_change", "lower", "upper", "q_value"):
            values = getattr(tests, name)[row, np.asarray(column)[genes]]
            table[name] = np.where(row >= 0, values, np.nan)
    return table


@explains_misplaced
def name_programs(
    adata: AnnData, names: Sequence[str] | Mapping[int, str], *, key: str = KEY
) -> None:
    """Give names to the programs of a fit, in place of their numbers.

    They become the categories of ``adata.obs["nmf"]``, and `klnmf.tl.top_genes` and
    `klnmf.tl.project` use them. ``list(adata.uns["nmf"]["component_names"])`` is what plots take as
    ``component_names``.

    Parameters
    ----------
    adata : AnnData
        Data that went through `klnmf.tl.nmf` or `klnmf.tl.consensus`.
    names : sequence of str, or mapping of int to str
        A name for each program, or for some of them by number. Names must differ.
    key : str, default="nmf"
        The ``key_added`` of that call.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3, random_state=0)
    >>> tl.name_programs(adata, {0: "B cells"})
    >>> list(adata.obs["nmf"].cat.categories)
    ['B cells', '1', '2']
    """
    old = program_names(adata, key)
    if isinstance(names, Mapping):
        unknown = sorted(set(names) - set(range(len(old))), key=str)
        if unknown:
            raise ValueError(
                f"There is no program {unknown[0]!r}; numbers are 0 to {len(old) - 1}."
            )
        new = [str(names.get(k, name)) for k, name in enumerate(old)]
    else:
        new = [str(name) for name in listed(names, "names", "a list of names or a dict")]
    if len(new) != len(old) or len(set(new)) < len(new) or not all(name.strip() for name in new):
        raise ValueError(f"names must be {len(old)} different names, one per program; got {new}.")
    if key in adata.obs and hasattr(adata.obs[key], "cat"):
        adata.obs[key] = adata.obs[key].cat.rename_categories(dict(zip(old, new, strict=True)))
    entries_of(adata, key)["component_names"] = np.array(new, dtype=object)
