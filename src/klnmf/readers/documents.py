"""Texts: a folder of .txt files, or a .jsonl file with a document a line.

scikit-learn's CountVectorizer counts their words, with its own options. Documents are read one at a
time.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer

from klnmf.readers.diagnosis import shown
from klnmf.readers.format import Format
from klnmf.readers.table import CountTable, table_of_file
from klnmf.support.input_files import ReadError, text_lines, whole_text
from klnmf.support.option_names import option
from klnmf.support.untrusted_json import parse_json

# Options that say where the text comes from, which is decided here.
_OURS = frozenset(("input", "encoding", "decode_error", "dtype"))
VECTORIZER_OPTIONS = frozenset(CountVectorizer().get_params()) - _OURS


class _Documents(Format):
    """A format of texts, whose words are counted."""

    @property
    def options(self) -> set[str]:
        """Names of the options, those of scikit-learn's CountVectorizer included."""
        return super().options | VECTORIZER_OPTIONS


class Texts(_Documents):
    """Folder of text files, named by path; if all are in subfolders, these are the labels."""

    name = "texts"
    is_folder = True

    def matches(self, path: Path) -> bool:
        """Whether it is a folder."""
        return path.is_dir()

    def read(
        self, path: Path, *, pattern: str = "*.txt", encoding: str = "utf-8", **options: Any
    ) -> CountTable:
        """Read the files in the order of their paths."""
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
        labels = [name.split("/")[0] for name in names] if are_below else None
        X, words = _counted(path, (whole_text(file, encoding) for file in files), options)
        return table_of_file(path, X, names, words, labels, open_features=True)


class Jsonl(_Documents):
    """JSON objects, one per line: the document in ``text_field``, its name in ``id_field``."""

    name = "jsonl"
    endings = (".jsonl", ".ndjson")
    may_be_packed = True

    def read(
        self,
        path: Path,
        *,
        text_field: str = "text",
        id_field: str | None = None,
        label_field: str | None = None,
        encoding: str = "utf-8",
        **options: Any,
    ) -> CountTable:
        """Read one line at a time."""
        wanted = {"id_field": id_field, "label_field": label_field}
        kept: dict[str, list[str]] = {k: [] for k, field in wanted.items() if field is not None}

        def documents() -> Iterator[str]:
            for line, content in text_lines(path, encoding):
                if not content.strip():
                    continue
                record = _record(path, line, content)
                for name, values in kept.items():
                    values.append(str(_field(path, line, record, name, str(wanted[name]))))
                text = _field(path, line, record, "text_field", text_field)
                if not isinstance(text, str):
                    problem = f"field {text_field!r} holds {shown(repr(text))}, not a text."
                    raise ReadError(path, problem, line)
                yield text

        X, words = _counted(path, documents(), options)
        names, labels = (kept.get(name) for name in wanted)
        return table_of_file(path, X, names, words, labels, open_features=True)


def _record(path: Path, line: int, content: str) -> dict[str, Any]:
    try:
        record = parse_json(content)
    except ValueError as error:
        raise ReadError(path, f"{shown(content)} cannot be read as JSON: {error}.", line) from error
    if not isinstance(record, dict):
        problem = f"{shown(content)} is not an object; expected is {{...}} on each line."
        raise ReadError(path, problem, line)
    return record


def _field(path: Path, line: int, record: dict[str, Any], name: str, field: str) -> Any:
    """Value of the field that the option of this name says."""
    if field not in record:
        there = ", ".join(map(repr, record)) or "none"
        way_out = f"Choose one of them with {option(name, next(iter(record), 'NAME'))}."
        problem = f"there is no field {field!r}; the fields are: {there}. {way_out}"
        raise ReadError(path, problem, line)
    return record[field]


def _counted(path: Path, documents: Iterator[str], options: dict[str, Any]) -> tuple[Any, Any]:
    vectorizer = CountVectorizer(**options)
    try:
        X = vectorizer.fit_transform(documents)
    except ReadError:
        raise
    except (ValueError, re.error) as error:
        given = ", ".join(option(name, value) for name, value in options.items()) or "none"
        problem = f"the words cannot be counted: {str(error).rstrip('.')}."
        raise ReadError(path, f"{problem} Options that were given: {given}.") from error
    return X, vectorizer.get_feature_names_out()
