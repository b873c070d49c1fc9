"""Which line of a text file is wrong, once a quick reader has refused it.

The quick readers say little about where a file is broken. These functions go through it again line
by line and raise a `ReadError` at the first wrong line. They return if they find nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from klnmf.readers.table import is_count
from klnmf.support.input_files import ReadError, text_lines

if TYPE_CHECKING:
    from klnmf.readers.entries import EntryFile

Lines = Iterator[tuple[int, bytes]]
_SHOWN = 60
FIELDS = ("integer", "unsigned-integer", "real", "double", "pattern")
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)", re.IGNORECASE
)
# Rows or columns that any file may claim, and how many it may claim per entry beyond that.
PLAUSIBLE_SIZE, PLAUSIBLE_EMPTY = 10_000_000, 100


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
                raise ReadError(path, f"expected index:count, found {entry!r}.", number)
            if not is_count(value):
                raise ReadError(path, f"{entry!r}: counts are finite numbers of 0 or more.", number)
            if int(index) <= last:
                problem = f"index {index} comes after {last}; indices must increase."
                raise ReadError(path, problem, number)
            last = int(index)


def shown(content: bytes | str) -> str:
    """Quote a line for an error message."""
    text = content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")
    text = text.rstrip("\r\n")
    if not text:
        return "nothing"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def check_entries(path: Path, lines: Lines, file: EntryFile) -> None:
    """Raise the error of the first wrong line of row, column and count, numbered from 1."""
    number, found, last = 0, 0, 1
    for number, line in _not_blank(lines):
        numbers = fields(line)
        if len(numbers) != file.width:
            raise ReadError(path, f"expected {file.width} numbers, found {shown(line)}.", number)
        row, column = sizes_in(path, b" ".join(numbers[:2]), number, 2, "row and column")
        for index, largest, what in zip((row, column), file.shape, ("row", "column"), strict=True):
            if not 1 <= index <= largest:
                raise ReadError(path, f"{what} {index} is not from 1 to {largest}.", number)
        if file.is_rising and row < last:
            problem = f"document {row} comes after {last}; documents must be in order."
            raise ReadError(path, problem, number)
        if file.width == 3:
            _check_count(path, numbers[2], number, file.is_whole)
        last, found = row, found + 1
        if file.n_entries is not None and found > file.n_entries:
            problem = f"the file announces {file.n_entries:,} entries but has more."
            raise ReadError(path, problem, number)
    if file.n_entries is not None and found < file.n_entries:
        problem = f"the file ends here with {found:,} of {file.n_entries:,} entries: it is cut off."
        raise ReadError(path, problem, number)


def check_values(path: Path, lines: Lines, file: EntryFile) -> None:
    """Raise the error of the first wrong value of a file of values alone."""
    number, found = 0, 0
    for number, line in _not_blank(lines):
        for field in fields(line):
            _check_count(path, field, number, file.is_whole)
            found += 1
    if found != file.n_entries:
        problem = f"{found:,} values up to the end; {file.n_entries:,} expected."
        raise ReadError(path, problem, number)


def _check_count(path: Path, field: bytes, line: int, whole: bool = False) -> None:
    value = _number(field)
    if value is None or (whole and is_count(value) and not value.is_integer()):
        kind = "whole number" if whole else "number"
        raise ReadError(path, f"{shown(field)} is not a {kind}; a count was expected.", line)
    if not is_count(value):
        raise ReadError(path, f"{shown(field)}: counts are finite numbers of 0 or more.", line)


def sizes_in(path: Path, line: bytes, number: int, width: int, what: str) -> list[int]:
    """Whole numbers of a line, as many as ``width``, of at most 18 digits each."""
    found = fields(line)
    if len(found) != width or not all(field.isdigit() and len(field) <= 18 for field in found):
        numbers = "a whole number" if width == 1 else f"{width} whole numbers"
        raise ReadError(path, f"expected {numbers}: {what}; found {shown(line)}.", number)
    return [int(field) for field in found]


def check_size(path: Path, sizes: list[int], line: int | None = None) -> None:
    """Refuse far more rows or columns than entries: even empty rows take memory."""
    n_rows, n_columns, n_entries = sizes
    if max(n_rows, n_columns) > max(PLAUSIBLE_SIZE, PLAUSIBLE_EMPTY * n_entries):
        claim = f"{n_rows:,} rows and {n_columns:,} columns for {n_entries:,} entries"
        problem = "nearly all of them would be empty. Are these the right sizes?"
        raise ReadError(path, f"the file claims {claim}: {problem}", line)


def fields(line: bytes) -> list[bytes]:
    """Split a line at blanks; bytes.split knows more kinds of them than the formats do."""
    return re.findall(rb"[^ \t\r\n]+", line)


def _not_blank(lines: Lines) -> Lines:
    return ((number, line) for number, line in lines if fields(line))


def _number(field: bytes | str) -> float | None:
    text = field if isinstance(field, str) else field.decode("latin-1")
    return float(text) if _NUMBER.fullmatch(text) else None
