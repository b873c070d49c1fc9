"""Matrices in text, one entry per line: Matrix Market, and UCI's docword.

Every line is checked against the grammar of its format before SciPy converts it to numbers: SciPy
reads ``1,5`` as 1, skips what follows a number, and crashes at a NUL. If a block is wrong, its
lines are gone through one by one to name the first that is.
"""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io

from klnmf.data.canonical import Entries
from klnmf.data.matrix_checks import first_wrong, is_count
from klnmf.support.input_files import ReadError, byte_lines, line_blocks
from klnmf.support.printable_text import shown

# Bytes of a text that are made into numbers at a time.
_TEXT = 1 << 22
_FIELDS = ("integer", "unsigned-integer", "real", "double", "pattern")
# Rows or columns that any file may claim, and how many it may claim per entry beyond that.
_PLAUSIBLE_SIZE, _PLAUSIBLE_EMPTY = 10_000_000, 100

# At most 18 digits: 64 bits hold them. Nothing is gone back over (``++``), so that the time is that
# of one pass, whatever the text.
_PLACES = rb"[ \t]*+[0-9]{1,18}+[ \t]++[0-9]{1,18}+"
REAL = rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
_END = rb"[ \t\r]*+\n"
# The first that matches counts; whole numbers are much the quicker.
_LINES = {
    2: [re.compile(rb"(?:%b%b)*+" % (_PLACES, _END))],
    3: [
        re.compile(rb"(?:%b[ \t]++%b%b)*+" % (_PLACES, count, _END))
        for count in (rb"[0-9]++", REAL)
    ],
}
_BLANK_LINES = re.compile(rb"^[ \t\r]*+\n", re.MULTILINE)
_PLUS = re.compile(rb"(?<=[ \t])\+")
_NUMBER = re.compile(rb"%b|[+-]?(?i:nan|inf|infinity)" % REAL)


@dataclass
class EntryFile:
    """A file with one entry per line, whose head has been read."""

    path: Path
    n_lines: int  # of the head
    shape: tuple[int, int]
    n_entries: int
    width: int  # numbers per line: 2 if each line counts 1
    is_whole: bool  # whether counts must be whole numbers
    is_symmetric: bool = False  # whether entries off the diagonal stand for two
    is_rising: bool = False  # whether rows come in order

    def blocks(self) -> Iterator[Entries]:
        """All entries, some at a time; a ReadError names the first line that is wrong."""
        line, done, last = self.n_lines, 0, 0
        for line, text in line_blocks(self.path, _TEXT, self.n_lines):
            try:
                block = self._parsed(text, last)
                if done + len(block.rows) > self.n_entries:
                    raise ValueError("more entries than announced")
            except (ValueError, OverflowError) as error:
                self._check_lines(text, line, done, last)
                raise ReadError(self.path, f"it cannot be read: {error}") from error
            line, done = line + text.count(b"\n"), done + len(block.rows)
            last = block.rows[-1] if len(block.rows) else last
            yield _with_mirror_images(block) if self.is_symmetric else block
        if done < self.n_entries:
            found = f"the file ends here with {done:,} of {self.n_entries:,} entries"
            raise ReadError(self.path, f"{found}: it is cut off.", line)

    def _parsed(self, text: bytes, last: int) -> Entries:
        """Entries of whole lines, none of which comes before the row ``last`` if rows rise."""
        if not self._is_right(text):
            text = _BLANK_LINES.sub(b"", text)
            if not self._is_right(text):
                raise ValueError(f"a line does not have {self.width} numbers")
        if b"+" in text:  # which SciPy does not know before a number
            text = _PLUS.sub(b"", text)
        kind = b"pattern" if self.width == 2 else b"real"
        sizes = (kind, *self.shape, text.count(b"\n"))
        head = b"%%%%MatrixMarket matrix coordinate %b general\n%d %d %d\n" % sizes
        found = scipy.io.mmread(io.BytesIO(head + text))  # which checks rows and columns
        rows, counts = found.row, found.data
        if first_wrong(counts) is not None or (self.is_whole and (counts != np.rint(counts)).any()):
            raise ValueError("a value is not a count")
        if self.is_rising and len(rows) and (rows[0] < last or (np.diff(rows) < 0).any()):
            raise ValueError("rows must rise")
        return Entries(rows, found.col, counts)

    def _is_right(self, text: bytes) -> bool:
        return any(lines.fullmatch(text) for lines in _LINES[self.width])

    def _check_lines(self, text: bytes, line: int, done: int, last: int) -> None:
        """Raise the error of the first wrong line; ``done`` entries and ``line`` lines are past."""
        last += 1  # in files they are numbered from 1
        for number, content in enumerate(text.split(b"\n"), line + 1):
            numbers = _fields(content)
            if not numbers:
                continue
            if len(numbers) != self.width:
                problem = f"expected {self.width} numbers, found {shown(content)}."
                raise ReadError(self.path, problem, number)
            places = _sizes_in(self.path, b" ".join(numbers[:2]), number, 2, "row and column")
            for index, largest, what in zip(places, self.shape, ("row", "column"), strict=True):
                if not 1 <= index <= largest:
                    problem = f"{what} {index} is not from 1 to {largest}."
                    raise ReadError(self.path, problem, number)
            if self.is_rising and places[0] < last:
                problem = f"document {places[0]} comes after {last}; documents must be in order."
                raise ReadError(self.path, problem, number)
            if self.width == 3:
                self._check_count(numbers[2], number)
            last, done = places[0], done + 1
            if done > self.n_entries:
                problem = f"the file announces {self.n_entries:,} entries but has more."
                raise ReadError(self.path, problem, number)

    def _check_count(self, field: bytes, line: int) -> None:
        value = float(field) if _NUMBER.fullmatch(field) else None
        if value is None or (self.is_whole and is_count(value) and not value.is_integer()):
            problem = f"is not a {'whole ' * self.is_whole}number; a count was expected."
            raise ReadError(self.path, f"{shown(field)} {problem}", line)
        if not is_count(value):
            problem = f"{shown(field)}: counts are finite numbers of 0 or more."
            raise ReadError(self.path, problem, line)


