"""Features that are left out: rare ones, common ones, all but the most frequent, stop words.

The rules and the names of the options are those of scikit-learn's CountVectorizer, for texts and
for all other counts.
"""

from pathlib import Path
from typing import Any

import numpy as np

from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError
from klnmf.support.number_checks import checked_whole
from klnmf.support.option_names import option
from klnmf.texts.stop_words import stop_words_of

PRUNING_OPTIONS = frozenset(("min_df", "max_df", "max_features", "stop_words"))
LIMITS = PRUNING_OPTIONS - {"stop_words"}
# Words of texts that a model is fitted to, in TopicModel and on the command line. Other features
# are all kept, and so are the words of new texts: a model knows its words.
OF_TEXTS: dict[str, Any] = {"min_df": 2, "max_df": 0.5}


def kept_features(
    path: Path,
    n: int,
    n_samples: Any,
    totals: Any,
    named: Any = True,
    *,
    min_df: float = 1,
    max_df: float = 1.0,
    max_features: int | None = None,
) -> Any:
    """Whether each feature is kept, by the number of samples that it is in, and its total.

    ``named`` are those that are no stop words, and ``n`` is the number of all samples.
    """
    kept = np.broadcast_to(named, n_samples.shape).copy()
    if not kept.any():
        raise ReadError(path, f"all features are stop words. Give fewer {option('stop_words')}.")
    if (min_df, max_df) != (1, 1.0):
        try:
            smallest, largest = limits_of_samples(min_df, max_df, n)
        except ValueError as error:
            raise ReadError(path, str(error)) from error
        kept &= (n_samples >= smallest) & (n_samples <= largest)
        if not kept.any():
            problem = f"none of its {len(n_samples):,} features is in {smallest:g} to {largest:g} "
            problem += f"of {n:,} samples. To keep all features, use {all_kept()}."
            raise ReadError(path, problem)
    if max_features is not None:
        order = np.argsort(-np.asarray(totals).ravel()[kept], kind="stable")[: int(max_features)]
        kept[np.delete(np.flatnonzero(kept), order)] = False
    return kept


def limits_of_samples(
    min_df: float, max_df: float, n: int, feature: str = "feature", samples: str = "samples"
) -> tuple[float, float]:
    """Return the least and the most samples that a feature is in; refuse what nothing meets."""
    smallest, largest = _number("min_df", min_df, n), _number("max_df", max_df, n)
    if smallest > n:
        raise ValueError(
            f"{option('min_df', min_df)} is more than the number of {samples}, {n:,}. Choose a "
            f"lower {option('min_df')}."
        )
    if smallest > largest:
        given = f"{option('min_df', min_df)} and {option('max_df', max_df)}"
        raise ValueError(
            f"{given}: no {feature} is in {smallest:g} or more of {n:,} {samples} and in "
            f"{largest:g} or fewer. To keep all {feature}s, use {all_kept()}."
        )
    return smallest, largest


def check_pruning(
    *, min_df: Any = 1, max_df: Any = 1.0, max_features: Any = None, stop_words: Any = None
) -> None:
    """Refuse wrong values before anything is read."""
    _number("min_df", min_df, 1)
    _number("max_df", max_df, 1)
    if max_features is not None:
        checked_whole(option("max_features"), max_features)
    if stop_words is not None:
        stop_words_of(stop_words)


def all_kept() -> str:
    """Name the options that leave out no feature for being rare or frequent."""
    return f"{option('min_df', 1)} and {option('max_df', 1.0)}"


def _number(name: str, value: Any, n_samples: int) -> float:
    """Return the number of samples that a number or share of them stands for."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_whole and value >= 1:
        return float(value)
    if isinstance(value, float | np.floating) and 0 <= value <= 1:
        return float(value) * n_samples
    wanted = "a number of samples (1, 2, ...) or a share of them (0.0 to 1.0)"
    raise ValueError(f"{option(name)} must be {wanted}; got {described(value)}.")
