"""Delimited text, .csv and .tsv: a table of counts, or triplets of row, column and count.

The file is read line by line and only nonzeros are kept, so that memory grows with them and with
one line, not with the size of the table.
"""

import csv
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from klnmf.data.canonical import Entries
from klnmf.data.matrix_checks import first_wrong, is_count
from klnmf.data.streams import CountStream, Outline
from klnmf.readers.format import Format
from klnmf.readers.layouts import (
    are_plain,
    beginning,
    check_header,
    check_not_texts,
    detected_layout,
    is_number,
    names_come_first,
    number_of,
    repeated_names,
)
from klnmf.readers.table import CountTable
from klnmf.readers.triplets import (
    Numbering,
    check_layout,
    positions_of,
    triplet_blocks,
    triplet_stream,
)
from klnmf.signatures import standard_type
from klnmf.support.input_files import ReadError, text_blocks
from klnmf.support.option_names import option
from klnmf.support.printable_text import shown
from klnmf.support.spreadsheet_cells import as_cell, from_cell, write_lines
from klnmf.support.whole_files import packed_if_named_so

Record = tuple[int, list[str]]
# Lines of triplets at a time: few, as many lists keep the garbage collector busy.
BLOCK = 1 << 9
# Counts of a table at a time.
_ENTRIES = 1 << 16
_ZEROS = frozenset(("0", "0.0"))


class Csv(Format):
    """Comma-separated text: a table of counts, or lines of row, column and count."""

    name = "csv"
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    may_be_packed = True
    delimiter = ","

    def stream(
        self,
        path: Path,
        *,
        delimiter: str | None = None,
        layout: str | None = None,
        columns: Sequence[str] | None = None,
        header: bool | None = None,
        index: bool | None = None,
        encoding: str = "utf-8",
    ) -> CountStream:
        """Read some lines at a time."""
        check_layout(layout, columns)
        delimiter = self.delimiter if delimiter is None else delimiter
        records = partial(_records, path, delimiter, encoding)
        head = beginning(fields for _, fields in records())
        if not head:
            raise ReadError(path, "there are no counts in this file.")
        first, rest = head[0], head[1:] or head
        names = None if header is False else first
        is_detected = layout is None and columns is None
        if is_detected:
            check_not_texts(path, names, rest)
            layout = "table" if index is not None else detected_layout(path, names, rest)
        if layout == "table":
            if header is None:
                check_header(path, first)
            is_unsure = is_detected and index is None
            index = names_come_first(path, names, rest) if index is None else index
            return _Table(path, delimiter, header is not False, index, is_unsure).stream(records)
        if columns is not None:
            width, wanted, has_header = len(first), positions_of(path, columns, first), True
        else:
            is_names = len(first) == 3 and not is_number(first[2])
            width, wanted, has_header = 3, [0, 1, 2], is_names if header is None else header
        lines = partial(_fields, path, delimiter, encoding)
        blocks = partial(_triplets, path, lines, records, has_header, width, wanted)
        return triplet_stream(path, blocks)

    def write(self, table: CountTable, path: Path) -> None:
        """Write lines of row, column and count below the header ``row,column,count``."""
        cell_of = cache(as_cell)  # names are repeated in many lines
        header: tuple[list[str], list[str], list[Any]] = (["row"], ["column"], ["count"])
        with (
            packed_if_named_so(path) as stream,
            TextIOWrapper(stream, encoding="utf-8", newline="") as text,
        ):
            for rows, columns, counts in chain([header], triplet_blocks(table)):
                lines = zip(map(cell_of, rows), map(cell_of, columns), counts, strict=True)
                write_lines(text, lines, self.delimiter)


class Tsv(Csv):
    """Tab-separated text: the same."""

    name = "tsv"
    endings = (".tsv", ".tab", ".all")
    delimiter = "\t"

    def matches(self, path: Path) -> bool:
        """Whether the name ends so, or the file is a .txt with a tab in its first line."""
        return super().matches(path) or (path.suffix.lower() == ".txt" and _begins_with_tab(path))


def _begins_with_tab(path: Path) -> bool:
    """Whether the first line of a file holds a tab."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return b"\t" in file.readline(1 << 16)


def _fields(path: Path, delimiter: str, encoding: str) -> Any:
    """Reader of the fields of each line."""
    lines = chain.from_iterable(text_blocks(path, encoding))
    return csv.reader(lines, delimiter=delimiter)


def _records(path: Path, delimiter: str, encoding: str) -> Iterator[Record]:
    """Fields of each line that is not blank, with the line's number."""
    reader = _fields(path, delimiter, encoding)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        texts = f"if this is a file of texts, add {option('text_field', 'NAME')}."
        problem = f"{error}; perhaps a quotation mark is not closed, or {texts}"
        raise ReadError(path, problem, reader.line_num) from error


def _triplets(
    path: Path,
    lines: Callable[[], Any],
    records: Callable[[], Iterator[Record]],
    has_header: bool,
    width: int,
    wanted: list[int],
    rows: Numbering,
    columns: Numbering,
) -> Iterator[Entries]:
    """Blocks of triplets; if one has an error, the file is read again line by line."""
    name_of = cache(from_cell)
    reader, skipped = lines(), int(has_header)
    try:
        while block := list(islice(reader, BLOCK)):
            full = list(filter(None, block))
            wrong = set(map(len, full[skipped:])) - {width}
            if wrong:
                raise ValueError(f"{wrong} fields")
            found = list(zip(*full[skipped:], strict=True))
            if found:
                counts = np.ones(len(found[0]))
                if len(wanted) == 3:
                    if not are_plain("".join(found[wanted[2]])):
                        raise ValueError("not a number")
                    counts = np.array(list(map(float, found[wanted[2]])))
                if first_wrong(counts) is not None:
                    raise ValueError("not a count")
                row_of, column_of = (map(name_of, found[j]) for j in wanted[:2])
                places = np.array(rows.numbers(row_of)), np.array(columns.numbers(column_of))
                yield Entries(*places, counts)
            skipped = 0 if full else skipped
    except ReadError:
        raise
    except (ValueError, csv.Error):
        _explain_triplets(path, records(), has_header, width, wanted)
        raise