def _with_mirror_images(block: Entries) -> Entries:
    off = block.rows != block.columns
    rows, columns, counts = (part[off] for part in block)
    both = zip(block, (columns, rows, counts), strict=True)
    return Entries(*map(np.concatenate, both))


def _fields(line: bytes) -> list[bytes]:
    """Split a line at blanks; bytes.split knows more kinds of them than the formats do."""
    return re.findall(rb"[^ \t\r\n]+", line)


# ---- heads ---------------------------------------------------------------------------------------


def matrix_market(path: Path) -> EntryFile:
    """Matrix Market file with one entry per line."""
    with closing(byte_lines(path)) as lines:
        number, banner = next(lines, (1, b""))
        rest = (line for line in lines if _fields(line[1]) and line[1][:1] != b"%")
        n_lines, line = next(rest, (number + 1, b""))
    words = banner.decode("latin-1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        expected = '"%%MatrixMarket matrix coordinate integer general"'
        problem = f"expected the first line of a Matrix Market file, such as {expected}"
        raise ReadError(path, f"{problem}; found {shown(banner)}.", number)
    symmetries = ("general", "symmetric")
    for word, allowed in zip(words[2:], (("coordinate",), _FIELDS, symmetries), strict=True):
        if word not in allowed:
            way_out = "scipy.io.mmwrite(path, scipy.sparse.coo_array(X))"
            problem = f"{word!r} is not one of {', '.join(allowed)}. Write it again with {way_out}."
            raise ReadError(path, problem, number)
    sizes, is_symmetric = _sizes_in(path, line, n_lines, 3, "sizes"), words[4] == "symmetric"
    if is_symmetric and sizes[0] != sizes[1]:
        problem = f"a matrix of {sizes[0]} × {sizes[1]} cannot be symmetric."
        raise ReadError(path, problem, n_lines)
    check_size(path, sizes, n_lines)
    width, is_whole = 2 if words[3] == "pattern" else 3, words[3].endswith("integer")
    return EntryFile(path, n_lines, (sizes[0], sizes[1]), sizes[2], width, is_whole, is_symmetric)


def docword(path: Path) -> EntryFile:
    """UCI's ``docword`` file: D, W and NNZ, then lines of document, word, count."""
    sizes: list[int] = []
    with closing(byte_lines(path)) as lines:
        for expected in "D (documents)", "W (words)", "NNZ (lines that follow)":
            number, line = next(lines, (len(sizes) + 1, b""))
            sizes += _sizes_in(path, line, number, 1, expected)
    check_size(path, sizes, 3)
    return EntryFile(path, 3, (sizes[0], sizes[1]), sizes[2], 3, True, is_rising=True)


def _sizes_in(path: Path, line: bytes, number: int, width: int, what: str) -> list[int]:
    """Whole numbers of a line, as many as ``width``, of at most 18 digits each."""
    found = _fields(line)
    if len(found) != width or not all(field.isdigit() and len(field) <= 18 for field in found):
        numbers = "a whole number" if width == 1 else f"{width} whole numbers"
        raise ReadError(path, f"expected {numbers}: {what}; found {shown(line)}.", number)
    return [int(field) for field in found]


def is_plausible(sizes: Iterable[int], n_entries: int) -> bool:
    """Whether there are not far more rows or columns than entries: even empty ones take memory."""
    return max(sizes) <= max(_PLAUSIBLE_SIZE, _PLAUSIBLE_EMPTY * n_entries)


def check_size(path: Path, sizes: list[int], line: int | None = None) -> None:
    """Refuse sizes of a matrix, the last of which are its entries, that are not plausible."""
    n_rows, n_columns, n_entries = sizes
    if not is_plausible((n_rows, n_columns), n_entries):
        claim = f"{n_rows:,} rows and {n_columns:,} columns for {n_entries:,} entries"
        problem = "nearly all of them would be empty. Are these the right sizes?"
        raise ReadError(path, f"the file claims {claim}: {problem}", line)
