"""Parquet files: opened, checked, and read in batches of rows."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from klnmf.support.input_files import ReadError, check_unpacked, parsed_by_others
from klnmf.support.optional_packages import require
from klnmf.support.untrusted_json import parse_json

_STRINGS = {"string", "large_string", "string_view"}


@contextmanager
def opened_parquet(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open a file whose columns have different names; gives it and pyarrow."""
    pyarrow = require("pyarrow", "Reading .parquet files")
    parquet = require("pyarrow.parquet", "Reading .parquet files")
    with ExitStack() as stack:
        stack.enter_context(parsed_by_others(path, "this is not a Parquet file, or it is damaged"))
        with parquet.ParquetFile(path) as file:
            numbered = _numbered(file, pyarrow)
        file = stack.enter_context(parquet.ParquetFile(path, read_dictionary=numbered))
        names = file.schema_arrow.names
        if not names:
            raise ReadError(path, "there are no columns in this file.")
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise ReadError(path, f"two columns have the name {repeated[0]!r}; rename one of them.")
        # What is repeated takes next to no room in a file, and eight bytes each time in memory.
        n_bytes = 8 * file.metadata.num_rows * len(names)
        check_unpacked(path, path.stat().st_size, n_bytes, times=2000)
        yield file, pyarrow


def _numbered(file: Any, pyarrow: Any) -> list[str]:
    """Columns whose strings are read as numbers of different ones, which is quicker.

    Those in an encoding of differences (DELTA) cannot be.
    """
    metadata = file.metadata
    strings = {field.name for field in file.schema_arrow if is_string(field.type, pyarrow)}
    # Of these columns alone: pyarrow ends the process at what a damaged file says of some others.
    places = [j for j in range(metadata.num_columns) if metadata.schema.column(j).path in strings]
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if any(group.num_columns != metadata.num_columns for group in groups):
        raise ValueError("a group of rows has other columns than the file")
    chunks = [group.column(j) for group in groups for j in places]
    others = {c.path_in_schema for c in chunks if any("DELTA" in kind for kind in c.encodings)}
    return sorted(strings - others)


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
    return str(value_type(kind, pyarrow)) in _STRINGS


def is_number(kind: Any, pyarrow: Any) -> bool:
    """Whether a type is of real numbers, numbered or not."""
    types = pyarrow.types
    checks = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    return any(check(value_type(kind, pyarrow)) for check in checks)


def is_plain(kind: Any, pyarrow: Any) -> bool:
    """Whether a type is of single values that Python has: strings, numbers and dates."""
    if is_string(kind, pyarrow) or is_number(kind, pyarrow):
        return True
    return bool(pyarrow.types.is_temporal(kind) or pyarrow.types.is_null(kind))


def value_type(kind: Any, pyarrow: Any) -> Any:
    """Type of the values of a column, which may be numbered: pandas' categories are."""
    return kind.value_type if pyarrow.types.is_dictionary(kind) else kind


def values_of(column: Any, pyarrow: Any) -> list[Any]:
    """Return the values of a column as Python has them."""
    if pyarrow.types.is_timestamp(column.type):  # Python's have no nanoseconds
        column = column.cast(pyarrow.timestamp("us", column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def batches(file: Any, n_rows: int, columns: list[str]) -> Iterator[tuple[int, Any]]:
    """Batches of this many rows at the most, with the row at which they begin."""
    done = 0
    for batch in file.iter_batches(batch_size=n_rows, columns=columns):
        yield done, batch
        done += batch.num_rows
