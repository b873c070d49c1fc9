"""Formats of texts, whose words are counted: a folder of files, .jsonl, and tables of documents."""

from abc import abstractmethod
from collections.abc import Callable, Collection
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from klnmf.data.streams import CountStream, Outline
from klnmf.readers.format import Format, keywords
from klnmf.readers.table import CountTable, pruned, table_of_file
from klnmf.texts.counting import VECTORIZER_OPTIONS, chosen_words, counted, counted_blocks
from klnmf.texts.documents import Gathering, Read
from klnmf.texts.files import (
    Fields,
    csv_documents,
    folder_documents,
    jsonl_documents,
    parquet_documents,
)
from klnmf.texts.pruning import LIMITS, PRUNING_OPTIONS


class TextFormat(Format):
    """A format of texts, whose words are counted."""

    @abstractmethod
    def documents(self, path: Path, *_: Any, **options: Any) -> Read:
        """Yield the documents, and for each that cannot be read the error."""

    @property
    def text_options(self) -> set[str]:
        """Names of the options that are about reading, not about words."""
        return keywords(self.documents) | keywords(Gathering)

    @property
    def options(self) -> set[str]:
        """Names of the options, those of scikit-learn's CountVectorizer included."""
        return self.text_options | VECTORIZER_OPTIONS | PRUNING_OPTIONS

    def opened(self, path: Path, options: dict[str, Any]) -> tuple[Gathering, Callable[[], Read]]:
        """Return what will be known of the documents, and a function that reads them."""
        others = dict(options)
        of_all = _taken_out(others, keywords(Gathering))
        return Gathering(path, **of_all), partial(self.documents, path, **others)

    def read(self, path: Path, *_: Any, **options: Any) -> CountTable:
        """Count words, one document after the other."""
        of_words, limits = _taken_out(options, VECTORIZER_OPTIONS), _taken_out(options, LIMITS)
        gathering, documents = self.opened(path, options)
        X, words = counted(path, gathering.texts(documents()), of_words, gathering.normalised)
        about = gathering.about() | {"excerpts": gathering.excerpts}
        table = table_of_file(path, X, column_names=words, open_features=True, **about)
        return pruned(path, table, **limits)

    def stream(self, path: Path, *_: Any, **options: Any) -> CountStream:
        """Count words in blocks of documents, which are read twice: first to choose the words."""
        if "vocabulary" in options:
            return super().stream(path, **options)
        of_words, limits = _taken_out(options, VECTORIZER_OPTIONS), _taken_out(options, LIMITS)
        gathering, documents = self.opened(path, options)

        @cache
        def vectorizer() -> Any:
            texts = gathering.texts(documents(), is_brief=True)
            return chosen_words(path, texts, of_words, limits, gathering.normalised)

        def outline() -> Outline:
            words = vectorizer().get_feature_names_out()
            about = gathering.about() | {"column_names": words, "open_features": True}
            return Outline((gathering.n_documents, len(words)), about, np.dtype(np.int64))

        return CountStream(
            lambda limit: counted_blocks(vectorizer(), gathering.again(documents()), limit),
            outline,
            in_order=True,
        )


def _taken_out(options: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Remove the options of these names, and return them."""
    return {name: options.pop(name) for name in list(options) if name in names}


class Texts(TextFormat):
    """Folder of text files, named by path; if all are in subfolders, these are the labels."""

    name = "texts"
    is_folder = True

    def matches(self, path: Path) -> bool:
        """Whether it is a folder."""
        return path.is_dir()

    def documents(self, path: Path, *, pattern: str = "*.txt", encoding: str = "utf-8") -> Read:
        """Yield the files in the order of their paths."""
        return folder_documents(path, pattern, encoding)


class Jsonl(TextFormat):
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
    ) -> Read:
        """Yield one line at a time."""
        return jsonl_documents(path, Fields(text_field, id_field, label_field), encoding)


class CsvTexts(TextFormat):
    """Comma-separated text with a document per record, below a header that names the fields."""

    name = "csv"
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
    ) -> Read:
        """Yield one record at a time."""
        fields = Fields(text_field, id_field, label_field)
        return csv_documents(path, fields, delimiter or self.delimiter, encoding)


class TsvTexts(CsvTexts):
    """Tab-separated text: the same."""

    name = "tsv"
    delimiter = "\t"


class ParquetTexts(TextFormat):
    """Parquet with a document per row."""

    name = "parquet"

    def documents(
        self,
        path: Path,
        *,
        text_field: str,
        id_field: str | None = None,
        label_field: str | None = None,
    ) -> Read:
        """Yield some rows at a time."""
        return parquet_documents(path, Fields(text_field, id_field, label_field))
