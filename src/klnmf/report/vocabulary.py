"""The words of the page, one set for texts and another for other counts, and how it writes them."""

from typing import Any, Literal, NamedTuple, get_args

from klnmf.topics.checks import checked_choice

Vocabulary = Literal["texts", "counts"]


class Terms(NamedTuple):
    """What the page calls rows of X, columns of X, and rows of ``components_``."""

    sample: str
    feature: str
    component: str


_TERMS = {
    "texts": Terms("document", "word", "topic"),
    "counts": Terms("sample", "feature", "component"),
}


def terms_of(vocabulary: Vocabulary | None, *, has_documents: bool) -> Terms:
    """Return the terms of a vocabulary; by default that of texts if there are documents."""
    if vocabulary is None:
        vocabulary = "texts" if has_documents else "counts"
    checked_choice(vocabulary, "vocabulary", get_args(Vocabulary))
    return _TERMS[vocabulary]


def counted(number: int, term: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "topic"), counted(1200, "word")
    ('1 topic', '1,200 words')
    """
    return f"{number:,} {term}{'' if number == 1 else 's'}"


def plain_text(value: Any, longest: int | None = None) -> str:
    """Return text without lone surrogates and NUL, which no file can hold, and not too long.

    >>> plain_text("north of the river", longest=6)
    'north…'
    """
    text = str(value).encode("utf-8", "replace").decode("utf-8").replace("\0", "�")
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"
