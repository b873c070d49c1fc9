"""Delimited text, .csv and .tsv: a table of counts, or triplets of row, column and count.

The file is read line by line and only nonzeros are kept, so that memory grows with them and with
one line, not with the size of the table.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain, islice
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from klnmf.readers.diagnosis import shown
from klnmf.readers.files import ReadError, compressed_if_named_so, text_lines
from klnmf.readers.table import CountTable, is_count, table_of_file
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

Record = tuple[int, list[str]]
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
    check_layout(layout)
    records = _records(path, delimiter, encoding)
    head = list(islice(records, 2))
    if not head:
        raise ReadError(path, "there are no counts in this file.")
    if len(head[-1][1]) == 3:
        head += islice(records, PEEK)
    if columns is not None:
        return _read_triplets(path, chain(head, records), columns, header)
    if layout is None:
        layout = "triplets" if index and _is_triplets(head) else "table"
    if layout == "triplets":
        return _read_triplets(path, chain(head, records), None, header)
    return _read_table(path, chain(head, records), header is not False, index, delimiter)


def _records(path: Path, delimiter: str, encoding: str) -> Iterator[Record]:
    """Fields of each line that is not blank, with the line's number."""
    reader = csv.reader((line for _, line in text_lines(path, encoding)), delimiter=delimiter)
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
    path: Path, records: Iterator[Record], columns: Sequence[str] | None, header: bool | None
) -> CountTable:
    line, first = next(records)
    width, wanted = 3, [0, 1, 2]
    if columns is not None:
        width, wanted = len(first), positions_of(path, columns, first)
    elif header is False or (header is None and len(first) == 3 and is_number(first[2])):
        records = chain([(line, first)], records)
    row_at, column_at, *count_at = wanted
    found = TripletTable()
    for line, fields in records:
        if len(fields) != width:
            what = "row, column, count" if columns is None else "as many as the header has"
            raise ReadError(
                path,
                f"{len(fields)} fields where {width} belong ({what}): {shown(' | '.join(fields))}.",
                line,
            )
        count = _count(path, line, fields[count_at[0]], "the count") if count_at else 1.0
        found.add(fields[row_at], fields[column_at], count)
    return found.table(path)


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
                column_names = header if without_corner else header[offset:]
            if without_corner or width is None:
                width = len(fields)
            if width == 1 and has_index:
                raise ReadError(
                    path,
                    f"there is no {delimiter!r} in {shown(fields[0])}. If another character parts "
                    'the fields, pass it, for example delimiter=";".',
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
            row_names.append(fields[0])
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
        _count(path, line, fields[j], f"column {name}")


def _count(path: Path, line: int, field: str, where: str) -> float:
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
    return count


# ---- writing -------------------------------------------------------------------------------------


def write_triplets(table: CountTable, path: Path, delimiter: str = ",") -> None:
    """Lines of row, column and count below the header ``row,column,count``."""
    with compressed_if_named_so(path) as stream:
        for block in chain([(("row",), ("column",), ("count",))], triplet_blocks(table)):
            text = StringIO()
            lines = zip(*block, strict=True)
            csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(lines)
            stream.write(text.getvalue().encode())
