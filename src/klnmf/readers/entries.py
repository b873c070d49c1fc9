"""Matrices in text, one entry per line: Matrix Market, and UCI's docword.

Every line is checked against the grammar of its format before SciPy converts it to numbers: SciPy
reads ``1,5`` as 1, skips what follows a number, and crashes at a NUL. If a block is wrong,
`klnmf.readers.diagnosis` finds the line.
"""

import io
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import scipy.io

from klnmf.readers.diagnosis import (
    FIELDS,
    check_entries,
    check_size,
    check_values,
    fields,
    shown,
    sizes_in,
)
from klnmf.readers.streams import Block
from klnmf.readers.table import first_wrong
from klnmf.support.array_types import Array
from klnmf.support.input_files import (
    ReadError,
    byte_lines,
    line_blocks,
    open_binary,
    parsed_by_others,
)

# Bytes of a text that are made into numbers at a time.
_TEXT = 1 << 22

# At most 18 digits: 64 bits hold them. Nothing is gone back over (``++``), so that the time is that
# of one pass, whatever the text.
_PLACES = rb"[ \t]*+[0-9]{1,18}+[ \t]++[0-9]{1,18}+"
_REAL = rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
_END = rb"[ \t\r]*+\n"
# The first that matches counts; whole numbers are much the quicker.
_LINES = {
    2: [re.compile(rb"(?:%b%b)*+" % (_PLACES, _END))],
    3: [
        re.compile(rb"(?:%b[ \t]++%b%b)*+" % (_PLACES, count, _END))
        for count in (rb"[0-9]++", _REAL)
    ],
}
_BLANK_LINES = re.compile(rb"^[ \t\r]*+\n", re.MULTILINE)
_PLUS = re.compile(rb"(?<=[ \t])\+")
_VALUES = re.compile(rb"(?:[ \t\r\n]*+%b(?=[ \t\r\n]|\Z))*+[ \t\r\n]*+" % _REAL)


@dataclass
class EntryFile:
    """A file with one entry per line, whose head has been read."""

    path: Path
    n_lines: int  # of the head
    shape: tuple[int, int]
    n_entries: int | None  # None: as many as there are
    width: int  # numbers per line: 2 if each line counts 1
    is_whole: bool  # whether counts must be whole numbers
    is_symmetric: bool = False  # whether entries off the diagonal stand for two
    is_rising: bool = False  # whether rows come in order
    kind: str = "Matrix Market"
    explain = staticmethod(check_entries)  # raises the error of the first wrong line

    def blocks(self) -> Iterator[Block]:
        """All entries, some at a time; a ReadError names the first line that is wrong."""
        problem = f"it cannot be read as {self.kind}"
        with parsed_by_others(self.path, problem, self._explain), open_binary(self.path) as stream:
            for _ in range(self.n_lines):
                stream.readline()
            yield from self.parsed(stream)

    def parsed(self, stream: BinaryIO) -> Iterator[Block]:
        """Entries of a stream that is past the head; any error if they are wrong."""
        done, last = 0, 0
        for text in line_blocks(stream, _TEXT):
            block, n_found = self._parsed(text, done)
            done += n_found
            _check_counts(block.counts, self.is_whole)
            if self.n_entries is not None and done > self.n_entries:
                break
            if self.is_rising and len(block.rows):
                if block.rows[0] < last or (np.diff(block.rows) < 0).any():
                    raise ValueError("rows must rise")
                last = block.rows[-1]
            yield _with_mirror_images(block) if self.is_symmetric else block
        if self.n_entries not in (None, done):
            raise ValueError(f"{done:,} entries or more where {self.n_entries:,} were expected")

    def _parsed(self, text: bytes, done: int) -> tuple[Block, int]:
        """Entries of whole lines, and how many there are; ``done`` came before."""
        text = text if text.endswith(b"\n") else text + b"\n"
        if not self._is_right(text):
            text = _BLANK_LINES.sub(b"", text)
            if not self._is_right(text):
                raise ValueError(f"a line does not have {self.width} numbers")
        if b"+" in text:  # which SciPy does not know before a number
            text = _PLUS.sub(b"", text)
        kind, n_lines = b"pattern" if self.width == 2 else b"real", text.count(b"\n")
        sizes = (kind, *self.shape, n_lines)
        head = b"%%%%MatrixMarket matrix coordinate %b general\n%d %d %d\n" % sizes
        found = scipy.io.mmread(io.BytesIO(head + text))  # which checks rows and columns
        return Block(found.row, found.col, found.data), n_lines

    def _is_right(self, text: bytes) -> bool:
        return any(lines.fullmatch(text) for lines in _LINES[self.width])

    def _explain(self, path: Path) -> None:
        with closing(byte_lines(path)) as lines:
            self.explain(path, islice(lines, self.n_lines, None), self)


