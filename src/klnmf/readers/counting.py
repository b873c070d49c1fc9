"""Words of texts, counted by scikit-learn's CountVectorizer with its own options."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer

from klnmf.readers.stop_words import normalised_stop_words, stop_words_of
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option

# Options that say where the text comes from, which the readers decide, and those of all counts.
_OURS = frozenset(("input", "encoding", "decode_error", "dtype", "min_df", "max_df"))
VECTORIZER_OPTIONS = frozenset(CountVectorizer().get_params()) - _OURS - {"max_features"}


def counted(
    path: Path,
    documents: Iterator[str],
    options: dict[str, Any],
    normalised: Callable[[str], str] = str,
) -> tuple[Any, Any]:
    """Count the words of documents; return the counts and the words.

    Stop words are ``normalised`` as the documents are.
    """
    vectorizer = CountVectorizer(**options)
    given = options.get("stop_words")
    words = None if given is None else stop_words_of(given)
    try:
        leave_out(vectorizer, words, normalised)
        X = vectorizer.fit_transform(documents)
    except ReadError:
        raise
    except (ValueError, re.error) as error:
        listed = ", ".join(option(name, value) for name, value in options.items()) or "none"
        problem = f"the words cannot be counted: {str(error).rstrip('.')}."
        raise ReadError(path, f"{problem} Options that were given: {listed}.") from error
    return X, vectorizer.get_feature_names_out()


def leave_out(
    vectorizer: CountVectorizer,
    words: list[str] | None,
    normalised: Callable[[str], str] = str,
) -> None:
    """Let a vectoriser leave out stop words, as it takes texts apart."""
    if words is not None:
        prepared, tokens = vectorizer.build_preprocessor(), vectorizer.build_tokenizer()
        words = normalised_stop_words(words, lambda word: prepared(normalised(word)), tokens)
    vectorizer.set_params(stop_words=words)
