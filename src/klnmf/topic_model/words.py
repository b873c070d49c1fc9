"""The vectoriser of a `TopicModel`: made, checked, and described for a file."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from klnmf.readers.counting import leave_out, watched
from klnmf.readers.stop_words import is_available, stop_words_of

# Parameters of TopicModel that are options of its vectoriser, with their defaults.
OPTIONS: dict[str, Any] = {"stop_words": None, "min_df": 2, "max_df": 0.5, "ngram_range": (1, 1)}
_BY_LETTERS = 'vectorizer=CountVectorizer(analyzer="char", ngram_range=(2, 2))'
# Options that hold no setting of ours: X has its own type, texts are given as str.
_NOT_STORED = ("vocabulary", "dtype", "input", "encoding", "decode_error")


def vectorizer_of(given: Any, options: Mapping[str, Any]) -> CountVectorizer:
    """Return the vectoriser to fit: a copy of the one that was given, or one with the options."""
    if given is None:
        return _made(options)
    if not isinstance(given, CountVectorizer) or isinstance(given, TfidfVectorizer):
        raise TypeError(
            f"vectorizer must be a CountVectorizer, because the model is one of counts; got "
            f"{given!r}."
        )
    changed = [name for name, value in options.items() if value != OPTIONS[name]]
    if changed:
        raise ValueError(
            f"{' and '.join(changed)} would have no effect beside vectorizer: set "
            f"{'it' if len(changed) == 1 else 'them'} in the CountVectorizer."
        )
    if given.input != "content":
        raise ValueError(f"The vectorizer must have input='content', not {given.input!r}.")
    return clone(given)


def _made(options: Mapping[str, Any], **others: Any) -> CountVectorizer:
    """Return a vectoriser with stop words of a language, a file or a list."""
    vectorizer, given = CountVectorizer(**options, **others), options.get("stop_words")
    leave_out(vectorizer, None if given is None else stop_words_of(given))
    return vectorizer


def counted(vectorizer: CountVectorizer, texts: Sequence[str]) -> Any:
    """Fit the vectoriser and return the counts, or say why there are none."""
    if not texts:
        raise ValueError("There are no texts.")
    try:
        return vectorizer.fit_transform(watched(texts, vectorizer, _BY_LETTERS))
    except (ValueError, re.error) as error:
        raise ValueError(
            f"The words of {len(texts):,} texts cannot be counted: {str(error).rstrip('.')}. With "
            f"few texts, pass min_df=1 and max_df=1.0; the vectorizer is {vectorizer!r}."
        ) from error


# ---- in files ------------------------------------------------------------------------------------


def options_to_json(vectorizer: CountVectorizer) -> dict[str, Any]:
    """Return the options that differ from scikit-learn's defaults; code is refused."""
    if type(vectorizer) is not CountVectorizer:
        raise TypeError(
            f"A {type(vectorizer).__name__} is code of yours, and files hold no code: only models "
            "with a plain CountVectorizer can be saved."
        )
    defaults, stored = CountVectorizer().get_params(), {}
    for name, value in vectorizer.get_params().items():
        if name in _NOT_STORED or value is defaults[name] or value == defaults[name]:
            continue
        if callable(value):
            raise TypeError(
                f"The vectorizer has {name}={value!r}, and files hold no code: the model cannot be "
                "saved. Prepare the texts with it first, and pass them to a plain CountVectorizer."
            )
        stored[name] = _plain(value)
    return stored


def reading_of(model: Any) -> dict[str, Any]:
    """Return how the texts of a `TopicModel` are read, with stop words by name if they have one."""
    stored = options_to_json(model.vectorizer_)
    if model.vectorizer is None and isinstance(model.stop_words, str | os.PathLike):
        stored["stop_words"] = os.fspath(model.stop_words)
    return stored


def vectorizer_from_json(options: Mapping[str, Any], words: Sequence[str]) -> CountVectorizer:
    """Return a vectoriser that counts these words, with options as stored."""
    known = CountVectorizer().get_params()
    given = {k: v for k, v in options.items() if k in known and k not in _NOT_STORED}
    if isinstance(given.get("ngram_range"), list):
        given["ngram_range"] = tuple(given["ngram_range"])
    if not is_available(given.get("stop_words")):  # a file that is no longer there
        del given["stop_words"]
    vectorizer = _made(given, vocabulary=list(words))
    try:
        vectorizer.transform(["a text to try the options"])
    except (TypeError, ValueError, OverflowError, re.error) as error:
        raise ValueError(f"the options {given!r} cannot be used ({error}).") from error
    return vectorizer


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        listed = sorted(value) if isinstance(value, set | frozenset) else list(value)
        return [_plain(entry) for entry in listed]
    return value.item() if isinstance(value, np.generic) else value
