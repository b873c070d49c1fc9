"""Nonnegative matrix factorisation of large sparse count matrices under the KL divergence."""

from __future__ import annotations

from importlib.metadata import version

from klnmf.estimators import KLNMF
from klnmf.model_files import load_model

__version__ = version("klnmf")

__all__ = ["KLNMF", "__version__", "load_model"]
