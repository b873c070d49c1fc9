"""What is written into an AnnData, and how to get the model back."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.matrix_checks import checked_matrix
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.readers.table import unique_features
from klnmf.solvers import SOLVERS
from klnmf.support.array_types import Array
from klnmf.tl.counts import check_is_anndata

if TYPE_CHECKING:
    from anndata import AnnData

# Parameters that say what the model is. The others are about one run (threads, bar, callback), or
# cannot be written to a file.
_MODEL_PARAMETERS = (
    "n_components", "solver", "init", "l1_W", "l2_W", "l1_H", "l2_H", "max_iter", "tol",
    "random_state", "dtype", "sparse_output", "backend",
)  # fmt: skip
_RESULTS = ("divergence", "optimality_gap", "kkt_residual", "converged")


class Keys(NamedTuple):
    """Names under which W, the components and everything else are kept."""

    obsm: str
    varm: str
    uns: str

    @property
    def shares(self) -> str:
        """Name of the proportions in ``obsm``."""
        return f"{self.obsm}_shares"


def keys_of(key_added: str | None) -> Keys:
    """Return scanpy's default names, or the one name that was given for all."""
    return Keys("X_nmf", "nmf", "nmf") if key_added is None else Keys(*[key_added] * 3)


def put_representation(adata: AnnData, keys: Keys, W: Any, model: KLNMF) -> None:
    """Store W and the proportions of the programs in every cell."""
    is_sparse, shares = sp.issparse(W), model.proportions(W)
    adata.obsm[keys.obsm] = sp.csr_matrix(W) if is_sparse else np.asarray(W)
    adata.obsm[keys.shares] = sp.csr_matrix(shares) if is_sparse else shares


def check_can_be_changed(adata: AnnData, copy: bool) -> None:
    """Refuse, before any work, an AnnData that cannot take the result."""
    if adata.isbacked and (copy or adata.is_view):
        what = "copied" if copy else "changed, being a view of it,"
        raise ValueError(
            f"adata is backed by the file {adata.filename} and cannot be {what} without another "
            "file. Pass adata.to_memory(), or adata.copy(filename=...)."
        )


def model_entries(model: KLNMF) -> dict[str, Any]:
    """Parameters, results and history of a fit in types that .h5ad keeps."""
    history = model.history_
    return {
        "params": stored_parameters(model),
        "history": {name: np.array([row[name] for row in history]) for name in history[0]},
        "n_iter": model.n_iter_,
        **{name: getattr(model, f"{name}_") for name in _RESULTS},
        "W_sums": model.W_sums_,
        "data_checksum": model.data_checksum_,
        "version": version("klnmf"),
    }


def stored_parameters(model: KLNMF) -> dict[str, Any]:
    """Parameters of a model as numbers, booleans and strings; those that are None are left out."""
    parameters = {name: getattr(model, name) for name in _MODEL_PARAMETERS}
    if not isinstance(parameters["solver"], str):
        parameters["solver"] = repr(parameters["solver"])
    if parameters["dtype"] is not None:
        parameters["dtype"] = np.dtype(parameters["dtype"]).name
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None  # its state has moved on
    return {name: value for name, value in parameters.items() if value is not None}


def loadings(model: KLNMF, columns: Array | None, n_features: int) -> Any:
    """H with a row for each feature of the AnnData, zeros where the model does not have it."""
    H = model.components_.T
    if columns is not None:  # row columns[p] of the product is row p of H, dense or sparse
        ones, shape = np.ones(len(columns), dtype=H.dtype), (n_features, len(columns))
        H = sp.csr_array((ones, (columns, np.arange(len(columns)))), shape=shape) @ H
    # Older releases of anndata know SciPy's matrices and not its sparse arrays.
    return sp.csr_matrix(H) if sp.issparse(H) else np.ascontiguousarray(H)


def fitted_model(adata: AnnData, key: str | None = None) -> KLNMF:
    """Return the model that `klnmf.tl.nmf` stored in an AnnData.

    Its features are all genes, or, if a mask was used, those with a weight in some component: a
    gene in the mask that was never counted is left out, which makes no difference to W.

    Parameters
    ----------
    adata : AnnData
        Data that went through `klnmf.tl.nmf`, perhaps read from a file since.
    key : str, default=None
        The ``key_added`` of that call.

    Returns
    -------
    KLNMF
        A fitted model with ``feature_names_in_``, for ``transform``,
        `klnmf.named_features.transform_by_name` and `klnmf.frames.components_frame`. Gene names
        that occur more than once are made unique as ``adata.var_names_make_unique()`` does it. A
        solver that was passed as an object is replaced by the default, which only matters for a
        new fit.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3)
    >>> model = tl.fitted_model(adata)
    >>> model.components_.shape, model.converged_
    ((3, 30), True)
    """
    check_is_anndata(adata)
    keys = keys_of(key)
    entries = adata.uns.get(keys.uns)
    if keys.varm not in adata.varm or entries is None or "history" not in entries:
        raise ValueError(
            f"adata holds no fit under {keys.uns!r}: it needs adata.varm[{keys.varm!r}] and "
            f"adata.uns[{keys.uns!r}] as klnmf.tl.nmf writes them. Fit with klnmf.tl.nmf, or pass "
            "its key_added."
        )
    parameters = {name: v for name, v in entries["params"].items() if name in _MODEL_PARAMETERS}
    if parameters.get("solver") not in SOLVERS:
        parameters.pop("solver", None)
    H = checked_matrix(adata.varm[keys.varm], f"adata.varm[{keys.varm!r}]")
    is_sparse = sp.issparse(H)
    H = H if is_sparse else np.asarray(H)
    used = np.arange(len(adata.var_names))
    if "mask_var" in entries["params"]:
        used = np.flatnonzero(H.sum(axis=1))
    names = unique_features(adata.var_names.to_numpy(dtype=object), "adata.var_names")
    columns = {name: np.asarray(values).tolist() for name, values in entries["history"].items()}
    is_whole = len(used) == len(names) and "data_checksum" in entries
    return KLNMF.from_components(
        sp.csr_array(H[used].T) if is_sparse else np.array(H[used].T, order="C"),
        feature_names=names[used],
        history=[
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ],
        data_checksum=int(entries["data_checksum"]) if is_whole else None,
        # Older versions did not write all of them.
        W_sums=entries.get("W_sums"),
        **{name: np.asarray(entries[name]).item() for name in _RESULTS if name in entries},
        **parameters,
    )
