"""Delimited text, .csv and .tsv: a table of counts, or triplets of row, column and count.

The file is read line by line and only nonzeros are kept, so that memory grows with them and with
one line, not with the size of the table.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.readers.cells import Cells, Names, from_cell, write_lines
from klnmf.readers.diagnosis import shown
from klnmf.readers.table import CountTable, first_wrong, is_count, table_of_file
from klnmf.readers.triplets import (
    PEEK,
    Layout,
    TripletTable,
    check_layout,
    is_number,
    look_like_triplets,
    positions_of,
    triplet_blocks,
)
from klnmf.support.input_files import ReadError, compressed_if_named_so, text_blocks
from klnmf.support.option_names import option

Record = tuple[int, list[str]]
# Lines of triplets at a time: few, as many lists keep the garbage collector busy.
BLOCK = 1 << 9
_ZEROS = frozenset(("0", "0.0"))


def read_delimited(
    path: Path,
    *,
    delimiter: str = ",",
    layout: Layout | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    index: bool = True,
    encoding: str = "utf-8",
) -> CountTable:
    """Table or triplets, whichever it is."""
    found = TripletTable()
    table = collect_delimited(
        path,
        found,
        delimiter=delimiter,
        layout=layout,
        columns=columns,
        header=header,
        index=index,
        encoding=encoding,
    )
    return found.table(path) if table is None else table


def collect_delimited(
    path: Path,
    found: TripletTable,
    *,
    delimiter: str = ",",
    layout: Layout | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    index: bool = True,
    encoding: str = "utf-8",
) -> CountTable | None:
    """Add the triplets of a file to ``found``; where it is a table, return that instead."""
    check_layout(layout, columns)
    records = _records(path, delimiter, encoding)
    head = list(islice(records, 2))
    if not head:
        raise ReadError(path, "there are no counts in this file.")
    if len(head[-1][1]) == 3:
        head += islice(records, PEEK)
    if layout is None:
        is_triplets = columns is not None or (index and _is_triplets(head))
        layout = "triplets" if is_triplets else "table"
    if layout == "table":
        return _read_table(path, chain(head, records), header is not False, index, delimiter)
    first = head[0][1]
    if columns is not None:
        width, wanted, has_header = len(first), positions_of(path, columns, first), True
    else:
        width, wanted = 3, [0, 1, 2]
        has_header = header if header is not None else len(first) == 3 and not is_number(first[2])
    _read_triplets(path, found, delimiter, encoding, has_header, width, wanted)
    return None


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
        raise ReadError(
            path, f"{error}; perhaps a quotation mark is not closed.", reader.line_num
        ) from error


def _is_triplets(head: list[Record]) -> bool:
    # The first record may be a header, unless it is all there is.
    rest = [fields for _, fields in (head[1:] or head) if len(fields) == 3]
    return look_like_triplets((f[0] for f in rest), (f[1] for f in rest)) and any(
        is_number(fields[2]) for fields in rest
    )


def _read_triplets(
    path: Path,
    found: TripletTable,
    delimiter: str,
    encoding: str,
    has_header: bool,
    width: int,
    wanted: list[int],
) -> None:
    """Blocks of lines at a time; where one has an error, the file is gone through line by line."""
    reader = _fields(path, delimiter, encoding)
    name_of = Names().__getitem__
    skipped = int(has_header)
    try:
        while block := list(islice(reader, BLOCK)):
            full = list(filter(None, block))
            wrong = set(map(len, full[skipped:])) - {width}
            if wrong:
                raise ValueError(f"{wrong} fields")
            columns = list(zip(*full[skipped:], strict=True))
            if columns:
                counts = np.ones(len(columns[0]))
                if len(wanted) == 3:
                    counts = np.array(list(map(float, columns[wanted[2]])))
                if first_wrong(counts) is not None:
                    raise ValueError("not a count")
                rows, names = (map(name_of, columns[j]) for j in wanted[:2])
                found.entries.add(found.rows.numbers(rows), found.columns.numbers(names), counts)
            skipped = 0 if full else skipped
    except ReadError:
        raise
    except (ValueError, csv.Error):
        _explain_triplets(path, _records(path, delimiter, encoding), has_header, width, wanted)
        raise


def _explain_triplets(
    path: Path, records: Iterator[Record], has_header: bool, width: int, wanted: list[int]
) -> None:
    """Raise the error of the first line that is not as it should be."""
    for line, fields in islice(records, int(has_header), None):
        if len(fields) != width:
            what = "row, column, count" if width == 3 else "as many as the header has"
            raise ReadError(
                path,
                f"{len(fields)} fields where {width} belong ({what}): {shown(' | '.join(fields))}.",
                line,
            )
        if len(wanted) == 3:
            _check_count(path, line, fields[wanted[2]], "the count")


def _read_table(
    path: Path, records: Iterator[Record], has_header: bool, has_index: bool, delimiter: str
) -> CountTable:
    column_names: list[str] | None = None
    offset, width = int(has_index), None
    if has_header:
        line, header = next(records)
        width = len(header)
    indptr, indices, counts = array("q", [0]), array("i"), array("d")
    row_names: list[str] = []
    for line, fields in records:
        if len(indptr) == 1:
            # R leaves out the header of the names.
            without_corner = has_header and has_index and width == len(fields) - 1
            if has_header:
                column_names = list(map(from_cell, header if without_corner else header[offset:]))
            if without_corner or width is None:
                width = len(fields)
            if width == 1 and has_index:
                raise ReadError(
                    path,
                    f"there is no {delimiter!r} in {shown(fields[0])}. If the fields are separated "
                    f"by another character, name it, for example {option('delimiter', ';')}.",
                    line,
                )
        if len(fields) != width:
            raise ReadError(
                path, f"{len(fields)} fields where {width} belong, as in the lines above.", line
            )
        nonzero = [j for j in range(offset, width) if fields[j] not in _ZEROS]
        try:
            values = [float(fields[j]) for j in nonzero]
        except ValueError:
            values = [-1.0]
        if not all(map(is_count, values)):
            _refuse(path, line, fields, nonzero, column_names, offset)
        counts.extend(values)
        indices.extend(j - offset for j in nonzero)
        indptr.append(len(indices))
        if has_index:
            row_names.append(from_cell(fields[0]))
    if len(indptr) == 1:
        raise ReadError(path, "there is a header and nothing below it: no counts.")
    arrays = (
        np.frombuffer(counts, dtype=np.float64),
        np.frombuffer(indices, dtype=np.int32),
        np.frombuffer(indptr, dtype=np.int64),
    )
    matrix = sp.csr_array(arrays, shape=(len(indptr) - 1, (width or 0) - offset))
    return table_of_file(path, matrix, row_names if has_index else None, column_names)


def _refuse(
    path: Path,
    line: int,
    fields: list[str],
    nonzero: list[int],
    column_names: list[str] | None,
    offset: int,
) -> None:
    """Raise the error of the first field that is not a count."""
    for j in nonzero:
        name = repr(column_names[j - offset]) if column_names else f"number {j + 1}"
        _check_count(path, line, fields[j], f"column {name}")


def _check_count(path: Path, line: int, field: str, where: str) -> None:
    try:
        count = float(field)
    except ValueError:
        what = "is empty" if not field.strip() else f"holds {shown(field)}"
        raise ReadError(
            path, f"{where} {what}; a count was expected, a number of 0 or more.", line
        ) from None
    if not is_count(count):
        raise ReadError(
            path, f"{where} holds {shown(field)}; counts are finite numbers of 0 or more.", line
        )


# ---- writing -------------------------------------------------------------------------------------


def write_triplets(table: CountTable, path: Path, delimiter: str = ",") -> None:
    """Lines of row, column and count below the header ``row,column,count``."""
    cell_of = Cells().__getitem__
    header: tuple[list[str], list[str], list[Any]] = (["row"], ["column"], ["count"])
    with (
        compressed_if_named_so(path) as stream,
        TextIOWrapper(stream, encoding="utf-8", newline="") as text,
    ):
        for rows, columns, counts in chain([header], triplet_blocks(table)):
            lines = zip(map(cell_of, rows), map(cell_of, columns), counts, strict=True)
            write_lines(text, lines, delimiter)
