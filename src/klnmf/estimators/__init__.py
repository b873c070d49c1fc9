"""The scikit-learn estimators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klnmf.estimators.kl_nmf import KLNMF
    from klnmf.estimators.mini_batch import MiniBatchKLNMF

__all__ = ["KLNMF", "MiniBatchKLNMF"]


def __getattr__(name: str) -> Any:
    """Import an estimator when it is first used, as `klnmf` does."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("klnmf"), name)
