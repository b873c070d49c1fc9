"""Checks of numbers, flags and other single values that users pass."""

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from klnmf.support.descriptions import described


def checked_whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least ``least``."""
    if not isinstance(value, Integral) or int(value) < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}; got {described(value)}."
        )
    return int(value)


def checked_positive(name: str, value: Any) -> float:
    """Return a number greater than 0."""
    if not isinstance(value, Real) or not float(value) > 0.0:
        raise ValueError(f"{name} must be a positive number; got {described(value)}.")
    return float(value)


def checked_nonnegative(name: str, value: Any) -> float:
    """Return a finite number of at least 0."""
    if not isinstance(value, Real) or not 0.0 <= float(value) < float("inf"):
        raise ValueError(f"{name} must be a finite number of at least 0; got {described(value)}.")
    return float(value)


def checked_fraction(name: str, value: Any) -> float:
    """Return a number between 0 and 1, both excluded."""
    if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"{name} must be between 0 and 1 (exclusive); got {described(value)}.")
    return float(value)


def checked_flag(name: str, value: Any) -> bool | None:
    """Return True or False, or None for "auto"."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if type(value) is not str or value != "auto":
        raise ValueError(f"{name} must be 'auto', True or False; got {described(value)}.")
    return None


def seed_of(random_state: Any) -> int:
    """Draw a seed from None, a whole number or a RandomState, as scikit-learn does."""
    if random_state is not None and not isinstance(random_state, Integral | np.random.RandomState):
        raise ValueError(
            f"random_state must be None, a whole number or a numpy.random.RandomState; got "
            f"{described(random_state)}."
        )
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT, an empty string, or pandas' NA, which cannot be compared.

    >>> [is_missing(value) for value in (None, float("nan"), " ", 0, "a", [])]
    [True, True, True, False, False, False]
    """
    if isinstance(value, str):
        return not value.strip()
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA
        return True
    except ValueError:  # several values, in an array
        return False
