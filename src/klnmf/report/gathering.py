"""What the page shows about a model, with bounds on its size."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.validation import check_counts
from klnmf.report.columns import shares_by_column
from klnmf.report.measures import given_feature, typical_samples
from klnmf.report.vocabulary import Terms, plain_text
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.number_checks import is_missing
from klnmf.topics import (
    Probabilities,
    intertopic_coordinates,
    name_components,
    plsi_probabilities,
)
from klnmf.topics.checks import checked_components, checked_representation, dense
from klnmf.topics.features import RANKING, leading_features
from klnmf.topics.grouping import by_largest_component, drawn_from_groups, grouped

# Bounds that keep the page below 3 MB for up to some hundred topics.
MOST_SAMPLES = 600
MOST_GROUPS = 24
FEWEST_OF_A_GROUP = 12
MOST_SHARES = 40  # of one sample
SMALLEST_SHARE = 0.002
LONGEST_WORD = 60
LONGEST_NAME = 80
LONGEST_EXCERPT = 160
NO_LABEL = "(no label)"
MOST_BYTES_OF_WORDS = 1_800_000  # enough for about 50,000 English ones
MOST_TOPICS_OF_A_WORD = 3
SMALLEST_SHARE_OF_A_WORD = 0.02  # of a topic in it
_BYTES_OF_NUMBERS = 27  # of a word: quotes, commas, rarity, and topics below 1,000


@dataclass(frozen=True)
class Described:
    """A model with the data it describes, checked against each other."""

    model: Any
    components: Array
    W: Array
    X: sp.csr_array | None
    words: list[str]
    samples: list[str]
    labels: list[str] | None
    documents: Sequence[Any] | None
    component_names: list[str] | None
    coherence: Sequence[float] | None
    metadata: dict[str, Sequence[Any]]
    terms: Terms

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.components)

    @property
    def size(self) -> str:
        """Numbers of samples and features."""
        n, m = len(self.W), self.components.shape[1]
        return f"{n:,} {self.terms.sample}s × {m:,} {self.terms.feature}s"


def checked_factors(model: Any, W: Any, X: Any) -> tuple[Array, Array, sp.csr_array | None]:
    """Return components, W and X of a fitted model, if they fit together."""
    for attribute in ("components_", "history_"):
        if not hasattr(model, attribute):
            raise ValueError(
                f"model must be a fitted KLNMF; got {type(model).__name__} without {attribute}. "
                "Call fit or fit_transform of a KLNMF first."
            )
    components = dense(checked_components(model.components_))
    W = dense(checked_representation(W, len(components)))
    if len(W) == 0:
        raise ValueError("W has no rows; a report needs at least one sample.")
    if X is not None:
        X = check_counts(X, name="write_report")
        expected = (len(W), components.shape[1])
        if X.shape != expected:
            raise ValueError(
                f"X must have shape {expected}, as W and the model do; got shape {X.shape}."
            )
    return components, W, X


def check_length(argument: str, values: Any, expected: int, things: str = "samples") -> None:
    """Refuse what is not a sequence of the expected length; None is not given."""
    if values is None:
        return
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{argument} must be a sequence with one entry per {things[:-1]}.")
    if len(values) != expected:
        raise ValueError(f"{argument} has {len(values)} entries for {expected} {things}.")


def cut_labels(labels: Any) -> list[str] | None:
    """Labels as they are shown."""
    if labels is None:
        return None
    return [NO_LABEL if is_missing(x) else plain_text(x, LONGEST_NAME) for x in labels]


def payload(described: Described, rank_selection: Any = None) -> dict[str, Any]:
    """Return what the scripts of the page draw."""
    probabilities = plsi_probabilities(described.W, described.components)
    n_components = len(described.components)
    n_words = min(30, max(10, 3000 // n_components))
    typical = typical_samples(probabilities, 5 if n_components <= 100 else 3, described.documents)
    drawn = _drawn_samples(described, probabilities)
    listed = np.unique(np.concatenate([*(members for _, _, members in drawn), *typical]))
    words, topics = _topics(described, probabilities, n_words)
    columns, left_out = shares_by_column(described.W, described.components, described.metadata)
    for topic in topics:
        best = typical[topic["id"]]
        shares = _thousandths(probabilities.component_given_sample[best, topic["id"]])
        topic["typical"] = np.column_stack([np.searchsorted(listed, best), shares])
    return {
        "terms": described.terms._asdict(),
        **words,
        "topics": topics,
        "columns": columns,
        "left_out": left_out,
        "samples": _samples(described, probabilities, listed, np.unique(np.concatenate(typical))),
        "groups": [
            {"name": name, "count": count, "samples": np.searchsorted(listed, members)}
            for name, count, members in drawn
        ],
        "labelled": described.labels is not None,
        "most_words": n_words,
        "rank": None if rank_selection is None else rank_selection.table(),
    }


# ---- topics --------------------------------------------------------------------------------------


def _topics(
    described: Described, probabilities: Probabilities, n_words: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the words, and the topics, largest first, which refer to them."""
    kept = leading_words(described.components, n_words)
    index, _, topic_words = words_of_page(probabilities, kept, described.words)
    positions = np.nan_to_num(intertopic_coordinates(probabilities.feature_given_component))
    largest = probabilities.component_given_sample.argmax(axis=1)[probabilities.sample > 0.0]
    largest_in = np.bincount(largest, minlength=len(kept))
    names = _topic_names(described)
    coherence = described.coherence or [np.nan] * len(names)
    topics = [
        {
            "id": int(k),
            "name": names[k],
            "size": probabilities.component[k],
            "leading": largest_in[k],
            "coherence": coherence[k],
            "position": positions[k],
            **topic_words(k, kept[k]),
        }
        for k in np.argsort(-probabilities.component, kind="stable")
    ]
    return index, topics


