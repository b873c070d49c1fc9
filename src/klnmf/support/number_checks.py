"""Checks of numbers that users pass."""

from numbers import Integral, Real
from typing import Any


def checked_whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least ``least``."""
    if not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)


def checked_positive(name: str, value: Any) -> float:
    """Return a number greater than 0."""
    if not isinstance(value, Real) or not float(value) > 0.0:
        raise ValueError(f"{name} must be a positive number; got {value!r}.")
    return float(value)


def checked_nonnegative(name: str, value: Any) -> float:
    """Return a finite number of at least 0."""
    if not isinstance(value, Real) or not 0.0 <= float(value) < float("inf"):
        raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}.")
    return float(value)


def checked_fraction(name: str, value: Any) -> float:
    """Return a number between 0 and 1, both excluded."""
    if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"{name} must be between 0 and 1 (exclusive); got {value!r}.")
    return float(value)
