"""The gate for matrices: a sparse matrix is checked in its format before it is converted.

SciPy's compiled conversions trust the index arrays. An index out of range makes them read and write
memory that is not theirs, and checks afterwards come too late.
"""

import os
import sys
from collections.abc import Callable, Mapping
from itertools import chain
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.support.array_types import Array
from klnmf.support.descriptions import described, listed

Shape = tuple[int, int]
Parts = Mapping[str, Any]


def checked_matrix(X: Any, name: str = "X") -> Any:
    """Return a sparse matrix of any format as a CSR array, and anything else unchanged.

    Everything that takes a matrix calls this first. The arrays of a CSR matrix are shared, not
    copied. Entries that are stored twice stay so, see :func:`klnmf.data.canonical.canonical`.

    A ValueError says which parts of a sparse matrix do not fit together; a TypeError, that X does
    not hold numbers or is another object: a path, a CountTable, an AnnData. Messages use ``name``.

    >>> X = sp.csc_array([[0, 2], [1, 0]])
    >>> checked_matrix(X).format
    'csr'
    >>> X.indices[0] = 7
    >>> checked_matrix(X)
    Traceback (most recent call last):
    ValueError: X is not a valid CSC matrix: indices holds 7, which is not in [0, 2).
    """
    _refuse_other_objects(X, name)
    if not sp.issparse(X):
        return X
    parts = {name: getattr(X, name, None) for name in _PARTS}
    if X.format == "dok":
        # In SciPy 1.11 it is a dict itself, which goes through its rows like other matrices.
        parts["entries"] = X._dict if hasattr(X, "_dict") else dict(dict.items(X))
    return csr_from_parts(X.format, parts, X.shape, name)


def csr_from_parts(format: str, parts: Parts, shape: Any, name: str = "X") -> sp.csr_array:
    """Return a CSR array of parts, named as SciPy's attributes, which may come from a file."""
    sizes = _checked_shape(shape, name)
    build = _BUILDERS.get(format)
    if build is None:
        expected = sorted(_BUILDERS)
        raise TypeError(f"{name} has the sparse format {format!r}; expected one of {expected}.")
    try:
        return build(parts, sizes)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not a valid {format.upper()} matrix: {error}") from error
    except TypeError as error:
        raise TypeError(f"{name} is not a valid {format.upper()} matrix: {error}") from error
    except MemoryError as error:
        raise ValueError(
            f"{name} has {sizes[0]:,} rows and {sizes[1]:,} columns, which do not fit into memory."
        ) from error


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


# ---- parts of SciPy's classes --------------------------------------------------------------------


_HAS_COORDS = hasattr(sp.coo_array((1, 1)), "coords")  # SciPy 1.13 and later
_PLACES = ("coords",) if _HAS_COORDS else ("row", "col")
_PARTS = ("data", "indices", "indptr", "offsets", "rows", "dtype", *_PLACES)


def _array(parts: Parts, name: str, n_dimensions: int) -> Array:
    array = parts.get(name)
    if array is None:
        raise ValueError(f"it has no array {name!r}.")
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, got {type(array).__name__}.")
    if array.ndim != n_dimensions:
        raise ValueError(f"{name} must have {n_dimensions} dimension(s), got {array.ndim}.")
    return np.asarray(array)


def _values(parts: Parts, n_dimensions: int = 1) -> Array:
    values = _array(parts, "data", n_dimensions)
    if values.dtype.kind not in "biufc":
        raise TypeError(f"it must hold numbers, got dtype {values.dtype}.")
    return native_numbers(values)


def _integers(parts: Parts, name: str) -> Array:
    """Index array, unconverted: a wide unsigned one must not wrap before its range is checked."""
    array = _array(parts, name, 1)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got dtype {array.dtype}.")
    return array


def _in_range(array: Array, name: str, low: int, high: int) -> Array:
    """Index array in a type that SciPy takes, all of it at least ``low`` and below ``high``."""
    if array.size:
        for worst in (int(array.min()), int(array.max())):
            if not low <= worst < high:
                raise ValueError(f"{name} holds {worst}, which is not in [{low}, {high}).")
    return _index_type(array)


def _index_type(array: Array) -> Array:
    return array if array.dtype in (np.int32, np.int64) else array.astype(np.int64)


# ---- one function for each format ----------------------------------------------------------------


def _compressed(parts: Parts, values: Array, shape: Shape) -> tuple[Array, Array, Array]:
    """Return values, indices and indptr of ``shape[0]`` compressed rows, without what follows."""
    indptr, indices = checked_indptr(parts, shape[0]), _integers(parts, "indices")
    if len(indices) != len(values):
        raise ValueError(f"it has {len(indices):,} indices for {len(values):,} stored values.")
    n_stored = int(indptr[-1])
    if n_stored > len(values):
        raise ValueError(
            f"indptr ends at {n_stored:,}, but it has {len(values):,} indices and values."
        )
    return values[:n_stored], _in_range(indices[:n_stored], "indices", 0, shape[1]), indptr


