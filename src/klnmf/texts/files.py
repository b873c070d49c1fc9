"""Files of texts: a folder of .txt files, .jsonl, and tables (.csv, .tsv, .parquet) of documents.

Documents are read one at a time.
"""

import csv
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from klnmf.support.input_files import (
    LONGEST_LINE,
    ReadError,
    not_text,
    text_blocks,
    text_lines,
    whole_text,
)
from klnmf.support.nearest_names import nearest_name
from klnmf.support.number_checks import is_missing
from klnmf.support.option_names import option
from klnmf.support.parquet_files import batches, index_column, is_plain, opened_parquet, values_of
from klnmf.support.printable_text import shown
from klnmf.support.spreadsheet_cells import from_cell
from klnmf.support.untrusted_json import parse_json
from klnmf.texts.documents import Document, Documents, Gathering, Read

# What decoding with "surrogateescape" leaves of bytes that are not text.
_NOT_TEXT = re.compile("[\0\udc80-\udcff]")
# Rows of Parquet that are in memory at a time.
_BATCH = 1 << 12


class Fields(NamedTuple):
    """Which fields of a record hold the text, the name and the label of a document."""

    text_field: str = "text"
    id_field: str | None = None
    label_field: str | None = None


def folder_documents(path: Path, pattern: str, encoding: str) -> Read:
    """Yield text files in the order of their paths; if all are in subfolders, these are labels."""
    try:
        files = sorted(file for file in path.rglob(pattern) if file.is_file())
    except (NotImplementedError, ValueError) as error:
        given = option("pattern", pattern)
        problem = f"{given} is not a pattern of names in this folder: {error}."
        raise ReadError(path, problem) from error
    if not files:
        raise ReadError(path, f"no file in this folder has a name like {pattern}.")
    names = [file.relative_to(path).as_posix() for file in files]
    are_below = all("/" in name for name in names)
    for file, name in zip(files, names, strict=True):
        folder = name.split("/")[0] if are_below else None
        yield _document_of_file(file, encoding, name, folder)


def documents_of_files(
    paths: Sequence[Any], *, encoding: str = "utf-8", skip_unreadable: bool = False
) -> Documents:
    """Read files that are a document each, named by their paths."""
    files = [Path(path).absolute() for path in paths]
    common = Path(os.path.commonpath([file.parent for file in files]))
    gathering = Gathering(common, skip_unreadable=skip_unreadable)
    named = zip(files, map(os.fspath, paths), strict=True)
    return gathering.documents(_document_of_file(file, encoding, name) for file, name in named)


def _document_of_file(
    file: Path, encoding: str, name: str, folder: str | None = None
) -> Document | ReadError:
    try:
        return Document(whole_text(file, encoding), name, folder, {"folder": folder})
    except ReadError as error:
        return error
    except OSError as error:
        return ReadError(file, f"{error.strerror or error}.")


def jsonl_documents(path: Path, fields: Fields, encoding: str) -> Read:
    """Yield the objects of a file, one per line."""
    for line, content in text_lines(path, encoding, "surrogateescape"):
        if not content.strip():
            continue
        record = _not_text(path, line, content, encoding) or _record(path, line, content)
        yield record if isinstance(record, ReadError) else _document(path, line, record, fields)


def csv_documents(path: Path, fields: Fields, delimiter: str, encoding: str) -> Read:
    """Yield the records of delimited text, below a header that names the fields."""
    records = _csv_records(path, delimiter, encoding)
    _, header = next(records, (1, []))
    if isinstance(header, ReadError):
        raise header
    header = list(map(from_cell, header))
    repeated = [name for name, times in Counter(header).items() if times > 1]
    if repeated:
        raise ReadError(path, f"two columns have the name {repeated[0]!r}; rename one of them.", 1)
    _check_fields(path, 1, header, fields, delimiter)
    for line, cells in records:
        if isinstance(cells, ReadError):
            yield cells
        elif len(cells) != len(header):
            problem = f"expected {len(header)} fields, as in the header, found {len(cells)}."
            yield ReadError(path, problem, line)
        else:
            record = dict(zip(header, map(from_cell, cells), strict=True))
            yield _document(path, line, record, fields)


