"""The words of the page: one set for texts, another for other counts."""

from typing import Literal, NamedTuple, get_args

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
