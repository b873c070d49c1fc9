"""Cells of .csv and .tsv files that no spreadsheet takes for a formula.

Excel and others run a cell that begins with ``=``, ``+``, ``-`` or ``@``, also after a tab or a
line end. A name like that is written behind an apostrophe, as spreadsheets themselves write text;
reading takes the apostrophe away again. Numbers are written as they are.
"""

import csv
import re
from collections.abc import Iterable
from io import StringIO
from itertools import islice
from typing import Any, Literal

# Rows that are made into text at a time.
_BLOCK = 1 << 12
_SIGNS = "=+-@\t\r\n＝＋－＠"  # the last four are wide forms that some spreadsheets take for signs
_SUSPECT = frozenset(f"'{_SIGNS}")
# A name that begins with apostrophes and a sign gets one more, and so comes back as it was.
_LIKE_FORMULA = re.compile(rf"'*[{re.escape(_SIGNS)}]")
_ESCAPED = re.compile(rf"'+[{re.escape(_SIGNS)}]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def as_cell(value: Any) -> Any:
    """Return a value as it is written: text that looks like a formula behind an apostrophe.

    >>> as_cell("=1+1"), as_cell("-5"), as_cell("sea"), as_cell("'=")
    ("'=1+1", '-5', 'sea', "''=")
    """
    if not isinstance(value, str) or value[:1] not in _SUSPECT:  # nearly all of them
        return value
    if not _LIKE_FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def from_cell(cell: str) -> str:
    """Return the name that `as_cell` made this cell of.

    >>> from_cell("'=1+1"), from_cell("'tis"), from_cell("-5")
    ('=1+1', "'tis", '-5')
    """
    return cell[1:] if cell[:1] == "'" and _ESCAPED.match(cell) else cell


def write_lines(stream: Any, rows: Iterable[Iterable[Any]], delimiter: str = ",") -> None:
    """Write lines of cells, from `as_cell`, to a text stream."""
    rows = iter(rows)
    while block := list(islice(rows, _BLOCK)):
        text = _lines(block, delimiter, csv.QUOTE_MINIMAL)
        if "\r" in text:  # which ends a line, and is not quoted where lines end otherwise
            text = _lines(block, delimiter, csv.QUOTE_ALL)
        stream.write(text)


def _lines(rows: list[Iterable[Any]], delimiter: str, quoting: Literal[0, 1]) -> str:
    text = StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=quoting)
    writer.writerows(rows)
    return text.getvalue()
