"""The vectoriser of a `TopicModel`: made, checked, and described for a file."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from klnmf.readers.counting import explained, vectorizer_of, watched
from klnmf.readers.pruning import OF_TEXTS, PRUNING_OPTIONS, check_pruning, limits_of_samples
from klnmf.readers.stop_words import is_available, names_of
from klnmf.support.descriptions import described

# Parameters of TopicModel that are options of its vectoriser, with their defaults.
OPTIONS: dict[str, Any] = {
    "stop_words": None,
    **OF_TEXTS,
    "max_features": None,
    "ngram_range": (1, 1),
}
_BY_LETTERS = r'vectorizer=CountVectorizer(token_pattern=r"\w", ngram_range=(2, 2))'
# Options that hold no setting of ours: X has its own type, texts are given as str.
_NOT_STORED = ("vocabulary", "dtype", "input", "encoding", "decode_error")


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
    names = None if model.stop_words is None else names_of(model.stop_words)
    if model.vectorizer is None and names is not None:
        stored["stop_words"] = ",".join(names)
    return stored


def vectorizer_from_json(options: Mapping[str, Any], words: Sequence[str]) -> CountVectorizer:
    """Return a vectoriser that counts these words, with options as stored."""
    known = CountVectorizer().get_params()
    given = {k: v for k, v in options.items() if k in known and k not in _NOT_STORED}
    if isinstance(given.get("ngram_range"), list):
        given["ngram_range"] = tuple(given["ngram_range"])
    if not is_available(given.get("stop_words")):  # a file that is no longer there
        del given["stop_words"]
    vectorizer = vectorizer_of(given, vocabulary=list(words))
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
