"""Values of options, checked as they are parsed."""

from __future__ import annotations

import argparse


def whole(text: str) -> int:
    """Return a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None


def number(text: str) -> float:
    """Return any number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


def natural(text: str) -> int:
    """Return a whole number from 1."""
    return _from(1, text)


def several(text: str) -> int:
    """Return a whole number from 2."""
    return _from(2, text)


def _from(least: int, text: str) -> int:
    value = whole(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more, got {value}")
    return value


def seed(text: str) -> int:
    """Return a whole number that NumPy takes as a seed."""
    value = whole(text)
    if not 0 <= value < 1 << 32:
        raise argparse.ArgumentTypeError(f"must be from 0 to {(1 << 32) - 1}, got {value}")
    return value


def workers(text: str) -> int:
    """Return how many at a time: from 1, or counted from the end, -1 being all CPUs."""
    value = whole(text)
    if value == 0 or value > 1024:
        raise argparse.ArgumentTypeError(
            f"must be from 1 to 1024, or negative (-1: all CPUs, -2: all but one), got {value}"
        )
    return value


def positive(text: str) -> float:
    """Return a number above 0."""
    value = number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return value


def nonnegative(text: str) -> float:
    """Return a number from 0."""
    value = number(text)
    if not value >= 0 or value == float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {text}")
    return value


def share_or_count(text: str) -> float | int:
    """Whole number, or a share between 0 and 1 written with a point, as scikit-learn has it."""
    return number(text) if "." in text else whole(text)


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
        except argparse.ArgumentTypeError:
            first, last = 1, 0
        if first > last:
            raise argparse.ArgumentTypeError(f"must be like 1-40 or 5,10,20, got {text}")
        found.update(range(first, last + 1))
    return sorted(found)


def share(text: str) -> float:
    """Return a number between 0 and 1."""
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return value


def delimiter(text: str) -> str:
    r"""Return one character; a tab may be written as \t.

    Examples
    --------
    >>> delimiter(";"), delimiter(r"\t")
    (';', '\t')
    """
    character = "\t" if text in (r"\t", "tab") else text
    if len(character) != 1 or character in '\r\n"':
        raise argparse.ArgumentTypeError(
            f"must be one character such as ';' (or \\t for a tab), got {text!r}"
        )
    return character


def encoding(text: str) -> str:
    """Return the name of an encoding of text."""
    try:
        "".encode(text)
    except (LookupError, ValueError):
        raise argparse.ArgumentTypeError(
            f"must be an encoding of text such as utf-8 or latin-1, got {text!r}"
        ) from None
    return text


def column_names(text: str) -> list[str]:
    """Return two or three names with commas between them."""
    names = text.split(",")
    if len(names) not in (2, 3) or not all(names):
        raise argparse.ArgumentTypeError(
            f"must name the columns of row, column and count, or of row and column, got {text!r}"
        )
    return names


def share_of_features(text: str) -> float:
    """Return a number from 0 to 1."""
    value = number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1, got {text}")
    return value
