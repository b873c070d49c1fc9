"""The programs of one AnnData in the cells of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from klnmf.constraints.names import names_seen_in_fit
from klnmf.estimators.arguments import explains_misplaced
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.named_features import MIN_OVERLAP, match_features, transform_common
from klnmf.readers.table import unique_features
from klnmf.tl.counts import as_of_cells, check_is_anndata, check_raw_counts, read_counts
from klnmf.tl.fields import (
    KEY,
    check_can_be_changed,
    entries_of,
    fitted_model,
    put_cells,
    stored_parameters,
)
from klnmf.tl.fit_data import batch_columns, known_batches

if TYPE_CHECKING:
    from anndata import AnnData


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
    AnnData or None
        None, or with ``copy=True`` the changed copy. With the default ``key_added`` it has

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
    >>> tl.nmf(old, n_components=3)
    >>> tl.project(new, old)
    >>> new.obsm["X_nmf"].shape, new.uns["nmf"]["overlap"]["found"]
    ((20, 3), 30)
    """
    check_can_be_changed(adata, copy, key_added)
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
    with as_of_cells():
        overlap = match_features(model.feature_names_in_, names, min_overlap=min_overlap)
    X = read_counts(adata, layer, overlap.data_positions)
    check_raw_counts(X, adata, layer)
    given = {}
    if batches is not None:
        batch_of_cell = known_batches(adata, batch_key, batches)
        # Profiles are fractions of all genes of the model, and X may have only some of them.
        rates = np.asarray(model.W_sums_ @ model.components_)
        found = rates[overlap.model_positions].sum() / rates.sum()
        given["fixed_W"] = batch_columns(X, batch_of_cell, len(batches)) / found
    with as_of_cells():
        W = transform_common(model, X, overlap, **given)

    target = adata.copy() if copy else adata
    r = model.n_components_ - model.n_fixed_W_
    of_programs = [str(k) for k in range(r)] if known is None else list(known["component_names"])
    put_cells(target, key_added, model, W, [str(name) for name in of_programs])
    chosen = {"layer": layer, "batch_key": batch_key}
    target.uns[key_added] = {
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
    return target if copy else None


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
