"""All words of the model with the topics that use them, for the search of the page."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from klnmf.topics import Probabilities

MOST_BYTES = 1_800_000  # of the words in the page, enough for about 50,000 English ones
MOST_TOPICS = 3  # of a word
SMALLEST_SHARE = 0.02  # of a topic in a word
_PUNCTUATION = 9  # bytes of a word's quotes, commas and rarity


class WordIndex(NamedTuple):
    """Words of the page, the most frequent first."""

    columns: npt.NDArray[np.intp]
    entries: dict[str, Any]


def word_index(
    probabilities: Probabilities,
    leading: npt.NDArray[np.intp],
    name: Callable[[int], str],
) -> WordIndex:
    """List the leading words and, as far as there is space, all others, the most frequent first.

    Each has −100 log p(word), and its topics with p(topic | word) in thousandths, in turn.
    """
    mass = probabilities.component[:, np.newaxis] * probabilities.feature_given_component
    overall = mass.sum(axis=0)
    frequent = np.argsort(-overall, kind="stable")
    frequent = frequent[overall[frequent] > 0.0]
    order = np.concatenate([leading, frequent[~np.isin(frequent, leading)]])
    first = np.argsort(-mass, axis=0, kind="stable")[:MOST_TOPICS]
    shares = np.take_along_axis(mass, first, axis=0) / np.where(overall > 0.0, overall, 1.0)
    names, topics = {}, {}
    n_bytes = 0
    for j in order.tolist():
        names[j], topics[j] = name(j), _packed(first[:, j].tolist(), shares[:, j].tolist())
        n_bytes += len(names[j].encode()) + len(str(topics[j])) - len(topics[j]) + _PUNCTUATION
        if len(names) > leading.size and n_bytes > MOST_BYTES:
            del names[j]
            break
    columns = np.array(list(names), dtype=np.intp)
    columns = columns[np.lexsort((columns, -overall[columns]))]
    with np.errstate(divide="ignore"):
        rarity = np.minimum(np.round(-100.0 * np.log(overall[columns])), 99999).astype(int)
    entries = {
        "words": [names[j] for j in columns],
        "n_words": len(order),
        "rarity": rarity.tolist(),
        "word_topics": [topics[j] for j in columns],
    }
    return WordIndex(columns, entries)


def _packed(topics: list[int], shares: list[float]) -> list[int]:
    """Topics of a word and their shares in thousandths in turn, without small ones."""
    kept = [
        k for k, share in enumerate(shares) if share >= SMALLEST_SHARE or (k == 0 and share > 0)
    ]
    return [number for k in kept for number in (topics[k], round(1000.0 * shares[k]))]
