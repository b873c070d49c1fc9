"""How cells of X enter a fit: with the weight of their sample and feature, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import row_numbers, selected, selected_ends
from klnmf.data.row_constraints import Pattern
from klnmf.support.array_types import Array


@dataclass(frozen=True)
class CellWeights:
    """Weights and missing cells of some rows of one mode; None: weight 1, nothing missing.

    KL is homogeneous, so that Σ w_i v_j KL(x_ij, y_ij) = Σ KL(w_i v_j x_ij, w_i v_j y_ij): a fit
    sees weighted values. Cells that are missing or have weight 0 are left out.
    """

    row_weights: Array | None = None
    column_weights: Array | None = None
    missing: Pattern | None = None

    def rows(self, rows: slice | Array) -> CellWeights:
        """Return the weights of some of the rows."""
        missing = self.missing
        if missing is not None:
            missing = missing.rows(rows) if isinstance(rows, slice) else missing.take(rows)
        row_weights = None if self.row_weights is None else self.row_weights[rows]
        return CellWeights(row_weights, self.column_weights, missing)

    def applied_to(self, X: sp.csr_array) -> sp.csr_array:
        """Return a canonical CSR array as a fit sees it."""
        indptr, indices, values = self.applied(X.indptr, X.indices, X.data)
        return sp.csr_array((values, indices, indptr), shape=X.shape)

    def applied(self, indptr: Array, indices: Array, values: Array) -> tuple[Array, Array, Array]:
        """Return rows in CSR form as a fit sees them; ``indptr`` counts from 0."""
        weights: Any = 1.0
        lengths = np.diff(indptr)
        if self.row_weights is not None:
            weights = np.repeat(self.row_weights, lengths)
        if self.column_weights is not None:
            weights = weights * self.column_weights[indices]
        is_weighted = self.row_weights is not None or self.column_weights is not None
        kept = weights != 0 if is_weighted else np.ones(len(values), dtype=bool)
        if self.missing is not None and len(self.missing.columns):
            kept[self._places_of_missing(indptr, indices)] = False
        if is_weighted:
            values = (values * weights).astype(values.dtype)
        if kept.all():
            return indptr, indices, values
        return selected_ends(indptr, kept), indices[kept], values[kept]

    def _places_of_missing(self, indptr: Array, indices: Array) -> Array:
        """Places among the nonzeros of those cells that are missing and have a value."""
        assert self.missing is not None
        n_columns = 1 + int(max(indices.max(initial=0), self.missing.columns.max(initial=0)))
        # Both are rising.
        stored = row_numbers(indptr) * n_columns + indices
        missing = row_numbers(self.missing.starts) * n_columns + self.missing.columns
        places = np.searchsorted(stored, missing)
        found = places < len(stored)
        found[found] = stored[places[found]] == missing[found]
        return places[found]


def without_cells(X: Any, cells: sp.csr_array) -> Any:
    """Return X with 0 in some of its cells; X itself is not changed.

    NaN, or anything else that stands for "not observed", must not reach the checks of X. The cells
    are the stored entries of a CSR array; X is what ``checked_matrix`` returns.

    >>> without_cells(np.array([[1.0, np.nan]]), sp.csr_array([[False, True]]))
    array([[1., 0.]])
    """
    if shape_of(X) != cells.shape:
        return X
    if sp.issparse(X):
        return _without_stored(X, cells)
    if hasattr(X, "columns"):
        # Tables of other libraries than pandas are not changed: their values must pass the checks.
        return X.mask(cells.toarray(), 0) if hasattr(X, "mask") else X
    values = np.array(X)
    pattern = cells.tocoo()
    values[pattern.row, pattern.col] = 0
    return values


def _without_stored(X: sp.csr_array, cells: sp.csr_array) -> sp.csr_array:
    """X without the values that are stored in some cells, which may have several of them."""
    if X.has_canonical_format:
        return CellWeights(missing=Pattern.of(cells)).applied_to(X)
    stored, places = (row_numbers(A.indptr) * A.shape[1] + A.indices for A in (X, cells))
    return selected(X, ~np.isin(stored, places))


def shape_of(X: Any) -> tuple[int, ...]:
    """Shape of anything; () for lists of different lengths."""
    try:
        return tuple(X.shape) if hasattr(X, "shape") else np.shape(X)
    except ValueError:
        return ()
