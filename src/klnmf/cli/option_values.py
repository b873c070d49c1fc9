"""Values of options, checked as they are parsed."""

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

Number = TypeVar("Number", int, float)
Parse = TypeVar("Parse", bound=Callable[[str], Any])


def shown_as(metavar: str) -> Callable[[Parse], Parse]:
    """Give a type of options the name that its values have in --help."""

    def named(parse: Parse) -> Parse:
        parse.metavar = metavar  # type: ignore[attr-defined]
        return parse

    return named


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


def _checked(
    parse: Callable[[str], Number], metavar: str, wanted: str, is_right: Callable[[Number], bool]
) -> Callable[[str], Number]:
    """Make the type of an option: a number for which a condition holds."""

    @shown_as(metavar)
    def checked(text: str) -> Number:
        value = parse(text)
        if not is_right(value):
            raise argparse.ArgumentTypeError(f"must be {wanted}, got {text}")
        return value

    return checked


_INFINITY = float("inf")
_LARGEST_SEED = (1 << 32) - 1
_WORKERS = "from 1 to 1024, or negative (-1: all CPUs, -2: all but one)"

natural = _checked(whole, "N", "1 or more", lambda value: value >= 1)
several = _checked(whole, "N", "2 or more", lambda value: value >= 2)
none_or_several = _checked(whole, "N", "0, or 2 or more", lambda n: n == 0 or n >= 2)
seed = _checked(whole, "SEED", f"from 0 to {_LARGEST_SEED}", lambda n: 0 <= n <= _LARGEST_SEED)
workers = _checked(whole, "N", _WORKERS, lambda value: value != 0 and value <= 1024)
positive = _checked(number, "X", "a positive number", lambda value: 0 < value < _INFINITY)
nonnegative = _checked(number, "X", "0 or more", lambda value: 0 <= value < _INFINITY)
share = _checked(number, "SHARE", "between 0 and 1", lambda value: 0 < value < 1)
share_of_features = _checked(number, "SHARE", "from 0 to 1", lambda value: 0 <= value <= 1)


@shown_as("N")
def share_or_count(text: str) -> float | int:
    """Return a whole number, or a share written with a point, as in scikit-learn."""
    value = number(text) if "." in text else whole(text)
    if not (0 <= value <= 1 if "." in text else value >= 1):
        wanted = "must be a number of samples (1, 2, ...) or a share of them (0.0 to 1.0)"
        raise argparse.ArgumentTypeError(f"{wanted}, got {text}")
    return value


@shown_as("R")
def rank(text: str) -> int:
    """Return a number of components."""
    try:
        return natural(text)
    except argparse.ArgumentTypeError as error:
        way_out = "To find out which number suits DATA, run `klnmf rank DATA` first"
        raise argparse.ArgumentTypeError(f"{error}. {way_out}") from None


@shown_as("LOW,HIGH")
def ngrams(text: str) -> tuple[int, int]:
    """Return one or two numbers separated by a comma: 1,2."""
    parts = text.split(",")
    if all(part.isdecimal() for part in parts) and len(parts) <= 2:
        low, high = int(parts[0]), int(parts[-1])
        if 1 <= low <= high:
            return low, high
    wanted = "must be like 1,2, which counts words and pairs of words"
    raise argparse.ArgumentTypeError(f"{wanted}; got {text!r}")


@shown_as("LIST")
def some_ranks(text: str) -> list[int]:
    """Return whole numbers from a list of numbers and ranges.

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


@shown_as("NUMBER=NAME")
def component_name(text: str) -> tuple[int, str]:
    """Return the number and the name of a component.

    Examples
    --------
    >>> component_name("3=The sea")
    (3, 'The sea')
    """
    number, equals, name = text.partition("=")
    if not equals or not (number.isascii() and number.isdecimal()) or not name.strip():
        raise argparse.ArgumentTypeError(f"must be like 3='The sea', got {text!r}")
    return int(number), name.strip()


@shown_as("SIZE")
def memory(text: str) -> str:
    """Return a size of memory, checked."""
    from klnmf.data.on_disk.sizes import parse_bytes

    try:
        parse_bytes(text)
    except ValueError:
        problem = f"must be a size of at least 1M, such as 512M or 2G, got {text!r}"
        raise argparse.ArgumentTypeError(problem) from None
    return text


@shown_as("CHARACTER")
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
    """Return the name of a text encoding."""
    try:
        "".encode(text)
    except (LookupError, ValueError):
        raise argparse.ArgumentTypeError(
            f"must be a text encoding such as utf-8 or latin-1, got {text!r}"
        ) from None
    return text


@shown_as("ROW,COLUMN[,COUNT]")
def column_names(text: str) -> list[str]:
    """Return two or three names separated by commas."""
    names = text.split(",")
    if len(names) not in (2, 3) or not all(names):
        raise argparse.ArgumentTypeError(
            f"must name the columns of row, column and count, or of row and column, got {text!r}"
        )
    return names
