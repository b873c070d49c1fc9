"""The few names of CuPy that matrices on a GPU need, on NumPy: for tests without a GPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp


class FakeArray(np.ndarray):
    """An array that NumPy's code must not take for one of its own: `get` is the way out."""

    def get(self) -> np.ndarray:
        return np.array(self).view(np.ndarray)


def _fake(function: Any) -> Any:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return found.view(FakeArray) if isinstance(found, np.ndarray) else found

    return wrapped


class FakeSparse:
    """A matrix of cupyx.scipy.sparse: its parts are on the device."""

    ndim = 2

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix if sp.issparse(matrix) else sp.csr_array(np.asarray(matrix))
        for name in ("format", "shape", "dtype", "nnz"):
            setattr(self, name, getattr(self._matrix, name))
        for name in ("data", "indices", "indptr", "row", "col"):
            if hasattr(self._matrix, name):
                setattr(self, name, np.array(getattr(self._matrix, name)).view(FakeArray))

    def get(self) -> Any:
        return self._matrix


def modules() -> dict[str, ModuleType]:
    """What to put into ``sys.modules``."""
    cupy, sparse = ModuleType("cupy"), ModuleType("cupyx.scipy.sparse")
    cupy.ndarray = FakeArray  # type: ignore[attr-defined]
    for name in ("concatenate", "zeros", "cumsum", "diff", "asarray", "bincount", "argsort"):
        setattr(cupy, name, _fake(getattr(np, name)))
    cupy.all, cupy.log = np.all, np.log  # type: ignore[attr-defined]
    sparse.spmatrix = sparse.csr_matrix = FakeSparse  # type: ignore[attr-defined]
    sparse.issparse = lambda X: isinstance(X, FakeSparse)  # type: ignore[attr-defined]
    parents = {"cupyx": ModuleType("cupyx"), "cupyx.scipy": ModuleType("cupyx.scipy")}
    parents["cupyx"].scipy = parents["cupyx.scipy"]  # type: ignore[attr-defined]
    parents["cupyx.scipy"].sparse = sparse  # type: ignore[attr-defined]
    return {"cupy": cupy, **parents, "cupyx.scipy.sparse": sparse}
