"""Tables of events, one per line: .csv, .tsv and .parquet."""

import csv
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.data.events import Coded
from klnmf.data.matrix_checks import is_count
from klnmf.data.passes import is_exact_in_float32
from klnmf.readers.delimited import BLOCK
from klnmf.readers.layouts import is_number
from klnmf.readers.triplets import Numbering
from klnmf.support import parquet_files
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError, text_blocks
from klnmf.support.nearest_names import did_you_mean
from klnmf.support.printable_text import shown
from klnmf.support.spreadsheet_cells import from_cell

# What may separate the cells, the usual one first.
_DELIMITERS = {".csv": ",;\t", ".tsv": "\t,;"}


def whole(values: Array) -> Array:
    """Numbers as integers, if they are, else as float64."""
    is_whole = (values == np.rint(values)).all() and values.max(initial=0) < 2.0**53
    return values.astype(np.int64) if is_whole else values.astype(np.float64)


def narrowed(values: Array) -> Array:
    """Numbers of a text as integers, else as float32, if nothing is lost."""
    found = whole(values)
    is_narrow = found.dtype.kind == "f" and is_exact_in_float32(found)
    return found.astype(np.float32) if is_narrow else found


def read_events(path: Path, ending: str, modes: Sequence[str], values: str | None) -> Any:
    """Return a table of the columns that `SparseTensor.from_events` needs."""
    wanted = [*modes, *([] if values is None else [values])]
    if ending == ".parquet":
        return _read_parquet(path, wanted, values)
    rows = _rows(path, _DELIMITERS[ending], wanted, values is not None)
    numberings = [Numbering() for _ in modes]  # so that each label is in memory once
    places: list[Any] = [array("q") for _ in modes]
    counts = array("d")
    while block := list(islice(rows, BLOCK)):
        columns = list(zip(*block, strict=True))
        for column, numbering, numbers in zip(columns, numberings, places, strict=False):
            numbers.extend(numbering.numbers(column))
        if values is not None:
            counts.extend(map(float, columns[-1]))
    table: dict[str, Any] = {
        name: Coded(numbering.names(), np.array(numbers))
        for name, numbering, numbers in zip(modes, numberings, places, strict=True)
    }
    return table if values is None else table | {values: narrowed(np.array(counts))}


def _rows(path: Path, delimiters: str, wanted: list[str], has_count: bool) -> Iterator[list[str]]:
    """Cells of the wanted columns, the last of which may be a count."""
    blocks = text_blocks(path)
    lines = chain.from_iterable(blocks)
    first = next(lines, "")

    def n_found(delimiter: str) -> int:
        return sum(cell.strip().strip('"') in wanted for cell in first.split(delimiter))

    reader = csv.reader(chain([first], lines), delimiter=max(delimiters, key=n_found))
    try:
        header = list(map(from_cell, next(reader, [])))
        _check_columns(path, header, wanted)
        places = [header.index(name) for name in wanted]
        for cells in filter(None, reader):
            if len(cells) != len(header):
                problem = f"expected {len(header)} fields, as in the header, found {len(cells)}."
                raise ReadError(path, problem, reader.line_num)
            row = [from_cell(cells[place]) for place in places]
            if has_count and not (is_number(row[-1]) and is_count(float(row[-1]))):
                problem = f"column {wanted[-1]!r} holds {shown(row[-1])}; a count was expected, a "
                raise ReadError(path, f"{problem}finite number of 0 or more.", reader.line_num)
            yield row
    except csv.Error as error:
        problem = f"{error}; perhaps a quotation mark is not closed."
        raise ReadError(path, problem, reader.line_num) from error
    finally:
        blocks.close()  # the file, now and not when an error is forgotten


def _check_columns(path: Path, there: list[str], wanted: list[str]) -> None:
    for name in wanted:
        if there.count(name) != 1:
            times = "no column" if name not in there else "more than one column"
            known = ", ".join(map(repr, there)) or "none"
            question = did_you_mean(name, there)
            problem = f"there is {times} {described(name)}; the columns are: {known}.{question}"
            raise ReadError(path, problem)


def _read_parquet(path: Path, wanted: list[str], values: str | None) -> Any:
    with parquet_files.opened_parquet(path) as (file, pyarrow):
        _check_columns(path, file.schema_arrow.names, wanted)
        for name in wanted:
            kind = parquet_files.value_type(file.schema_arrow.field(name).type, pyarrow)
            is_one = parquet_files.is_number if name == values else parquet_files.is_plain
            if not is_one(kind, pyarrow):
                what = "counts" if name == values else "labels"
                problem = f"column {name!r} is of the type {kind}; {what} were expected."
                raise ReadError(path, problem)
        return file.read(columns=wanted)
