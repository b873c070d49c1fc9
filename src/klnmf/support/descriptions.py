"""What messages say of shares, and of objects that somebody passed.

The text of an object can be anything: pages of a table, an error, or, for a sparse matrix whose
parts do not fit together, memory that is not its own. So the object itself is not asked.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

_LONGEST = 60  # characters of a text
_MOST = 10  # entries of a list
_MOST_BITS = 200  # of a whole number


def described(given: Any, depth: int = 2) -> str:
    """Return numbers and short texts as Python writes them, and of all else what it is.

    Examples
    --------
    >>> print(described("cosine"), described([1, None]), described(np.zeros((2, 3))), sep="; ")
    'cosine'; [1, None]; an array of shape (2, 3)
    """
    if isinstance(given, np.generic):
        given = given.item()
    if given is None or type(given) in (bool, float, complex):
        return repr(given)
    if type(given) is int:
        return repr(given) if given.bit_length() <= _MOST_BITS else "a very large number"
    if isinstance(given, PurePath):
        given = str(given)
    if isinstance(given, str):
        text = str.__str__(given)
        return repr(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
    if type(given) in (list, tuple) and len(given) <= _MOST and depth:
        entries = ", ".join(described(entry, depth - 1) for entry in given)
        return f"[{entries}]" if type(given) is list else f"({entries}{',' * (len(given) == 1)})"
    if isinstance(given, type):
        return f"the class {given.__name__}"
    kind = "array" if type(given) is np.ndarray else type(given).__name__
    size = f" of length {len(given)}" if type(given) in (list, tuple, dict, set) else ""
    try:
        shape = given.shape
    except Exception:  # whatever it does
        shape = None
    if type(shape) is tuple and all(type(size) is int for size in shape):
        size = f" of shape {shape}"
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}{size}"


def listed(given: Any, name: str, wanted: str = "a list of names") -> list[Any]:
    """Return the entries of a list, an array of one dimension, an index or the like.

    Sparse matrices are refused before anyone goes through their rows, and so are entries that are
    arrays or matrices themselves.
    """
    is_one = not isinstance(given, str | bytes | Mapping) and isinstance(given, Iterable)
    if not is_one or getattr(given, "ndim", 1) != 1:
        raise TypeError(f"{name} must be {wanted}; got {described(given)}.")
    entries = list(given)
    for entry in entries:
        if not isinstance(entry, str) and getattr(entry, "shape", ()) != ():
            raise TypeError(f"{name} must be {wanted}; one of them is {described(entry)}.")
    return entries


def percentage(share: float) -> str:
    """Return a share as a percentage with two digits, or "unknown" for NaN.

    >>> percentage(0.00034), percentage(0.996), percentage(1.0), percentage(float("nan"))
    ('0.034 %', '100 %', '100 %', 'unknown')
    """
    if math.isnan(share):
        return "unknown"
    percent = 100 * share
    return f"{percent:.0f} %" if 99.5 <= percent < 1000 else f"{percent:.2g} %"


def sizes_in_words(sizes: Iterable[int], names: Sequence[str] = ()) -> str:
    """Write sizes of something with several modes, with their names if there are any.

    >>> sizes_in_words((1200, 7), ["user", "day"])
    'user 1,200 × day 7'
    """
    numbers = [f"{size:,}" for size in sizes]
    return " × ".join(map(" ".join, zip(names, numbers, strict=True)) if names else numbers)
