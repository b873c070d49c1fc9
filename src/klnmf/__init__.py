"""Nonnegative matrix factorisation of large sparse count matrices under the KL divergence."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401, see below
import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klnmf.constraints.sample_weights import capped_weights
    from klnmf.data.dominant_samples import DominantSamplesWarning
    from klnmf.data.not_counts import NotCountsWarning
    from klnmf.data.on_disk.matrix import open_matrix
    from klnmf.data.sparse_tensor import SparseTensor
    from klnmf.data.validation import (
        EmptySamplesWarning,
        ManyComponentsWarning,
        TransposedWarning,
    )
    from klnmf.estimators.kl_nmf import KLNMF, load_model
    from klnmf.estimators.mini_batch import MiniBatchKLNMF
    from klnmf.estimators.poisson_cp import PoissonCP
    from klnmf.estimators.run_options import RunOptions
    from klnmf.readers.preparing import prepare
    from klnmf.texts.counting import TextsWarning
    from klnmf.topic_model.model import TopicModel

    __version__: str

__all__ = [
    "KLNMF",
    "DominantSamplesWarning",
    "EmptySamplesWarning",
    "ManyComponentsWarning",
    "MiniBatchKLNMF",
    "NotCountsWarning",
    "PoissonCP",
    "RunOptions",
    "SparseTensor",
    "TextsWarning",
    "TopicModel",
    "TransposedWarning",
    "__version__",
    "capped_weights",
    "load_model",
    "open_matrix",
    "prepare",
]

# Where the names are. They and the modules are imported when they are first asked for: the command
# line imports this package too, and its --help should not wait for scikit-learn.
_HOMES = {
    "DominantSamplesWarning": "klnmf.data.dominant_samples",
    "EmptySamplesWarning": "klnmf.data.validation",
    "KLNMF": "klnmf.estimators.kl_nmf",
    "ManyComponentsWarning": "klnmf.data.validation",
    "MiniBatchKLNMF": "klnmf.estimators.mini_batch",
    "NotCountsWarning": "klnmf.data.not_counts",
    "PoissonCP": "klnmf.estimators.poisson_cp",
    "RunOptions": "klnmf.estimators.run_options",
    "SparseTensor": "klnmf.data.sparse_tensor",
    "TextsWarning": "klnmf.texts.counting",
    "TopicModel": "klnmf.topic_model.model",
    "TransposedWarning": "klnmf.data.validation",
    "capped_weights": "klnmf.constraints.sample_weights",
    "load_model": "klnmf.estimators.kl_nmf",
    "open_matrix": "klnmf.data.on_disk.matrix",
    "prepare": "klnmf.readers.preparing",
}
_MODULES = (
    "datasets",
    "evaluation",
    "frames",
    "model_selection",
    "named_features",
    "objective",
    "plots",
    "readers",
    "report",
    "signatures",
    "simulate",
    "solvers",
    "tl",
    "topics",
    "uncertainty",
)

# A process that is forked while another thread imports a module can never import that module: it
# waits for a thread that it does not have. A fork therefore waits until no thread imports for us.
# What handles forks itself and is imported on the way (concurrent.futures, and logging in it) is
# imported above: handlers must not come in between, and an import that waits for the lock of
# logging must not wait for a fork that has it.
_importing = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire,
        after_in_parent=_importing.release,
        after_in_child=_importing.release,
    )


def __getattr__(name: str) -> Any:
    """Import what is asked for, as in ``klnmf.tl.nmf(adata)``."""
    with _importing:
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        elif name == "__version__":
            value = import_module("importlib.metadata").version("klnmf")
        elif name in _MODULES:
            return import_module(f"klnmf.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names and modules."""
    return sorted({*__all__, *_MODULES})