def leading_words(components: FloatArray, n_words: int) -> list[Array]:
    """Places of the words that lead each component as everywhere, then those by weight."""
    both = (leading_features(components, n_words, by).features for by in (RANKING, "weight"))
    return [
        np.array(list(dict.fromkeys([*first, *second])), dtype=np.intp)
        for first, second in zip(*both, strict=True)
    ]


def words_of_page(
    probabilities: Probabilities, kept: list[Array], words: Iterable[str]
) -> tuple[dict[str, Any], Array, Callable[[int, Array], dict[str, Any]]]:
    """List the words that topics have kept and, as far as there is space, all others.

    Each has −100 log p(word), and its topics with p(topic | word) in thousandths, in turn; the most
    frequent comes first. Also return their columns, and what tells the numbers and shares of some
    words of a topic.
    """
    names = [plain_text(word, LONGEST_WORD) for word in words]
    leading = np.unique(np.concatenate([np.zeros(0, np.intp), *kept]))
    of_word = given_feature(probabilities)
    overall = probabilities.component @ probabilities.feature_given_component
    frequent = np.argsort(-overall, kind="stable")
    frequent = frequent[overall[frequent] > 0.0]
    order = np.concatenate([leading, frequent[~np.isin(frequent, leading)]])
    n_bytes = np.cumsum([len(names[j].encode()) + _BYTES_OF_NUMBERS for j in order])
    columns = order[: max(leading.size, int(np.searchsorted(n_bytes, MOST_BYTES_OF_WORDS)))]
    columns = columns[np.lexsort((columns, -overall[columns]))]
    shares = of_word[:, columns]
    first = np.argsort(-shares, axis=0, kind="stable")[:MOST_TOPICS_OF_A_WORD]
    thousandths = np.round(1000.0 * np.take_along_axis(shares, first, axis=0)).astype(np.intp)
    with np.errstate(divide="ignore"):
        rarity = np.minimum(np.round(-100.0 * np.log(overall[columns])), 99999).astype(int)
    index = {
        "words": [names[j] for j in columns],
        "n_words": len(order),
        "rarity": rarity,
        "word_topics": [_packed_topics(*each) for each in zip(first.T, thousandths.T, strict=True)],
    }
    place = np.zeros(len(names), dtype=np.intp)
    place[columns] = np.arange(columns.size)

    def of_topic(k: int, chosen: Array) -> dict[str, Any]:
        p = probabilities.feature_given_component[k, chosen]
        return {"words": place[chosen], "p": p, "of_word": of_word[k, chosen]}

    return index, columns, of_topic


