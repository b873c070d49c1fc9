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
from klnmf.support.optional_packages import installed_version

PACKAGES = ("joblib", "numpy", "scipy", "scikit-learn", "threadpoolctl", "tqdm")
EXTRAS = {
    "plots": ("matplotlib",),
    "report": ("jinja2",),
    "files": ("anndata", "h5py", "pandas", "pyarrow"),
    "anndata": ("anndata",),
    "dataframes": ("pandas",),
    "datasets": ("pooch", "requests"),
    "dask": ("dask", "distributed"),
    "completion": ("shtab",),
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
    versions = {name: importlib.metadata.version(name) for name in ("klnmf", *PACKAGES)}
    return {
        "versions": versions | {"python": platform.python_version()},
        "machine": {
            "system": platform.platform(),
            "instruction set": instruction_set(),
            "threads": effective_threads(None),
        },
        "back-ends": {name: _usable(name) for name in BACKENDS},
        "extras": {extra: _installed(extra) for extra in EXTRAS},
    }


def _usable(name: str) -> str:
    if name in EXTRAS:  # a back-end that needs more than klnmf brings
        missing = _missing(name)
        return f"no: {_advice(name, missing)}" if missing else f"yes: {_installed(name)}"
    reasons = {"cpu": "yes: the C++ core", "reference": "yes: slow NumPy, for checks"}
    return reasons.get(name, "yes")


def _installed(extra: str) -> str:
    """Return the versions of all packages of an extra, or what to install."""
    missing = _missing(extra)
    if missing:
        return _advice(extra, missing)
    return ", ".join(f"{package} {installed_version(package)}" for package in EXTRAS[extra])


def _missing(extra: str) -> list[str]:
    return [package for package in EXTRAS[extra] if installed_version(package) is None]


def _advice(extra: str, missing: list[str]) -> str:
    return f'{", ".join(missing)} not installed: pip install "klnmf[{extra}]"'


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
