"""The programs of one AnnData in the cells of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.utils.validation import check_is_fitted

from klnmf.constraints.names import names_seen_in_fit
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.named_features import MIN_OVERLAP, match_features, transform_common
from klnmf.readers.table import unique_features
from klnmf.tl.counts import check_is_anndata, check_raw_counts, read_counts
from klnmf.tl.fields import (
    check_can_be_changed,
    fitted_model,
    keys_of,
    put_representation,
    stored_parameters,
)

if TYPE_CHECKING:
    from anndata import AnnData


def project(
    adata: AnnData,
    reference: AnnData | KLNMF,
    *,
    layer: str | None = None,
    reference_key: str | None = None,
    key_added: str | None = None,
    min_overlap: float = MIN_OVERLAP,
    copy: bool = False,
) -> AnnData | None:
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
    layer, key_added, copy
        As in `klnmf.tl.nmf`.
    reference_key : str, default=None
        The ``key_added`` under which the reference AnnData holds its fit.
    min_overlap : float, default=0.1
        Smallest share of the model's genes that adata must have. With fewer, the names are likely
        to be of another kind, such as symbols and ids.

    Returns
    -------
    AnnData or None
        None, or with ``copy=True`` the changed copy. It has

        - ``.obsm["X_nmf"]``, or ``.obsm[key_added]``: W, new cells × components;
        - ``.obsm["X_nmf_shares"]``, or ``.obsm[f"{key_added}_shares"]``: the proportions;
        - ``.uns["nmf"]``, or ``.uns[key_added]``: a dict with the params of the model, and overlap
          with the numbers of genes: model, found, missing, ignored.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> cells = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> old, new = cells[:60].copy(), cells[60:, ::-1].copy()
    >>> tl.nmf(old, n_components=3)
    >>> tl.project(new, old)
    >>> new.obsm["X_nmf"].shape, new.uns["nmf"]["overlap"]["found"]
    ((20, 3), 30)
    """
    check_is_anndata(adata)
    check_can_be_changed(adata, copy)
    keys = keys_of(key_added)
    if keys.varm in adata.varm:
        raise ValueError(
            f"adata already has components in adata.varm[{keys.varm!r}]. Pass another key_added."
        )
    model = _model_of(reference, reference_key)
    names = unique_features(adata.var_names.to_numpy(dtype=object), "adata.var_names")
    overlap = match_features(model.feature_names_in_, names, min_overlap=min_overlap)
    X = read_counts(adata, layer, overlap.data_positions)
    check_raw_counts(X, adata, layer)
    W = transform_common(model, X, overlap)

    target = adata.copy() if copy else adata
    put_representation(target, keys, W, model)
    entries = {
        "params": stored_parameters(model),
        "overlap": {
            "model": overlap.n_model,
            "found": overlap.n_found,
            "missing": len(overlap.missing),
            "ignored": overlap.n_ignored,
        },
    }
    if layer is not None:
        entries["params"]["layer"] = layer
    target.uns[keys.uns] = entries
    return target if copy else None


def _model_of(reference: AnnData | KLNMF, key: str | None) -> KLNMF:
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