def parquet_documents(path: Path, fields: Fields) -> Read:
    """Yield the rows of a table, some of which are in memory at a time."""
    with opened_parquet(path) as (file, pyarrow):
        schema = file.schema_arrow
        _check_fields(path, None, schema.names, fields)
        if fields.id_field is None:
            fields = fields._replace(id_field=index_column(file))
        columns = [field.name for field in schema if is_plain(field.type, pyarrow)]
        for chosen in fields:
            if chosen not in (None, *columns):
                kind = schema.field(chosen).type
                problem = f"column {chosen!r} is of the type {kind}; strings were expected."
                raise ReadError(path, problem)
        for start, batch in batches(file, _BATCH, columns):
            rows = zip(*(values_of(column, pyarrow) for column in batch.columns), strict=True)
            for row, cells in enumerate(rows, start):
                record = dict(zip(columns, cells, strict=True))
                found = _document(path, None, record, fields)
                if isinstance(found, ReadError):
                    problem = str(found).removeprefix(f"{path}: ")
                    found = ReadError(path, f"row {row}: {problem}")
                yield found


# ---- records -------------------------------------------------------------------------------------


def _document(
    path: Path, line: int | None, record: Mapping[str, Any], fields: Fields
) -> Document | ReadError:
    """Document of a record; fields that are not plain are left out."""
    try:
        _check_fields(path, line, record, fields)
    except ReadError as error:
        return error
    text_field, id_field, label_field = fields
    text = "" if is_missing(record[text_field]) else record[text_field]
    if not isinstance(text, str):
        problem = f"field {text_field!r} holds {shown(repr(text))}, not a text."
        return ReadError(path, problem, line)
    metadata = {name: plain(v) for name, v in record.items() if name not in (text_field, id_field)}
    name, label = (None if f is None else str(record[f]) for f in (id_field, label_field))
    return Document(text, name, label, metadata)


def _check_fields(
    path: Path,
    line: int | None,
    there: Collection[str],
    fields: Fields,
    delimiter: str | None = None,
) -> None:
    """Refuse a record without one of the fields."""
    for name, chosen in fields._asdict().items():
        if chosen is None or chosen in there:
            continue
        meant = next(iter(there)) if len(there) == 1 else nearest_name(chosen, there)
        way_out = f"Choose one of them with {option(name, 'NAME')}."
        if meant is not None:
            way_out = f"Did you mean {option(name, meant)}?"
        if delimiter is not None and len(there) == 1:
            way_out = f"If another character than {delimiter!r} separates the fields, name it, for "
            way_out += f"example {option('delimiter', ';')}."
        listed = ", ".join(map(repr, there)) or "none"
        problem = f"there is no field {chosen!r}; the fields are: {listed}. {way_out}"
        raise ReadError(path, problem, line)


def plain(value: Any) -> Any:
    """Return a value that metadata may have: a str, a number, a bool, or None.

    >>> plain("12"), plain([1]), plain(float("nan")), plain(date(2020, 1, 31))
    ('12', None, None, '2020-01-31')
    """
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    value = float(value) if isinstance(value, Decimal) else value
    is_plain = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else None


def _record(path: Path, line: int, content: str) -> dict[str, Any] | ReadError:
    try:
        record = parse_json(content)
    except ValueError as error:
        return ReadError(path, f"{shown(content)} cannot be read as JSON: {error}.", line)
    if not isinstance(record, dict):
        problem = f"{shown(content)} is not an object; expected is {{...}} on each line."
        return ReadError(path, problem, line)
    return record


def _not_text(path: Path, line: int, content: str, encoding: str) -> ReadError | None:
    """Error of a line with bytes that are not text, if it has any."""
    found = _NOT_TEXT.search(content)
    if found is None:
        return None
    held = content.encode("utf-8", "surrogateescape")
    start = len(content[: found.start()].encode("utf-8", "surrogateescape"))
    return not_text(path, held, encoding, line, start)


def _csv_records(
    path: Path, delimiter: str, encoding: str
) -> Iterator[tuple[int, list[str] | ReadError]]:
    """Line and fields of each record that is not blank, or its error."""
    lines = chain.from_iterable(text_blocks(path, encoding, "surrogateescape"))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    found: list[str] | ReadError
    while True:
        line = reader.line_num + 1
        limit = csv.field_size_limit(LONGEST_LINE)  # of the process: put back below
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error) or "field limit" in str(error):
                problem = "a quotation mark is opened here and not closed."
                raise ReadError(path, problem, line) from error
            why = str(error).partition(" - ")[0]  # what follows is advice for programmers
            found = ReadError(path, f"the record cannot be parsed: {why}.", line)
        else:
            found = _not_text(path, line, delimiter.join(fields), encoding) or fields
        finally:
            csv.field_size_limit(limit)
        if found:
            yield line, found
