"""Names of rows and columns: one per row or column, unique, and one per line of a file."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.support.array_types import Array

Names = Sequence[str] | npt.NDArray[Any] | None
# Warns of what readers changed or left out; Python shows it by default.
LOGGER = logging.getLogger("klnmf.readers")


def as_names(names: Names, expected: int, what: str, of_what: str) -> Array | None:
    """Return names as an array of str objects; refuse a wrong number of them."""
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{what} must be a sequence with a name for each {of_what}; got a str.")
    if len(names) != expected:
        raise ValueError(f"{what} has {len(names):,} names for {expected:,} {of_what}s.")
    # Objects, as scikit-learn has them: one long name would widen every entry of a str array.
    array = np.empty(expected, dtype=object)
    array[:] = [str(name) for name in names]
    return array


def unique_features(given: Sequence[str] | Array, whose: str) -> Array:
    """Make names of features unique: repeated ones get -1, -2, ..., and a warning says so.

    The first of each keeps its name, and no name that is there is given to another: the names are
    those of ``AnnData.var_names_make_unique``.

    >>> unique_features(["a", "a", "b"], "counts.mtx").tolist()
    ['a', 'a-1', 'b']
    """
    names: Array = np.asarray(given, dtype=object)
    taken, seen, repeats = set(names), set[str](), Counter[str]()
    unique, example = names.copy(), ""
    for position, name in enumerate(names):
        if name not in seen:
            seen.add(name)
            continue
        while unique[position] in taken:
            repeats[name] += 1
            unique[position] = f"{name}-{repeats[name]}"
        taken.add(unique[position])
        example = example or f"a second {name!r} is now {unique[position]!r}"
    if example:
        n_changed = int((unique != names).sum())
        message = "%s: %s repeated feature names were made unique (%s)"
        LOGGER.warning(message, whose, f"{n_changed:,}", example)
    return unique


def one_per_line(names: Any, what: str, way_out: str = ", or write .h5ad or .parquet") -> bytes:
    """Content of a file of names."""
    for name in names:
        if "\n" in name or "\r" in name:
            raise ValueError(
                f"{what} has {name!r}, and a name cannot have a line end in a file of one name "
                f"per line. Change the name{way_out}."
            )
    return "".join(f"{name}\n" for name in names).encode()
