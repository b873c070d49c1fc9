"""Where the row problems are solved; the one table of names."""

from __future__ import annotations

from importlib import import_module

from klnmf.backends.base import Backend, ClusterLostError
from klnmf.data.sparse_data import FitInput

__all__ = [
    "BACKENDS",
    "DEFAULT_BACKEND",
    "Backend",
    "ClusterLostError",
    "backend_named",
    "make_backend",
]

# Module and class, imported when a fit asks for them.
BACKENDS = {
    "cpu": ("klnmf.backends.cpu", "CpuBackend"),
    "reference": ("klnmf.backends.reference", "ReferenceBackend"),
    "dask": ("klnmf.backends.dask.backend", "DaskBackend"),
}

DEFAULT_BACKEND = "cpu"


def backend_named(name: str) -> type[Backend]:
    """Class of a back-end by name; "auto" is the fastest one that this machine has."""
    chosen = DEFAULT_BACKEND if name == "auto" else name
    if chosen not in BACKENDS:
        raise ValueError(f"backend must be one of {['auto', *BACKENDS]}, got {name!r}.")
    module, class_name = BACKENDS[chosen]
    found: type[Backend] = getattr(import_module(module), class_name)
    return found


def make_backend(name: str, data: FitInput, n_threads: int | None = None) -> Backend:
    """Back-end by name, with the data."""
    return backend_named(name)(data, n_threads)
