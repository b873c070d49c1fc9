"""What `TopicModel` is given: texts as a list, a column of a table, files or a folder."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from klnmf.readers import Documents, read_documents
from klnmf.readers.text_files import documents_of_files
from klnmf.support.descriptions import described
from klnmf.support.missing_values import is_missing
from klnmf.support.nearest_names import did_you_mean
from klnmf.support.option_names import spelled_by

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


def corpus_of(
    texts: Any,
    text: str | None = None,
    metadata: Any = None,
    *,
    encoding: str | None = None,
    skip_unreadable: bool = False,
) -> Corpus:
    """Return the texts with their names and metadata, or say what is wrong with them."""
    reading: dict[str, Any] = {} if encoding is None else {"encoding": encoding}
    reading |= {"skip_unreadable": True} if skip_unreadable else {}
    found = _read(texts, text, reading)
    found = found._replace(texts=["" if is_missing(entry) else entry for entry in found.texts])
    for position, entry in enumerate(found.texts):
        if not isinstance(entry, str):
            raise ValueError(_no_text(entry, position, found.names[position]))
    columns = found.metadata | _columns(metadata, len(found.texts))
    return found._replace(metadata=columns)


def _read(texts: Any, column: str | None, reading: dict[str, Any]) -> Corpus:
    if isinstance(texts, str | os.PathLike):
        return _of_path(texts, column, reading)
    if reading and not (isinstance(texts, Sequence) and _are_paths(texts)):
        raise ValueError(f"{next(iter(reading))} is for files, and these texts are in memory.")
    if is_frame(texts):
        return _of_frame(texts, column)
    if isinstance(texts, Documents):
        return _of_documents(texts)
    if column is not None:
        raise ValueError(f"text={column!r} names a column, but texts has no columns. Leave it out.")
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise TypeError(f"{_WANTED}; got {type(texts).__name__}.")
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(f"{_WANTED}; got an array of shape {getattr(texts, 'shape', '')}.")
    listed, names = list(texts), _index_names(getattr(texts, "index", None))
    if _are_paths(listed):
        with spelled_by(_spelled):
            return _of_documents(documents_of_files(listed, **reading))
    if listed and all(isinstance(entry, str) and _is_file(entry) for entry in listed):
        raise ValueError(
            f"texts are the names of files, such as {listed[0]!r}. To read the files, pass paths: "
            "[pathlib.Path(name) for name in names]."
        )
    return Corpus(listed, names or _numbered(len(listed)), {}, {})


def _are_paths(texts: Sequence[Any]) -> bool:
    return len(texts) > 0 and all(isinstance(entry, os.PathLike) for entry in texts)


def _of_frame(frame: Any, column: str | None) -> Corpus:
    columns = [str(name) for name in frame.columns]
    if column is None and len(columns) == 1:
        column = columns[0]
    if column is None or columns.count(column) != 1:
        there = f"texts is a DataFrame with the columns {', '.join(map(repr, columns))}"
        if column is None:
            raise ValueError(f"{there}. Say which of them holds the texts: text=COLUMN.")
        if columns.count(column) > 1:
            raise ValueError(f"{there}, of which several are {column!r}. Rename the others.")
        question = did_you_mean(column, columns, lambda name: f"text={name!r}")
        raise ValueError(f"{there}, and none is {column!r}.{question}")
    values = {name: list(frame.iloc[:, place]) for place, name in enumerate(columns)}
    listed = values.pop(column)
    names = _index_names(frame.index) or _numbered(len(listed))
    return Corpus(listed, names, values, {"text_field": column})


def _of_path(path: Any, field: str | None, reading: dict[str, Any]) -> Corpus:
    if not os.path.exists(os.path.expanduser(path)) and len(os.fspath(path).split()) > 2:
        raise ValueError(f"texts is a single text, {described(path)}. Pass a list of texts.")
    with spelled_by(_spelled):
        return _of_documents(read_documents(path, text_field=field, **reading))


def _spelled(name: str, value: tuple[Any, ...]) -> str:
    """Name options of reading by the arguments of `TopicModel.fit`, or as those of a reader."""
    name = "text" if name == "text_field" else name
    given = f"{name}={value[0]!r}" if value else name
    is_ours = name in ("text", "encoding", "skip_unreadable")
    return given if is_ours or not value else f"read_documents(path, {given})"


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
            raise TypeError(
                f"metadata[{name!r}] must have a value for each text; got {described(values)}."
            )
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
    what = "bytes" if isinstance(entry, bytes) else described(entry)
    if isinstance(entry, bytes):
        way_out = "Decode it first: entry.decode('utf-8')."
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
