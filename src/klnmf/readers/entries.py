"""Matrices in text, an entry a line: Matrix Market, and UCI's docword.

Every line is checked against the grammar of its format before SciPy makes numbers of it: SciPy
reads ``1,5`` as 1, passes over what follows a number, and crashes at a NUL. Which line is wrong is
found afterwards, by `klnmf.readers.diagnosis`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.io
import scipy.sparse as sp

from klnmf.readers.diagnosis import (
    FIELDS,
    explain_docword,
    explain_matrix_market,
    implausible_size,
    whole_numbers,
)
from klnmf.readers.table import first_wrong
from klnmf.readers.triplets import Entries
from klnmf.support.input_files import line_blocks, open_binary, parsed_by_others

Array = npt.NDArray[Any]
# Bytes of a text that are made into numbers at a time.
_TEXT = 1 << 22
_LARGEST = np.iinfo(np.int32).max

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


class Block(NamedTuple):
    """Some entries, in the order of the file; rows and columns from 0 on."""

    rows: Array
    columns: Array
    counts: Array


@dataclass
class EntryFile:
    """A file with an entry a line, whose head has been read."""

    path: Path
    n_lines: int  # of the head
    shape: tuple[int, int]
    n_entries: int
    width: int  # numbers of a line: 2 where each counts 1
    is_whole: bool  # whether counts must be whole numbers
    is_symmetric: bool = False  # whether entries off the diagonal stand for two
    is_rising: bool = False  # whether rows come in order
    explain: Callable[[Path], None] = field(default=explain_matrix_market)

    def blocks(self) -> Iterator[Block]:
        """All entries, some at a time.

        Raises
        ------
        ReadError
            With the first line that is not what it should be.
        """
        with _readable(self.path, self.explain), open_binary(self.path) as stream:
            for _ in range(self.n_lines):
                stream.readline()
            yield from self._blocks(line_blocks(stream, _TEXT))

    def _blocks(self, texts: Iterator[bytes]) -> Iterator[Block]:
        done, last = 0, 0
        for text in texts:
            block = self._parsed(text)
            if block is None:
                continue
            _check_counts(block.counts, self.is_whole)
            if self.is_rising and (block.rows[0] < last or (np.diff(block.rows) < 0).any()):
                raise ValueError("rows must rise")
            done, last = done + len(block.rows), block.rows[-1]
            if done > self.n_entries:
                break
            yield _with_mirror_images(block) if self.is_symmetric else block
        if done != self.n_entries:
            raise ValueError(f"{done:,} entries or more where {self.n_entries:,} were expected")

    def _parsed(self, text: bytes) -> Block | None:
        """Entries of whole lines; None where there are none."""
        text = text if text.endswith(b"\n") else text + b"\n"
        if not self._is_right(text):
            text = _BLANK_LINES.sub(b"", text)
            if not self._is_right(text):
                raise ValueError(f"a line does not have {self.width} numbers")
        if not text:
            return None
        if b"+" in text:  # which SciPy does not know before a number
            text = _PLUS.sub(b"", text)
        kind = b"pattern" if self.width == 2 else b"real"
        sizes = (*self.shape, text.count(b"\n"))
        head = b"%%%%MatrixMarket matrix coordinate %b general\n%d %d %d\n" % (kind, *sizes)
        found = scipy.io.mmread(io.BytesIO(head + text))  # which checks rows and columns
        return Block(found.row, found.col, found.data)

    def _is_right(self, text: bytes) -> bool:
        return any(lines.fullmatch(text) for lines in _LINES[self.width])


class ArrayFile(EntryFile):
    """A Matrix Market file of all values, column after column; the nonzeros are its entries."""

    def _blocks(self, texts: Iterator[bytes]) -> Iterator[Block]:
        done = 0
        for text in texts:
            if not _VALUES.fullmatch(text):
                raise ValueError("a value is not a number")
            values = np.array(text.split(), dtype=np.float64)
            _check_counts(values, self.is_whole)
            nonzero = np.flatnonzero(values)
            columns, rows = np.divmod(nonzero + done, max(self.shape[0], 1))
            done += len(values)
            if done > self.n_entries:
                break
            yield Block(rows, columns, values[nonzero])
        if done != self.n_entries:
            raise ValueError(f"{done:,} values or more where {self.n_entries:,} were expected")


def _readable(path: Path, explain: Callable[[Path], None]) -> AbstractContextManager[None]:
    what = "a docword file" if explain is explain_docword else "Matrix Market"
    return parsed_by_others(path, f"it cannot be read as {what}", explain)


def _check_counts(values: Array, is_whole: bool) -> None:
    if first_wrong(values) is not None:
        raise ValueError("a value is not a count")
    if is_whole and not (values == np.rint(values)).all():
        raise ValueError("a value is not a whole number")


def _with_mirror_images(block: Block) -> Block:
    off = block.rows != block.columns
    rows, columns, counts = block
    return Block(
        np.concatenate([rows, columns[off]]),
        np.concatenate([columns, rows[off]]),
        np.concatenate([counts, counts[off]]),
    )


def _check_size(n_rows: int, n_columns: int, n_entries: int) -> None:
    problem = implausible_size(n_rows, n_columns, n_entries)
    if problem is not None:
        raise ValueError(problem)


# ---- Matrix Market -------------------------------------------------------------------------------


def matrix_market(path: Path) -> EntryFile:
    """Matrix Market file, coordinate or array."""
    with _readable(path, explain_matrix_market), open_binary(path) as stream:
        words = stream.readline().decode("latin-1").lower().split()
        n_lines, line = 1, b"%"
        while line and (line.startswith(b"%") or not line.strip()):
            n_lines, line = n_lines + 1, stream.readline()
        if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"] or words[3] not in FIELDS:
            raise ValueError("the first line is not that of a Matrix Market file of counts")
        layout, kind, symmetry = words[2:]
        is_whole = kind.endswith("integer")
        sizes = whole_numbers(line, 3 if layout == "coordinate" else 2)
        if sizes is None or layout not in ("coordinate", "array"):
            raise ValueError("the sizes are missing")
        n_rows, n_columns = sizes[:2]
        if layout == "array" and symmetry == "general" and kind != "pattern":
            n_values = n_rows * n_columns
            return ArrayFile(path, n_lines, (n_rows, n_columns), n_values, 1, is_whole)
        is_symmetric = symmetry == "symmetric" and n_rows == n_columns
        if layout == "array" or not (is_symmetric or symmetry == "general"):
            raise ValueError(f"a matrix of {n_rows} × {n_columns} cannot be {layout} {symmetry}")
        _check_size(*sizes)
        width = 2 if kind == "pattern" else 3
        return EntryFile(
            path, n_lines, (n_rows, n_columns), sizes[2], width, is_whole, is_symmetric
        )


def read_matrix_market(path: Path) -> sp.csr_array:
    """Matrix of a Matrix Market file; every value of it is a count."""
    file = matrix_market(path)
    entries = Entries(wide=max(file.shape) > _LARGEST)
    for block in file.blocks():
        entries.add(*block)
    return sp.csr_array(entries.matrix(file.shape))


# ---- docword -------------------------------------------------------------------------------------


def docword(path: Path) -> EntryFile:
    """UCI's ``docword`` file: D, W and NNZ, then lines of document, word, count."""
    with _readable(path, explain_docword), open_binary(path) as stream:
        found = [whole_numbers(stream.readline(), 1) for _ in range(3)]
        sizes = [size for numbers in found if numbers is not None for size in numbers]
        if len(sizes) != 3:
            raise ValueError("it does not begin with the three lines D, W and NNZ")
        _check_size(*sizes)
    n, m, nnz = sizes
    return EntryFile(path, 3, (n, m), nnz, 3, True, is_rising=True, explain=explain_docword)


def read_docword(path: Path) -> sp.csr_array:
    """Matrix of a ``docword`` file; what is in memory at any time is the result and one block."""
    file = docword(path)
    n, m = file.shape
    index = np.dtype(np.int32 if m <= _LARGEST else np.int64)
    columns, counts, lengths = bytearray(), bytearray(), []
    kind: np.dtype[Any] = np.dtype(np.int32)
    for block in file.blocks():
        if kind == np.int32 and block.counts.max() > _LARGEST:
            kind = np.dtype(np.float64)
            counts = bytearray(np.frombuffer(counts, np.int32).astype(kind).tobytes())
        columns += block.columns.astype(index).tobytes()
        counts += block.counts.astype(kind).tobytes()
        lengths.append(np.unique(block.rows, return_counts=True))
    indptr = np.zeros(n + 1, dtype=np.int64)  # of a size that the entries have shown to be right
    for rows, numbers in lengths:
        indptr[rows + 1] += numbers
    np.cumsum(indptr, out=indptr)
    arrays = np.frombuffer(counts, kind), np.frombuffer(columns, index), indptr
    return sp.csr_array(arrays, shape=(n, m))
