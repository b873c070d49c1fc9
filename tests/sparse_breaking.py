"""Sparse matrices that are broken in every way that their format allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

# Formats of files, and of nearly all matrices in memory. SciPy converts the others.
FORMATS = ("csr", "csc", "coo")
OTHERS = ("bsr", "dia", "lil", "dok")
WILD = 50_000_000  # an index far beyond any memory of a small matrix


def sparse(format: str, dense: np.ndarray, kind: str = "array") -> Any:
    """A dense matrix in a sparse format; blocks of 2 × 2 where it has blocks."""
    options = {"blocksize": (2, 2)} if format == "bsr" else {}
    return getattr(sp, f"{format}_{kind}")(dense, **options)


def _with(**changes: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Replace attributes by what functions make of copies of them."""

    def apply(X: Any) -> None:
        for name, change in changes.items():
            array = getattr(X, name)
            setattr(X, name, change(array.copy() if isinstance(array, np.ndarray) else array))

    return apply


def _set(place: Any, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.astype(np.int64)
        array[place] = value
        return array

    return change


def _of_both(change: Callable[[np.ndarray], np.ndarray], axis: int) -> Callable[[Any], None]:
    """Change the coordinates of one axis of a COO matrix."""

    def apply(X: Any) -> None:
        X.coords = tuple(
            change(part.copy()) if place == axis else part for place, part in enumerate(X.coords)
        )

    return apply


_OBJECTS = {"object values": _with(data=lambda data: data.astype(object))}
_COMPRESSED = {
    "wild index": _with(indices=lambda a: np.full_like(a, WILD)),
    "negative index": _with(indices=_set(0, -1)),
    "index one too large": lambda X: _with(indices=_set(0, max(X.shape)))(X),
    "indptr past the end": _with(indptr=_set(-1, WILD)),
    "indptr that falls": _with(indptr=_set(1, WILD)),
    "negative indptr": _with(indptr=_set(1, -5)),
    "indptr not from 0": _with(indptr=_set(0, 1)),
    "indptr too short": _with(indptr=lambda a: a[:-1]),
    "indptr too long": _with(indptr=lambda a: np.append(a, a[-1])),
    "no indptr": _with(indptr=lambda a: a[:0]),
    "fewer values": _with(data=lambda a: a[:-1]),
    "fewer indices": _with(indices=lambda a: a[:-1]),
    "float indices": _with(indices=lambda a: a.astype(float)),
    "float indptr": _with(indptr=lambda a: a + 0.5),
    "indices in two dimensions": _with(indices=lambda a: a[:, None]),
    **_OBJECTS,
}
BREAKS: dict[str, dict[str, Callable[[Any], None]]] = {
    "csr": _COMPRESSED,
    "csc": _COMPRESSED,
    "coo": {
        "wild row": _of_both(lambda a: np.full_like(a, WILD), 0),
        "wild column": _of_both(lambda a: np.full_like(a, WILD), 1),
        "negative row": _of_both(_set(0, -1), 0),
        "negative column": _of_both(_set(0, -WILD), 1),
        "fewer rows": _of_both(lambda a: a[:-1], 0),
        "float columns": _of_both(lambda a: a.astype(float), 1),
        "fewer values": _with(data=lambda a: a[:-1]),
        **_OBJECTS,
    },
}


def broken(format: str, how: str, dense: np.ndarray, kind: str = "array") -> Any:
    """A matrix that was right, and is broken since."""
    X = sparse(format, dense, kind)
    BREAKS[format][how](X)
    return X
