"""Groups of samples by a column of labels, numbers or times."""

import re
from collections.abc import Hashable, Iterable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described
from klnmf.support.number_checks import is_missing
from klnmf.topics.checks import IndexArray, checked_choice

Period = Literal["decade", "year", "quarter", "month", "week", "day"]

_UNITS = {"decade": "10Y", "year": "Y", "quarter": "3M", "month": "M", "week": "D", "day": "D"}
# ISO 8601. The time zone is left out: the date is the one that was written.
_ISO_DATE = re.compile(
    r"(\d{4}-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)?)(?:Z|[+-]\d\d:?\d\d)?"
)
_YEAR = re.compile(r"(\d{4})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")  # not 007, which is a name


class Groups(NamedTuple):
    """The groups of a column, and the position of each sample's group, -1 where it has none."""

    groups: npt.NDArray[Any]
    member: IndexArray


def grouped(values: Any, n_samples: int, every: Period | None = None) -> Groups:
    """Group samples by their values: times and numbers in order, others by first appearance.

    Times are datetime64 and date objects, and strings of ISO dates. Strings that are all numbers
    are numbers. None, NaN, NaT and empty strings are missing. Lists and arrays become text.
    """
    if every is not None:
        checked_choice(every, "every", get_args(Period))
    column = _listed(values)
    if len(column) != n_samples:
        raise ValueError(
            f"groups must have one entry per sample ({n_samples}); got {len(column)} entries."
        )
    present = np.array([not is_missing(value) for value in column], dtype=bool)
    given = [value for value, is_present in zip(column, present, strict=True) if is_present]
    member = np.full(n_samples, -1, dtype=np.intp)
    ordered = _times(given, every)
    if ordered is None and every is not None:
        example = next(value for value in given if _times([value], every) is None)
        raise ValueError(
            f"every={every!r} needs times: dates, datetime64, or strings such as '2024-05-31'; got "
            f"{described(example)}. Convert them first, for example with "
            "pandas.to_datetime(values, errors='coerce'), or leave every out to group by the "
            "values themselves."
        )
    if ordered is None:
        ordered = _numbers(given)
    if ordered is None:
        places: dict[Any, int] = {}
        labels = (value if isinstance(value, Hashable) else str(value) for value in given)
        member[present] = [places.setdefault(label, len(places)) for label in labels]
        groups = np.empty(len(places), dtype=object)
        groups[:] = list(places)
    else:
        groups, member[present] = np.unique(ordered, return_inverse=True)
    return Groups(groups, member)


def drawn_from_groups(member: IndexArray, most: int, fewest: int = 1) -> IndexArray:
    """Positions of samples drawn at random: the groups in proportion, and so many of each at least.

    All are drawn if there are no more than ``most``.
    """
    if member.size <= most:
        return np.arange(member.size)
    generator = np.random.default_rng(0)
    groups = np.unique(member)
    fewest = max(1, min(fewest, most // groups.size))
    share = max(0.0, (most - fewest * groups.size) / member.size)
    drawn = []
    for group in groups:
        of_group = np.flatnonzero(member == group)
        n_drawn = min(of_group.size, fewest + int(share * of_group.size))
        drawn.append(generator.choice(of_group, n_drawn, replace=False))
    return np.sort(np.concatenate(drawn))


def by_largest_component(proportions: FloatArray, member: IndexArray) -> IndexArray:
    """Order by group, by largest component, the most frequent one first, and by its share.

    >>> by_largest_component(np.array([[0.6, 0.4], [0.2, 0.8], [0.1, 0.9]]), np.array([0, 0, 0]))
    array([2, 1, 0])
    """
    main = proportions.argmax(axis=1)
    pairs = member * proportions.shape[1] + main
    often = np.bincount(pairs)[pairs]
    return np.lexsort((-proportions.max(axis=1), main, -often, member))  # the last counts first


def suitable_periods(values: Any, most_groups: int) -> list[Period]:
    """Return the periods that make at most so many groups, shortest first; none if no times.

    Left out are those that make one group, and those that make no more than the next longer one.

    >>> suitable_periods(["2021-03-05", "2021-03-07", "2021-05-01", "2022-01-01"], most_groups=3)
    ['quarter', 'year']
    """
    times = _times([value for value in _listed(values) if not is_missing(value)], None)
    if times is None or len(times) == 0:
        return []
    found: list[Period] = []
    n_longer = 1
    for period in get_args(Period):  # longest first
        n_groups = len(np.unique(_floored(times, period)))
        if n_longer < n_groups <= most_groups:
            found.insert(0, period)
        n_longer = n_groups
    return found or ["decade"]


def _listed(values: Any) -> list[Any]:
    """Return a column as a list of objects."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(
            f"groups must be a sequence with one entry per sample; got {described(values)}."
        )
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise ValueError(f"groups must have one entry per sample; got shape {values.shape}.")
    return list(values)


def _times(values: list[Any], every: Period | None) -> npt.NDArray[Any] | None:
    """Return values as datetime64, at the beginnings of their periods; None if one is no time."""
    texts = [_iso_text(value, with_years=every is not None) for value in values]
    if None in texts:
        return None
    try:
        times = np.array(texts, dtype="datetime64")
    except ValueError:  # such as a thirteenth month
        return None
    return times if every is None else _floored(times, every)


def _iso_text(value: Any, *, with_years: bool) -> str | None:
    """Return a time as ISO 8601 without a time zone; None if it is no time."""
    if isinstance(value, np.datetime64):
        return str(value)
    if with_years and isinstance(value, int | float | np.number) and float(value).is_integer():
        value = f"{int(value):04d}"
    text = value.isoformat() if hasattr(value, "isoformat") else value
    if not isinstance(text, str):
        return None
    found = _ISO_DATE.fullmatch(text.strip())
    if found is None and with_years:
        found = _YEAR.fullmatch(text.strip())
    return None if found is None else found[1]


def _floored(times: npt.NDArray[Any], every: Period) -> npt.NDArray[Any]:
    """Return the beginning of each time's period; weeks begin on Mondays."""
    floored = times.astype(f"datetime64[{_UNITS[every]}]")
    if every == "week":
        floored = floored - (floored.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
    return floored


def _numbers(values: list[Any]) -> npt.NDArray[Any] | None:
    """Return values as whole or other numbers; None if one is no number."""
    for value in values:
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not is_number and not (isinstance(value, str) and _NUMBER.fullmatch(value.strip())):
            return None
    numbers = np.array([float(value) for value in values])
    is_whole = (np.abs(numbers) < 2**53).all() and (numbers == np.trunc(numbers)).all()
    return numbers.astype(np.int64) if is_whole else numbers
