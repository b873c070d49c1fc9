"""Where the row problems are solved; the one table of names."""

from importlib import import_module
from typing import Any

from klnmf.backends.base import Backend, ClusterLostError, LazyInput, Needs
from klnmf.data.matrix_checks import is_dask_array, is_on_device
from klnmf.data.sparse_data import CountData, FitInput
from klnmf.support.descriptions import described
from klnmf.support.option_names import option

__all__ = ["Backend", "ClusterLostError"]

# Module and class, imported when they are needed. "auto" is the first one that is available and
# lacks nothing.
BACKENDS = {
    "cpu": ("klnmf.backends.cpu", "CpuBackend"),
    "cuda": ("klnmf.backends.cuda.backend", "CudaBackend"),
    "reference": ("klnmf.backends.reference", "ReferenceBackend"),
    "dask": ("klnmf.backends.dask.backend", "DaskBackend"),
}
# Those whose workers are other processes: too slow for small batches.
CLUSTERS = frozenset({"dask"})


def backend_class(name: str) -> type[Backend]:
    """Return the class of a name in the table, whether it can be used here or not."""
    module, class_name = BACKENDS[name]
    found: type[Backend] = getattr(import_module(module), class_name)
    return found


def backend_named(name: Any, needs: Needs | None = None) -> type[Backend]:
    """Return the class of a back-end that can be used here and has what a fit needs.

    "auto" is the first such one. What a back-end lacks is said in a ValueError.
    """
    if name == "auto":
        # One after the other: no more classes are imported than are looked at.
        usable = (each for each in map(backend_class, BACKENDS) if each.available() is None)
        fitting = (each for each in usable if needs is None or each.lacks(needs) is None)
        found = next(fitting, None) or backend_class("cpu")  # which says what it lacks
    elif isinstance(name, str) and name in BACKENDS:
        found = backend_class(name)
        reason = found.available()
        if reason is not None:
            raise ImportError(f"{option('backend', name)} is not available here: {reason}.")
    else:
        raise ValueError(f"backend must be one of {['auto', *BACKENDS]}, got {described(name)}.")
    lacking = None if needs is None else found.lacks(needs)
    if lacking is not None:
        raise ValueError(lacking)
    return found


def lazy_kind(X: Any) -> type[LazyInput] | None:
    """Return what makes a `LazyInput` of X; None: X is to be read in this process."""
    if not is_dask_array(X):
        return None
    found: type[LazyInput] = import_module("klnmf.backends.dask.arrays").UnreadDaskArray
    return found


def backend_for(name: str, X: Any) -> str:
    """Return the name of the back-end for X: "auto" is "cuda" if X is on a GPU already."""
    is_there = name == "auto" and is_on_device(X) and backend_class("cuda").available() is None
    return "cuda" if is_there else name


def data_on_device(X: Any, dtype: Any) -> CountData | None:
    """X from where it is, a GPU; None: it is to be checked on the host."""
    data: CountData | None = _cupy_input().data_of(X, dtype)
    return data


def result_on_device(W: Any) -> Any:
    """Return W on the GPU, where X is."""
    return _cupy_input().on_device(W)


def _cupy_input() -> Any:
    return import_module("klnmf.backends.cuda.cupy_input")


def make_backend(name: str, data: FitInput, n_threads: int | None = None) -> Backend:
    """Return a back-end by name, with the data."""
    return backend_named(name)(data, n_threads)
