"""Missing cells of X: which they are, and X without whatever stands in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.checks import checked_pattern
from klnmf.constraints.names import check_sample_order, feature_names_of, in_feature_order
from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.observed_cells import Observation
from klnmf.data.row_constraints import Pattern


def missing_cells(X: Any, missing: Any, feature_names: Any = None) -> sp.csr_array | None:
    """Return the missing cells of X in its own order; None if there are none.

    Parameters
    ----------
    X : array-like, sparse, DataFrame or OnDiskMatrix
        As it was passed. If it is no matrix at all, there are none: its own checks say what it is.
    missing : array-like or sparse
        As it was passed.
    feature_names : array of str or None
        Names of the columns, where X has none.
    """
    check_sample_order({"missing": missing}, X)
    names = feature_names_of(X)
    ordered = in_feature_order(missing, "missing", feature_names if names is None else names)
    shape = _shape(X)
    return None if len(shape) != 2 else checked_pattern(ordered, "missing", shape)


def without_cells(X: Any, cells: sp.csr_array) -> Any:
    """Return X with 0 in some of its cells; X itself is not changed.

    NaN, or anything else that stands for "not observed", must not reach the checks of X.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> without_cells(np.array([[1.0, np.nan]]), sp.csr_array([[False, True]]))
    array([[1., 0.]])
    """
    if _shape(X) != cells.shape:
        return X
    X = checked_matrix(X)
    if sp.issparse(X):
        return _without_stored(X, cells)
    if hasattr(X, "columns"):
        # Another library's tables are as they are: their values must pass the checks.
        return X.mask(cells.toarray(), 0) if hasattr(X, "mask") else X
    values = np.array(X)
    pattern = cells.tocoo()
    values[pattern.row, pattern.col] = 0
    return values


def _without_stored(X: sp.csr_array, cells: sp.csr_array) -> sp.csr_array:
    """X without the values that are stored in some cells, which may have several of them."""
    if X.has_canonical_format:
        seen = Observation(missing=Pattern.of(cells))
        indptr, indices, values = seen.applied(X.indptr, X.indices, X.data)
        return sp.csr_array((values, indices, indptr), shape=X.shape)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    stored = rows * X.shape[1] + X.indices
    pattern = cells.tocoo()
    kept = ~np.isin(stored, pattern.row.astype(np.int64) * X.shape[1] + pattern.col)
    indptr = np.concatenate([[0], np.cumsum(kept)])[X.indptr].astype(X.indptr.dtype)
    return sp.csr_array((X.data[kept], X.indices[kept], indptr), shape=X.shape)


def _shape(X: Any) -> tuple[int, ...]:
    """Shape of anything; one that is none where a list is ragged."""
    try:
        return tuple(X.shape) if hasattr(X, "shape") else np.shape(X)
    except ValueError:
        return ()
