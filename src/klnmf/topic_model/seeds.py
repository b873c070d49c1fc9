"""Topics about given words: which words a seeded topic may have, and where the fit starts.

For the seed words S of a topic, let c_i be the share of S in document i. The words of documents in
proportion to c are p_j = Σ_i c_i X_ij / Σ_ij c_i X_ij, and the words of all documents are
q_j = Σ_i X_ij / Σ_ij X_ij. Then

- a seed word is 0 in all other topics, so that the topic explains each of its occurrences;
- a word with p_j < q_j is 0 in the topic, so that the topic is about what goes with its seeds;
- the topic starts at p_j log(p_j / q_j), scaled to sum to 1, and the others where a fit without
  seeds ends.

Everything else is learned. The first rule alone is not enough: the topic would also describe
documents that have nothing to do with its seeds. A stricter second rule, such as p_j < 2 q_j, loses
words that a topic shares with others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described


class Seeds(NamedTuple):
    """Positions of the seed words of each seeded topic, and their names if they have any."""

    words: list[npt.NDArray[np.intp]]
    names: list[str] | None


def lists_of_seeds(given: Any) -> list[Any]:
    """Return the lists of seed words, or say what is wrong with them, whatever the texts."""
    lists = list(given.values()) if isinstance(given, Mapping) else list(given)
    topic_of: dict[str, int] = {}
    for k, words in enumerate(lists):
        if isinstance(words, str) or not len(words):
            raise TypeError(
                "seed_words must be lists of words, or a dict of them by the name of the topic; "
                f"got {described(words)} for topic {k}."
            )
        for word in words:
            if topic_of.setdefault(word, k) != k:
                raise ValueError(f"seed_words: {word!r} is in two topics; leave it out of one.")
    return lists


def found_seeds(given: Any, vocabulary: Sequence[str]) -> Seeds | None:
    """Find the seed words in the vocabulary."""
    if given is None:
        return None
    names = [str(name) for name in given] if isinstance(given, Mapping) else None
    lists = lists_of_seeds(given)
    place = {word: j for j, word in enumerate(vocabulary)}
    absent = [word for words in lists for word in words if word not in place]
    if absent:
        raise ValueError(
            f"seed_words that are not in the vocabulary of {len(place):,} words: "
            f"{', '.join(map(repr, absent))}. Leave them out, or keep them as words: lower case, "
            "min_df, max_df and stop_words decide."
        )
    return Seeds([np.array([place[word] for word in words]) for words in lists], names)


def seeded_start(
    seeds: Seeds, X: Any, others: FloatArray
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return components to start from, those of the seeds and then the others, and their zeros."""
    counts = sp.csr_array(X, dtype=np.float64)
    totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1.0)
    words = np.array(
        [counts.T @ (np.asarray(counts[:, w].sum(axis=1)).ravel() / totals) for w in seeds.words]
    )
    words = words / words.sum(axis=1, keepdims=True)  # p of each topic
    overall = np.asarray(counts.sum(axis=0)).ravel()
    overall = overall / overall.sum()  # q
    lift = np.divide(words, overall, out=np.ones_like(words), where=overall > 0)
    H = np.vstack([words * np.log(np.maximum(lift, 1.0)), others])
    zeros = np.zeros(H.shape, dtype=bool)
    zeros[: len(words)] = words < overall
    zeros[:, np.concatenate(seeds.words)] = True
    for k, its_words in enumerate(seeds.words):
        zeros[k, its_words] = False
    H[zeros] = 0.0
    for k, its_words in enumerate(seeds.words):  # also if they are in all documents alike
        H[k, its_words] = np.maximum(H[k, its_words], overall[its_words])
    sums = H.sum(axis=1, keepdims=True)
    return np.asarray(H / np.where(sums > 0, sums, 1.0)), zeros
