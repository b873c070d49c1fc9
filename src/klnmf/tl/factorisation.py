"""`nmf` and `project`: the programs of cells, and the same programs in other cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from klnmf.constraints.names import names_seen_in_fit
from klnmf.data.names import unique_features
from klnmf.estimators.arguments import explains_misplaced
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.named_features import MIN_OVERLAP, match_features, transform_common
from klnmf.tl.counts import check_is_anndata, check_raw_counts, checked_before, counts_of_layer
from klnmf.tl.fields import (
    KEY,
    check_can_be_changed,
    entries_of,
    fitted_model,
    put_cells,
    put_fit,
    stored_parameters,
)
from klnmf.tl.fit_data import batch_columns, data_to_fit, known_batches

if TYPE_CHECKING:
    from anndata import AnnData

_REFUSED = {
    "warm_start": "klnmf.tl.nmf fits a new model each time and cannot continue the last one",
    "copy": "klnmf.tl changes adata; pass adata.copy() to keep it as it is",
    "zero_components": "klnmf.tl.nmf does not store it, so that refits would not know it",
}


@explains_misplaced
def nmf(
    adata: AnnData,
    n_components: int = 10,
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
    **parameters: Any,
) -> None:
    """Factorise the counts of an AnnData: programs (weights of genes) and their use by each cell.

    The counts should be raw: the model is Poisson, and a cell's depth is part of its row of W. X
    may be dense or sparse, in memory or in a file opened with ``backed="r"``. From such a file only
    the nonzeros of the chosen genes are kept (while it is read, those of all genes if it is CSC).

    Parameters
    ----------
    adata : AnnData
        Cells × genes.
    n_components : int, default=10
        Number of programs, without the profiles of batches. The default is that of `klnmf.KLNMF`
        and not a recommendation: `klnmf.tl.select_rank` finds out how many predict new data best.
    layer : str, default=None
        Layer that holds the counts; None is ``adata.X``. "raw" is ``adata.raw`` unless there is a
        layer of that name: the genes of adata, found by name.
    mask_var : str or array of bool, default=None
        Genes to use: a boolean column of ``adata.var``, such as "highly_variable", or one value for
        each gene. None uses all of them, even if there is a column "highly_variable". If
        ``adata.var["feature_types"]`` has other types than "Gene Expression", such as antibodies,
        None leaves them out and says so.
    batch_key : str, default=None
        Column of ``adata.obs`` with the batch of each cell. Each batch then has a profile of its
        own, which makes up the same fraction of the counts of all its cells: what the cells of a
        batch have in common, such as ambient RNA. The profiles are the components of fixed columns
        of W, and no part of the shares. Types of cells that only one batch has are kept apart by
        programs; if batches and types coincide, nothing can tell them apart.
    scale_genes : bool, default=False
        Divide each gene by its standard deviation over the cells, without centring, as cNMF does:
        no gene counts more because it is frequent. This is ``feature_weight = 1 / deviation`` (the
        same objective), so that the programs stay in counts. It multiplies ``feature_weight``.
    feature_weight : str or array, default=None
        Weights of the genes, a column of ``adata.var`` or one number for each, see `klnmf.KLNMF`.
    sample_weight, exposure : str or array, default=None
        Weights and exposures of the cells, a column of ``adata.obs`` or one number for each, see
        ``KLNMF.fit``.
    key_added : str, default="nmf"
        Name of the result, see Returns.
    random_state : int, RandomState instance or None, default=None
        Seed of the fit.
    **parameters
        Other parameters of `klnmf.KLNMF`, such as ``tol``, ``max_iter`` or ``l1_W``.

    Returns
    -------
    None
        adata is changed. With the default ``key_added`` it then has

        - ``.obsm["X_nmf"]``: W, cells × programs, in counts;
        - ``.obsm["X_nmf_shares"]``: the proportions of the programs in each cell. Use these, or
          their square roots, to compare cells, for example as ``use_rep`` of scanpy's neighbours
          (Leiden then needs a resolution of 0.1 to 0.3): W also holds the depth of the cells;
        - ``.obs["nmf"]``: the program with the largest share, a categorical;
        - ``.varm["nmf"]``: H, genes × programs, with zeros for the genes outside the mask;
        - ``.varm["nmf_batches"]``: the profiles of the batches, if there is a ``batch_key``;
        - ``.uns["nmf"]``: a dict with params, history (arrays by column, for
          ``pandas.DataFrame``), n_iter, divergence, optimality_gap, kkt_residual, converged,
          component_names and version;
        - ``.obs["nmf_sample_weight"]``, ``.obs["nmf_exposure"]``, ``.var["nmf_mask"]``,
          ``.var["nmf_feature_weight"]``: what was used of these.

        `klnmf.tl.fitted_model` returns the `KLNMF` again, and `klnmf.tl.top_genes` the genes that
        distinguish the programs.

    Warns
    -----
    klnmf.NotCountsWarning
        If the values look normalised or log-transformed, or if they are fractions while other
        layers, which it names, hold whole numbers.
    UserWarning
        If there is one batch only.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3, random_state=0)
    >>> adata.obsm["X_nmf"].shape, adata.varm["nmf"].shape, adata.uns["nmf"]["converged"]
    ((80, 3), (30, 3), True)
    """
    check_can_be_changed(adata, key_added)
    for name, reason in _REFUSED.items():
        if parameters.get(name) is not None and parameters[name] is not False:
            raise ValueError(f"{reason}. Leave {name} out, or use klnmf.KLNMF.")
    data = data_to_fit(
        adata, layer, mask_var, batch_key, scale_genes, feature_weight, sample_weight, exposure
    )
    model = KLNMF(
        n_components + data.n_batches if data.n_batches else n_components,
        feature_weight=data.feature_weight,
        random_state=random_state,
        **parameters,
    )
    with checked_before():
        W = model.set_output(transform="default").fit_transform(data.X, **data.constraints)
    put_fit(adata, key_added, "fit", model, W, data)


@explains_misplaced
def project(
    adata: AnnData,
    reference: AnnData | KLNMF,
    *,
    layer: str | None = None,
    batch_key: str | None = None,
    reference_key: str = KEY,
    key_added: str = KEY,
    min_overlap: float = MIN_OVERLAP,
) -> None:
    """Find the use of a model's programs by new cells; genes are matched by name.

    Genes that the model does not have are ignored, and genes of the model that the new cells do not
    have are treated as not observed, see `klnmf.named_features.transform_by_name`. A line in the
    log says how many were found; Python shows it by default if genes are missing. Gene names that
    occur more than once are made unique as ``adata.var_names_make_unique()`` does it.

    Parameters
    ----------
    adata : AnnData
        New cells × genes, raw counts; in memory or opened with ``backed="r"``.
    reference : AnnData or KLNMF
        An AnnData with the result of `klnmf.tl.nmf`, or a fitted model with feature names.
    layer, key_added
        As in `klnmf.tl.nmf`.
    batch_key : str, default=None
        Column of ``adata.obs`` with the batch of each cell, if the reference was fitted with
        batches. Cells of batches that the reference does not know, and all cells without a column,
        get the mean of its profiles.
    reference_key : str, default="nmf"
        The ``key_added`` under which the reference AnnData holds its fit.
    min_overlap : float, default=0.1
        Smallest share of the model's genes that adata must have. With fewer, the names are likely
        to be of another kind, such as symbols and ids.

    Returns
    -------
    None
        adata is changed. With the default ``key_added`` it then has

        - ``.obsm["X_nmf"]``: W, new cells × programs;
        - ``.obsm["X_nmf_shares"]``: the proportions;
        - ``.obs["nmf"]``: the program with the largest share;
        - ``.uns["nmf"]``: a dict with the params of the model, and overlap with the numbers of
          genes: model, found, missing, ignored.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> cells = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> old, new = cells[:60].copy(), cells[60:, ::-1].copy()
    >>> tl.nmf(old, n_components=3, random_state=0)
    >>> tl.project(new, old)
    >>> new.obsm["X_nmf"].shape, new.uns["nmf"]["overlap"]["found"]
    ((20, 3), 30)
    """
    check_can_be_changed(adata, key_added)
    if key_added in adata.varm:
        raise ValueError(
            f"adata already has programs in adata.varm[{key_added!r}]. Pass another key_added."
        )
    model = _model_of(reference, reference_key)
    known = None if isinstance(reference, KLNMF) else entries_of(reference, reference_key)
    batches = None if known is None else known.get("batches")
    if batches is None and (batch_key is not None or model.n_fixed_W_):
        raise ValueError(
            "The reference knows no batches, so there is no use for batch_key. Leave it out."
            if batch_key is not None
            else "The reference model was fitted with fixed_W. Use its transform with fixed_W."
        )
    names = unique_features(adata.var_names.to_numpy(dtype=object), "adata.var_names")
    overlap = match_features(model.feature_names_in_, names, min_overlap=min_overlap)
    X = counts_of_layer(adata, layer, overlap.data_positions)
    check_raw_counts(X, adata, layer)
    given = {}
    if batches is not None:
        batch_of_cell = known_batches(adata, batch_key, batches)
        # Profiles are fractions of all genes of the model, and X may have only some of them.
        rates = np.asarray(model.W_sums_ @ model.components_)
        found = rates[overlap.model_positions].sum() / rates.sum()
        given["fixed_W"] = batch_columns(X, batch_of_cell, len(batches)) / found
    with checked_before():
        W = transform_common(model, X, overlap, **given)

    r = model.n_components_ - model.n_fixed_W_
    of_programs = [str(k) for k in range(r)] if known is None else list(known["component_names"])
    put_cells(adata, key_added, model, W, [str(name) for name in of_programs])
    chosen = {"layer": layer, "batch_key": batch_key}
    adata.uns[key_added] = {
        "kind": "projection",
        "params": stored_parameters(model)
        | {"n_components": r}
        | {name: value for name, value in chosen.items() if value is not None},
        "overlap": {
            "model": overlap.n_model,
            "found": overlap.n_found,
            "missing": len(overlap.missing),
            "ignored": overlap.n_ignored,
        },
    }


def _model_of(reference: AnnData | KLNMF, key: str) -> KLNMF:
    if not isinstance(reference, KLNMF):
        check_is_anndata(reference, "reference")
        return fitted_model(reference, key)
    check_is_fitted(reference, "components_")
    if names_seen_in_fit(reference) is None:
        raise ValueError(
            "The reference model has no feature names, because it was not fitted to a DataFrame. "
            "Set model.feature_names_in_, or use klnmf.named_features.transform_by_name with "
            "model_feature_names."
        )
    return reference
