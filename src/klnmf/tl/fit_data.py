"""What of an AnnData a fit uses: counts, genes, weights, exposures and batches.

Whatever is given for each cell or gene, an array or the name of a column, is kept in a column under
the key of the fit (`klnmf.tl.fields`), so that tests and refits find the same data again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.validation import warn_caller, warn_if_transposed
from klnmf.readers.feature_types import FEATURE_TYPES, GENES, counted_types, genes_among
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.tl.counts import check_raw_counts, checked_before, counts_of_layer

if TYPE_CHECKING:
    from anndata import AnnData

# Columns of obs and var under the key of a fit, by the arguments of KLNMF.fit and KLNMF.
OF_CELLS, OF_GENES = ("sample_weight", "exposure"), ("mask", "feature_weight")


@dataclass(frozen=True, eq=False)
class FitData:
    """Counts of the chosen genes, and what KLNMF takes with them."""

    X: sp.csr_array
    columns: Array | None  # positions of the chosen genes; None: all
    feature_weight: Array | None  # of the chosen genes
    of_cells: dict[str, Any]  # sample_weight, exposure
    batches: Array | None  # names, in the order of the last columns of W
    batch_of_cell: Array | None  # positions in batches; −1: none of them
    n_genes: int = 0  # of the AnnData
    params: dict[str, Any] = field(default_factory=dict)  # to be stored with the fit

    @property
    def n_batches(self) -> int:
        """Number of components that belong to batches."""
        return 0 if self.batches is None else len(self.batches)

    @property
    def constraints(self) -> dict[str, Any]:
        """Constraints on the cells, by the arguments of ``KLNMF.fit``."""
        if self.batches is None or self.batch_of_cell is None:
            return self.of_cells
        return self.of_cells | {
            "fixed_W": batch_columns(self.X, self.batch_of_cell, len(self.batches))
        }

    @property
    def gene_columns(self) -> dict[str, Array]:
        """Columns of var that keep the genes and their weights."""
        kept: dict[str, Array] = {}
        columns = slice(None) if self.columns is None else self.columns
        if self.columns is not None:
            kept["mask"] = np.zeros(self.n_genes, dtype=bool)
            kept["mask"][columns] = True
        if self.feature_weight is not None:
            kept["feature_weight"] = np.zeros(self.n_genes)
            kept["feature_weight"][columns] = self.feature_weight
        return kept


def batch_columns(X: sp.csr_array, batch_of_cell: Array, n_batches: int) -> Array:
    """Columns of W, one per batch: the total of each cell of the batch, and 0 for other cells.

    So the profile of a batch makes up the same fraction of the counts of all its cells. A cell of
    an unknown batch gets the mean of all profiles.
    """
    shares = np.full((len(batch_of_cell), n_batches), 1.0 / n_batches)
    known = batch_of_cell >= 0
    shares[known] = np.eye(n_batches)[batch_of_cell[known]]
    return np.asarray(shares * X.sum(axis=1, dtype=np.float64)[:, np.newaxis])


def data_to_fit(
    adata: AnnData,
    layer: str | None,
    mask_var: Any,
    batch_key: str | None,
    scale_genes: bool,
    feature_weight: Any,
    sample_weight: Any,
    exposure: Any,
) -> FitData:
    """Read the counts and everything that belongs to them; refuses what does not fit."""
    if not isinstance(scale_genes, bool | np.bool_):
        raise TypeError(f"scale_genes must be True or False, got {described(scale_genes)}.")
    warn_if_transposed("adata", adata.obs_names, adata.var_names, "Pass adata.T.")
    columns = _masked_columns(adata, mask_var)
    of_cells = {
        name: _numbers(given, name, adata.obs, "obs", adata.n_obs)
        for name, given in (("sample_weight", sample_weight), ("exposure", exposure))
        if given is not None
    }
    weight = None
    if feature_weight is not None:
        weight = _numbers(feature_weight, "feature_weight", adata.var, "var", adata.n_vars)
        weight = weight if columns is None else weight[columns]
    names, batch_of_cell = None, None
    if batch_key is not None:
        names, batch_of_cell = _batches(adata, batch_key)
    X = counts_of_layer(adata, layer, columns)
    check_raw_counts(X, adata, layer)
    if scale_genes:
        scale = inverse_deviations(X)
        weight = scale if weight is None else weight * scale
    given = {"layer": layer, "mask_var": mask_var, "batch_key": batch_key}
    given |= {"sample_weight": sample_weight, "exposure": exposure}
    given["feature_weight"] = feature_weight
    params: dict[str, Any] = {
        name: value for name, value in given.items() if isinstance(value, str)
    }
    if scale_genes:
        params["scale_genes"] = True
    return FitData(X, columns, weight, of_cells, names, batch_of_cell, adata.n_vars, params)


def data_of_stored_fit(adata: AnnData, key: str, params: dict[str, Any], batches: Any) -> FitData:
    """Read the data of a fit again, from the columns under its key."""

    def kept(frame: Any, name: str) -> str | None:
        return f"{key}_{name}" if f"{key}_{name}" in frame else None

    with checked_before():  # warnings were given with the fit
        data = data_to_fit(
            adata,
            params.get("layer"),
            kept(adata.var, "mask"),
            batch_key=None,
            scale_genes=False,
            feature_weight=kept(adata.var, "feature_weight"),
            sample_weight=kept(adata.obs, "sample_weight"),
            exposure=kept(adata.obs, "exposure"),
        )
    if batches is None:
        return data
    of_cells = known_batches(adata, params.get("batch_key"), batches)
    return replace(data, batches=batches, batch_of_cell=of_cells)


def known_batches(adata: AnnData, batch_key: str | None, batches: Any) -> Array:
    """Positions of the cells' batches among these; −1 for others, and for all without a column."""
    if batch_key is None:
        return np.full(adata.n_obs, -1)
    place = {str(name): position for position, name in enumerate(batches)}
    values = _column(adata.obs, batch_key, "batch_key", "obs")
    return np.array([place.get(str(value), -1) for value in values], dtype=np.intp)


