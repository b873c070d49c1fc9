"""Files of texts: a folder of .txt files, .jsonl, and tables (.csv, .tsv, .parquet) of documents.

Documents are read one at a time.
"""

import csv
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from klnmf.readers.cells import from_cell
from klnmf.readers.diagnosis import shown
from klnmf.readers.documents import Document, Documents, Gathering, TextFormat
from klnmf.readers.parquet import Values, batches, check_columns, index_column, is_plain, opened
from klnmf.support.input_files import (
    LONGEST_LINE,
    ReadError,
    not_text,
    text_blocks,
    text_lines,
    whole_text,
)
from klnmf.support.missing_values import is_missing
from klnmf.support.nearest_names import nearest_name
from klnmf.support.option_names import option
from klnmf.support.untrusted_json import parse_json

# What decoding with "surrogateescape" leaves of bytes that are not text.
_NOT_TEXT = re.compile("[\0\udc80-\udcff]")
# Rows of Parquet that are in memory at a time.
_BATCH = 1 << 12


class Texts(TextFormat):
    """Folder of text files, named by path; if all are in subfolders, these are the labels."""

    name = "texts"
    is_folder = True

    def matches(self, path: Path) -> bool:
        """Whether it is a folder."""
        return path.is_dir()

    def documents(
        self, path: Path, *, pattern: str = "*.txt", encoding: str = "utf-8"
    ) -> Iterator[Document | ReadError]:
        """Yield the files in the order of their paths."""
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


class Records(TextFormat):
    """A format whose records have named fields: the text, a name, a label, and metadata."""

    def document(
        self,
        path: Path,
        line: int | None,
        record: Mapping[str, Any],
        text_field: str,
        id_field: str | None,
        label_field: str | None,
    ) -> Document | ReadError:
        """Document of a record; fields that are not plain are left out."""
        fields = {"text_field": text_field, "id_field": id_field, "label_field": label_field}
        try:
            for option_name, chosen in fields.items():
                if chosen is not None:
                    check_field(path, line, record, option_name, chosen)
        except ReadError as error:
            return error
        text = "" if is_missing(record[text_field]) else record[text_field]
        if not isinstance(text, str):
            problem = f"field {text_field!r} holds {shown(repr(text))}, not a text."
            return ReadError(path, problem, line)
        taken = (text_field, id_field)
        metadata = {field: plain(v) for field, v in record.items() if field not in taken}
        name, label = (None if f is None else str(record[f]) for f in (id_field, label_field))
        return Document(text, name, label, metadata)


class Jsonl(Records):
    """JSON objects, one per line: the document in ``text_field``, its name in ``id_field``."""

    name = "jsonl"
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    may_be_packed = True

    def documents(
        self,
        path: Path,
        *,
        text_field: str = "text",
        id_field: str | None = None,
        label_field: str | None = None,
        encoding: str = "utf-8",
    ) -> Iterator[Document | ReadError]:
        """Yield one line at a time."""
        for line, content in text_lines(path, encoding, "surrogateescape"):
            if not content.strip():
                continue
            record = _not_text(path, line, content, encoding) or _record(path, line, content)
            if isinstance(record, ReadError):
                yield record
            else:
                yield self.document(path, line, record, text_field, id_field, label_field)


class CsvTexts(Records):
    """Comma-separated text with a document per record, below a header that names the fields."""

    name = "csv"
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    may_be_packed = True
    delimiter = ","

    def documents(
        self,
        path: Path,
        *,
        text_field: str,
        id_field: str | None = None,
        label_field: str | None = None,
        delimiter: str | None = None,
        encoding: str = "utf-8",
    ) -> Iterator[Document | ReadError]:
        """Yield one record at a time."""
        delimiter = self.delimiter if delimiter is None else delimiter
        records = _csv_records(path, delimiter, encoding)
        _, header = next(records, (1, []))
        if isinstance(header, ReadError):
            raise header
        header = list(map(from_cell, header))
        check_header(path, header)
        for name, chosen in (("text", text_field), ("id", id_field), ("label", label_field)):
            if chosen is not None:
                check_field(path, 1, dict.fromkeys(header), f"{name}_field", chosen, delimiter)
        for line, fields in records:
            if isinstance(fields, ReadError):
                yield fields
            elif len(fields) != len(header):
                problem = f"expected {len(header)} fields, as in the header, found {len(fields)}."
                yield ReadError(path, problem, line)
            else:
                record = dict(zip(header, map(from_cell, fields), strict=True))
                yield self.document(path, line, record, text_field, id_field, label_field)


class TsvTexts(CsvTexts):
    """Tab-separated text: the same."""

    name = "tsv"
    endings = (".tsv", ".tab")
    delimiter = "\t"


class ParquetTexts(Records):
    """Parquet with a document per row."""

    name = "parquet"
    endings = (".parquet",)

    def documents(
        self,
        path: Path,
        *,
        text_field: str,
        id_field: str | None = None,
        label_field: str | None = None,
    ) -> Iterator[Document | ReadError]:
        """Yield some rows at a time."""
        with opened(path) as (file, pyarrow):
            check_columns(path, file)
            schema = file.schema_arrow
            for name, chosen in (("text", text_field), ("id", id_field), ("label", label_field)):
                if chosen is not None:
                    check_field(path, None, dict.fromkeys(schema.names), f"{name}_field", chosen)
            id_field = index_column(file) if id_field is None else id_field
            columns = [field.name for field in schema if is_plain(field.type, pyarrow)]
            for chosen in (text_field, id_field, label_field):
                if chosen not in (None, *columns):
                    kind = schema.field(chosen).type
                    problem = f"column {chosen!r} is of the type {kind}; strings were expected."
                    raise ReadError(path, problem)
            values = Values(path, pyarrow)
            for start, batch in batches(file, _BATCH, columns):
                rows = zip(*map(values.of, batch.columns), strict=True)
                for row, cells in enumerate(rows, start):
                    record = dict(zip(columns, cells, strict=True))
                    found = self.document(path, None, record, text_field, id_field, label_field)
                    if isinstance(found, ReadError):
                        problem = str(found).removeprefix(f"{path}: ")
                        found = ReadError(path, f"row {row}: {problem}")
                    yield found


# ---- records -------------------------------------------------------------------------------------


def check_field(
    path: Path,
    line: int | None,
    record: Mapping[str, Any],
    name: str,
    chosen: str,
    delimiter: str | None = None,
) -> None:
    """Refuse a record without the field that the option of this name says."""
    if chosen in record:
        return
    there = ", ".join(map(repr, record)) or "none"
    meant = next(iter(record)) if len(record) == 1 else nearest_name(chosen, record)
    way_out = f"Choose one of them with {option(name, 'NAME')}."
    if meant is not None:
        way_out = f"Did you mean {option(name, meant)}?"
    if delimiter is not None and len(record) == 1:
        way_out = f"If another character than {delimiter!r} separates the fields, name it, for "
        way_out += f"example {option('delimiter', ';')}."
    problem = f"there is no field {chosen!r}; the fields are: {there}. {way_out}"
    raise ReadError(path, problem, line)


def check_header(path: Path, header: list[str]) -> None:
    """Refuse a header with two fields of one name."""
    repeated = [name for name, times in Counter(header).items() if times > 1]
    if repeated:
        raise ReadError(path, f"two columns have the name {repeated[0]!r}; rename one of them.", 1)


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
