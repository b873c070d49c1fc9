"""Features that are left out: rare ones, common ones, all but the most frequent, stop words.

The rules and the names of the options are those of scikit-learn's CountVectorizer, for texts and
for all other counts.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.readers.stop_words import stop_words_of
from klnmf.readers.table import CountTable
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option

PRUNING_OPTIONS = frozenset(("min_df", "max_df", "max_features", "stop_words"))


def pruned(
    path: Path,
    table: CountTable,
    *,
    min_df: float = 1,
    max_df: float = 1.0,
    max_features: Any = None,
    stop_words: Any = None,
) -> CountTable:
    """Table of the features that are kept, in their order."""
    n, m = table.shape
    kept = np.ones(m, dtype=bool)
    if stop_words is not None:
        kept &= ~_are_among(path, table.column_names, stop_words_of(stop_words))
    if (min_df, max_df) != (1, 1.0):
        smallest, largest = _number("min_df", min_df, n), _number("max_df", max_df, n)
        if smallest > largest:
            given = f"{option('min_df', min_df)} and {option('max_df', max_df)}"
            problem = f"{given}: no feature is in {smallest:g} or more of {n:,} samples and in "
            raise ReadError(path, f"{problem}{largest:g} or fewer.")
        n_samples = np.bincount(table.X.indices, minlength=m)
        kept &= (n_samples >= smallest) & (n_samples <= largest)
    if max_features is not None:
        if not isinstance(max_features, int | np.integer) or max_features < 1:
            wanted = "a whole number of 1 or more"
            raise ValueError(f"{option('max_features')} must be {wanted}; got {max_features!r}.")
        totals = np.asarray(table.X.sum(axis=0)).ravel()
        order = np.argsort(-totals[kept], kind="stable")[: int(max_features)]
        kept[np.delete(np.flatnonzero(kept), order)] = False
    if not kept.any():
        how = f"a lower {option('min_df')}, a higher {option('max_df')} or fewer stop words"
        raise ReadError(path, f"none of its {m:,} features is left. Try {how}.")
    return table if kept.all() else table.with_features(np.flatnonzero(kept))


def _number(name: str, value: Any, n_samples: int) -> float:
    """Return the number of samples that a number or share of them stands for."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_whole and value >= 1:
        return float(value)
    if isinstance(value, float | np.floating) and 0 <= value <= 1:
        return float(value) * n_samples
    wanted = "a number of samples (1, 2, ...) or a share of them (0.0 to 1.0)"
    raise ValueError(f"{option(name)} must be {wanted}; got {value!r}.")


def _are_among(path: Path, names: Any, words: Iterable[str]) -> Any:
    if names is None:
        problem = "the features have no names, so that stop words cannot be found among them."
        raise ReadError(path, f"{problem} Add {option('column_names', 'FILE')}.")
    unwanted = {word.lower() for word in words}
    return np.array([name.lower() in unwanted for name in names], dtype=bool)
