"""The gate for matrices: a sparse matrix is checked in its format before it is converted.

SciPy's compiled conversions trust the index arrays. An index out of range makes them read and write
memory that is not theirs, and checks afterwards come too late.
"""

import os
import sys
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.passes import columns_rise
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described, listed

Shape = tuple[int, int]
# Attributes of SciPy's classes that make up a matrix.
_PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
}


def checked_matrix(X: Any, name: str = "X", n_threads: int = 1) -> Any:
    """Return a sparse matrix of any format as a CSR array, and anything else unchanged.

    Everything that takes a matrix calls this first. The arrays of a CSR matrix are shared, not
    copied. Entries that are stored twice stay so, see :func:`klnmf.data.canonical.canonical`. What
    is on a GPU is copied from there.

    A ValueError says which parts of a sparse matrix do not fit together; a TypeError, that X does
    not hold numbers or is another object: a path, a CountTable, an AnnData. Messages use ``name``.

    >>> X = sp.csc_array([[0, 2], [1, 0]])
    >>> checked_matrix(X).format
    'csr'
    >>> X.indices[0] = 7
    >>> checked_matrix(X)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: X is not a valid CSC matrix: ... must be < 2.
    """
    X = on_host(X)
    _refuse_other_objects(X, name)
    if not sp.issparse(X):
        return X
    if X.format not in _PARTS:
        X = _as_entries(X, name)
    parts = {part: getattr(X, part) for part in _PARTS[X.format]}
    return csr_from_parts(X.format, parts, X.shape, name, n_threads)


def _as_entries(X: Any, name: str) -> sp.coo_array:
    """Return a matrix of another format, such as LIL or DIA, as entries that are to be checked."""
    _checked_shape(X.shape, name)
    try:
        # SciPy's compiled code trusts the lengths of these parts.
        if X.format == "lil":
            sizes = [[*map(len, lists)] for lists in (X.rows, X.data)]
            if sizes[0] != sizes[1] or len(sizes[0]) != X.shape[0]:
                raise ValueError("its rows, columns and values are not of the same number")
        if X.format == "dia" and (X.data.ndim != 2 or X.offsets.shape != X.data.shape[:1]):
            raise ValueError("it has not as many offsets as diagonals")
        return sp.coo_array(X.tocoo())
    except Exception as error:  # parts that do not fit together fail in any way
        raise ValueError(f"{name} is not a valid {X.format.upper()} matrix: {error}") from error


def csr_from_parts(
    format: str, parts: Mapping[str, Any], shape: Any, name: str = "X", n_threads: int = 1
) -> sp.csr_array:
    """Return a CSR array of parts, named as SciPy's attributes, which may come from a file."""
    sizes = _checked_shape(shape, name)
    try:
        arrays = [np.asarray(parts[part]) for part in _PARTS[format]]
        return _checked_csr(format, arrays, sizes, n_threads)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        problem = f"{name} is not a valid {format.upper()} matrix: {error}"
        raise kind(f"{problem.rstrip('.')}.") from error
    except MemoryError as error:
        raise ValueError(
            f"{name} has {sizes[0]:,} rows and {sizes[1]:,} columns, which do not fit into memory."
        ) from error


def _checked_csr(format: str, arrays: list[Array], shape: Shape, n_threads: int) -> sp.csr_array:
    values, *places = arrays
    if values.dtype.kind not in "biufc":
        raise TypeError(f"it must hold numbers, got dtype {values.dtype}.")
    if any(array.dtype.kind not in "iu" for array in places):
        raise ValueError(f"{' and '.join(_PARTS[format][1:])} must hold integers.")
    if format == "coo":  # SciPy compares rows and columns with the shape
        entries = sp.coo_array((native_numbers(values), tuple(places)), shape=shape)
        entries.has_canonical_format = True  # or SciPy would sum uint8 in uint8
        return sp.csr_array(entries.tocsr())
    check_indptr(places[1], shape[0 if format == "csr" else 1])
    build = {"csr": sp.csr_array, "csc": sp.csc_array}[format]
    matrix = build((native_numbers(values), *places), shape=shape)
    matrix.check_format(full_check=format != "csr" or not _ends_are_right(matrix, n_threads))
    return sp.csr_array(matrix.tocsr())


def _ends_are_right(X: sp.csr_array, n_threads: int) -> bool:
    """Whether each row rises from a column of X to a column of X; its ends rise, and are there."""
    if X.indptr[-1] > len(X.indices) or not columns_rise(X, n_threads):
        return False
    begins, ends = X.indptr[:-1], X.indptr[1:]
    is_filled = begins < ends
    first, last = X.indices[begins[is_filled]], X.indices[ends[is_filled] - 1]
    return bool(first.min(initial=0) >= 0 and last.max(initial=-1) < X.shape[1])


