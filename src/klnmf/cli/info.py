"""``klnmf info``."""

import argparse
import json
import math
import platform
import re
from importlib.metadata import requires, version
from typing import Any

from klnmf.cli.messages import DONE
from klnmf.support.optional_packages import installed_version, not_installed

SUMMARY = "show versions, instruction set, threads, back-ends and optional packages"
EXAMPLES = """\
  klnmf info
  klnmf info model.klnmf --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="also describe this model file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the versions in use here, and what a model file holds."""
    facts = _facts()
    if args.model is not None:
        facts["model"] = _model_facts(args)
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return DONE
    for section, entries in facts.items():
        print(section)
        for name, value in entries.items():
            print(f"  {name:<24} {'unknown' if value is None else value}")
    return DONE


def _facts() -> dict[str, dict[str, Any]]:
    from klnmf.backends import BACKENDS
    from klnmf.backends.cpu import effective_threads, instruction_set

    packages = _packages()
    versions = {name: version(name) for name in ("klnmf", *packages.pop(""))}
    packages.pop("all")
    return {
        "versions": versions | {"python": platform.python_version()},
        "machine": {
            "system": platform.platform(),
            "instruction set": instruction_set(),
            "threads": effective_threads(None),
        },
        "back-ends": {name: _usable(name) for name in BACKENDS},
        "extras": {extra: _installed(extra, packages[extra]) for extra in packages},
    }


def _packages() -> dict[str, list[str]]:
    """Return the packages of each extra; those that are always needed have none."""
    found: dict[str, list[str]] = {}
    for line in requires("klnmf") or ():
        name, _, extra = line.partition("; extra == ")
        found.setdefault(extra.strip("\"'"), []).append(re.split(r"[<>=\[ ]", name)[0])
    return found


def _usable(name: str) -> str:
    """Return what a back-end runs on, or why it cannot be used."""
    from klnmf.backends import backend_class

    backend = backend_class(name)
    reason = backend.available()
    return f"yes: {backend.found_here()}" if reason is None else f"no: {reason}"


def _installed(extra: str, packages: list[str]) -> str:
    """Return the versions of the packages of an extra, or what to install."""
    # CuPy has a package for each version of CUDA, and one name to import.
    names = [re.sub("^cupy-.*", "cupy", package).replace("-", "_") for package in packages]
    versions = (f"{name} {installed_version(name)}" for name in names)
    return not_installed(extra, names) or ", ".join(versions)


def _known(number: float) -> float | None:
    """Return a number that JSON can hold; None if it is unknown or infinite."""
    return float(number) if math.isfinite(number) else None


def _model_facts(args: argparse.Namespace) -> dict[str, Any]:
    from klnmf.cli.events import is_of_events
    from klnmf.cli.models import read_model

    saved = read_model(args, takes_events=True)
    model = saved.model
    if is_of_events(saved):
        from klnmf.support.descriptions import sizes_in_words

        size: dict[str, Any] = {"modes": sizes_in_words(model.shape_, model.mode_names_)}
    else:
        n_samples = None if saved.W is None else int(saved.W.shape[0])
        size = {"features": int(model.n_features_in_), "samples": n_samples}
    facts: dict[str, Any] = {
        "file": args.model,
        "written by": f"klnmf {saved.klnmf_version}",
        "components": int(model.n_components_),
        **size,
        "KL divergence": _known(model.divergence_),
        "optimality gap": _known(model.optimality_gap_),
        "KKT residual": _known(model.kkt_residual_),
        "converged": bool(model.converged_),
        "iterations": int(model.n_iter_),
    }
    if "input" in saved.metadata:
        facts["input"] = saved.metadata["input"]
    if saved.not_stored:
        facts["not stored"] = ", ".join(saved.not_stored)
    return facts
