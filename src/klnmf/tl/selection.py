"""`select_rank` and `consensus`: how many programs, and which ones many starts agree on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf import model_selection
from klnmf.data.names import unique_features
from klnmf.estimators.arguments import explains_misplaced
from klnmf.model_selection import Consensus
from klnmf.tl.counts import checked_before
from klnmf.tl.fields import KEY, as_entries, check_can_be_changed, put_fit, put_result
from klnmf.tl.fit_data import data_to_fit

if TYPE_CHECKING:
    from anndata import AnnData


@explains_misplaced
def select_rank(
    adata: AnnData,
    ranks: Iterable[int] = range(1, 41),
    *,
    layer: str | None = None,
    mask_var: str | npt.ArrayLike | None = None,
    batch_key: str | None = None,
    scale_genes: bool = False,
    feature_weight: str | npt.ArrayLike | None = None,
    sample_weight: str | npt.ArrayLike | None = None,
    exposure: str | npt.ArrayLike | None = None,
    key_added: str = KEY,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
    **options: Any,
) -> None:
    """Find the number of programs that predicts held-out counts best.

    See `klnmf.model_selection.select_rank`.

    Parameters
    ----------
    adata : AnnData
        Cells × genes.
    ranks : iterable of int, default=range(1, 41)
        Numbers of programs to try, without the profiles of batches.
    layer, mask_var, batch_key, scale_genes, feature_weight, sample_weight, exposure
        As in `klnmf.tl.nmf`. Use the same for both.
    key_added : str, default="nmf"
        Key of the fit that is planned.
    random_state, n_jobs, **options
        As in `klnmf.model_selection.select_rank`; other options are such as ``n_splits`` or
        ``run``.

    Returns
    -------
    None
        ``.uns["nmf_rank"]`` holds the result, and
        ``klnmf.tl.result(adata, "nmf_rank")`` returns it as a
        `klnmf.model_selection.RankSelection`, which prints as a table and has ``best_rank`` and
        ``plot``.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.select_rank(adata, range(1, 6), n_splits=3, random_state=0)
    >>> tl.result(adata, "nmf_rank").best_rank
    3
    """
    check_can_be_changed(adata, key_added)
    data = data_to_fit(
        adata, layer, mask_var, batch_key, scale_genes, feature_weight, sample_weight, exposure
    )
    q = data.n_batches
    with checked_before():
        found = model_selection.select_rank(
            data.X,
            [rank + q for rank in ranks] if q else ranks,
            feature_weight=data.feature_weight,
            random_state=random_state,
            n_jobs=n_jobs,
            **data.constraints,
            **options,
        )
    if q:  # batches are not programs
        chosen = {name: getattr(found, name) - q for name in ("best_rank", "lowest_rank")}
        found = replace(found, ranks=found.ranks - q, stable_rank=found.stable_rank - q, **chosen)
    put_result(adata, f"{key_added}_rank", "rank", found, data.params)


@explains_misplaced
def consensus(
    adata: AnnData,
    n_components: int = 10,
    n_runs: int = 100,
    *,
    layer: str | None = None,
    mask_var: str | npt.ArrayLike | None = None,
    batch_key: str | None = None,
    scale_genes: bool = False,
    feature_weight: str | npt.ArrayLike | None = None,
    sample_weight: str | npt.ArrayLike | None = None,
    exposure: str | npt.ArrayLike | None = None,
    key_added: str = f"{KEY}_consensus",
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
    **options: Any,
) -> None:
    """Find the programs that fits from many starts agree on, as in cNMF.

    See `klnmf.model_selection.consensus`. The result is a fit, like that of `klnmf.tl.nmf`.

    Parameters
    ----------
    adata : AnnData
        Cells × genes.
    n_components : int, default=10
        Number of programs, without the profiles of batches.
    layer, mask_var, batch_key, scale_genes, feature_weight, sample_weight, exposure
        As in `klnmf.tl.nmf`. cNMF chooses 2000 genes of high variance and scales them:
        ``mask_var="highly_variable", scale_genes=True``.
    key_added : str, default="nmf_consensus"
        Name of the result.
    n_runs, random_state, n_jobs, **options
        As in `klnmf.model_selection.consensus`; other options are such as ``density_threshold``,
        ``refit`` or ``run``.

    Returns
    -------
    None
        adata then has the entries of `klnmf.tl.nmf` with this key, such as
        ``.obsm["X_nmf_consensus"]``. ``klnmf.tl.result(adata, "nmf_consensus")`` returns the
        `klnmf.model_selection.Consensus`.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.consensus(adata, 3, n_runs=5, random_state=0)
    >>> adata.obsm["X_nmf_consensus_shares"].shape
    (80, 3)
    >>> bool(tl.result(adata, "nmf_consensus").run_share.min() == 1)
    True
    """
    check_can_be_changed(adata, key_added)
    data = data_to_fit(
        adata, layer, mask_var, batch_key, scale_genes, feature_weight, sample_weight, exposure
    )
    names = unique_features(adata.var_names.to_numpy(dtype=object), "adata.var_names")
    names = names if data.columns is None else names[data.columns]
    with checked_before():
        found = model_selection.consensus(
            data.X,
            n_components + data.n_batches if data.n_batches else n_components,
            n_runs,
            feature_names=names.tolist(),
            feature_weight=data.feature_weight,
            random_state=random_state,
            n_jobs=n_jobs,
            **data.constraints,
            **options,
        )
    model = found.to_model()
    entries = as_entries(_of_programs(found))
    put_fit(adata, key_added, "consensus", model, found.W, data, result=entries)


def _of_programs(found: Consensus) -> Consensus:
    """Return a consensus without the profiles of batches, its last components."""
    r, figures = len(found.components) - found.n_fixed_W, ("run_share", "silhouette", "stability")
    of_runs = np.arange(len(found.labels)) % len(found.components) < r
    parts = {name: getattr(found, name)[:r] for name in ("components", *figures)}
    for name in ("spectra", "labels", "neighbour_distance"):
        parts[name] = getattr(found, name)[of_runs]
    null, sums = found.null, found.W_sums
    if null is not None:
        null = replace(null, **{name: getattr(null, name)[:r] for name in figures})
    return replace(
        found,
        **parts,
        W=found.W[:, :r],
        W_sums=None if sums is None else sums[:r],
        null=null,
        n_fixed_W=0,
    )
