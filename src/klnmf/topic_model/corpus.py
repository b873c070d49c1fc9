"""What `TopicModel` is given: texts as a list, a column of a table, files or a folder."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from klnmf.readers import Documents, read_documents
from klnmf.support.input_files import whole_text
from klnmf.support.missing_values import is_missing

_WANTED = (
    "texts must be a sequence of str, a pandas Series, a DataFrame with text=COLUMN, paths of text "
    "files, or the path of a folder or file of texts"
)


class Corpus(NamedTuple):
    """Texts, with a name and the metadata of each, and where they come from."""

    texts: list[str]
    names: list[str]
    metadata: dict[str, list[Any]]
    source: dict[str, Any]  # as in Documents, without a path if it was in memory


def corpus_of(texts: Any, text: str | None = None, metadata: Any = None) -> Corpus:
    """Return the texts with their names and metadata, or say what is wrong with them."""
    found = _read(texts, text)
    for position, entry in enumerate(found.texts):
        if not isinstance(entry, str):
            raise ValueError(_no_text(entry, position, found.names[position]))
    columns = found.metadata | _columns(metadata, len(found.texts))
    return found._replace(metadata=columns)


def _read(texts: Any, column: str | None) -> Corpus:
    if is_frame(texts):
        return _of_frame(texts, column)
    if isinstance(texts, str | os.PathLike):
        return _of_path(texts, column)
    if isinstance(texts, Documents):
        return _of_documents(texts)
    if column is not None:
        raise ValueError(f"text={column!r} names a column, but texts has no columns. Leave it out.")
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise TypeError(f"{_WANTED}; got {type(texts).__name__}.")
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(f"{_WANTED}; got an array of shape {getattr(texts, 'shape', '')}.")
    listed, names = list(texts), _index_names(getattr(texts, "index", None))
    if listed and all(isinstance(entry, os.PathLike) for entry in listed):
        read = [whole_text(Path(entry), "utf-8") for entry in listed]
        return Corpus(read, [os.fspath(entry) for entry in listed], {}, {})
    if listed and all(isinstance(entry, str) and _is_file(entry) for entry in listed):
        raise ValueError(
            f"texts are the names of files, such as {listed[0]!r}. To read the files, pass paths: "
            "[pathlib.Path(name) for name in names]."
        )
    return Corpus(listed, names or _numbered(len(listed)), {}, {})


def _of_frame(frame: Any, column: str | None) -> Corpus:
    columns = [str(name) for name in frame.columns]
    if column is None and len(columns) == 1:
        column = columns[0]
    if column is None or columns.count(column) != 1:
        count = columns.count(str(column))
        problem = f"{column!r} is " + (f"the name of {count} columns" if count else "not one")
        problem = "say which column holds the texts" if column is None else problem
        raise ValueError(
            f"texts is a DataFrame with the columns {', '.join(map(repr, columns))}: {problem}. "
            f"Pass text=COLUMN, such as text={columns[0] if columns else 'text'!r}."
        )
    values = {name: list(frame.iloc[:, place]) for place, name in enumerate(columns)}
    listed = values.pop(column)
    names = _index_names(frame.index) or _numbered(len(listed))
    return Corpus(listed, names, values, {"text_field": column})


def _of_path(path: Any, field: str | None) -> Corpus:
    if not os.path.exists(path):
        shown = os.fspath(path)
        shown = shown if len(shown) <= 60 else shown[:59] + "…"
        raise ValueError(
            f"{_WANTED}; got {shown!r}, which is no file or folder. For a single text, pass a list."
        )
    return _of_documents(read_documents(path, text_field=field))


def _of_documents(documents: Documents) -> Corpus:
    columns = dict(documents.metadata)
    if documents.labels is not None and documents.labels not in columns.values():
        columns = {"label": documents.labels, **columns}
    names = documents.names or _numbered(len(documents))
    return Corpus(documents.texts, names, columns, documents.source)


def _columns(metadata: Any, n_documents: int) -> dict[str, list[Any]]:
    """Return metadata as lists by name; a single column without a name is called label."""
    if metadata is None:
        return {}
    if is_frame(metadata):
        metadata = {name: metadata.iloc[:, k] for k, name in enumerate(metadata.columns)}
    elif not isinstance(metadata, Mapping):
        metadata = {getattr(metadata, "name", None) or "label": metadata}
    columns = {}
    for name, values in metadata.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TypeError(f"metadata[{name!r}] must have a value for each text; got {values!r}.")
        columns[str(name)] = list(values)
        if len(columns[str(name)]) != n_documents:
            raise ValueError(
                f"metadata[{name!r}] has {len(columns[str(name)]):,} values for {n_documents:,} "
                "texts."
            )
    return columns


def _index_names(index: Any) -> list[str] | None:
    """Return the labels of a pandas index as names; None if they merely count the rows."""
    if index is None or callable(index):  # a list has a method of this name
        return None
    labels = list(index)
    return None if labels == list(range(len(labels))) else [str(label) for label in labels]


def _numbered(n_documents: int) -> list[str]:
    return [f"document {i}" for i in range(n_documents)]


def _no_text(entry: Any, position: int, name: str) -> str:
    what = "bytes" if isinstance(entry, bytes) else repr(entry)
    what = what if len(what) <= 40 else f"{what[:39]}…"
    if isinstance(entry, bytes):
        way_out = "Decode it first: entry.decode('utf-8')."
    elif is_missing(entry):
        way_out = "Leave such documents out (in pandas, frame.dropna(subset=[column])), or use ''."
    elif isinstance(entry, list | tuple):
        way_out = "Join the words of a document first: ' '.join(entry)."
    else:
        way_out = "Is it the right column?"
    return f"texts[{position}] ({name}) is {what}, not a str. {way_out}"


def is_frame(given: Any) -> bool:
    """Whether it is a DataFrame."""
    return hasattr(given, "columns") and hasattr(given, "iloc")


def _is_file(text: str) -> bool:
    try:
        return len(text) < 500 and os.path.isfile(text)
    except ValueError:  # a NUL in it
        return False