def _packed_topics(
    topics: npt.NDArray[np.intp], shares: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """Topics of a word and their shares in thousandths in turn, without small ones."""
    kept = shares >= 1000.0 * SMALLEST_SHARE_OF_A_WORD
    kept[0] = shares[0] > 0
    return np.column_stack([topics[kept], shares[kept]]).ravel()


def _topic_names(described: Described) -> list[str]:
    """Names of the topics, or else their top words, which name them everywhere on the page."""
    given = described.component_names or [""] * len(described.components)
    by_words = name_components(described.components, described.words)
    names = (name if name.strip() else words for name, words in zip(given, by_words, strict=True))
    return [plain_text(name, LONGEST_NAME) for name in names]


# ---- samples -------------------------------------------------------------------------------------


def _drawn_samples(
    described: Described, probabilities: Probabilities
) -> list[tuple[str, int, npt.NDArray[np.intp]]]:
    """Name, size and drawn samples of each group: all of a small group, random ones of others."""
    nonempty = np.flatnonzero(probabilities.sample > 0.0)
    labels = described.labels or ["all"] * len(described.W)
    groups, member = grouped([labels[i] for i in nonempty], len(nonempty))
    names = [str(group) for group in groups]
    sizes = np.bincount(member, minlength=len(names))
    if len(names) > MOST_GROUPS:  # the rarest are merged
        frequent = np.sort(np.argsort(-sizes, kind="stable")[: MOST_GROUPS - 1])
        rest = f"other labels ({len(names) - frequent.size})"
        names = [*(names[group] for group in frequent), rest]
        merged = np.full(len(groups), frequent.size)
        merged[frequent] = np.arange(frequent.size)
        member = merged[member]
        sizes = np.bincount(member)
    drawn = drawn_from_groups(member, MOST_SAMPLES, FEWEST_OF_A_GROUP)
    shares = probabilities.component_given_sample[nonempty[drawn]]
    drawn = drawn[by_largest_component(shares, member[drawn])]
    return [
        (name, int(sizes[group]), nonempty[drawn[member[drawn] == group]])
        for group, name in enumerate(names)
    ]


def _samples(
    described: Described,
    probabilities: Probabilities,
    listed: npt.NDArray[np.intp],
    quoted: npt.NDArray[np.intp],
) -> dict[str, Any]:
    """Names, labels, totals and shares of the listed samples, and excerpts of the quoted ones."""
    if described.X is None:  # those of the model
        totals = described.W @ described.components.sum(axis=1)
    else:
        totals = np.asarray(described.X.sum(axis=1, dtype=np.float64)).ravel()
    labels = described.labels
    texts: Any = getattr(described.documents, "iloc", described.documents)  # may be a Series
    return {
        "names": [plain_text(described.samples[i], LONGEST_NAME) for i in listed],
        "labels": [] if labels is None else [labels[i] for i in listed],
        "totals": totals[listed],
        "shares": [_packed_shares(probabilities.component_given_sample[i]) for i in listed],
        "excerpts": {}
        if texts is None
        else {int(np.searchsorted(listed, i)): _excerpt(texts[int(i)]) for i in quoted},
    }


def _packed_shares(shares: Array) -> Array:
    """Topic and share in thousandths in turn, largest share first, without negligible ones."""
    order = np.argsort(-shares, kind="stable")[:MOST_SHARES]
    kept = order[shares[order] >= SMALLEST_SHARE]
    return np.column_stack([kept, _thousandths(shares[kept])]).ravel()


def _thousandths(shares: Array) -> npt.NDArray[np.intp]:
    return np.round(1000.0 * shares).astype(np.intp)


def _excerpt(text: Any) -> str:
    """Beginning of a document, on one line."""
    return plain_text(" ".join(str(text)[: 8 * LONGEST_EXCERPT].split()), LONGEST_EXCERPT)
