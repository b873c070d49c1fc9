"""Parquet: a table of counts, or triplets of row, column and count, read in batches."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.readers.format import StreamedFormat
from klnmf.readers.layouts import PEEK, PEEKED_FIELDS, check_not_texts, detected_layout, is_id_name
from klnmf.readers.streams import Block, CountStream, Outline
from klnmf.readers.table import CountTable, first_wrong
from klnmf.readers.triplets import (
    Numbering,
    check_layout,
    positions_of,
    triplet_blocks,
    triplet_stream,
)
from klnmf.support.input_files import ReadError, check_unpacked, parsed_by_others
from klnmf.support.optional_packages import require
from klnmf.support.untrusted_json import parse_json

# Cells of a table, or fields of triplets, that are in memory at a time.
BATCH = 1 << 22


class Parquet(StreamedFormat):
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
        with opened(path) as (file, pyarrow):
            check_columns(path, file)
            if columns is None and layout is None:
                layout = _detected_layout(path, file, pyarrow)
            if columns is None and layout == "table":
                return _table_stream(path, file.schema_arrow, _names_in(file, index, pyarrow))
            if columns is None:
                columns = [n for n in file.schema_arrow.names if n != index_column(file)]
                if len(columns) != 3:
                    raise ReadError(path, f"triplets have 3 columns; here are {len(columns)}.")
            positions_of(path, columns, file.schema_arrow.names)
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


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open a file; gives it and pyarrow."""
    pyarrow = require("pyarrow", "Reading .parquet files")
    parquet = require("pyarrow.parquet", "Reading .parquet files")
    problem = "this is not a Parquet file, or it is damaged"
    with parsed_by_others(path, problem), parquet.ParquetFile(path) as file:
        yield file, pyarrow


def check_columns(path: Path, file: Any) -> None:
    """Refuse a file without columns, with two of one name, or with far too many rows."""
    names = file.schema_arrow.names
    if not names:
        raise ReadError(path, "there are no columns in this file.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ReadError(path, f"two columns have the name {repeated[0]!r}; rename one of them.")
    # What is repeated takes next to no room in a file, and eight bytes each time in memory.
    n_bytes = 8 * file.metadata.num_rows * len(names)
    check_unpacked(path, path.stat().st_size, n_bytes, times=2000)


def index_column(file: Any) -> str | None:
    """Column in which pandas keeps the names of the rows; anyone may write what pandas writes."""
    text = (file.schema_arrow.metadata or {}).get(b"pandas", b"{}")
    try:
        described = parse_json(text)["index_columns"]
    except (ValueError, TypeError, KeyError):
        return None
    names = described if isinstance(described, list) else []
    return next((name for name in names if name in file.schema_arrow.names), None)


def is_string(kind: Any, pyarrow: Any) -> bool:
    """Whether a type is of strings, numbered or not."""
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_number(kind: Any, pyarrow: Any) -> bool:
    """Whether a type is of real numbers."""
    types = pyarrow.types
    checks = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    return any(check(kind) for check in checks)


def _detected_layout(path: Path, file: Any, pyarrow: Any) -> str:
    index = index_column(file)
    fields = [field for field in file.schema_arrow if field.name != index]
    kinds = [is_string(f.type, pyarrow) or is_number(f.type, pyarrow) for f in fields]
    names = [field.name for field, is_plain in zip(fields, kinds, strict=True) if is_plain]
    n_rows = min(PEEK, max(4, PEEKED_FIELDS // max(1, len(names))))
    for first in file.iter_batches(batch_size=n_rows, columns=names):
        records = [tuple(record.values()) for record in first.to_pylist()]
        check_not_texts(path, names, records)
        if index is not None and not is_string(fields[min(1, len(fields) - 1)].type, pyarrow):
            return "table"
        return detected_layout(path, names, records)
    return "table"


def _batches(file: Any, width: int, columns: Any = None) -> Iterator[tuple[int, Any]]:
    """Batches of a bounded number of fields, with the row at which they begin."""
    done = 0
    for batch in file.iter_batches(batch_size=max(1, BATCH // max(1, width)), columns=columns):
        yield done, batch
        done += batch.num_rows


def _triplets(
    path: Path, columns: list[str], rows: Numbering, features: Numbering
) -> Iterator[Block]:
    with opened(path) as (file, pyarrow):
        for start, batch in _batches(file, 3, columns):
            numbers = [
                _numbered(path, batch.column(name), name, start, axis)
                for name, axis in zip(columns, (rows, features), strict=False)
            ]
            counts = np.ones(batch.num_rows)
            if len(columns) == 3:
                counts = _counts(path, batch.column(columns[2]), columns[2], start, pyarrow)
            yield Block(numbers[0], numbers[1], counts)


def _names_in(file: Any, index: bool | None, pyarrow: Any) -> str | None:
    """Column that names the rows of a table."""
    found = index_column(file)
    if found is None and index is not False:
        first = file.schema_arrow.field(0)
        are_names = index or is_string(first.type, pyarrow) or is_id_name(first.name)
        found = first.name if are_names else None
    return found


def _table_stream(path: Path, schema: Any, names_in: str | None) -> CountStream:
    columns = [name for name in schema.names if name != names_in]
    row_names: list[str] = []
    n_rows = 0

    def blocks(limit: int) -> Iterator[Block]:
        nonlocal n_rows
        with opened(path) as (file, pyarrow):
            for start, batch in _batches(file, len(columns)):
                for j, name in enumerate(columns):
                    values = _counts(path, batch.column(name), name, start, pyarrow)
                    rows = np.flatnonzero(values)
                    yield Block(rows + start, np.full(len(rows), j), values[rows])
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
    numbers = np.array(number.numbers(map(str, encoded.dictionary.to_pylist())))
    return numbers[encoded.indices.to_numpy(zero_copy_only=False)]


def _counts(path: Path, column: Any, name: str, start: int, pyarrow: Any) -> Any:
    column = column.dictionary_decode() if hasattr(column, "dictionary") else column
    if not is_number(column.type, pyarrow):  # dates can be made into numbers, and are no counts
        problem = f"column {name!r} is of the type {column.type}; counts were expected."
        raise ReadError(path, problem)
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
