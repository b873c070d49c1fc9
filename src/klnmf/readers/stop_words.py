"""Stop words: of a language, of a file, or given."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from klnmf.support.input_files import ReadError, text_lines
from klnmf.support.option_names import option
from klnmf.support.optional_packages import installed_version, require

Given = str | os.PathLike[str] | Iterable[str]


def stop_words_of(given: Given) -> list[str]:
    """Return the words: of a language, of a file with one word per line, or as given.

    >>> stop_words_of(["the", "of"])
    ['the', 'of']
    >>> "the" in stop_words_of("english")
    True
    """
    if not isinstance(given, str | os.PathLike):
        words = list(given)
        if not all(isinstance(word, str) for word in words):
            raise ValueError(f"{option('stop_words')} must be a list of str; got {words[:3]!r}...")
        return words
    if given == "english":
        return sorted(ENGLISH_STOP_WORDS)
    if is_language(given):
        found: list[str] = _package().get_stop_words(given)
        return found
    path = Path(os.path.expanduser(given))
    if path.is_file():
        words = [line.strip() for _, line in text_lines(path)]
        if not any(words):
            raise ReadError(path, "there are no stop words in this file.")
        return list(filter(None, words))
    languages = "english" if _package() is None else ", ".join(sorted(_languages()))
    raise ValueError(
        f"{option('stop_words')} must be a language or a file with one word per line; there is no "
        f"file {str(given)!r}, and the languages are: {languages}."
    )


def is_available(given: Any) -> bool:
    """Whether there are such stop words now: a model may have been made elsewhere."""
    is_name = isinstance(given, str)
    return not is_name or is_language(given) or Path(os.path.expanduser(given)).is_file()


def is_language(given: Any) -> bool:
    """Whether there is a list of stop words for a language."""
    if given == "english":
        return True
    return installed_version("stop_words") is not None and given in _languages()


def normalised_stop_words(
    words: Iterable[str], normalised: Callable[[str], str], tokens: Callable[[str], Iterable[str]]
) -> list[str]:
    """Stop words as texts are taken apart: of "don't", the texts have "don" alone."""
    single = [normalised(word) for word in words if len(word.split()) == 1]
    return sorted({token for word in single for token in (word, *tokens(word))})


def _languages() -> set[str]:
    mapping: dict[str, str] = _package().LANGUAGE_MAPPING
    return {"english", *mapping, *mapping.values()} - {"en"}


def _package() -> Any:
    return require("stop_words", "Stop words of other languages than English", "texts")
