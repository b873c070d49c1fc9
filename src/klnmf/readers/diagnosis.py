"""Which line of a file is wrong, once a quick reader has refused it.

The quick readers say little about where a file is broken. These go through it again line by line
and stop at the first line that is not as it should be. They return without an error where they find
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from klnmf.readers.table import is_count
from klnmf.support.input_files import ReadError, byte_lines, text_lines

Lines = Iterator[tuple[int, bytes]]
_SHOWN = 60
FIELDS = ("integer", "unsigned-integer", "real", "double", "pattern")
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)", re.IGNORECASE
)
# Rows or columns that a file may claim whatever it holds; beyond, one entry must come to so many.
PLAUSIBLE_SIZE, PLAUSIBLE_EMPTY = 10_000_000, 100


def explain_matrix_market(path: Path) -> None:
    """Raise a `ReadError` at the first wrong line of a Matrix Market file."""
    lines = byte_lines(path)
    number, banner = next(lines, (1, b""))
    words = banner.decode("latin-1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ReadError(
            path,
            f'found {shown(banner)} where the first line of a Matrix Market file stands, such as "'
            '%%MatrixMarket matrix coordinate integer general".',
            number,
        )
    layout, field, symmetry = words[2:]
    for value, known in (
        (layout, ("coordinate", "array")),
        (field, FIELDS),
        (symmetry, ("general", "symmetric")),
    ):
        if value not in known:
            raise ReadError(path, f"{value!r} is not one of {', '.join(known)}.", number)
    entries = ((number, line) for number, line in lines if _fields(line))
    heading = (entry for entry in entries if entry[1][:1] != b"%")  # comments stand above the sizes
    number, line = next(heading, (number + 1, b""))
    sizes = _whole_numbers(path, line, number, 3 if layout == "coordinate" else 2, "sizes")
    if layout == "array":
        _check_values(path, entries, sizes[0] * sizes[1], field.endswith("integer"))
        return
    _check_size(path, sizes, number)
    width, whole = (2 if field == "pattern" else 3), field.endswith("integer")
    _check_triplets(path, entries, sizes, width=width, whole=whole)


def explain_docword(path: Path) -> None:
    """Raise a `ReadError` at the first wrong line of a UCI ``docword`` file."""
    lines = byte_lines(path)
    sizes: list[int] = []
    for expected in "D (documents)", "W (words)", "NNZ (lines that follow)":
        number, line = next(lines, (len(sizes) + 1, b""))
        sizes += _whole_numbers(path, line, number, 1, expected)
    _check_size(path, sizes, 3)
    entries = ((number, line) for number, line in lines if _fields(line))
    _check_triplets(path, entries, sizes, width=3, whole=True, rising=True)


def explain_svmlight(path: Path) -> None:
    """Raise a `ReadError` at the first wrong line of an svmlight file."""
    for number, line in text_lines(path):
        label, *entries = line.partition("#")[0].split() or ["0"]
        last = -1
        if _number(label.partition(",")[0]) is None:
            raise ReadError(path, f"the line begins with {label!r}, not with a label.", number)
        for entry in entries:
            index, colon, count = entry.partition(":")
            if index == "qid":
                continue
            value = _number(count)
            if not colon or not index.isdecimal() or value is None:
                raise ReadError(path, f"found {entry!r} where index:count was expected.", number)
            if not is_count(value):
                raise ReadError(path, f"{entry!r}: counts are finite numbers of 0 or more.", number)
            if int(index) <= last:
                raise ReadError(path, f"index {index} follows {last}; indices must rise.", number)
            last = int(index)


def implausible_size(n_rows: int, n_columns: int, n_entries: int) -> str | None:
    """Say what is wrong with the sizes that a file claims, or None.

    A matrix takes memory for each of its rows, empty or not: a few bytes must not claim it all.
    """
    size = max(n_rows, n_columns)
    if size <= max(PLAUSIBLE_SIZE, PLAUSIBLE_EMPTY * n_entries):
        return None
    return (
        f"the file claims {n_rows:,} rows and {n_columns:,} columns for {n_entries:,} entries: "
        "nearly all of them would be empty. Are these the right sizes?"
    )


def whole_numbers(line: bytes, width: int) -> list[int] | None:
    """So many whole numbers, of at most 18 digits each; None where something else stands."""
    fields = _fields(line)
    if len(fields) != width or not all(field.isdigit() and len(field) <= 18 for field in fields):
        return None
    return [int(field) for field in fields]


def shown(content: bytes | str) -> str:
    """Quote a line for an error message."""
    text = content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")
    text = text.rstrip("\r\n")
    if not text:
        return "nothing"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _check_triplets(
    path: Path, entries: Lines, sizes: list[int], *, width: int, whole: bool, rising: bool = False
) -> None:
    """Lines of row, column and count, numbered from 1 on, as many as promised."""
    n_rows, n_columns, promised = sizes
    number, found, last = 0, 0, 1
    for number, line in entries:
        fields = _fields(line)
        if len(fields) != width:
            raise ReadError(path, f"found {shown(line)} where {width} numbers belong.", number)
        row, column = _whole_numbers(path, b" ".join(fields[:2]), number, 2, "row and column")
        for index, largest, what in ((row, n_rows, "row"), (column, n_columns, "column")):
            if not 1 <= index <= largest:
                raise ReadError(path, f"{what} {index} is not from 1 to {largest}.", number)
        if rising and row < last:
            raise ReadError(path, f"document {row} follows {last}; they must rise.", number)
        if width == 3:
            _check_count(path, fields[2], number, whole)
        last, found = row, found + 1
        if found > promised:
            raise ReadError(path, f"the file promises {promised:,} entries and has more.", number)
    if found < promised:
        raise ReadError(
            path,
            f"the file ends here with {found:,} of {promised:,} entries: it is cut off.",
            number,
        )


def _check_values(path: Path, entries: Lines, promised: int, whole: bool) -> None:
    number, found = 0, 0
    for number, line in entries:
        for field in _fields(line):
            _check_count(path, field, number, whole)
            found += 1
    if found != promised:
        raise ReadError(path, f"{found:,} values up to the end; {promised:,} expected.", number)


def _check_count(path: Path, field: bytes, line: int, whole: bool = False) -> None:
    value = _number(field)
    if value is None or (whole and is_count(value) and not value.is_integer()):
        kind = "whole number" if whole else "number"
        raise ReadError(path, f"{shown(field)} is not a {kind}; a count was expected.", line)
    if not is_count(value):
        raise ReadError(path, f"{shown(field)}: counts are finite numbers of 0 or more.", line)


def _whole_numbers(path: Path, line: bytes, number: int, width: int, what: str) -> list[int]:
    found = whole_numbers(line, width)
    if found is None:
        numbers = "a whole number" if width == 1 else f"{width} whole numbers"
        raise ReadError(path, f"found {shown(line)} where {numbers} belong: {what}.", number)
    return found


def _check_size(path: Path, sizes: list[int], line: int) -> None:
    n_rows, n_columns, n_entries = sizes
    problem = implausible_size(n_rows, n_columns, n_entries)
    if problem is not None:
        raise ReadError(path, problem, line)


def _fields(line: bytes) -> list[bytes]:
    """Split a line at blanks; bytes.split knows more kinds of them than the formats do."""
    return re.findall(rb"[^ \t\r\n]+", line)


def _number(field: bytes | str) -> float | None:
    text = field if isinstance(field, str) else field.decode("latin-1")
    return float(text) if _NUMBER.fullmatch(text) else None
