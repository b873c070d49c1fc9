"""Where things are in an AnnData, written once: the names of all entries, and the fits in them.

Everything of a fit has the name of its key, "nmf" unless ``key_added`` says otherwise:

    obs[key]                         the main program of each cell
    obsm[f"X_{key}"]                 W: expected counts of each program in each cell
    obsm[f"X_{key}_shares"]          the same as shares, which sum to 1
    varm[key]                        H: the weights of the genes in each program
    varm[f"{key}_batches"]           the profiles of the batches, if there are any
    obs[f"{key}_sample_weight"], ... what the fit used of cells and genes
    uns[key]                         parameters, results and history
    uns[f"{key}_{kind}"]             results about the fit: rank, differential, bootstrap

A consensus is a fit as well; its key is "nmf_consensus" by default. This is all that the functions
of `klnmf.tl` know of each other.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp

from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.names import unique_features
from klnmf.estimators.arguments import explains_misplaced
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.model_selection import Consensus, RankSelection
from klnmf.solvers import SOLVERS
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.tl.counts import check_is_anndata
from klnmf.tl.fit_data import OF_CELLS, OF_GENES, FitData, data_of_stored_fit
from klnmf.uncertainty import Bootstrap, DifferentialFeatures, Posterior

if TYPE_CHECKING:
    from anndata import AnnData

KEY = "nmf"
# Parameters that say what the model is. The others are about one run (threads, bar, callback), or
# cannot be written to a file.
_MODEL_PARAMETERS = (
    "solver", "init", "l1_W", "l2_W", "l1_H", "l2_H", "max_iter", "tol", "random_state", "dtype",
    "sparse_output", "backend", "n_init",
)  # fmt: skip
_RESULTS = ("divergence", "optimality_gap", "kkt_residual", "converged")
# Results that describe one fit, and not another under the same key.
_ABOUT_A_FIT = ("differential", "bootstrap")
KINDS: dict[str, type[Any]] = {
    "rank": RankSelection,
    "consensus": Consensus,
    "differential": DifferentialFeatures,
    "bootstrap": Bootstrap,
    "posterior": Posterior,
}
# Of a consensus, these are in obsm and varm, as of every fit.
_OF_FITS = ("W", "components")
Result = TypeVar("Result")


def check_can_be_changed(adata: AnnData, key: Any = KEY) -> None:
    """Refuse, before any work, what is not an AnnData or cannot take the result under this key."""
    check_is_anndata(adata)
    if not isinstance(key, str) or not key or "/" in key:  # which .h5ad takes for a path
        raise ValueError(
            f"key_added must be a str that is not empty and has no '/', got {described(key)}."
        )
    if adata.isbacked and adata.is_view:
        raise ValueError(
            f"adata is a view of the file {adata.filename}, and cannot be changed without another "
            "file. Pass adata.to_memory(), or adata.copy(filename=...)."
        )


# ---- writing -------------------------------------------------------------------------------------


def put_fit(
    adata: AnnData, key: str, kind: str, model: KLNMF, W: Any, data: FitData, **entries: Any
) -> None:
    """Store a fit, in place of any other under this key."""
    forget_fit(adata, key)
    r = model.n_components_ - data.n_batches
    put_cells(adata, key, model, W, [str(k) for k in range(r)])
    H = _by_gene(model.components_.T, data)
    adata.varm[key] = H[:, :r]
    if data.batches is not None:
        adata.varm[f"{key}_batches"] = H[:, r:]
        entries["batches"] = data.batches
    for frame, columns in ((adata.obs, data.of_cells), (adata.var, data.gene_columns)):
        for name, values in columns.items():
            frame[f"{key}_{name}"] = values
    if model.constraint_names_:
        entries["constraint_names"] = np.array(model.constraint_names_, dtype=object)
    if model.history_:
        names = model.history_[0]
        entries["history"] = {
            name: np.array([row[name] for row in model.history_]) for name in names
        }
    for name in ("W_sums", "data_checksum"):
        if getattr(model, f"{name}_") is not None:
            entries[name] = getattr(model, f"{name}_")
    adata.uns[key] = {
        "kind": kind,
        "params": {"n_components": r, **stored_parameters(model), **data.params},
        "n_iter": model.n_iter_,
        **{name: getattr(model, f"{name}_") for name in _RESULTS},
        "component_names": np.array([str(k) for k in range(r)], dtype=object),
        "version": version("klnmf"),
        **entries,
    }


def put_cells(adata: AnnData, key: str, model: KLNMF, W: Any, names: list[str]) -> None:
    """Store W, the shares and the main program of every cell, without the parts of batches."""
    import pandas as pd

    r, is_sparse = len(names), sp.issparse(W)
    W = W if is_sparse else np.asarray(W)
    shares = model.proportions(W)[:, :r]
    totals = shares.sum(axis=1, keepdims=True)
    if model.n_fixed_W_:
        shares = shares / np.where(totals > 0.0, totals, 1.0)
    main = np.where(totals[:, 0] > 0.0, shares.argmax(axis=1), -1)
    adata.obs[key] = pd.Categorical.from_codes(main, names)
    # Older releases of anndata know SciPy's matrices and not its sparse arrays.
    adata.obsm[f"X_{key}"] = sp.csr_matrix(W[:, :r]) if is_sparse else np.array(W[:, :r])
    adata.obsm[f"X_{key}_shares"] = sp.csr_matrix(shares) if is_sparse else shares


def forget_fit(adata: AnnData, key: str) -> None:
    """Remove what belongs to an earlier fit under this key and would not be replaced."""
    for part, names in (
        (adata.varm, ("batches",)),
        (adata.uns, _ABOUT_A_FIT),
        (adata.obs, OF_CELLS),
        (adata.var, OF_GENES),
    ):
        for name in names:
            if f"{key}_{name}" in part:
                del part[f"{key}_{name}"]


def stored_parameters(model: KLNMF) -> dict[str, Any]:
    """Parameters of a model as numbers, booleans and strings; those that are None are left out."""
    parameters = {name: getattr(model, name) for name in _MODEL_PARAMETERS}
    if not isinstance(parameters["solver"], str):
        parameters["solver"] = repr(parameters["solver"])
    if parameters["dtype"] is not None:
        parameters["dtype"] = np.dtype(parameters["dtype"]).name
    if isinstance(parameters["random_state"], np.random.RandomState):
        parameters["random_state"] = None  # its state has moved on
    if model.fixed_components is not None:
        parameters["n_fixed_components"] = len(model.fixed_components)
    return {name: value for name, value in parameters.items() if value is not None}


def _by_gene(H: Any, data: FitData) -> Any:
    """H with a row for each gene of the AnnData, zeros where the model does not have it."""
    if data.columns is not None:  # row columns[p] of the product is row p of H, dense or sparse
        n_used = len(data.columns)
        ones, places = np.ones(n_used, dtype=H.dtype), (data.columns, np.arange(n_used))
        H = sp.csr_array((ones, places), shape=(data.n_genes, n_used)) @ H
    return sp.csr_matrix(H) if sp.issparse(H) else np.ascontiguousarray(H)


# ---- reading -------------------------------------------------------------------------------------


def _entry(adata: AnnData, key: str) -> Any:
    check_is_anndata(adata)
    if not isinstance(key, str):
        raise TypeError(f"key must be a str; got {described(key)}.")
    return adata.uns.get(key)


def entries_of(adata: AnnData, key: str) -> Any:
    """Return ``uns`` of a fit, or raise an error if adata holds no fit under this key."""
    entries = _entry(adata, key)
    if _kind_of(entries) not in ("fit", "consensus", "posterior") or key not in adata.varm:
        raise ValueError(
            f"adata holds no fit under {key!r}: it needs adata.varm[{key!r}] and "
            f"adata.uns[{key!r}] as klnmf.tl.nmf, klnmf.tl.consensus and "
            "klnmf.tl.posterior of this version write them. Fit first, or pass the key_added of "
            "that call."
        )
    names, batches = np.asarray(entries.get("component_names")), entries.get("batches")
    is_named = names.shape == np.shape(adata.varm[key])[1:] and len({*map(str, names)}) == len(
        names
    )
    if not is_named or not isinstance(entries.get("params"), Mapping) or np.size(batches) == 0:
        raise ValueError(
            f"adata.uns[{key!r}] is damaged: its params, component_names or batches are not those "
            f"of the {np.shape(adata.varm[key])[1]} programs of adata.varm[{key!r}]. Fit again."
        )
    return entries


def _kind_of(entries: Any) -> str:
    """Kind of an entry of klnmf.tl; nothing for one of something else, whatever it holds."""
    kind = entries.get("kind") if isinstance(entries, Mapping) else None
    return kind if isinstance(kind, str) else ""


def data_of(adata: AnnData, key: str) -> FitData:
    """Read the data of a stored fit again."""
    entries = entries_of(adata, key)
    return data_of_stored_fit(adata, key, entries["params"], entries.get("batches"))


def program_names(adata: AnnData, key: str) -> list[str]:
    """Names of the programs of a stored fit; numbers unless they were named."""
    return [str(name) for name in entries_of(adata, key)["component_names"]]


@explains_misplaced
def fitted_model(adata: AnnData, key: str = KEY) -> KLNMF:
    """Return the model that `klnmf.tl.nmf` or `klnmf.tl.consensus` stored in an AnnData.

    Parameters
    ----------
    adata : AnnData
        Data that went through one of them, perhaps read from a file since.
    key : str, default="nmf"
        The ``key_added`` of that call.

    Returns
    -------
    KLNMF
        A fitted model with ``feature_names_in_``, for everything that takes one. Its features are
        the genes of the fit; names that occur more than once are made unique as
        ``adata.var_names_make_unique()`` does it. The profiles of batches are the last components,
        and ``transform`` then needs ``fixed_W`` (`klnmf.tl.project` does that). A solver that was
        passed as an object is replaced by the default, which only matters for a new fit.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3, random_state=0)
    >>> model = tl.fitted_model(adata)
    >>> model.components_.shape, model.converged_
    ((3, 30), True)
    """
    entries = entries_of(adata, key)
    params = entries["params"]
    parameters = {name: value for name, value in params.items() if name in _MODEL_PARAMETERS}
    if parameters.get("solver") not in SOLVERS:
        parameters.pop("solver", None)
    H = _stored_factor(adata, key)
    if (batches := entries.get("batches")) is not None:
        parts = [H, _stored_factor(adata, f"{key}_batches")]
        H = sp.hstack(parts, format="csr") if sp.issparse(H) else np.hstack(parts)
    mask, weights = (adata.var.get(f"{key}_{name}") for name in OF_GENES)
    used = np.arange(adata.n_vars) if mask is None else np.flatnonzero(mask)
    names = unique_features(adata.var_names.to_numpy(dtype=object), "adata.var_names")
    components = sp.csr_array(H[used].T) if sp.issparse(H) else np.array(H[used].T, order="C")
    if "n_fixed_components" in params:
        parameters["fixed_components"] = components[: int(params["n_fixed_components"])]
    history = {name: np.asarray(v).tolist() for name, v in entries.get("history", {}).items()}
    checksum = entries.get("data_checksum")
    return KLNMF.from_components(
        components,
        feature_names=names[used],
        history=[
            dict(zip(history, row, strict=True)) for row in zip(*history.values(), strict=True)
        ],
        constraint_names=[str(name) for name in entries.get("constraint_names", [])],
        n_fixed_W=0 if batches is None else len(batches),
        feature_weight=None if weights is None else weights.to_numpy()[used],
        W_sums=entries.get("W_sums"),
        data_checksum=None if checksum is None else int(checksum),
        **{name: np.asarray(entries[name]).item() for name in _RESULTS},
        **parameters,
    )


def _stored_factor(adata: AnnData, name: str) -> Array:
    H = checked_matrix(adata.varm[name], f"adata.varm[{name!r}]")
    return H if sp.issparse(H) else np.asarray(H)


# ---- results -------------------------------------------------------------------------------------


@explains_misplaced
def result(adata: AnnData, key: str) -> Any:
    """Return a result that a function of ``klnmf.tl`` stored in an AnnData.

    Parameters
    ----------
    adata : AnnData
        Data that went through that function, perhaps read from a file since.
    key : str
        Name of the entry of ``adata.uns``, such as "nmf_rank", "nmf_consensus",
        "nmf_differential", "nmf_bootstrap" or "nmf_posterior".

    Returns
    -------
    RankSelection, Consensus, DifferentialFeatures, Bootstrap or Posterior
        As the function of the library returns it, with its tables, plots and text.

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
    entries = _entry(adata, key)
    kind = _kind_of(entries)
    if kind not in KINDS:
        there = [name for name, value in adata.uns.items() if _kind_of(value) in KINDS]
        raise ValueError(
            f"adata.uns[{key!r}] is not a result of klnmf.tl. Results in adata.uns: "
            f"{', '.join(map(repr, there)) or 'none'}."
        )
    try:
        stored = dict(entries["result"])
        if kind == "consensus":
            stored |= _of_fit(adata, key)
        if kind == "posterior":
            stored["model_"] = fitted_model(adata, key)
        return _restored(KINDS[kind], stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"adata.uns[{key!r}] is damaged: {error}.") from error