class ArrayFile(EntryFile):
    """A Matrix Market file of all values, column after column; the nonzeros are its entries."""

    explain = staticmethod(check_values)

    def _parsed(self, text: bytes, done: int) -> tuple[Block, int]:
        if not _VALUES.fullmatch(text):
            raise ValueError("a value is not a number")
        values = np.array(text.split(), dtype=np.float64)
        nonzero = np.flatnonzero(values)
        columns, rows = np.divmod(nonzero + done, max(self.shape[0], 1))
        return Block(rows, columns, values[nonzero]), len(values)


def _check_counts(values: Array, is_whole: bool) -> None:
    if first_wrong(values) is not None:
        raise ValueError("a value is not a count")
    if is_whole and not (values == np.rint(values)).all():
        raise ValueError("a value is not a whole number")


def _with_mirror_images(block: Block) -> Block:
    off = block.rows != block.columns
    rows, columns, counts = (part[off] for part in block)
    both = zip(block, (columns, rows, counts), strict=True)
    return Block(*map(np.concatenate, both))


# ---- heads ---------------------------------------------------------------------------------------


def matrix_market(path: Path) -> EntryFile:
    """Matrix Market file, coordinate or array."""
    with closing(byte_lines(path)) as lines:
        number, banner = next(lines, (1, b""))
        rest = (line for line in lines if fields(line[1]) and line[1][:1] != b"%")
        n_lines, line = next(rest, (number + 1, b""))
    words = banner.decode("latin-1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        expected = '"%%MatrixMarket matrix coordinate integer general"'
        problem = f"expected the first line of a Matrix Market file, such as {expected}"
        raise ReadError(path, f"{problem}; found {shown(banner)}.", number)
    layout, field, symmetry = words[2:]
    for word, allowed in (
        (layout, ("coordinate", "array")),
        (field, FIELDS),
        (symmetry, ("general", "symmetric")),
    ):
        if word not in allowed:
            raise ReadError(path, f"{word!r} is not one of {', '.join(allowed)}.", number)
    sizes = sizes_in(path, line, n_lines, 3 if layout == "coordinate" else 2, "sizes")
    shape, is_whole = (sizes[0], sizes[1]), field.endswith("integer")
    if symmetry == "symmetric" and (layout == "array" or sizes[0] != sizes[1]):
        problem = f"a matrix of {sizes[0]} × {sizes[1]} cannot be {layout} {symmetry}."
        raise ReadError(path, problem, n_lines)
    if layout == "array":
        if field == "pattern":
            raise ReadError(path, "a matrix cannot be array pattern: it would have no values.", 1)
        return ArrayFile(path, n_lines, shape, sizes[0] * sizes[1], 1, is_whole)
    check_size(path, sizes, n_lines)
    width = 2 if field == "pattern" else 3
    is_symmetric = symmetry == "symmetric"
    return EntryFile(path, n_lines, shape, sizes[2], width, is_whole, is_symmetric)


def docword(path: Path) -> EntryFile:
    """UCI's ``docword`` file: D, W and NNZ, then lines of document, word, count."""
    sizes: list[int] = []
    with closing(byte_lines(path)) as lines:
        for expected in "D (documents)", "W (words)", "NNZ (lines that follow)":
            number, line = next(lines, (len(sizes) + 1, b""))
            sizes += sizes_in(path, line, number, 1, expected)
    check_size(path, sizes, 3)
    kind = "a docword file"
    return EntryFile(path, 3, (sizes[0], sizes[1]), sizes[2], 3, True, is_rising=True, kind=kind)
