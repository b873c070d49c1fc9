"""Parquet: a table of counts, or triplets of row, column and count, read in batches."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.data.canonical import Entries
from klnmf.data.matrix_checks import first_wrong
from klnmf.data.streams import CountStream, Outline
from klnmf.readers.format import Format
from klnmf.readers.layouts import PEEK, PEEKED_FIELDS, check_not_texts, detected_layout, is_id_name
from klnmf.readers.table import CountTable
from klnmf.readers.triplets import (
    Numbering,
    check_layout,
    positions_of,
    triplet_blocks,
    triplet_stream,
)
from klnmf.support.input_files import ReadError
from klnmf.support.optional_packages import require
from klnmf.support.parquet_files import (
    batches,
    index_column,
    is_number,
    is_plain,
    is_string,
    opened_parquet,
    value_type,
    values_of,
)

# Cells of a table, or fields of triplets, that are in memory at a time.
BATCH = 1 << 21


class Parquet(Format):
    """Parquet: a table of counts, or triplets of row, column and count."""

    name = "parquet"
    endings = (".parquet",)

    def stream(
        self,
        path: Path,
        *,
        layout: str | None = None,
        columns: Sequence[str] | None = None,
        index: bool | None = None,
    ) -> CountStream:
        """Read some rows at a time."""
        check_layout(layout, columns)
        with opened_parquet(path) as (file, pyarrow):
            if columns is None and layout is None:
                layout = _detected_layout(path, file, pyarrow)
            schema = file.schema_arrow
            if columns is None and layout == "table":
                names_in = _names_in(file, index, pyarrow)
                counts = [name for name in schema.names if name != names_in]
                _check_types(path, schema, [] if names_in is None else [names_in], counts, pyarrow)
                return _table_stream(path, counts, names_in)
            if columns is None:
                columns = [name for name in schema.names if name != index_column(file)]
                if len(columns) != 3:
                    raise ReadError(path, f"triplets have 3 columns; here are {len(columns)}.")
            positions_of(path, columns, schema.names)
            _check_types(path, schema, columns[:2], columns[2:], pyarrow)
        return triplet_stream(path, partial(_triplets, path, list(columns)))

    def write(self, table: CountTable, path: Path) -> None:
        """Write triplets with the columns ``row``, ``column`` and ``count``."""
        pyarrow = require("pyarrow", "Writing .parquet files")
        parquet = require("pyarrow.parquet", "Writing .parquet files")
        count_type = pyarrow.from_numpy_dtype(table.X.dtype)
        schema = pyarrow.schema(
            [("row", pyarrow.string()), ("column", pyarrow.string()), ("count", count_type)]
        )
        with parquet.ParquetWriter(path, schema) as writer:
            for block in triplet_blocks(table):
                writer.write_table(pyarrow.table(list(block), schema=schema))


def _check_types(
    path: Path, schema: Any, names: Sequence[str], counts: Sequence[str], pyarrow: Any
) -> None:
    """Refuse columns that hold neither names nor counts, before any of them is unpacked."""
    for name in (*names, *counts):
        kind = value_type(schema.field(name).type, pyarrow)
        wanted, is_one = ("names", is_plain) if name in names else ("counts", is_number)
        if not is_one(kind, pyarrow):  # dates can be made into numbers, and are no counts
            raise ReadError(path, f"column {name!r} is of the type {kind}; {wanted} were expected.")


def _detected_layout(path: Path, file: Any, pyarrow: Any) -> str:
    index = index_column(file)
    fields = [field for field in file.schema_arrow if field.name != index]
    names = [f.name for f in fields if is_string(f.type, pyarrow) or is_number(f.type, pyarrow)]
    n_rows = min(PEEK, max(4, PEEKED_FIELDS // max(1, len(names))))
    for _, first in batches(file, n_rows, names):
        records = list(zip(*(values_of(column, pyarrow) for column in first.columns), strict=True))
        check_not_texts(path, names, records)
        if index is not None and not is_string(fields[min(1, len(fields) - 1)].type, pyarrow):
            return "table"
        return detected_layout(path, names, records)
    return "table"


def _triplets(
    path: Path, columns: list[str], rows: Numbering, features: Numbering
) -> Iterator[Entries]:
    with opened_parquet(path) as (file, _):
        for start, batch in batches(file, BATCH // 3, columns):
            numbers = [
                _numbered(path, batch.column(name), name, start, axis)
                for name, axis in zip(columns, (rows, features), strict=False)
            ]
            counts = np.ones(batch.num_rows)
            if len(columns) == 3:
                counts = _counts(path, batch.column(columns[2]), columns[2], start)
            yield Entries(numbers[0], numbers[1], counts)


def _names_in(file: Any, index: bool | None, pyarrow: Any) -> str | None:
    """Column that names the rows of a table."""
    found = index_column(file)
    if found is None and index is not False:
        first = file.schema_arrow.field(0)
        are_names = index or is_string(first.type, pyarrow) or is_id_name(first.name)
        found = first.name if are_names else None
    return found


def _table_stream(path: Path, columns: list[str], names_in: str | None) -> CountStream:
    read = columns if names_in is None else [names_in, *columns]
    row_names: list[str] = []
    n_rows = 0

    def blocks(limit: int) -> Iterator[Entries]:
        nonlocal n_rows
        with opened_parquet(path) as (file, _):
            for start, batch in batches(file, BATCH // max(1, len(columns)), read):
                for j, name in enumerate(columns):
                    counts = _counts(path, batch.column(name), name, start)
                    rows = np.flatnonzero(counts)
                    yield Entries(rows + start, np.full(len(rows), j), counts[rows])
                if names_in is not None:
                    names = batch.column(names_in)
                    _refuse_nulls(path, names, names_in, start)
                    row_names.extend(map(str, names.to_pylist()))
                n_rows = start + batch.num_rows

    def outline() -> Outline:
        if not n_rows or not columns:
            raise ReadError(path, f"there are no counts: {n_rows} rows, {len(columns)} columns.")
        names = None if names_in is None else row_names
        return Outline((n_rows, len(columns)), {"row_names": names, "column_names": columns})

    return CountStream(blocks, outline)


def _numbered(path: Path, column: Any, name: str, start: int, number: Numbering) -> Any:
    """Numbers of the names in a column."""
    _refuse_nulls(path, column, name, start)
    encoded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    places = encoded.indices.to_numpy(zero_copy_only=False)
    here = encoded.indices.unique()  # in the order in which they appear
    numbers = np.zeros(len(encoded.dictionary), np.intp)
    numbers[here.to_numpy(zero_copy_only=False)] = number.numbers(
        map(str, encoded.dictionary.take(here).to_pylist())
    )
    return numbers[places]


def _counts(path: Path, column: Any, name: str, start: int) -> Any:
    column = column.dictionary_decode() if hasattr(column, "dictionary") else column
    _refuse_nulls(path, column, name, start)
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        values = values.astype(np.float64)  # decimal numbers
    wrong = first_wrong(values)
    if wrong is not None:
        place = f"row {start + wrong}, column {name!r}"
        problem = f"{place} holds {values[wrong]}; counts are finite numbers of 0 or more."
        raise ReadError(path, problem)
    return values.astype(np.float64, copy=False)


def _refuse_nulls(path: Path, column: Any, name: str, start: int) -> None:
    if column.null_count:
        row = start + column.is_null().to_pylist().index(True)
        raise ReadError(path, f"row {row}, column {name!r} is empty.")
