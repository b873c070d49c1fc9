"""Tables of events to the parts of a tensor: labels become places, and dates become bins."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from klnmf.data.matrix_checks import first_wrong
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described, listed
from klnmf.support.nearest_names import did_you_mean
from klnmf.support.number_checks import is_missing

# Unit in which NumPy counts the bins; weeks are counted below.
BINS = {"day": "D", "week": "D", "month": "M", "year": "Y"}
_MONDAY = 3  # days from a Monday to 1970-01-01, from which NumPy counts
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_WITH_POINT = re.compile(r"\A(-?(?:0|[1-9]\d*))\.0\Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d.*)?)?", re.ASCII)


class Coded(NamedTuple):
    """A column as its different entries, and the place of each row's entry among them."""

    entries: Sequence[Any] | Array
    places: Array


def events_of(
    frame: Any, modes: Any, values: str | None, bins: Any
) -> tuple[list[Array], Array, list[Array]]:
    """Return coords, counts and labels of a tensor of events; see `SparseTensor.from_events`."""
    names = listed(modes, "modes", "a list of names of columns")
    bins = _checked_bins(bins, names)
    coded = [_coded(_column(frame, name), name) for name in names]
    sizes = {name: len(c.places) for name, c in zip(names, coded, strict=True)}
    n_events = sizes[names[0]] if names else 0
    if not n_events:
        raise ValueError(f"There are no events to count: {len(names)} modes and 0 rows.")
    counts: Array = np.ones(n_events, dtype=np.int32)
    if values is not None:
        counts = _counts(_column(frame, values), values)
        sizes[values] = len(counts)
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name!r} has {size:,}" for name, size in sizes.items())
        raise ValueError(f"Columns must have the same number of rows, but {found}.")
    coords, labels = [], []
    for name, column in zip(names, coded, strict=True):
        numbered = _binned(column, name, bins[name]) if name in bins else _sorted(column)
        coords.append(numbered.places)
        labels.append(np.array(numbered.entries, dtype=object))
    return coords, counts, labels


def rank_of(labels: Iterable[str]) -> Callable[[str], Any] | None:
    """Return by what labels are sorted if all are numbers, or all are ISO dates; else None.

    >>> sorted(["10", "9"], key=rank_of(["10", "9"]))
    ['9', '10']
    """
    if all(map(_NUMBER.fullmatch, labels)):
        return lambda label: (float(label), label)
    return str if all(map(_DATE.fullmatch, labels)) else None


def texts_of(entries: Any) -> list[str]:
    """Return labels as texts: dates as ISO dates, and whole numbers without a point.

    Texts of whole numbers too: a column of ids with gaps is one of floats in pandas, and so in its
    .csv files.

    >>> texts_of([12346.0, "12347.0", "1.50"]), texts_of(np.array(["2011-01-03T00:00"], "M8[ns]"))
    (['12346', '12347', '1.50'], ['2011-01-03'])
    """
    array = entries if isinstance(entries, np.ndarray) else None
    entries = list(entries)
    if entries and all(isinstance(entry, date) for entry in entries):
        # The time on the clock of its place, if it has a time zone.
        plain = [e.replace(tzinfo=None) if hasattr(e, "tzinfo") else e for e in entries]
        array = np.array(plain, dtype="M8[us]")
    if array is not None and array.dtype.kind == "M":
        return [str(text) for text in np.datetime_as_string(array, unit="auto")]
    return [_WITH_POINT.sub(r"\1", str(entry)) for entry in entries]


# ---- columns -------------------------------------------------------------------------------------


def _column(frame: Any, name: Any) -> Any:
    """One column of a DataFrame of pandas or polars, a table of pyarrow, or a mapping."""
    there = frame if isinstance(frame, Mapping) else getattr(frame, "column_names", None)
    there = getattr(frame, "columns", None) if there is None else there
    if there is None or isinstance(frame, np.ndarray):
        raise TypeError(
            "frame must be a DataFrame, a table of pyarrow or a dict of columns; got "
            f"{described(frame)}."
        )
    there = list(there)
    if name not in there:
        known = ", ".join(map(repr, there)) or "none"
        question = did_you_mean(name, (each for each in there if isinstance(each, str)))
        raise ValueError(
            f"There is no column {described(name)}; the columns are: {known}.{question}"
        )
    return frame[name]


