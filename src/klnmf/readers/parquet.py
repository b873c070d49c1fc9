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
# Bytes of strings that may be unpacked before their length is known.
_UNSEEN = 1 << 28
_STRINGS = {"string", "large_string", "string_view"}
# Encodings that pyarrow cannot read as numbered strings, and those in which a string may take less
# room than its length: as a number, or as the beginning of the one before.
_NOT_NUMBERED = {"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"}
_SHORTENED = {"PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY"}


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


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open a file; gives it and pyarrow. Strings are numbered, each held once, if possible."""
    pyarrow = require("pyarrow", "Reading .parquet files")
    parquet = require("pyarrow.parquet", "Reading .parquet files")
    with parsed_by_others(path, "this is not a Parquet file, or it is damaged"):
        with parquet.ParquetFile(path) as file:
            metadata = file.metadata
            strings = {f.name for f in file.schema_arrow if is_string(f.type, pyarrow)}
        found = _encodings(metadata, strings)
        numbered = [name for name, (kinds, _) in found.items() if not kinds & _NOT_NUMBERED]
        with parquet.ParquetFile(path, metadata=metadata, read_dictionary=numbered) as file:
            yield file, pyarrow


def _encodings(metadata: Any, columns: set[str]) -> dict[str, tuple[set[str], int]]:
    """Return the encodings of some columns, and the bytes of the largest piece of each."""
    found = {}
    for j in range(metadata.num_columns):
        name = metadata.schema.column(j).path
        if name in columns:
            chunks = [metadata.row_group(i).column(j) for i in range(metadata.num_row_groups)]
            kinds = {kind for chunk in chunks for kind in chunk.encodings}
            found[name] = kinds, max((c.total_uncompressed_size for c in chunks), default=0)
    return found


def check_columns(path: Path, file: Any) -> None:
    """Refuse a file without columns, with two of one name, or with far too many rows."""
    names = file.schema_arrow.names
    if not names:
        raise ReadError(path, "there are no columns in this file.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ReadError(path, f"two columns have the name {repeated[0]!r}; rename one of them.")
    # What is repeated takes next to no room in a file, and eight bytes each time in memory. What
    # strings take is known when they are numbered: see `Values`.
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    n_bytes = 8 * file.metadata.num_rows * len(names)
    n_bytes = max(n_bytes, sum(group.total_byte_size for group in groups))
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
    return str(_unnumbered(kind, pyarrow)) in _STRINGS


def is_number(kind: Any, pyarrow: Any) -> bool:
    """Whether a type is of real numbers, numbered or not."""
    types = pyarrow.types
    checks = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    return any(check(_unnumbered(kind, pyarrow)) for check in checks)


def is_plain(kind: Any, pyarrow: Any) -> bool:
    """Whether a type is of single values that Python has: strings, numbers and dates."""
    if is_string(kind, pyarrow) or is_number(kind, pyarrow):
        return True
    return bool(pyarrow.types.is_temporal(kind) or pyarrow.types.is_null(kind))


def _unnumbered(kind: Any, pyarrow: Any) -> Any:
    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


class Values:
    """Makes columns into lists, as long as their strings are in proportion to the file.

    A string that is repeated takes next to no room in a file, and all of its length each time here.
    """

    def __init__(self, path: Path, pyarrow: Any) -> None:
        self.path, self.pyarrow, self.n_bytes = path, pyarrow, 0
        self.compute = require("pyarrow.compute", "Reading .parquet files")

    def of(self, column: Any) -> list[Any]:
        """Return the values of a column as Python has them."""
        if is_string(column.type, self.pyarrow):
            self.n_bytes += self._length(column)
            check_unpacked(self.path, self.path.stat().st_size, self.n_bytes)
            column = column.dictionary_decode() if hasattr(column, "dictionary") else column
        elif self.pyarrow.types.is_timestamp(column.type):  # Python's have no nanoseconds
            column = column.cast(self.pyarrow.timestamp("us", column.type.tz), safe=False)
        values: list[Any] = column.to_pylist()
        return values

    def _length(self, strings: Any) -> int:
        if not hasattr(strings, "dictionary"):
            return int(strings.nbytes)
        lengths = self.compute.binary_length(strings.dictionary).take(strings.indices)
        return int(self.compute.sum(lengths).as_py() or 0)


def batches(file: Any, n_rows: int, columns: list[str]) -> Iterator[tuple[int, Any]]:
    """Batches of this many rows at the most, with the row at which they begin."""
    plain = {name for name in columns if str(file.schema_arrow.field(name).type) in _STRINGS}
    longest, done = 1, 0
    for kinds, n_bytes in _encodings(file.metadata, plain).values():
        if kinds & _SHORTENED:  # each string may be as long as all that is stored of them
            longest = max(longest, n_bytes)
    n_rows = max(1, min(n_rows, _UNSEEN // longest))
    for batch in file.iter_batches(batch_size=n_rows, columns=columns):
        yield done, batch
        done += batch.num_rows


def _check_types(
    path: Path, schema: Any, names: Sequence[str], counts: Sequence[str], pyarrow: Any
) -> None:
    """Refuse columns that hold neither names nor counts, before any of them is unpacked."""
    for name in (*names, *counts):
        kind = _unnumbered(schema.field(name).type, pyarrow)
        wanted, is_one = ("names", is_plain) if name in names else ("counts", is_number)
        if not is_one(kind, pyarrow):  # dates can be made into numbers, and are no counts
            raise ReadError(path, f"column {name!r} is of the type {kind}; {wanted} were expected.")


def _detected_layout(path: Path, file: Any, pyarrow: Any) -> str:
    index = index_column(file)
    fields = [field for field in file.schema_arrow if field.name != index]
    names = [f.name for f in fields if is_string(f.type, pyarrow) or is_number(f.type, pyarrow)]
    n_rows = min(PEEK, max(4, PEEKED_FIELDS // max(1, len(names))))
    values = Values(path, pyarrow)
    for _, first in batches(file, n_rows, names):
        records = list(zip(*map(values.of, first.columns), strict=True))
        check_not_texts(path, names, records)
        if index is not None and not is_string(fields[min(1, len(fields) - 1)].type, pyarrow):
            return "table"
        return detected_layout(path, names, records)
    return "table"


def _triplets(
    path: Path, columns: list[str], rows: Numbering, features: Numbering
) -> Iterator[Block]:
    with opened(path) as (file, _):
        for start, batch in batches(file, BATCH // 3, columns):
            numbers = [
                _numbered(path, batch.column(name), name, start, axis)
                for name, axis in zip(columns, (rows, features), strict=False)
            ]
            counts = np.ones(batch.num_rows)
            if len(columns) == 3:
                counts = _counts(path, batch.column(columns[2]), columns[2], start)
            yield Block(numbers[0], numbers[1], counts)


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

    def blocks(limit: int) -> Iterator[Block]:
        nonlocal n_rows
        with opened(path) as (file, pyarrow):
            values = Values(path, pyarrow)
            for start, batch in batches(file, BATCH // max(1, len(columns)), read):
                for j, name in enumerate(columns):
                    counts = _counts(path, batch.column(name), name, start)
                    rows = np.flatnonzero(counts)
                    yield Block(rows + start, np.full(len(rows), j), counts[rows])
                if names_in is not None:
                    names = batch.column(names_in)
                    _refuse_nulls(path, names, names_in, start)
                    row_names.extend(map(str, values.of(names)))
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
