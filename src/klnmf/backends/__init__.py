"""Where the row problems are solved; the one table of names."""

from importlib import import_module

from klnmf.backends.base import Backend, ClusterLostError
from klnmf.data.sparse_data import FitInput
from klnmf.support.descriptions import described

__all__ = [
    "BACKENDS",
    "Backend",
    "ClusterLostError",
    "backend_named",
    "make_backend",
]

# Module and class, imported when they are needed. "auto" is the first one that is available.
BACKENDS = {
    "cpu": ("klnmf.backends.cpu", "CpuBackend"),
    "reference": ("klnmf.backends.reference", "ReferenceBackend"),
    "dask": ("klnmf.backends.dask.backend", "DaskBackend"),
}


def backend_class(name: str) -> type[Backend]:
    """Return the class of a name in the table, whether it can be used here or not."""
    module, class_name = BACKENDS[name]
    found: type[Backend] = getattr(import_module(module), class_name)
    return found


def backend_named(name: str) -> type[Backend]:
    """Return the class of a back-end that can be used here; "auto" is the first such one."""
    if name == "auto":
        return next(found for found in map(backend_class, BACKENDS) if found.available() is None)
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {['auto', *BACKENDS]}, got {described(name)}.")
    found = backend_class(name)
    reason = found.available()
    if reason is not None:
        raise ImportError(f"backend={name!r} is not available here: {reason}.")
    return found


def make_backend(name: str, data: FitInput, n_threads: int | None = None) -> Backend:
    """Return a back-end by name, with the data."""
    return backend_named(name)(data, n_threads)
