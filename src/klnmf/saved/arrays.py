"""Matrices, names and histories as plain arrays.

Each ``pack_…`` puts arrays into a dictionary and returns an entry for the header. Each
``unpack_…`` reverses this, or raises a SavedFileError.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.matrix_checks import csr_from_parts
from klnmf.saved.container import SavedFileError
from klnmf.saved.fields import Fields
from klnmf.support.array_types import Array

FLOATS = (np.float32, np.float64)
INDICES = (np.int32, np.int64)


def array_named(arrays: dict[str, Array], name: str, dtypes: Sequence[Any], ndim: int) -> Array:
    """Return an array of one of these types and this number of dimensions."""
    array = arrays.get(name)
    if array is None:
        raise SavedFileError(f"the array {name!r} is missing.")
    if array.dtype not in dtypes or array.ndim != ndim:
        types = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        raise SavedFileError(
            f"the array {name!r} must be {ndim}-D and {types}; it is {array.dtype} of shape "
            f"{array.shape}."
        )
    return array


def shaped_array(
    arrays: dict[str, Array], name: str, shape: tuple[int, ...], dtypes: Sequence[Any] = FLOATS
) -> Array:
    """Return an array of one of these types and this shape."""
    array = array_named(arrays, name, dtypes, len(shape))
    if array.shape != shape:
        raise SavedFileError(f"{name} has the shape {array.shape}, not {shape}.")
    return array


def is_factor(values: Array) -> bool:
    """Whether every entry is finite and nonnegative."""
    return bool(np.isfinite(values).all() and (values >= 0).all())


def nonnegative(values: Array, name: str) -> Array:
    """Return an array whose entries are finite and nonnegative."""
    if not is_factor(values):
        raise SavedFileError(f"{name} has entries that are negative or not finite.")
    return values


# ---- matrices ------------------------------------------------------------------------------------


def pack_matrix(arrays: dict[str, Array], name: str, matrix: Any) -> dict[str, Any]:
    """Pack a dense factor as ``NAME``, a sparse one as ``NAME.data/indices/indptr``."""
    if not sp.issparse(matrix):
        arrays[name] = np.asarray(matrix)
        return {"storage": "dense"}
    matrix = sp.csr_array(matrix)
    for part in ("data", "indices", "indptr"):
        arrays[f"{name}.{part}"] = getattr(matrix, part)
    return {"storage": "csr", "shape": [int(size) for size in matrix.shape]}


def unpack_matrix(
    arrays: dict[str, Array], name: str, about: Fields, shape: tuple[int, int]
) -> Any:
    """Return a matrix of nonnegative floats with this shape."""
    storage = about.take("storage", str)
    if storage == "dense":
        matrix: Any = array_named(arrays, name, FLOATS, 2)
        values = matrix
    elif storage == "csr":
        values = array_named(arrays, f"{name}.data", FLOATS, 1)
        indices = array_named(arrays, f"{name}.indices", INDICES, 1)
        indptr = array_named(arrays, f"{name}.indptr", INDICES, 1)
        parts = {"data": values, "indices": indices, "indptr": indptr}
        try:
            matrix = csr_from_parts("csr", parts, about.take("shape", list), name)
        except (TypeError, ValueError) as error:
            raise SavedFileError(str(error)) from error
    else:
        raise SavedFileError(f"{name}.storage must be 'dense' or 'csr'; it is {storage!r}.")
    if matrix.shape != shape:
        raise SavedFileError(f"{name} has the shape {matrix.shape}, not {shape}.")
    nonnegative(values, name)
    return matrix


# ---- names ---------------------------------------------------------------------------------------


def pack_names(arrays: dict[str, Array], name: str, names: Sequence[str]) -> None:
    """Pack names as ``NAME.text``, joined UTF-8 bytes, and ``NAME.ends``, the end of each name."""
    encoded = [str(each).encode() for each in names]
    arrays[f"{name}.text"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    arrays[f"{name}.ends"] = np.cumsum([len(each) for each in encoded], dtype=np.int64)


def unpack_names(arrays: dict[str, Array], name: str, n_names: int) -> Array:
    """Return the names as an array of Python strings."""
    text = array_named(arrays, f"{name}.text", [np.uint8], 1)
    ends = array_named(arrays, f"{name}.ends", [np.int64], 1)
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    if len(ends) != n_names or bounds[-1] != len(text) or (bounds[1:] < bounds[:-1]).any():
        raise SavedFileError(f"{name} is not a list of {n_names} names.")
    whole = text.tobytes()
    names = np.empty(n_names, dtype=object)
    try:
        names[:] = [whole[start:end].decode() for start, end in pairwise(bounds)]
    except UnicodeDecodeError as error:
        raise SavedFileError(f"{name} is not text in UTF-8: {error}.") from error
    return names


# ---- history -------------------------------------------------------------------------------------


def pack_history(arrays: dict[str, Array], history: Sequence[dict[str, Any]]) -> list[str]:
    """Pack the records as the rows of ``history``; the header names the columns."""
    columns = list(history[0]) if history else ["iteration"]
    rows = [[float(record[column]) for column in columns] for record in history]
    arrays["history"] = np.array(rows, dtype=np.float64).reshape(-1, len(columns))
    return columns


def unpack_history(arrays: dict[str, Array], columns: Any) -> list[dict[str, Any]]:
    """Return the records as in ``history_``."""
    table = array_named(arrays, "history", [np.float64], 2)
    is_named = (
        isinstance(columns, list)
        and all(isinstance(column, str) for column in columns)
        and len(set(columns)) == len(columns) == table.shape[1]
        and "iteration" in columns
    )
    if not is_named:
        raise SavedFileError("the columns of its history must have names, one of them 'iteration'.")
    if not (np.abs(table[:, columns.index("iteration")]) < 2**53).all():  # false for NaN
        raise SavedFileError("its history has invalid iteration numbers.")
    records = [dict(zip(columns, row, strict=True)) for row in table.tolist()]
    for record in records:
        record["iteration"] = int(record["iteration"])
        if "kkt_residual" in record:
            record.setdefault("optimality_gap", math.nan)  # older versions did not compute it
    return records


# ---- modes of tensors ----------------------------------------------------------------------------


def pack_modes(arrays: dict[str, Array], labels: Sequence[Any], weights: Sequence[Any]) -> None:
    """Store the labels and weights of the rows of each mode, where there are any."""
    for mode, (names, numbers) in enumerate(zip(labels, weights, strict=True)):
        if names is not None:
            pack_names(arrays, f"mode_labels_{mode}", list(names))
        if numbers is not None:
            arrays[f"mode_weights_{mode}"] = np.asarray(numbers, dtype=np.float64)


def unpack_modes(
    arrays: dict[str, Array], shape: Sequence[int]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what `pack_modes` stored."""
    labels: list[Any] = [None] * len(shape)
    weights: list[Any] = [None] * len(shape)
    for mode, size in enumerate(shape):
        name, numbers = f"mode_labels_{mode}", f"mode_weights_{mode}"
        if f"{name}.text" in arrays:
            labels[mode] = unpack_names(arrays, name, size)
        if numbers in arrays:
            weights[mode] = nonnegative(shaped_array(arrays, numbers, (size,)), numbers)
    return tuple(labels), tuple(weights)
