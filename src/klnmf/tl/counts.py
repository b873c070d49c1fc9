"""The counts of an AnnData: read from memory or disk without a dense copy, and checked."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.not_counts import NOT_RAW, NotCountsWarning, transformation_of, warn_of_fractions
from klnmf.data.sparse_data import view_of
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.support.optional_packages import require

if TYPE_CHECKING:
    from anndata import AnnData

# How much is read from disk at once: rows of a sparse matrix, numbers of a dense one.
_ROWS_AT_ONCE = 4096
_NUMBERS_AT_ONCE = 1 << 23
# Rows that are checked to see whether another layer holds counts.
_ROWS_TO_LOOK_AT = 256


def check_is_anndata(adata: Any, name: str = "adata") -> None:
    """Refuse anything but an AnnData."""
    if not isinstance(adata, require("anndata", "klnmf.tl", "anndata").AnnData):
        raise TypeError(
            f"{name} must be an AnnData, got {type(adata).__name__}. For a matrix or a DataFrame "
            "use klnmf.KLNMF."
        )


@contextmanager
def checked_before() -> Iterator[None]:
    """Call the library with counts whose warnings were given before, with the layers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCountsWarning)
        yield


def counts_of_layer(
    adata: AnnData, layer: str | None, columns: Array | None = None
) -> sp.csr_array:
    """Read X, a layer or raw, or these genes of it, as a CSR array; from disk in blocks of rows.

    Only a CSC matrix on disk is read as a whole.
    """
    matrix = _chosen_matrix(adata, layer)
    if _is_raw(adata, layer):
        columns = _columns_of_raw(adata, columns)
    is_sparse = sp.issparse(matrix) or hasattr(matrix, "to_memory")
    blocks: Iterable[Any] = [matrix]
    if hasattr(matrix, "to_memory") and (columns is None or matrix.format == "csc"):
        blocks = [matrix.to_memory()]
    elif type(matrix).__module__.partition(".")[0] in ("anndata", "h5py"):
        rows = _ROWS_AT_ONCE if is_sparse else max(1, _NUMBERS_AT_ONCE // max(1, matrix.shape[1]))
        starts = range(0, max(1, matrix.shape[0]), rows)
        blocks = (matrix[start : start + rows] for start in starts)
    elif not (is_sparse or isinstance(matrix, np.ndarray)):
        raise TypeError(
            f"{_place(layer)} is a {type(matrix).__module__}.{type(matrix).__name__}. It must be a "
            "NumPy array, a SciPy sparse matrix, or in a file opened with backed='r'. Read it into "
            "memory first: adata = adata.to_memory()."
        )
    taken = [_taken(block, columns, layer) for block in blocks]
    return taken[0] if len(taken) == 1 else sp.csr_array(sp.vstack(taken, format="csr"))


def check_raw_counts(X: sp.csr_array, adata: AnnData, layer: str | None) -> None:
    """Refuse negative values in X, read from this layer; warn of transformed ones.

    Fractions that show no transformation may be expected counts. The estimator refuses NaN.
    """
    values = X.data
    if values.dtype.kind in ("b", "u") or not np.isfinite(values).all():
        return
    if values.min(initial=0) < 0:
        raise ValueError(
            f"{_place(layer)} holds negative values (the least is {values.min():.4g}): it looks "
            "scaled or centred, but the model needs raw counts. "
            f"{_places_of_counts(adata) or _NO_COUNTS}"
        )
    fractions = values[values != np.floor(values)] if values.dtype.kind == "f" else values[:0]
    if not len(fractions):
        return
    where, looks = _places_of_counts(adata), transformation_of(view_of(X))
    if layer is None and "log1p" in adata.uns:
        looks = "looks log-transformed: adata.uns['log1p'] says so"
    elif looks is None and where is not None:
        looks = NOT_RAW
    if looks is not None:
        warn_of_fractions(_place(layer), fractions[0], looks, where or _NO_COUNTS)


def _is_raw(adata: AnnData, layer: str | None) -> bool:
    return layer == "raw" and "raw" not in adata.layers and adata.raw is not None


def _columns_of_raw(adata: AnnData, columns: Array | None) -> Array | None:
    """Positions of the genes of adata in ``adata.raw``, which may have more of them."""
    genes = adata.var_names if columns is None else adata.var_names[columns]
    if genes.equals(adata.raw.var_names):
        return None
    if not (genes.is_unique and adata.raw.var_names.is_unique):
        raise ValueError(
            "adata.raw has other genes than adata, and they cannot be matched by name, because "
            "some names occur more than once. Pass adata.raw.to_adata()."
        )
    positions = np.asarray(adata.raw.var_names.get_indexer(genes))
    if (positions < 0).any():
        absent = genes[positions < 0]
        raise ValueError(
            f"adata.raw does not have {len(absent):,} of the {len(genes):,} genes, such as "
            f"{absent[0]!r}. Pass adata.raw.to_adata()."
        )
    return positions


def _chosen_matrix(adata: AnnData, layer: str | None) -> Any:
    if _is_raw(adata, layer):
        return adata.raw.X
    if layer is not None and layer not in adata.layers:
        there = ", ".join(map(repr, adata.layers)) or "none"
        raise ValueError(f"adata has no layer {described(layer)}; its layers: {there}.")
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        where = _places_of_counts(adata) or _NO_COUNTS
        raise ValueError(f"adata.X is None. Pass layer=... {where}")
    return matrix


def _place(layer: str | None) -> str:
    return "adata.X" if layer is None else f"adata.layers[{layer!r}]"


_NO_COUNTS = (
    "No layer holds whole numbers: keep the counts before they are normalised, "
    "adata.layers['counts'] = adata.X.copy(), and pass layer='counts'."
)


def _places_of_counts(adata: AnnData) -> str | None:
    """Say where whole numbers are, and how to pass them; None: nowhere."""
    layers = [name for name in adata.layers if _begins_with_counts(adata.layers[name])]
    if layers:
        return "Whole numbers are in " + ", ".join(f"layer={name!r}" for name in layers) + "."
    if adata.raw is not None and _begins_with_counts(adata.raw.X):
        return "Whole numbers are in adata.raw: pass layer='raw'."
    return None


def _begins_with_counts(matrix: Any) -> bool:
    """Whether the first rows hold whole numbers that are not negative, and not only zeros."""
    block = matrix[:_ROWS_TO_LOOK_AT]
    values = np.asarray(block.data if sp.issparse(block) else block)
    return bool(values.any() and (values >= 0).all() and (values == np.floor(values)).all())


def _taken(block: Any, columns: Array | None, layer: str | None) -> sp.csr_array:
    """Return these columns of some rows, sparse or dense."""
    block = checked_matrix(block, _place(layer)) if sp.issparse(block) else np.asarray(block)
    if block.dtype == np.float16:  # which SciPy does not have
        block = block.astype(np.float32)
    return sp.csr_array(block if columns is None else block[:, columns])
