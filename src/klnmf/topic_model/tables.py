"""The tables of a `TopicModel`: its topics, its documents, and documents that are alike."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.frames import table_frame
from klnmf.report.measures import typical_samples
from klnmf.support.array_types import FloatArray
from klnmf.topics import Probabilities, top_features
from klnmf.topics.mixture import component_shares

Columns = Mapping[str, Any]


def topics_table(
    names: Sequence[str], components: Any, words: Any, W: Any, coherence: FloatArray
) -> Any:
    """Return one row per topic."""
    leading = top_features(components, words)
    shares = component_shares(components, W)
    main = main_topics(np.asarray(W) * np.asarray(components).sum(axis=1))
    return table_frame(
        {
            "topic": np.arange(len(names)),
            "name": np.array(names, dtype=object),
            "share": shares,
            "n_documents": np.bincount(main[main >= 0], minlength=len(names)),
            "coherence": coherence,
            "words": np.array([", ".join(w for w, _ in each) for each in leading], dtype=object),
        }
    )


def documents_table(names: Sequence[str], shares: FloatArray, topics: Any, columns: Columns) -> Any:
    """Return one row per document: name, metadata, main topic and the share of each topic."""
    main = main_topics(shares)
    is_empty = main < 0
    named = np.array([*topics, None], dtype=object)[main]  # -1 is None
    main_share = np.where(is_empty, np.nan, shares.max(axis=1, initial=0.0))
    own = {"main_topic": main, "main_name": named, "main_share": main_share}
    taken = ("document", *own)
    found: dict[str, Any] = {"document": np.array(names, dtype=object)}
    found |= {unless_taken(name, taken): values for name, values in columns.items()} | own
    for name, column in zip(topics, shares.T, strict=True):
        found[name if name not in found else f"{name} (topic)"] = column
    return table_frame(found)


def unless_taken(name: str, taken: Container[str]) -> str:
    """Return the name of a column of metadata, marked if a column of ours has it.

    >>> unless_taken("share", ["document", "share"])
    'share (metadata)'
    """
    return f"{name} (metadata)" if name in taken else name


def typical_table(
    mixture: Probabilities,
    topic: int,
    n: int,
    names: Sequence[str],
    texts: Sequence[str],
    columns: Columns,
) -> Any:
    """Return the documents that show best what a topic is about, with their shares of it."""
    best = typical_samples(mixture, n, texts)[topic]
    shares = np.asarray(mixture.component_given_sample)[best, topic]
    return _rows(best, names, {"share": shares}, columns)


def similar_table(
    one: FloatArray,
    shares: FloatArray,
    n: int,
    names: Sequence[str],
    columns: Columns,
    leave_out: int | None,
) -> Any:
    """Return the documents with the smallest Hellinger distance of their shares from ``one``."""
    distances = hellinger_distances(one, shares)
    distances[~shares.any(axis=1)] = np.inf
    if leave_out is not None:
        distances[leave_out] = np.inf
    nearest = np.argsort(distances, kind="stable")[:n]
    nearest = nearest[np.isfinite(distances[nearest])]
    return _rows(nearest, names, {"distance": distances[nearest]}, columns)


def hellinger_distances(one: FloatArray, shares: FloatArray) -> FloatArray:
    """d(p, q) = √(½ Σ_k (√p_k − √q_k)²), from 0 for the same shares to 1 for no common topic.

    >>> hellinger_distances(np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
    [0.0, 1.0]
    """
    return np.asarray(np.sqrt(0.5 * ((np.sqrt(shares) - np.sqrt(one)) ** 2).sum(axis=1)))


def main_topics(shares: FloatArray) -> npt.NDArray[np.intp]:
    """Topic with the largest share in each document; −1 for a document without known words."""
    return np.where(shares.any(axis=1), shares.argmax(axis=1), -1)


def _rows(
    chosen: npt.NDArray[np.intp], names: Sequence[str], numbers: Columns, columns: Columns
) -> Any:
    others = {
        unless_taken(name, ("document", *numbers)): [values[i] for i in chosen]
        for name, values in columns.items()
    }
    picked = np.array([names[i] for i in chosen], dtype=object)
    found: dict[str, Any] = {"document": picked, **numbers, **others}
    return table_frame(found)
