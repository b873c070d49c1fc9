"""The embedded data: contents, types, and reading without a file system."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils import Bunch

from klnmf.datasets import load_bible


@pytest.fixture(scope="module")
def bible() -> Bunch:
    return load_bible()


def test_counts_are_a_canonical_csr_matrix_of_positive_int32(bible: Bunch) -> None:
    X = bible.data
    assert X.format == "csr"
    assert X.shape == (1189, 6061)
    assert X.nnz == 143_537
    assert X.sum() == 250_653
    assert X.dtype == X.indices.dtype == X.indptr.dtype == np.int32
    assert X.data.min() == 1  # no stored zeros
    same_row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    assert (np.diff(same_row * X.shape[1] + X.indices.astype(np.int64)) > 0).all()


def test_no_chapter_is_empty_and_each_word_is_in_three_chapters(bible: Bunch) -> None:
    assert np.diff(bible.data.indptr).min() > 0
    assert np.bincount(bible.data.indices, minlength=6061).min() == 3


def test_names_and_labels_fit_the_matrix(bible: Bunch) -> None:
    n_chapters, n_words = bible.data.shape
    assert bible.feature_names.shape == (n_words,)
    assert len(set(bible.feature_names)) == n_words
    assert bible.sample_names.shape == bible.target.shape == bible.book.shape == (n_chapters,)
    assert bible.sample_names[0] == "Genesis 1"
    assert bible.sample_names[-1] == "Revelation 22"
    assert bible.book_names.size == 66
    assert list(np.bincount(bible.target)) == [187, 249, 243, 250, 89, 28, 121, 22]
    assert ", ".join(bible.target_names) == (
        "Law, History, Wisdom, Prophets, Gospels, Acts, Letters, Revelation"
    )
    for name, book in zip(bible.sample_names, bible.book, strict=True):
        assert name.rpartition(" ")[0] == bible.book_names[book]


@pytest.mark.parametrize(
    ("chapter", "word", "count"),
    # Counted in the plain text with grep.
    [("Genesis 1", "god", 32), ("Genesis 1", "light", 10), ("John 1", "word", 4)],
)
def test_known_counts(bible: Bunch, chapter: str, word: str, count: int) -> None:
    row = list(bible.sample_names).index(chapter)
    column = list(bible.feature_names).index(word)
    assert bible.data[row, column] == count


def test_stop_words_are_gone_and_names_stay(bible: Bunch) -> None:
    words = set(bible.feature_names)
    assert words.isdisjoint({"the", "unto", "thou", "thee", "thy", "ye", "shall", "hath", "saith"})
    assert {"moses", "jerusalem", "water"} <= words


def test_each_call_returns_its_own_arrays(bible: Bunch) -> None:
    other = load_bible()
    other.data.data[:] = 0
    assert bible.data.sum() == load_bible().data.sum() == 250_653
