"""How cells of X enter a fit: with the weight of their sample and feature, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.data.row_constraints import Pattern

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Observation:
    """Weights and missing cells of some rows of one mode; None: weight 1, nothing missing.

    KL is homogeneous, so that Σ w_i v_j KL(x_ij, y_ij) = Σ KL(w_i v_j x_ij, w_i v_j y_ij): a fit
    sees weighted values. Cells that are missing, or of weight 0, are not there at all.
    """

    row_weights: Array | None = None
    column_weights: Array | None = None
    missing: Pattern | None = None

    def rows(self, rows: slice | Array) -> Observation:
        """Return the same for some of the rows."""
        missing = self.missing
        if missing is not None:
            missing = missing.rows(rows) if isinstance(rows, slice) else missing.take(rows)
        row_weights = None if self.row_weights is None else self.row_weights[rows]
        return Observation(row_weights, self.column_weights, missing)

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
        ends = np.concatenate([[0], np.cumsum(kept)])
        return ends[indptr].astype(indptr.dtype), indices[kept], values[kept]

    def _places_of_missing(self, indptr: Array, indices: Array) -> Array:
        """Places among the nonzeros of those cells that are missing and have a value."""
        assert self.missing is not None
        n_columns = 1 + int(max(indices.max(initial=0), self.missing.columns.max(initial=0)))
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        stored = rows * n_columns + indices  # rising, as the cells of the pattern are
        missing = self.missing.row_numbers() * n_columns + self.missing.columns
        places = np.searchsorted(stored, missing)
        found = places < len(stored)
        found[found] = stored[places[found]] == missing[found]
        return places[found]
