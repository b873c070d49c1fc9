"""The programs of the cells of an AnnData."""

from __future__ import annotations

import logging
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.data.not_counts import NotCountsWarning
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.support.array_types import Array
from klnmf.tl.counts import check_is_anndata, check_raw_counts, read_counts
from klnmf.tl.fields import (
    check_can_be_changed,
    keys_of,
    loadings,
    model_entries,
    put_representation,
)

if TYPE_CHECKING:
    from anndata import AnnData

_LOGGER = logging.getLogger(__name__)


def nmf(
    adata: AnnData,
    n_components: int = 20,
    *,
    layer: str | None = None,
    mask_var: str | npt.ArrayLike | None = None,
    key_added: str | None = None,
    random_state: int | np.random.RandomState | None = 0,
    copy: bool = False,
    **parameters: Any,
) -> AnnData | None:
    """Factorise the counts of an AnnData: programs (weights of genes) and their use by each cell.

    The counts should be raw: the model is Poisson, and a cell's depth is part of its row of W. X
    may be dense or sparse, in memory or in a file opened with ``backed="r"``. From such a file only
    the nonzeros of the chosen genes are kept (while it is read, those of all genes if it is CSC).

    Progress goes to the logger ``klnmf.tl`` (``logging.basicConfig(level="INFO")`` shows it).

    Parameters
    ----------
    adata : AnnData
        Cells × genes.
    n_components : int, default=20
        Number of components.
    layer : str, default=None
        Layer that holds the counts; None is ``adata.X``.
    mask_var : str or array of bool, default=None
        Genes to use: a boolean column of ``adata.var``, such as "highly_variable", or one value for
        each gene. None uses all of them, even if there is a column "highly_variable".
    key_added : str, default=None
        Where to put the result, see Returns.
    random_state : int, RandomState instance or None, default=0
        Seed of the fit.
    copy : bool, default=False
        Return a changed copy and leave adata unchanged.
    **parameters
        Other parameters of `klnmf.KLNMF`, such as ``tol``, ``max_iter`` or ``l1_W``.

    Returns
    -------
    AnnData or None
        None, or with ``copy=True`` the changed copy. It has

        - ``.obsm["X_nmf"]``, or ``.obsm[key_added]``: W, cells × components, in counts;
        - ``.obsm["X_nmf_shares"]``, or ``.obsm[f"{key_added}_shares"]``: the proportions of the
          components in each cell. Use these to compare cells, for example as ``use_rep`` of
          scanpy's neighbours: W also holds the depth of the cells;
        - ``.varm["nmf"]``, or ``.varm[key_added]``: H, genes × components, with zeros for the genes
          outside the mask;
        - ``.uns["nmf"]``, or ``.uns[key_added]``: a dict with params, history (arrays by column,
          for ``pandas.DataFrame``), n_iter, divergence, optimality_gap, kkt_residual, converged and
          version.

        `klnmf.tl.fitted_model` returns the `KLNMF` again.

    Warns
    -----
    klnmf.NotCountsWarning
        If the values look normalised or log-transformed, or if they are fractions while other
        layers, which it names, hold whole numbers.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3)
    >>> adata.obsm["X_nmf"].shape, adata.varm["nmf"].shape, adata.uns["nmf"]["converged"]
    ((80, 3), (30, 3), True)
    """
    check_is_anndata(adata)
    check_can_be_changed(adata, copy)
    if parameters.get("warm_start"):
        raise ValueError(
            "klnmf.tl.nmf fits a new model each time and cannot continue the last one. Leave "
            "warm_start out, or use klnmf.KLNMF."
        )
    model = KLNMF(n_components, random_state=random_state, **parameters)
    columns = _masked_columns(adata, mask_var)
    X = read_counts(adata, layer, columns)
    check_raw_counts(X, adata, layer)
    _LOGGER.info(
        "fitting %s components to %s cells × %s genes", n_components, *(f"{n:,}" for n in X.shape)
    )
    if mask_var is None and "highly_variable" in adata.var:
        _LOGGER.info("all genes are used; mask_var='highly_variable' uses the variable ones alone")
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCountsWarning)  # given above, with the layers
        W = model.set_output(transform="default").fit_transform(X)
    _LOGGER.info(
        "finished in %.1f s: %d iterations, divergence %.6g, optimality gap %.1e",
        time.perf_counter() - started,
        model.n_iter_,
        model.divergence_,
        model.optimality_gap_,
    )

    entries = model_entries(model)
    if layer is not None:
        entries["params"]["layer"] = layer
    if mask_var is not None:
        entries["params"]["mask_var"] = (
            mask_var if isinstance(mask_var, str) else np.asarray(mask_var, dtype=bool)
        )
    keys = keys_of(key_added)
    target = adata.copy() if copy else adata
    put_representation(target, keys, W, model)
    target.varm[keys.varm] = loadings(model, columns, adata.n_vars)
    target.uns[keys.uns] = entries
    return target if copy else None


def _masked_columns(adata: AnnData, mask_var: Any) -> Array | None:
    """Positions of the genes in the mask; None is all of them."""
    if mask_var is None:
        return None
    if isinstance(mask_var, str):
        if mask_var not in adata.var:
            there = ", ".join(map(repr, adata.var.columns)) or "none"
            raise ValueError(f"adata.var has no column {mask_var!r}; its columns: {there}.")
        mask_var = adata.var[mask_var]
    mask = np.asarray(mask_var)
    if mask.dtype == object and all(isinstance(value, bool | np.bool_) for value in mask.flat):
        mask = mask.astype(bool)  # pandas' booleans
    if mask.dtype != bool or mask.shape != (adata.n_vars,):
        raise ValueError(
            f"mask_var must have one boolean for each of the {adata.n_vars:,} genes; got shape "
            f"{mask.shape} of {mask.dtype}."
        )
    if not mask.any():
        raise ValueError("mask_var leaves no gene.")
    return np.flatnonzero(mask)
