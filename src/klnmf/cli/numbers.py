"""Weights and exposures that a command reads from text files."""

import argparse
from typing import Any

from klnmf.cli.messages import CommandError

# What each of them has a number for.
NUMBERS = {"sample_weight": "sample", "feature_weight": "feature", "exposure": "sample"}


def add_numbers(parser: Any) -> None:
    """Add the options that name the files."""
    for name, each in NUMBERS.items():
        text = f"text file with one number per {each}, in the order of DATA"
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=text)


def read_numbers(args: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of each file, or None where none was given."""
    return {name: numbers_of(getattr(args, name)) for name in NUMBERS}


def numbers_of(path: str | None) -> Any:
    """Numbers of a text file, one per line."""
    if path is None:
        return None
    import numpy as np

    try:
        return np.loadtxt(path, ndmin=1)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read as one number per line: {error}") from error
