"""What `TopicModel` is given: texts in memory, in a table or in files, and the words to count."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from klnmf.readers import Documents, read_documents
from klnmf.support.descriptions import described
from klnmf.support.nearest_names import did_you_mean
from klnmf.support.number_checks import is_missing
from klnmf.support.option_names import spelled_by
from klnmf.texts.counting import explained, vectorizer_of, watched
from klnmf.texts.files import documents_of_files
from klnmf.texts.pruning import OF_TEXTS, PRUNING_OPTIONS, check_pruning, limits_of_samples

# Parameters of TopicModel that are options of its vectoriser, with their defaults.
OPTIONS: dict[str, Any] = {
    "stop_words": None,
    **OF_TEXTS,
    "max_features": None,
    "ngram_range": (1, 1),
}
_BY_LETTERS = r'vectorizer=CountVectorizer(token_pattern=r"\w", ngram_range=(2, 2))'
_WANTED = (
    "texts must be a sequence of str, a pandas Series, a DataFrame with text=COLUMN, paths of text "
    "files, or the path of a folder or file of texts"
)

# ---- texts ---------------------------------------------------------------------------------------


def corpus_of(
    texts: Any,
    text: str | None = None,
    metadata: Any = None,
    *,
    encoding: str | None = None,
    skip_unreadable: bool = False,
) -> Documents:
    """Return the texts with their names and metadata, or say what is wrong with them.

    Each has a name, and labels are a column of the metadata.
    """
    reading: dict[str, Any] = {} if encoding is None else {"encoding": encoding}
    reading |= {"skip_unreadable": True} if skip_unreadable else {}
    with spelled_by(_spelled):
        found = _read(texts, text, reading)
    n = len(found)
    names = [f"document {i}" for i in range(n)] if found.names is None else found.names
    listed = ["" if is_missing(entry) else entry for entry in found.texts]
    for position, entry in enumerate(listed):
        if not isinstance(entry, str):
            raise ValueError(_no_text(entry, position, names[position]))
    columns = dict(found.metadata)
    if found.labels is not None and found.labels not in columns.values():
        columns = {"label": found.labels, **columns}
    return Documents(listed, names, columns | _columns(metadata, n), source=found.source)


def _read(texts: Any, column: str | None, reading: dict[str, Any]) -> Documents:
    if isinstance(texts, str | os.PathLike):
        if not os.path.exists(os.path.expanduser(texts)) and len(os.fspath(texts).split()) > 2:
            raise ValueError(f"texts is a single text, {described(texts)}. Pass a list of texts.")
        return read_documents(texts, text_field=column, **reading)
    if reading and not (isinstance(texts, Sequence) and _are_paths(texts)):
        raise ValueError(f"{next(iter(reading))} is for files, and these texts are in memory.")
    if is_frame(texts):
        return _of_frame(texts, column)
    if isinstance(texts, Documents):
        return texts
    if column is not None:
        raise ValueError(f"text={column!r} names a column, but texts has no columns. Leave it out.")
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise TypeError(f"{_WANTED}; got {type(texts).__name__}.")
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(f"{_WANTED}; got an array of shape {getattr(texts, 'shape', '')}.")
    listed = list(texts)
    if _are_paths(listed):
        return documents_of_files(listed, **reading)
    if listed and all(isinstance(entry, str) and _is_file(entry) for entry in listed):
        raise ValueError(
            f"texts are the names of files, such as {listed[0]!r}. To read the files, pass paths: "
            "[pathlib.Path(name) for name in names]."
        )
    return Documents(listed, _index_names(getattr(texts, "index", None)))


def _are_paths(texts: Sequence[Any]) -> bool:
    return len(texts) > 0 and all(isinstance(entry, os.PathLike) for entry in texts)


def _of_frame(frame: Any, column: str | None) -> Documents:
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
    names = _index_names(frame.index)
    return Documents(listed, names, values, source={"text_field": column})


def _spelled(name: str, value: tuple[Any, ...]) -> str:
    """Name options of reading by the arguments of `TopicModel.fit`, or as those of a reader."""
    name = "text" if name == "text_field" else name
    given = f"{name}={value[0]!r}" if value else name
    is_ours = name in ("text", "encoding", "skip_unreadable")
    return given if is_ours or not value else f"read_documents(path, {given})"


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


# ---- words ---------------------------------------------------------------------------------------


def vectorizer_to_fit(given: Any, options: Mapping[str, Any]) -> CountVectorizer:
    """Return the vectoriser to fit: a copy of the one that was given, or one with the options."""
    if given is None:
        check_pruning(**{name: options[name] for name in PRUNING_OPTIONS})
        return _tried(vectorizer_of(options))
    if not isinstance(given, CountVectorizer) or isinstance(given, TfidfVectorizer):
        raise TypeError(
            f"vectorizer must be a CountVectorizer, because the model is one of counts; got "
            f"{described(given)}."
        )
    changed = [name for name, value in options.items() if value != OPTIONS[name]]
    if changed:
        raise ValueError(
            f"{' and '.join(changed)} would have no effect beside vectorizer: set "
            f"{'it' if len(changed) == 1 else 'them'} in the CountVectorizer."
        )
    if given.input != "content":
        raise ValueError(f"The vectorizer must have input='content', not {given.input!r}.")
    return _tried(clone(given))


def _tried(vectorizer: CountVectorizer) -> CountVectorizer:
    """Return a vectoriser that can count: wrong options show before any text is read."""
    given = vectorizer.vocabulary
    trial = clone(vectorizer).set_params(vocabulary=["word"] if given is None else given)
    with explained(None, None):
        trial.fit(["a text to try the options"])
    return vectorizer


def counted(vectorizer: CountVectorizer, texts: Sequence[str]) -> Any:
    """Fit the vectoriser and return the counts, or say why there are none."""
    if not texts:
        raise ValueError("There are no texts.")
    if vectorizer.vocabulary is None:
        limits = vectorizer.min_df, vectorizer.max_df
        limits_of_samples(*limits, len(texts), "word", "documents")
    with explained(None, vectorizer.stop_words):
        return vectorizer.fit_transform(watched(texts, vectorizer, _BY_LETTERS))
