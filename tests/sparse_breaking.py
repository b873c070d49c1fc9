"""Sparse matrices that are broken in every way that their format allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

FORMATS = ("csr", "csc", "bsr", "coo", "dia", "lil", "dok")
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


def _row(row: int, change: Callable[[list[Any]], Any], name: str = "rows") -> Callable[[Any], None]:
    def apply(X: Any) -> None:
        getattr(X, name)[row] = change(list(getattr(X, name)[row]))

    return apply


def _key(key: Any) -> Callable[[Any], None]:
    def apply(X: Any) -> None:
        X._dict[key] = 1.0

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
    "a list": _with(indices=lambda a: a.tolist()),
    **_OBJECTS,
}
BREAKS: dict[str, dict[str, Callable[[Any], None]]] = {
    "csr": _COMPRESSED,
    "csc": _COMPRESSED,
    "bsr": {
        **_COMPRESSED,
        "blocks that do not fit": _with(data=lambda a: np.ones((len(a), 5, 7))),
        "blocks of nothing": _with(data=lambda a: a[:, :0, :0]),
        "values in one dimension": _with(data=lambda a: a.ravel()),
    },
    "coo": {
        "wild row": _of_both(lambda a: np.full_like(a, WILD), 0),
        "wild column": _of_both(lambda a: np.full_like(a, WILD), 1),
        "negative row": _of_both(_set(0, -1), 0),
        "negative column": _of_both(_set(0, -WILD), 1),
        "fewer rows": _of_both(lambda a: a[:-1], 0),
        "float columns": _of_both(lambda a: a.astype(float), 1),
        "fewer values": _with(data=lambda a: a[:-1]),
        "one axis": _with(coords=lambda coords: coords[:1]),
        **_OBJECTS,
    },
    "dia": {
        "wild offset": _with(offsets=_set(0, WILD)),
        "wild negative offset": _with(offsets=_set(0, -WILD)),
        "an offset twice": _with(offsets=lambda a: np.full_like(a, a[0])),
        "fewer offsets": _with(offsets=lambda a: a[:-1]),
        "float offsets": _with(offsets=lambda a: a + 0.5),
        "values in one dimension": _with(data=lambda a: a.ravel()),
        **_OBJECTS,
    },
    "lil": {
        "wild column": _row(0, lambda row: [WILD] * len(row)),
        "negative column": _row(0, lambda row: [-1, *row[1:]]),
        "float column": _row(0, lambda row: [0.5, *row[1:]]),
        "more columns": _row(0, lambda row: [*row, 0]),
        "more values": _row(0, lambda row: [*row, 1.0], "data"),
        "a number for a row": _row(0, lambda _: 3),
        "a list for a value": _row(0, lambda row: [[1.0, 2.0]] * len(row), "data"),
        "fewer rows": _with(rows=lambda a: a[:-1]),
    },
    "dok": {
        "wild row": _key((WILD, 0)),
        "wild column": _key((0, WILD)),
        "negative row": _key((-1, 0)),
        "float column": _key((0, 0.5)),
        "no pair": _key((0, 0, 0)),
        "one number": _key(3),
        "words": _key(("a", "b")),
        "a list for a value": lambda X: X._dict.update({(0, 0): [1.0, 2.0]}),
        "no dict": lambda X: setattr(X, "_dict", [1, 2]),
    },
}


def broken(format: str, how: str, dense: np.ndarray, kind: str = "array") -> Any:
    """A matrix that was right, and is broken since."""
    X = sparse(format, dense, kind)
    BREAKS[format][how](X)
    return X
