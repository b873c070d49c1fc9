"""Stop words: of a language, of a file, or given."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from klnmf.support.descriptions import described
from klnmf.support.input_files import ReadError, text_lines
from klnmf.support.nearest_names import nearest_name
from klnmf.support.option_names import option
from klnmf.support.optional_packages import installed_version, require

_ENGLISH = ("english", "en")
Given = str | os.PathLike[str] | Iterable[str]


def stop_words_of(given: Given) -> list[str]:
    """Return the words: of languages, of files with one word per line, or as given.

    Several languages or files are separated by commas, or are a list of languages:

    >>> stop_words_of(["the", "of"])
    ['the', 'of']
    >>> "the" in stop_words_of("english") and "the" in stop_words_of("en")
    True
    """
    names = names_of(given)
    if names is not None:
        return [word for name in names for word in _words_of(name)]
    words: list[Any] = [] if isinstance(given, os.PathLike) else list(given)
    if not all(isinstance(word, str) for word in words):
        raise ValueError(
            f"{option('stop_words')} must be a list of str; got {described(words[:3])}..."
        )
    return words


def names_of(given: Any) -> list[str] | None:
    """Return the names of languages or files whose stop words are meant; None for words.

    >>> names_of("english,german"), names_of(["the", "of"])
    (['english', 'german'], None)
    """
    if isinstance(given, str | os.PathLike):
        name = os.fspath(given)
        return [name] if _is_file(name) else [part.strip() for part in name.split(",")]
    listed = list(given) if isinstance(given, list | tuple) else []
    return listed if listed and all(map(is_language, listed)) else None


def is_available(given: Any) -> bool:
    """Whether there are such stop words now: a model may have been made elsewhere."""
    names = None if given is None else names_of(given)
    return names is None or all(is_language(name) or _is_file(name) for name in names)


def is_language(given: Any) -> bool:
    """Whether there is a list of stop words for a language."""
    if given in _ENGLISH:
        return True
    return (
        isinstance(given, str)
        and installed_version("stop_words") is not None
        and given in _languages()
    )


def _words_of(name: str) -> list[str]:
    if name in _ENGLISH:
        return sorted(ENGLISH_STOP_WORDS)
    if is_language(name):
        found: list[str] = _package().get_stop_words(name)
        return found
    path = Path(os.path.expanduser(name))
    if path.is_file():
        words = [line.strip() for _, line in text_lines(path)]
        if not any(words):
            raise ReadError(path, "there are no stop words in this file.")
        return list(filter(None, words))
    languages = sorted(language for language in _languages() if len(language) > 2)
    meant = nearest_name(name, languages)
    listed = f"The languages are: {', '.join(languages)}."
    raise ValueError(
        f"{option('stop_words')}: {name!r} is neither a language nor a file with one word per "
        f"line. {listed if meant is None else f'Did you mean {meant!r}?'}"
    )


def _is_file(name: str) -> bool:
    return Path(os.path.expanduser(name)).is_file()


def normalised_stop_words(
    words: Iterable[str], normalised: Callable[[str], str], tokens: Callable[[str], Iterable[str]]
) -> list[str]:
    """Stop words as texts are taken apart: of "don't", the texts have "don" alone."""
    single = [normalised(word) for word in words if len(word.split()) == 1]
    return sorted({token for word in single for token in (word, *tokens(word))})


def _languages() -> set[str]:
    mapping: dict[str, str] = _package().LANGUAGE_MAPPING
    return {"english", *mapping, *mapping.values()}


def _package() -> Any:
    return require("stop_words", "Stop words of other languages than English", "texts")
