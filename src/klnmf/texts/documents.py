"""Texts as documents: a text with a name and metadata, whatever file it comes from.

Files of texts yield documents (`klnmf.texts.files`). What becomes of them is the same for all: they
are kept (`klnmf.readers.read_documents`), or their words are counted (`klnmf.texts.counting`).
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from klnmf.data.names import LOGGER
from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option

FORMS = ("NFC", "NFKC", "NFD", "NFKD")
# Characters of the beginning of a document.
LONGEST_EXCERPT = 300
# How many unreadable documents are named.
_NAMED = 100
# Smallest share of the documents that have a field of metadata.
_SMALLEST_SHARE = 0.1
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]+)?")
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


class Document(NamedTuple):
    """A text and what is known about it."""

    text: str
    name: str | None = None
    label: str | None = None
    metadata: dict[str, Any] | None = None


# What a file of texts yields: a document, or for each that cannot be read the error.
Read = Iterator[Document | ReadError]


@dataclass
class Documents:
    """Texts with their names and metadata, as `read_documents` returns them.

    Attributes
    ----------
    texts : list of str
        The documents.
    names : list of str, or None
        One name per document: paths of files, or the field ``id_field``.
    metadata : dict of lists
        Columns with one value per document: str, int, float, bool, or None where it is missing.
    labels : list of str, or None
        One class per document: the field ``label_field``, or the folders of files.
    source : dict
        The ``path`` and the options that they were read with; empty if they were not read.
    """

    texts: list[str]
    names: list[str] | None = None
    metadata: dict[str, list[Any]] = field(default_factory=dict)
    labels: list[str] | None = None
    source: dict[str, Any] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        about = [name for name in ("names", "labels") if getattr(self, name) is not None]
        about += [f"metadata {', '.join(self.metadata)}"] if self.metadata else []
        what = f", with {', '.join(about)}" if about else ""
        return f"Documents({len(self):,} texts{what})"


class Gathering:
    """What is known of the documents that were read so far.

    Unreadable documents are an error, or they are left out with a warning.
    """

    def __init__(
        self, path: Path, *, skip_unreadable: bool = False, normalize: str | None = None
    ) -> None:
        self.path, self.skips = path, skip_unreadable
        self.normalised = normaliser(normalize)
        self.n_documents = 0
        self.excerpts: list[str] = []
        self._names: list[str | None] = []
        self._labels: list[str | None] = []
        # By field and document, as only some documents may have a field.
        self._metadata: dict[str, dict[int, Any]] = {}
        self._unreadable: list[ReadError] = []

    def texts(self, documents: Read, *, is_brief: bool = False) -> Iterator[str]:
        """Yield the texts, normalised; warn at the end of those that were left out.

        If it is to be brief, only names and labels of the documents are kept.
        """
        for document in documents:
            if isinstance(document, ReadError):
                self._leave_out(document)
                continue
            text = self._taken(document._replace(metadata=None) if is_brief else document)
            if not is_brief:
                self.excerpts.append(excerpt_of(text))
            yield text
        if not self.n_documents:
            left_out = f" that can be read; {self._left_out()}" if self._unreadable else ""
            raise ReadError(self.path, f"there are no documents{left_out}.")
        if self._unreadable:
            LOGGER.warning("%s: %s", self.path, self._left_out())

    def documents(self, documents: Read) -> Documents:
        """Return all texts, with what is known of them."""
        texts = list(self.texts(documents))
        about = self.about()
        return Documents(texts, about["row_names"], about["metadata"], about["labels"])

    def again(self, documents: Read) -> Iterator[str]:
        """Yield the texts that `texts` has yielded before."""
        readable = (document for document in documents if isinstance(document, Document))
        return (self.normalised(storable(document.text)) for document in readable)

    def about(self) -> dict[str, Any]:
        """Names, labels and metadata: keyword arguments of CountTable."""
        n = self.n_documents
        return {
            "row_names": None if None in self._names else self._names,
            "labels": None if None in self._labels else self._labels,
            "metadata": {
                name: _as_numbers([values.get(i) for i in range(n)])
                for name, values in self._metadata.items()
                if len(values) >= _SMALLEST_SHARE * n
            },
        }

    def _taken(self, document: Document) -> str:
        text = self.normalised(storable(document.text))
        for name, value in (document.metadata or {}).items():
            if value is not None and value != "":
                values = self._metadata.setdefault(storable(name), {})
                values[self.n_documents] = storable(value) if isinstance(value, str) else value
        for kept, value in ((self._names, document.name), (self._labels, document.label)):
            kept.append(None if value is None else storable(value))
        self.n_documents += 1
        return text

    def _leave_out(self, error: ReadError) -> None:
        if not self.skips:
            way_out = f"To leave out what cannot be read, add {option('skip_unreadable', True)}."
            raise error.with_advice(way_out)
        self._unreadable.append(error)

    def _left_out(self) -> str:
        n = len(self._unreadable)
        named = "; ".join(map(self._what, self._unreadable[:_NAMED]))
        more = f"; and {n - _NAMED:,} more" if n > _NAMED else ""
        return f"left out {n:,} document{'s' * (n != 1)} that cannot be read: {named}{more}"

    def _what(self, error: ReadError) -> str:
        """Name of the file in a folder, place in the file, and problem, without advice."""
        in_folder = error.path != self.path
        name = Path(os.path.relpath(error.path, self.path)).as_posix() if in_folder else ""
        place, _, problem = str(error).removeprefix(str(error.path)).lstrip(", ").partition(": ")
        return ", ".join(filter(None, [name, place])) + f": {problem.split('. ')[0].rstrip('.')}"


def excerpt_of(text: str) -> str:
    """Return the beginning of a text, with single spaces.

    >>> excerpt_of("In the   beginning ")
    'In the beginning'
    """
    # Words beyond the limit are not split off: a text may be long.
    return " ".join(text[: 8 * LONGEST_EXCERPT].split())[:LONGEST_EXCERPT]


def normaliser(form: str | None) -> Callable[[str], str]:
    """Return the function that brings a text into a Unicode normal form."""
    if form is None:
        return str
    if form not in FORMS:
        forms = ", ".join(FORMS)
        raise ValueError(f"{option('normalize')} must be one of {forms}; got {described(form)}.")
    return partial(unicodedata.normalize, form)  # type: ignore[arg-type]


def _as_numbers(column: list[Any]) -> list[Any]:
    """Return a column in which all numbers are written as text as numbers, others as they are.

    >>> _as_numbers(["1999", None, "2001"]), _as_numbers(["0012", "7"]), _as_numbers(["1", "b"])
    ([1999, None, 2001], ['0012', '7'], ['1', 'b'])
    """
    for kind, pattern in ((int, _WHOLE), (float, _DECIMAL)):
        if all(v is None or (isinstance(v, str) and pattern.fullmatch(v)) for v in column):
            return [None if value is None else kind(value) for value in column]
    return column


def storable(text: str) -> str:
    r"""Return a text that can be written as UTF-8: JSON and file names may hold what cannot be.

    >>> storable("a\udcffb")
    'a�b'
    """
    return text if text.isascii() else _LONE_SURROGATES.sub("\ufffd", text)