def put_result(adata: AnnData, key: str, kind: str, found: Any, params: dict[str, Any]) -> None:
    """Store a result under this name."""
    entries = {"kind": kind, "params": params, "result": as_entries(found)}
    adata.uns[key] = entries | {"version": version("klnmf")}


def as_entries(found: Any) -> dict[str, Any]:
    """Fields of a result in types that .h5ad keeps; those that are None or empty are left out."""
    entries: dict[str, Any] = {}
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, KLNMF):  # in varm, as of every fit
            continue
        if is_dataclass(value):
            value = as_entries(value)
        elif isinstance(value, list | tuple):
            value = np.array(value, dtype=object) if value else None
        if isinstance(found, Consensus):
            if field.name in _OF_FITS:
                continue
            if field.name == "spectra":  # of all runs, with many zeros
                value = sp.csr_matrix(value)
        if value is not None:
            entries[field.name] = value
    return entries


def _of_fit(adata: AnnData, key: str) -> dict[str, Any]:
    """W and components of a consensus, without genes outside of its mask."""
    mask = adata.var.get(f"{key}_mask")
    H = np.asarray(adata.varm[key])
    components = (H if mask is None else H[mask.to_numpy(dtype=bool)]).T
    return {"W": np.asarray(adata.obsm[f"X_{key}"]), "components": np.array(components, order="C")}


def _restored(kind: type[Result], stored: Mapping[str, Any]) -> Result:
    """Return a dataclass with these fields."""
    hints, values = get_type_hints(kind), {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in stored:
            values[field.name] = _value(hints[field.name], stored[field.name])
        elif field.default is MISSING:
            if type(None) not in get_args(hints[field.name]):
                raise ValueError(f"{field.name} is missing")
            values[field.name] = None
    return kind(**values)


def _value(hint: Any, stored: Any) -> Any:
    """Return a stored value as the type of a field wants it."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if isinstance(stored, KLNMF):
        return stored
    if is_dataclass(hint):
        return _restored(hint, stored)  # type: ignore[arg-type]
    if get_origin(hint) in (list, tuple):
        return get_origin(hint)(str(name) for name in stored)
    array = stored.toarray() if sp.issparse(stored) else np.asarray(stored)
    return array.item() if array.ndim == 0 else array