def check_indptr(indptr: Array, n_rows: int) -> None:
    """Refuse ends of rows that do not rise from 0; the last may be any.

    SciPy does not look at those of a matrix that ends at 0.
    """
    if indptr.shape != (n_rows + 1,) or indptr.dtype.kind not in "iu":
        problem = f"got {indptr.dtype} of shape {indptr.shape}"
        raise ValueError(f"indptr must have {n_rows + 1:,} whole numbers, {problem}.")
    if indptr[0] != 0:
        raise ValueError(f"indptr must start at 0, got {indptr[0]}.")
    if (indptr[1:] < indptr[:-1]).any():
        raise ValueError("indptr must not decrease.")


def native_numbers(values: Array) -> Array:
    """Return values in a type that SciPy takes: no half floats, no foreign byte order."""
    if values.dtype.kind == "f" and values.dtype.itemsize < 4:
        return values.astype(np.float32)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _refuse_other_objects(X: Any, name: str) -> None:
    """Refuse objects that hold a matrix; NumPy would take an AnnData apart, for hours."""
    if isinstance(X, str | os.PathLike):
        raise TypeError(
            f"{name} is a path. Read the file first: klnmf.readers.read_counts({str(X)!r}).X"
        )
    if not any(hasattr(X, each) for each in ("__array__", "__len__", "__dataframe__", "shape")):
        raise TypeError(
            f"{name} must be an array, a sparse matrix or a DataFrame; got {described(X)}."
        )
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, which is not supported. Pass {name}.filled(0); in fit, "
            f"transform and score, missing={name}.mask marks the cells that were not observed."
        )
    if _is_a(X, "klnmf.readers.table", "CountTable"):
        raise TypeError(f"{name} is a CountTable. Pass its counts, table.X.")
    if _is_a(X, "anndata", "AnnData"):
        raise TypeError(
            f"{name} is an AnnData object. Use klnmf.tl.nmf(adata, ...) to fit it and "
            "klnmf.tl.project to apply a model, or pass its matrix of counts, such as adata.X or "
            "adata.layers['counts']."
        )


def _is_a(X: Any, module: str, kind: str) -> bool:
    """Whether X is of a class in a module that is imported wherever such an object exists."""
    return isinstance(X, getattr(sys.modules.get(module), kind, ()))


def _checked_shape(shape: Any, name: str) -> Shape:
    given = listed(shape, f"The shape of {name}", "whole numbers")
    sizes = tuple(int(size) if isinstance(size, Integral) else -1 for size in given)
    if any(size < 0 for size in sizes):
        raise ValueError(
            f"The shape of {name} must be whole numbers of 0 or more, got {described(shape)}."
        )
    if len(sizes) != 2:
        raise ValueError(f"{name} must have two dimensions; the shape of this one is {sizes}.")
    return sizes[0], sizes[1]


def is_dask_array(X: Any) -> bool:
    """Whether X is a Dask array; Dask itself is not imported."""
    return _is_a(X, "dask.array", "Array")


def is_on_device(X: Any) -> bool:
    """Whether X is an array or a matrix of CuPy's; CuPy itself is not imported."""
    return _is_a(X, "cupy", "ndarray") or _is_a(X, "cupyx.scipy.sparse", "spmatrix")


def on_host(X: Any) -> Any:
    """Return X, copied to the memory of this machine if it is on a GPU."""
    return X.get() if is_on_device(X) else X


# ---- values -------------------------------------------------------------------------------------


def refuse_wrong_counts(
    csr: sp.csr_array, row_names: Any = None, column_names: Any = None, first_row: int = 0
) -> None:
    """Raise a ValueError that says where the first value is that is not a count."""
    wrong = first_wrong(csr.data)
    if wrong is None:
        return
    row = int(np.searchsorted(csr.indptr, wrong, side="right")) - 1 + first_row
    raise ValueError(
        f"row {_place(row, row_names)}, column {_place(int(csr.indices[wrong]), column_names)} "
        f"holds {csr.data[wrong]}; counts are finite numbers of 0 or more."
    )


def first_wrong(values: Array) -> int | None:
    """Position of the first value that is no count: negative, infinite or not a number."""
    if values.dtype.kind in {"b", "u"} or not values.size:
        return None
    # NaN fails every comparison.
    if values.min() >= 0 and values.max() < np.inf:
        return None
    return int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])


def is_count(value: float) -> bool:
    """Whether a number is 0 or more, finite, and not NaN."""
    return 0.0 <= value < float("inf")


def _place(position: int, names: Array | None) -> str:
    return str(position) if names is None else f"{position} ({names[position]!r})"
