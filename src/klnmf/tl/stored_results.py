"""Results of the library as entries of ``uns`` that .h5ad keeps, and back."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp

from klnmf.estimators.arguments import explains_misplaced
from klnmf.model_selection import Consensus, RankSelection
from klnmf.support.descriptions import described
from klnmf.tl.counts import check_is_anndata
from klnmf.uncertainty import Bootstrap, DifferentialFeatures

if TYPE_CHECKING:
    from anndata import AnnData

KINDS: dict[str, type[Any]] = {
    "rank": RankSelection,
    "consensus": Consensus,
    "differential": DifferentialFeatures,
    "bootstrap": Bootstrap,
}
# Of a consensus, these are in obsm and varm, as of every fit.
_OF_FITS = ("W", "components")
Result = TypeVar("Result")


@explains_misplaced
def result(adata: AnnData, key: str) -> Any:
    """Return a result that a function of ``klnmf.tl`` stored in an AnnData.

    Parameters
    ----------
    adata : AnnData
        Data that went through that function, perhaps read from a file since.
    key : str
        Name of the entry of ``adata.uns``, such as "nmf_rank", "nmf_consensus",
        "nmf_differential" or "nmf_bootstrap".

    Returns
    -------
    RankSelection, Consensus, DifferentialFeatures or Bootstrap
        As the function of the library returns it, with its tables, plots and text.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.select_rank(adata, range(1, 6), n_splits=3)
    >>> tl.result(adata, "nmf_rank").best_rank
    3
    """
    check_is_anndata(adata)
    if not isinstance(key, str):
        raise TypeError(f"key must be a str; got {described(key)}.")
    entries = adata.uns.get(key)
    kind = _kind_of(entries)
    if kind is None:
        there = [name for name, value in adata.uns.items() if _kind_of(value) is not None]
        raise ValueError(
            f"adata.uns[{key!r}] is not a result of klnmf.tl. Results in adata.uns: "
            f"{', '.join(map(repr, there)) or 'none'}."
        )
    try:
        stored = dict(entries["result"])
        if kind == "consensus":
            stored |= _of_fit(adata, key)
        found: Any = _restored(KINDS[kind], stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"adata.uns[{key!r}] is damaged: {error}.") from error
    object.__setattr__(found, "_is_of_cells", True)  # of a frozen dataclass
    return found


def _kind_of(entries: Any) -> str | None:
    """Kind of a result of klnmf.tl; None: an entry of something else, whatever it holds."""
    kind = entries.get("kind") if isinstance(entries, Mapping) else None
    return kind if isinstance(kind, str) and kind in KINDS else None


def put_result(adata: AnnData, key: str, kind: str, found: Any, params: dict[str, Any]) -> None:
    """Store a result under this name."""
    entries = {"kind": kind, "params": params, "result": as_entries(found)}
    adata.uns[key] = entries | {"version": version("klnmf")}


def as_entries(found: Any) -> dict[str, Any]:
    """Fields of a result in types that .h5ad keeps; those that are None or empty are left out."""
    entries: dict[str, Any] = {}
    for field in fields(found):
        value = getattr(found, field.name)
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
    if is_dataclass(hint):
        return _restored(hint, stored)  # type: ignore[arg-type]
    if get_origin(hint) in (list, tuple):
        return get_origin(hint)(str(name) for name in stored)
    array = stored.toarray() if sp.issparse(stored) else np.asarray(stored)
    return array.item() if array.ndim == 0 else array
