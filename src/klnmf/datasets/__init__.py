"""A small real data set that comes with the package."""

import io
from importlib import resources

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils import Bunch

__all__ = ["load_bible"]

_BIBLE_DESCRIPTION = """\
King James Bible, word counts by chapter
----------------------------------------
1189 chapters (samples) x 6061 words (features), 143,537 nonzeros.
Words in lower case that occur in at least 3 chapters; English stop words, with the archaic ones
(unto, thou, hath, ...), are left out. Labels: the section (Law, History, Wisdom, Prophets, Gospels,
Acts, Letters, Revelation) and the book of each chapter.
The text (1611) is in the public domain; the counts were made from the Debian package
bible-kjv-text.
"""


def load_bible() -> Bunch:
    """Load the word counts of the 1189 chapters of the King James Bible.

    The data is part of the package: nothing is downloaded.

    Returns
    -------
    bible : sklearn.utils.Bunch
        Dictionary whose entries are attributes too:

        data : scipy.sparse.csr_matrix of int32, shape (1189, 6061)
            Number of times that each word occurs in each chapter.
        feature_names : ndarray of str, shape (6061,)
            The words, sorted.
        sample_names : ndarray of str, shape (1189,)
            The chapters, such as ``"Genesis 1"``.
        target : ndarray of int64, shape (1189,)
            Section of each chapter, an index into `target_names`.
        target_names : ndarray of str, shape (8,)
            Law, History, Wisdom, Prophets, Gospels, Acts, Letters, Revelation.
        book : ndarray of int64, shape (1189,)
            Book of each chapter, an index into `book_names`.
        book_names : ndarray of str, shape (66,)
            Genesis to Revelation.
        DESCR : str
            Where the data comes from.

    Examples
    --------
    >>> from klnmf.datasets import load_bible
    >>> bible = load_bible()
    >>> bible.data.shape
    (1189, 6061)
    >>> print(bible.sample_names[0], bible.target_names[bible.target[0]])
    Genesis 1 Law
    """
    # Read as bytes, not through a file name: the package may sit inside a zip archive.
    packed = resources.files("klnmf").joinpath("datasets", "embedded", "kjv.npz").read_bytes()
    with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
        parts = (archive[name].astype(np.int32) for name in ("data", "indices", "indptr"))
        counts = sparse.csr_matrix(tuple(parts), shape=tuple(archive["shape"].tolist()))
        counts.has_canonical_format = True  # written sorted and without duplicates
        return Bunch(
            data=counts,
            feature_names=_split_names(archive["vocabulary"]),
            sample_names=_split_names(archive["chapter_names"]),
            target=archive["section"].astype(np.int64),
            target_names=_split_names(archive["section_names"]),
            book=archive["book"].astype(np.int64),
            book_names=_split_names(archive["book_names"]),
            DESCR=_BIBLE_DESCRIPTION,
        )


def _split_names(joined: npt.NDArray[np.uint8]) -> npt.NDArray[np.str_]:
    """Undo the newline-joined storage of names."""
    return np.array(joined.tobytes().decode("ascii").split("\n"))
