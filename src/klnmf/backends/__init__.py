"""Where the row problems are solved; the one table of names."""

from __future__ import annotations

from klnmf.backends.base import Backend
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.dask.backend import DaskBackend
from klnmf.backends.dask.cluster import ClusterLostError
from klnmf.backends.reference import ReferenceBackend
from klnmf.sparse_data import SparseData

__all__ = [
    "BACKENDS",
    "DEFAULT_BACKEND",
    "Backend",
    "ClusterLostError",
    "backend_named",
    "make_backend",
]

BACKENDS: dict[str, type[CpuBackend] | type[ReferenceBackend] | type[DaskBackend]] = {
    "cpu": CpuBackend,
    "reference": ReferenceBackend,
    "dask": DaskBackend,
}

DEFAULT_BACKEND = "cpu"


def backend_named(name: str) -> type[CpuBackend] | type[ReferenceBackend] | type[DaskBackend]:
    """Class of a back-end by name; "auto" is the fastest one that this machine has."""
    chosen = DEFAULT_BACKEND if name == "auto" else name
    if chosen not in BACKENDS:
        raise ValueError(f"backend must be one of {['auto', *BACKENDS]}, got {name!r}.")
    return BACKENDS[chosen]


def make_backend(name: str, data: SparseData, n_threads: int | None = None) -> Backend:
    """Back-end by name, with the data."""
    return backend_named(name)(data, n_threads)
