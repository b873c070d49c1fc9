"""``klnmf info`` and ``klnmf completion``."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import platform
from typing import Any

from klnmf.backends import BACKENDS
from klnmf.backends.cpu import effective_threads, instruction_set
from klnmf.cli.arguments import build_parser
from klnmf.cli.errors import DONE, CommandError
from klnmf.cli.models import read_model

_PACKAGES = ("numpy", "scipy", "scikit-learn", "threadpoolctl", "tqdm")
_EXTRAS = {
    "plots": "matplotlib",
    "report": "jinja2",
    "files": "anndata",
    "dataframes": "pandas",
    "datasets": "pooch",
    "completion": "shtab",
}


def info(args: argparse.Namespace) -> int:
    """Print what klnmf stands on here, and what a model file holds."""
    facts = _facts()
    if args.model is not None:
        facts["model"] = _model_facts(args.model)
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return DONE
    for section, entries in facts.items():
        print(section)
        for name, value in entries.items():
            print(f"  {name:<24} {value}")
    return DONE


def completion(args: argparse.Namespace) -> int:
    """Print a completion script."""
    try:
        shtab = importlib.import_module("shtab")
    except ImportError as error:
        raise CommandError(
            'completion scripts are written by shtab: pip install "klnmf[completion]"'
        ) from error
    print(shtab.complete(build_parser(importlib.metadata.version("klnmf")), shell=args.shell))
    return DONE


def _facts() -> dict[str, dict[str, Any]]:
    versions = {name: importlib.metadata.version(name) for name in ("klnmf", *_PACKAGES)}
    return {
        "versions": versions | {"python": platform.python_version()},
        "machine": {
            "system": platform.platform(),
            "instruction set": instruction_set(),
            "threads": effective_threads(None),
        },
        "back-ends": {name: _usable(name) for name in BACKENDS},
        "extras": {extra: _installed(extra, package) for extra, package in _EXTRAS.items()},
    }


def _usable(name: str) -> str:
    reasons = {"cpu": "yes: the C++ core", "reference": "yes: slow NumPy, for checks"}
    return reasons.get(name, "yes")


def _installed(extra: str, package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f'no {package}: pip install "klnmf[{extra}]"'


def _model_facts(path: str) -> dict[str, Any]:
    saved = read_model(path)
    model = saved.model
    facts: dict[str, Any] = {
        "file": path,
        "written by": f"klnmf {saved.klnmf_version}",
        "components": int(model.n_components_),
        "features": int(model.n_features_in_),
        "samples": None if saved.W is None else int(saved.W.shape[0]),
        "KL divergence": float(model.divergence_),
        "KKT residual": float(model.kkt_residual_),
        "converged": bool(model.converged_),
        "iterations": int(model.n_iter_),
    }
    if "input" in saved.metadata:
        facts["input"] = saved.metadata["input"]
    if saved.not_stored:
        facts["not stored"] = ", ".join(saved.not_stored)
    return facts