def _coded(column: Any, name: str) -> Coded:
    """Different entries of a column; refuse missing ones."""
    if isinstance(column, Coded):
        found = column
    elif hasattr(column, "dictionary_encode"):  # of pyarrow
        encoded = column.dictionary_encode()
        encoded = encoded.combine_chunks() if hasattr(encoded, "combine_chunks") else encoded
        entries = [*encoded.dictionary.to_pylist(), None]  # the last for nulls
        codes = encoded.indices.cast("int64").fill_null(len(entries) - 1)
        used, places = np.unique(codes.to_numpy(zero_copy_only=False), return_inverse=True)
        found = Coded([entries[place] for place in used], places)
    else:
        found = _coded_array(column, name)
    missing = np.array([is_missing(entry) for entry in found.entries], dtype=bool)
    n_missing = int(np.count_nonzero(missing[found.places])) if missing.any() else 0
    if n_missing:
        have = "has" if n_missing == 1 else "have"
        raise ValueError(
            f"{n_missing:,} of {len(found.places):,} rows {have} no label in column {name!r}. "
            f"Leave them out, as frame.dropna(subset=[{name!r}]) of pandas does, or give them a "
            "label such as 'unknown'."
        )
    return found


def _coded_array(column: Any, name: str) -> Coded:
    zone = getattr(getattr(column, "dtype", None), "time_zone", None)
    if zone is not None:  # polars would give the time in UTC
        column = column.to_list()
    if hasattr(column, "dtype"):
        array: Array = np.asarray(column)
    else:
        entries = listed(column, f"Column {name!r}", "a list or an array")
        array = np.fromiter(entries, dtype=object, count=len(entries))
    if array.ndim != 1:
        raise ValueError(f"Column {name!r} must have one dimension; got {described(array)}.")
    if array.dtype.kind in "iufM":
        return Coded(*np.unique(array, return_inverse=True))
    numbers: dict[Any, int] = {}
    try:
        codes = (numbers.setdefault(entry, len(numbers)) for entry in array.tolist())
        places = np.fromiter(codes, dtype=np.intp, count=len(array))
    except TypeError as error:
        wanted = "labels are texts, numbers or dates"
        raise TypeError(f"Column {name!r} holds lists or the like; {wanted}.") from error
    return Coded(list(numbers), places)


def _counts(column: Any, name: str) -> Array:
    counts = np.asarray(column)
    if counts.dtype.kind == "O":  # Python's numbers, or pandas' with missing ones
        try:
            counts = np.array([np.nan if is_missing(c) else c for c in counts], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"Column {name!r} must hold counts, which are numbers.") from error
    return checked_numbers(counts, f"Column {name!r}")


def checked_numbers(counts: Array, what: str) -> Array:
    """Refuse what cannot be counts."""
    if counts.dtype.kind not in "biuf":
        raise TypeError(f"{what} must hold counts; got the type {counts.dtype}.")
    wrong = first_wrong(counts)
    if wrong is not None:
        raise ValueError(
            f"{what} holds {counts[wrong]} in row {wrong}; counts are finite numbers of 0 or more. "
            "Leave such rows out: returns and corrections, for example, are no counts."
        )
    return counts


# ---- labels --------------------------------------------------------------------------------------


def _sorted(column: Coded) -> Coded:
    """Labels in order: numbers and dates by their values, all other as texts."""
    texts = texts_of(column.entries)
    labels = sorted(set(texts), key=rank_of(texts))
    place_of = {label: place for place, label in enumerate(labels)}
    return Coded(labels, np.array([place_of[text] for text in texts])[column.places])


def _binned(column: Coded, name: str, bin: str) -> Coded:
    """All bins from the first to the last, called by the dates on which they begin."""
    texts = texts_of(column.entries)
    wrong = next((text for text in texts if not _DATE.fullmatch(text)), None)
    try:
        days = None if wrong else np.array([text[:10] for text in texts], dtype="M8[D]")
    except ValueError as error:  # the 31st of February
        days, wrong = None, str(error)
    if days is None:
        raise ValueError(
            f"bins[{name!r}] is {bin!r}, but column {name!r} holds {described(wrong)}, which is no "
            "ISO date such as 2011-01-31. Convert the column first, for example with "
            "pandas.to_datetime."
        )
    numbers = days.astype(f"M8[{BINS[bin]}]").astype(np.int64)
    numbers = (numbers + _MONDAY) // 7 if bin == "week" else numbers
    first = numbers.min()
    starts = np.arange(first, numbers.max() + 1)
    starts = starts * 7 - _MONDAY if bin == "week" else starts
    dates = starts.astype(f"M8[{BINS[bin]}]").astype("M8[D]")
    return Coded([str(day) for day in dates], (numbers - first)[column.places])


def _checked_bins(bins: Any, names: list[Any]) -> dict[Any, str]:
    if not isinstance(bins, Mapping | None):
        wanted = 'a dict such as {"date": "week"}'
        raise TypeError(f"bins must be {wanted}; got {described(bins)}.")
    for name, bin in (bins or {}).items():
        if name not in names:
            question = did_you_mean(name, names)
            raise ValueError(f"bins names {described(name)}, which is not in modes.{question}")
        if bin not in BINS:
            kinds = ", ".join(map(repr, BINS))
            raise ValueError(f"bins[{name!r}] must be one of {kinds}; got {described(bin)}.")
    return dict(bins or {})