def checked_indptr(parts: Parts, n_rows: int) -> Array:
    """Return where each compressed row ends: from 0, not decreasing. Its last entry may be any."""
    indptr = _integers(parts, "indptr")
    if len(indptr) != n_rows + 1:
        raise ValueError(f"indptr must have {n_rows + 1:,} entries, got {len(indptr):,}.")
    if indptr[0] != 0:
        raise ValueError(f"indptr must start at 0, got {indptr[0]}.")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        raise ValueError(f"indptr must not decrease, but entry {int(falls.argmax()) + 1:,} does.")
    _in_range(indptr[-1:], "indptr", 0, np.iinfo(np.int64).max)
    return _index_type(indptr)


def _from_csr(parts: Parts, shape: Shape) -> sp.csr_array:
    return sp.csr_array(_compressed(parts, _values(parts), shape), shape=shape)


def _from_csc(parts: Parts, shape: Shape) -> sp.csr_array:
    columns = _compressed(parts, _values(parts), shape[::-1])
    return sp.csc_array(columns, shape=shape).tocsr()


def _from_bsr(parts: Parts, shape: Shape) -> sp.csr_array:
    blocks = _values(parts, 3)
    height, width = blocks.shape[1:]
    if not (height and width) or shape[0] % height or shape[1] % width:
        raise ValueError(f"its blocks of {height} × {width} do not divide its shape {shape}.")
    grid = shape[0] // height, shape[1] // width
    rows = sp.bsr_array(_compressed(parts, blocks, grid), shape=shape)
    return _csr_of_entries(rows.tocoo(copy=False))


def _from_coo(parts: Parts, shape: Shape) -> sp.csr_array:
    values = _values(parts)
    coords = parts.get("coords")
    if coords is not None:
        if not isinstance(coords, tuple | np.ndarray) or len(coords) != 2:
            raise ValueError("coords must be two arrays, of rows and of columns.")
        parts = {"row": coords[0], "col": coords[1]}
    places = []
    for name, size in zip(("row", "col"), shape, strict=True):
        array = _integers(parts, name)
        if len(array) != len(values):
            raise ValueError(f"{name} has {len(array):,} entries for {len(values):,} values.")
        places.append(_in_range(array, name, 0, size))
    return _csr_of_entries(sp.coo_array((values, tuple(places)), shape=shape))


def _csr_of_entries(entries: sp.coo_array) -> sp.csr_array:
    entries.has_canonical_format = True  # or SciPy would sum uint8 in uint8
    return sp.csr_array(entries.tocsr())


def _from_dia(parts: Parts, shape: Shape) -> sp.csr_array:
    values, offsets = _values(parts, 2), _integers(parts, "offsets")
    if len(offsets) != len(values):
        raise ValueError(f"it has {len(offsets)} offsets for {len(values)} diagonals.")
    if len(np.unique(offsets)) != len(offsets):
        raise ValueError("offsets has the same diagonal twice.")
    offsets = _in_range(offsets, "offsets", -shape[0], shape[1] + 1)
    return sp.dia_array((values, offsets), shape=shape).tocsr()


def _from_lil(parts: Parts, shape: Shape) -> sp.csr_array:
    rows, data = _lists(parts, "rows", shape[0]), _lists(parts, "data", shape[0])
    lengths = [len(row) for row in rows]
    if lengths != [len(row) for row in data]:
        raise ValueError("rows and data do not have lists of the same lengths.")
    columns = list(chain.from_iterable(rows))
    entries = {
        "data": np.array(list(chain.from_iterable(data)), dtype=parts.get("dtype")),
        "row": np.repeat(np.arange(shape[0]), lengths),
        "col": np.array(columns) if columns else np.zeros(0, np.int64),
    }
    return _from_coo(entries, shape)


def _lists(parts: Parts, name: str, n_rows: int) -> list[list[Any]]:
    array = _array(parts, name, 1)
    if len(array) != n_rows or not all(isinstance(row, list) for row in array):
        raise ValueError(f"{name} must hold one list for each of its {n_rows:,} rows.")
    return list(array)


def _from_dok(parts: Parts, shape: Shape) -> sp.csr_array:
    entries = parts.get("entries")
    if not isinstance(entries, dict):
        raise TypeError(f"its entries must be in a dict, got {type(entries).__name__}.")
    places = np.array(list(entries)) if entries else np.zeros((0, 2), np.int64)
    if places.ndim != 2 or places.shape[1] != 2:
        raise ValueError("its keys must be pairs of a row and a column.")
    values = np.array(list(entries.values()), dtype=parts.get("dtype"))
    return _from_coo({"data": values, "coords": places.T}, shape)


_BUILDERS: dict[str, Callable[[Parts, Shape], sp.csr_array]] = {
    "csr": _from_csr,
    "csc": _from_csc,
    "bsr": _from_bsr,
    "coo": _from_coo,
    "dia": _from_dia,
    "lil": _from_lil,
    "dok": _from_dok,
}


def is_dask_array(X: Any) -> bool:
    """Whether X is a Dask array; Dask itself is not imported."""
    return _is_a(X, "dask.array", "Array")