def _explain_triplets(
    path: Path, records: Iterator[Record], has_header: bool, width: int, wanted: list[int]
) -> None:
    """Raise the error of the first line that is not as it should be."""
    for line, fields in islice(records, int(has_header), None):
        if len(fields) != width:
            what = "row, column, count" if width == 3 else "as many as the header has"
            found = f"{len(fields)}: {shown(' | '.join(fields))}"
            raise ReadError(path, f"expected {width} fields ({what}), found {found}.", line)
        if len(wanted) == 3:
            _check_count(path, line, fields[wanted[2]], "the count")


class _Table:
    """A table that is read line by line: rows of counts, with or without names."""

    def __init__(
        self, path: Path, delimiter: str, has_header: bool, has_index: bool, is_unsure: bool
    ) -> None:
        self.path, self.delimiter = path, delimiter
        self.has_header, self.offset = has_header, int(has_index)
        self.is_unsure = is_unsure  # whether it may hold triplets after all
        self.row_names: list[str] = []
        self.column_names: list[str] | None = None
        self.width, self.n_rows = 0, 0

    def stream(self, records: Callable[[], Iterator[Record]]) -> CountStream:
        return CountStream(lambda limit: self._blocks(records()), self._outline, in_order=True)

    def _outline(self) -> Outline:
        names = self.row_names if self.offset else None
        if self.is_unsure and self.width == 3 and len(set(self.row_names)) < self.n_rows:
            raise repeated_names(self.path, self.row_names)
        about = {"row_names": names, "column_names": self.column_names}
        return Outline((self.n_rows, self.width - self.offset), about)

    def _blocks(self, records: Iterator[Record]) -> Iterator[Entries]:
        header = next(records)[1] if self.has_header else None
        columns, counts, lengths = array("i"), array("d"), array("q")
        for line, fields in records:
            if not self.n_rows:
                self._begin(header, fields, line)
            places, values = self._nonzeros(fields, line)
            columns.extend(places)
            counts.extend(values)
            lengths.append(len(values))
            self.n_rows += 1
            if len(counts) >= _ENTRIES:
                yield self._block(columns, counts, lengths)
                columns, counts, lengths = array("i"), array("d"), array("q")
        if not self.n_rows:
            raise ReadError(self.path, "there is a header and nothing below it: no counts.")
        yield self._block(columns, counts, lengths)

    def _block(self, columns: Any, counts: Any, lengths: Any) -> Entries:
        rows = np.repeat(np.arange(self.n_rows - len(lengths), self.n_rows), lengths)
        return Entries(rows, np.array(columns), np.array(counts))

    def _begin(self, header: list[str] | None, fields: list[str], line: int) -> None:
        """Find the names of the columns, from the header and the first line of counts."""
        self.width = len(fields)
        if header is not None:
            # R leaves out the header of the names.
            without_corner = self.offset and len(header) == len(fields) - 1
            names = header if without_corner else header[self.offset :]
            self.column_names = list(map(from_cell, names))
            self.width = len(fields) if without_corner else len(header)
        if self.width == 1 and self.offset:
            problem = f"there is no {self.delimiter!r} in {shown(fields[0])}. If another character "
            problem += f"separates the fields, name it, for example {option('delimiter', ';')}."
            raise ReadError(self.path, problem, line)

    def _nonzeros(self, fields: list[str], line: int) -> tuple[list[int], list[float]]:
        """Columns and counts of a line; the name of the row is kept."""
        if len(fields) != self.width:
            problem = f"expected {self.width} fields, as in the lines above, found {len(fields)}."
            raise ReadError(self.path, problem, line)
        if self.offset:
            self.row_names.append(from_cell(fields[0]))
        nonzero = [j for j in range(self.offset, self.width) if fields[j] not in _ZEROS]
        try:
            values = [number_of(fields[j]) for j in nonzero]
        except ValueError:
            values = [-1.0]
        if not all(map(is_count, values)):
            if standard_type(tuple(fields[:2])) is not None:
                problem = "two columns make up the mutation types. Read the file with pandas, and "
                problem += "turn it: klnmf.signatures.samples_by_types(pandas.read_csv(FILE))."
                raise ReadError(self.path, problem, line)
            for j in nonzero:
                names = self.column_names
                name = repr(names[j - self.offset]) if names else f"number {j + 1}"
                _check_count(self.path, line, fields[j], f"column {name}")
        return [j - self.offset for j in nonzero], values


def _check_count(path: Path, line: int, field: str, where: str) -> None:
    what = f"holds {shown(field)}" if field.strip() else "is empty"
    if not is_number(field):
        problem = f"{where} {what}; a count was expected, a number of 0 or more."
        if any(map(str.isalpha, field)):
            problem += f" If this is a file of texts, add {option('text_field', 'NAME')}."
        raise ReadError(path, problem, line)
    if not is_count(float(field)):
        raise ReadError(path, f"{where} {what}; counts are finite numbers of 0 or more.", line)
