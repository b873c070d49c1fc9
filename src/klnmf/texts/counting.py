"""Words of texts, counted by scikit-learn's CountVectorizer with its own options."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from klnmf.data.canonical import Entries, row_numbers
from klnmf.data.validation import warn_caller
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option
from klnmf.texts.pruning import all_kept, kept_features
from klnmf.texts.stop_words import normalised_stop_words, stop_words_of

# Options that say where the text comes from, which the readers decide, and those of all counts.
_OURS = frozenset(("input", "encoding", "decode_error", "dtype", "min_df", "max_df"))
VECTORIZER_OPTIONS = frozenset(CountVectorizer().get_params()) - _OURS - {"max_features"}

_LETTER = r"\w"
# Tags that hardly any text has by another meaning: those that end something, and line breaks.
_TAG = re.compile(r"</[a-zA-Z][a-zA-Z0-9]*\s*>|<br\s*/?>")
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese.
_NO_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]+"
)
# What is looked at of each text, and the shares of texts above which there is a warning. Tags of a
# few texts are enough to lead a topic, since nothing else has them.
_BEGINNING, _TAGGED_SHARE, _UNSPACED_SHARE = 2000, 0.005, 0.1
# Mean length of what is between spaces and punctuation: words have two letters or three.
_CLAUSE = 5.0


class TextsWarning(UserWarning):
    """What is counted of many texts is not their words: HTML tags, or whole clauses.

    ``warnings.simplefilter("ignore", klnmf.TextsWarning)`` turns it off.
    """


class _NoTextError(ValueError):
    """All documents are empty."""


def counted(
    path: Path,
    documents: Iterator[str],
    options: dict[str, Any],
    normalised: Callable[[str], str] = str,
) -> tuple[Any, Any]:
    """Count the words of documents; return the counts and the words.

    Stop words are ``normalised`` as the documents are.
    """
    with explained(path, options.get("stop_words")):
        vectorizer = vectorizer_of(options, normalised)
        X = vectorizer.fit_transform(watched(documents, vectorizer, _by_letters()))
    return X, vectorizer.get_feature_names_out()


def chosen_words(
    path: Path,
    texts: Iterator[str],
    options: dict[str, Any],
    limits: dict[str, Any],
    normalised: Callable[[str], str],
) -> CountVectorizer:
    """Return the vectoriser of the words that are kept, after one look at each text."""
    n, in_texts, totals = 0, Counter[str](), Counter[str]()
    with explained(path, options.get("stop_words")):
        vectorizer = vectorizer_of(options, normalised)
        words_in = vectorizer.build_analyzer()
        for text in watched(texts, vectorizer, _by_letters()):
            n += 1
            found = Counter(words_in(text))
            in_texts.update(found.keys())
            totals.update(found.keys() if vectorizer.binary else found)
        if not in_texts:
            raise ValueError("empty vocabulary")
    words = sorted(in_texts)
    numbers = (np.array([counter[word] for word in words]) for counter in (in_texts, totals))
    kept = kept_features(path, n, *numbers, **limits)
    return vectorizer.set_params(vocabulary=np.array(words, dtype=object)[kept].tolist())


def counted_blocks(
    vectorizer: CountVectorizer, texts: Iterator[str], limit: int
) -> Iterator[Entries]:
    """Count the words of a vectoriser in about so many characters of texts at a time."""
    n_done, batch, length = 0, list[str](), 0
    for text in chain(texts, [None]):
        if text is not None:
            batch.append(text)
            length += len(text)
        if batch and (text is None or length >= limit):
            X = vectorizer.transform(batch)
            yield Entries(row_numbers(X.indptr, n_done), X.indices, X.data)
            n_done, batch, length = n_done + len(batch), [], 0


def _by_letters() -> str:
    return f"{option('token_pattern', _LETTER)} with {option('ngram_range', (2, 2))}"


@contextmanager
def explained(path: Path | None, stop_words: Any) -> Iterator[None]:
    """Say what to do if words cannot be counted; ``path`` is None for texts in memory."""
    try:
        yield
    except ReadError:
        raise
    except (ValueError, re.error) as error:
        problem = f"the words cannot be counted: {str(error).rstrip('.')}."
        if isinstance(error, re.error):
            problem = f"{option('token_pattern')} is not a regular expression: {error}."
        elif isinstance(error, _NoTextError):
            problem = str(error)
        elif "empty vocabulary" in str(error):
            given = option("token_pattern", "REGEX")
            given = f"vectorizer=CountVectorizer({given})" if path is None else given  # TopicModel
            problem = "there are no words: a word has two letters or more. To count others, give "
            problem += f"{given}."
            if stop_words is not None:
                problem = "there are no words besides stop words. Give fewer "
                problem += f"{option('stop_words')}, or none."
        elif "no terms remain" in str(error):
            problem = (
                f"{option('min_df')} and {option('max_df')} leave no word. To keep all words, "
            )
            problem += f"use {all_kept()}."
        if path is None:
            raise ValueError(problem[0].upper() + problem[1:]) from error
        raise ReadError(path, problem) from error


def vectorizer_of(
    options: Mapping[str, Any], normalised: Callable[[str], str] = str, **others: Any
) -> CountVectorizer:
    """Return a vectoriser, with stop words of a language, a file or a list."""
    vectorizer, given = CountVectorizer(**options, **others), options.get("stop_words")
    if given is not None:  # they are taken apart as texts are
        prepared, tokens = vectorizer.build_preprocessor(), vectorizer.build_tokenizer()
        words = normalised_stop_words(
            stop_words_of(given), lambda word: prepared(normalised(word)), tokens
        )
        vectorizer.set_params(stop_words=words)
    return vectorizer


def watched(texts: Iterable[str], vectorizer: CountVectorizer, by_letters: str) -> Iterator[str]:
    """Yield the texts to be counted; warn at the end if what is counted are not their words.

    If there is no text in any of them, that is an error.

    ``by_letters`` says how to count pairs of letters.
    """
    own_code = (vectorizer.preprocessor, vectorizer.tokenizer)
    if callable(vectorizer.analyzer) or own_code != (None, None):
        yield from texts  # that code may take away tags, or know the language
        return
    is_split = vectorizer.analyzer != "word" or len(vectorizer.build_tokenizer()("水" * 9)) > 1
    n_texts, n_tagged, n_unspaced, tag, clause, is_empty = 0, 0, 0, "", "", True
    for text in texts:
        n_texts += 1
        is_empty = is_empty and not text.strip()
        found = _TAG.search(text, 0, _BEGINNING) if "<" in text else None
        if found is not None:
            n_tagged, tag = n_tagged + 1, tag or found[0]
        if not text.isascii() and not is_split:
            runs = _NO_SPACES.findall(text, 0, _BEGINNING)
            n_letters = sum(map(str.isalnum, text[:_BEGINNING])) if runs else 0
            length = sum(map(len, runs))
            if 2 * length > n_letters and length >= _CLAUSE * len(runs):
                n_unspaced, clause = n_unspaced + 1, clause or max(runs, key=len)
        yield text
    if n_texts and is_empty:
        raise _NoTextError(f"all {n_texts:,} texts are empty or missing.")
    if n_tagged > max(1, _TAGGED_SHARE * n_texts):
        warn_caller(
            f"{n_tagged:,} of {n_texts:,} texts have HTML tags, such as {tag!r}, which are counted "
            r"as words. Remove them first, for example with re.sub(r'<[^<>]*>', ' ', text).",
            TextsWarning,
        )
    if n_unspaced > _UNSPACED_SHARE * n_texts:
        clause = clause if len(clause) <= 20 else f"{clause[:20]}…"
        warn_caller(
            f"{n_unspaced:,} of {n_texts:,} texts have no spaces between words, so that whole "
            f"clauses, such as {clause!r}, are counted as words. Put spaces between the words "
            f"with a tokenizer of the language, or count pairs of letters: {by_letters}.",
            TextsWarning,
        )
