"""Values of options, checked as they are parsed."""

from __future__ import annotations

import argparse


def natural(text: str) -> int:
    """Return a whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {value}")
    return value


def several(text: str) -> int:
    """Return a whole number from 2."""
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"must be 2 or more, got {value}")
    return value


def positive(text: str) -> float:
    """Return a number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return value


def nonnegative(text: str) -> float:
    """Return a number from 0."""
    value = float(text)
    if not value >= 0 or value == float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {text}")
    return value


def share_or_count(text: str) -> float | int:
    """Whole number, or a share between 0 and 1 written with a point, as scikit-learn has it."""
    return float(text) if "." in text else int(text)


def ngrams(text: str) -> tuple[int, int]:
    """One number, or two with a comma: 1,2."""
    parts = [natural(part) for part in text.split(",")]
    if len(parts) > 2 or parts[0] > parts[-1]:
        raise argparse.ArgumentTypeError(f"must be like 1,2, got {text}")
    return parts[0], parts[-1]


def some_ranks(text: str) -> list[int]:
    """Whole numbers and spans with commas between them: 1-10,15,20.

    Examples
    --------
    >>> some_ranks("1-3,10")
    [1, 2, 3, 10]
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        try:
            first, last = natural(low), natural(high if dash else low)
        except (ValueError, argparse.ArgumentTypeError):
            first, last = 1, 0
        if first > last:
            raise argparse.ArgumentTypeError(f"must be like 1-40 or 5,10,20, got {text}")
        found.update(range(first, last + 1))
    return sorted(found)


def share(text: str) -> float:
    """Return a number between 0 and 1."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return value
