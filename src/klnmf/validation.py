"""Every check of the data and of starting factors, and their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array = npt.NDArray[Any]

# Integers below this are exact in float32.
EXACT_IN_FLOAT32 = 2**24

# Positive values outside these bounds would under- or overflow in squares and quotients.
VALUE_RANGE = {"float32": (1e-15, 1e15), "float64": (1e-140, 1e140)}


def working_dtype(values: Array, requested: Any = None) -> np.dtype[Any]:
    """Float type to compute in: floats keep theirs, integers get the narrowest that is exact."""
    if requested is not None:
        dtype: np.dtype[Any] = np.dtype(requested)
        if dtype.name not in VALUE_RANGE:
            raise ValueError(f"dtype must be None, float32 or float64, got {requested!r}.")
        return dtype
    if values.dtype.kind in "biu":
        exact = values.size == 0 or values.dtype.kind == "b" or values.max() < EXACT_IN_FLOAT32
        return np.dtype(np.float32 if exact else np.float64)
    return np.dtype(np.float32 if values.dtype.itemsize <= 4 else np.float64)


def _reject_negative(X: sp.csr_array, name: str) -> None:
    if X.data.size and X.data.dtype.kind != "b" and X.data.min() < 0:
        worst = int(X.data.argmin())
        row = int(np.searchsorted(X.indptr, worst, side="right")) - 1
        raise ValueError(
            f"Negative values in data passed to {name}: X[{row}, {X.indices[worst]}] = "
            f"{X.data[worst]}. KL divergence is for counts and other nonnegative data; shift or "
            "clip the data, or do not centre or log-transform it below 0 first."
        )


def _reject_out_of_range(values: Array) -> None:
    if values.size == 0:
        return
    low, high = VALUE_RANGE[values.dtype.name]
    smallest, largest = values.min(), values.max()
    if smallest < low or largest > high:
        wider = " Pass dtype=numpy.float64, or" if values.dtype == np.float32 else " Please"
        raise ValueError(
            f"The positive values of X run from {smallest:.3g} to {largest:.3g}, but "
            f"{values.dtype} arithmetic is safe from {low:g} to {high:g} only.{wider} multiply X "
            "by a constant (the components scale with it), or set values that are numerical noise "
            "to 0."
        )


def check_counts(X: Any, *, dtype: Any = None, name: str = "KLNMF") -> sp.csr_array:
    """Return X as a canonical CSR array of positive floats.

    X is not changed, and not copied needlessly.

    Parameters
    ----------
    X : array or sparse matrix
        Two-dimensional, real and finite (scikit-learn's ``check_array`` saw it first).
    dtype : None, float32 or float64
        Type to compute in; None keeps float32 and float64 and picks the exact one for integers.
    name : str
        Who asks, for the messages.

    Returns
    -------
    scipy.sparse.csr_array
        Sorted, without duplicates and explicit zeros. Shares memory with X where it already is so.

    Examples
    --------
    >>> import numpy as np
    >>> X = check_counts(np.array([[0, 3], [1, 0]]))
    >>> X.nnz, X.dtype.name
    (2, 'float32')
    """
    csr = X if isinstance(X, sp.csr_array) else sp.csr_array(X)
    _reject_negative(csr, name)
    if not csr.has_canonical_format:
        csr = csr.copy() if csr is X or np.shares_memory(csr.data, getattr(X, "data", csr)) else csr
        csr.sum_duplicates()
    if csr.data.size and not csr.data.all():
        kept = csr.data != 0  # eliminate_zeros would write to memory that may be the caller's
        indptr = np.concatenate([[0], np.cumsum(kept)])[csr.indptr].astype(csr.indptr.dtype)
        csr = sp.csr_array((csr.data[kept], csr.indices[kept], indptr), shape=csr.shape)
    target = working_dtype(csr.data, dtype)
    if csr.dtype != target:  # `!=` also catches the other byte order
        with np.errstate(over="ignore"):
            data = csr.data.astype(target)
        if not np.isfinite(data).all():
            raise ValueError(
                f"X holds values up to {csr.data.max():.3g}, which {target} cannot represent. "
                "Pass dtype=numpy.float64."
            )
        csr = sp.csr_array((data, csr.indices, csr.indptr), shape=csr.shape)
    _reject_out_of_range(csr.data)
    return csr


def check_start(factor: Any, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Return a starting factor as a fresh C-contiguous array, or say what is wrong with it."""
    dense = factor.toarray() if sp.issparse(factor) else np.asarray(factor)
    if dense.shape != shape:
        raise ValueError(f"The start {name} must have shape {shape}, got {dense.shape}.")
    if dense.dtype.kind not in "biuf":
        raise TypeError(f"The start {name} must hold real numbers, got dtype {dense.dtype}.")
    if not np.isfinite(dense).all() or (dense < 0).any():
        raise ValueError(f"The start {name} must be finite and nonnegative; it is not.")
    return np.array(dense, dtype=dtype, order="C")