def inverse_deviations(X: sp.csr_array) -> Array:
    """1 / s_j with the standard deviation s_j of each gene (n − 1); 1 for a gene that is constant.

    KL(X D ‖ W Gᵀ) with D = diag(1/s) and G = D H is Σ_j (1/s_j) KL(x_j ‖ W h_j): genes divided by
    their standard deviations, as cNMF divides them, are genes with these weights.
    """
    n = X.shape[0]
    means = X.sum(axis=0, dtype=np.float64) / n
    squares = X.astype(np.float64).power(2).sum(axis=0) / n
    variances = np.maximum(squares - means**2, 0.0) * n / max(1, n - 1)
    # Rounding leaves a little of the variance of a constant.
    varies = variances > 1e-12 * squares
    return np.where(varies, 1.0 / np.sqrt(np.where(varies, variances, 1.0)), 1.0)


def _batches(adata: AnnData, batch_key: str) -> tuple[Array, Array]:
    """Names of the batches, in the order of their categories or sorted, and each cell's."""
    values = _column(adata.obs, batch_key, "batch_key", "obs")
    if values.isna().any():
        n_without = int(values.isna().sum())
        raise ValueError(
            f"adata.obs[{batch_key!r}] has no value for {n_without:,} cells. Give each a batch."
        )
    names = [
        str(name)
        for name in values.astype("category").cat.remove_unused_categories().cat.categories
    ]
    if len(names) > adata.n_obs // 2:
        raise ValueError(
            f"adata.obs[{batch_key!r}] has {len(names):,} values for {adata.n_obs:,} cells. A "
            "batch needs several cells: pass the column of the batches."
        )
    if len(names) == 1:
        warn_caller(
            f"adata.obs[{batch_key!r}] has the one value {names[0]!r}: its profile takes up what "
            "all cells have in common, and no batch. Leave batch_key out.",
            UserWarning,
        )
    return np.array(names, dtype=object), known_batches(adata, batch_key, names)


def _column(frame: Any, name: Any, argument: str, where: str) -> Any:
    """Return a column of obs or var, or say which there are."""
    if not isinstance(name, Hashable) or name not in frame:
        there = ", ".join(map(repr, frame.columns)) or "none"
        raise ValueError(
            f"{argument}: adata.{where} has no column {described(name)}; its columns: {there}."
        )
    return frame[name]


def _values(given: Any, argument: str, frame: Any, where: str) -> Any:
    """Values for the rows of obs or var: those of a column of this name, or as given."""
    if isinstance(given, str):
        return _column(frame, given, argument, where)
    labels: Any = getattr(given, "index", None)  # lists have a method of this name
    if hasattr(labels, "equals") and not labels.equals(frame.index):
        raise ValueError(
            f"{argument} is a Series with other labels than adata.{where}_names, or in another "
            f"order. Pass {argument}.loc[adata.{where}_names]."
        )
    return given


def _numbers(given: Any, argument: str, frame: Any, where: str, length: int) -> Array:
    """One number for each cell or gene. KLNMF checks their values."""
    values = _values(given, argument, frame, where)
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must hold numbers; got {np.asarray(values).dtype}.") from None
    if numbers.shape != (length,):
        what = "cell" if where == "obs" else "gene"
        raise ValueError(
            f"{argument} must have one number for each of the {length:,} {what}s, or be the name "
            f"of a column of adata.{where}; got shape {numbers.shape}."
        )
    return numbers


def _masked_columns(adata: AnnData, mask_var: Any) -> Array | None:
    """Positions of the genes in the mask; None is all features.

    Without a mask, features of other types than genes are left out, as the readers of files do it.
    """
    types = [str(kind) for kind in adata.var.get(FEATURE_TYPES, ())]
    if mask_var is None:
        one_type = f"mask_var=adata.var[{FEATURE_TYPES!r}] == ..."
        all_types = "mask_var=np.ones(adata.n_vars, dtype=bool)"
        return genes_among(types, "adata", one_type, all_types)
    mask = np.asarray(_values(mask_var, "mask_var", adata.var, "var"))
    if mask.dtype == object and all(isinstance(value, bool | np.bool_) for value in mask.flat):
        mask = mask.astype(bool)  # pandas' booleans
    if mask.dtype != bool or mask.shape != (adata.n_vars,):
        raise ValueError(
            f"mask_var must have one boolean for each of the {adata.n_vars:,} genes; got shape "
            f"{mask.shape} of {mask.dtype}."
        )
    if not mask.any():
        raise ValueError("mask_var leaves no gene.")
    columns = np.flatnonzero(mask)
    chosen = Counter(types[j] for j in columns if types and isinstance(mask_var, str))
    if len(chosen) > 1:
        warn_caller(
            f"adata.var[{mask_var!r}] holds {counted_types(chosen)}, which are fitted together. "
            f"To fit genes alone, pass mask_var=adata.var[{mask_var!r}] & "
            f"(adata.var[{FEATURE_TYPES!r}] == {GENES!r}).",
            UserWarning,
        )
    return columns
