"""Nonnegative matrix factorisation of large sparse count matrices under the KL divergence."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from types import ModuleType

from klnmf.estimators import KLNMF
from klnmf.mini_batch import MiniBatchKLNMF
from klnmf.model_files import load_model
from klnmf.on_disk import open_matrix

__version__ = version("klnmf")

__all__ = ["KLNMF", "MiniBatchKLNMF", "__version__", "load_model", "open_matrix"]


def __getattr__(name: str) -> ModuleType:
    """Import ``klnmf.tl`` when it is first asked for, as in ``klnmf.tl.nmf(adata)``."""
    if name == "tl":
        return import_module("klnmf.tl")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
