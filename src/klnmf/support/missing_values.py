"""Values that stand for none."""

from typing import Any


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
