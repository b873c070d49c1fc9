"""What the page shows about a model, with bounds on its size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.constraints.names import names_seen_in_fit
from klnmf.data.validation import check_counts
from klnmf.report.columns import shares_by_column
from klnmf.report.measures import (
    effective_words,
    exclusivity,
    given_feature,
    topic_positions,
    typical_samples,
)
from klnmf.report.plain_text import plain_text
from klnmf.report.vocabulary import Terms, terms_of
from klnmf.report.word_index import word_index
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described as in_words
from klnmf.support.missing_values import is_missing
from klnmf.topics import Probabilities, name_components, plsi_probabilities
from klnmf.topics import coherence as coherence_in
from klnmf.topics.checks import checked_components, checked_names, checked_representation, dense
from klnmf.topics.features import RANKING, leading_features
from klnmf.topics.grouping import groups_of

# Bounds that keep the page below 3 MB for up to some hundred topics.
MOST_SAMPLES = 600
MOST_GROUPS = 24
FEWEST_OF_A_GROUP = 12
MOST_RECORDS = 300
MOST_SHARES = 40  # of one sample
SMALLEST_SHARE = 0.002
LONGEST_WORD = 60
LONGEST_NAME = 80
LONGEST_EXCERPT = 160
NO_LABEL = "(no label)"


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


def checked(
    model: Any,
    W: Any,
    X: Any,
    *,
    feature_names: Any,
    sample_names: Any,
    labels: Any,
    documents: Any,
    component_names: Any,
    coherence: Any,
    metadata: Any,
    vocabulary: Any,
) -> Described:
    """Check the arguments of the report against each other."""
    for attribute in ("components_", "history_"):
        if not hasattr(model, attribute):
            raise ValueError(
                f"model must be a fitted KLNMF; got {type(model).__name__} without {attribute}. "
                "Call fit or fit_transform of a KLNMF first."
            )
    components = dense(checked_components(model.components_))
    n_components, n_features = components.shape
    W = dense(checked_representation(W, n_components))
    if len(W) == 0:
        raise ValueError("W has no rows; a report needs at least one sample.")
    if X is not None:
        X = check_counts(X, name="write_report")
        if X.shape != (len(W), n_features):
            raise ValueError(
                f"X must have shape {(len(W), n_features)}, as W and the model do; got shape "
                f"{X.shape}."
            )
    if feature_names is None:
        feature_names = names_seen_in_fit(model)
    terms = terms_of(vocabulary, has_documents=documents is not None)
    if documents is not None:
        _check_length("documents", documents, len(W))
    columns = dict(metadata or {})
    for name, column in columns.items():
        _check_length(f"metadata[{name!r}]", column, len(W))
    if labels is not None:
        columns |= {"label": labels}
    if coherence is not None:
        _check_length("coherence", coherence, n_components, "components")
    elif X is not None and terms.component == "topic":
        coherence = coherence_in(components, X, "npmi")
    if component_names is not None:
        component_names = checked_names(component_names, n_components, "component")
    return Described(
        model=model,
        components=components,
        W=W,
        X=X,
        words=_names(feature_names, n_features, "feature", terms.feature),
        samples=_names(sample_names, len(W), "sample", terms.sample),
        labels=None if labels is None else _labels(labels, len(W)),
        documents=documents,
        component_names=component_names,
        coherence=None if coherence is None else [float(value) for value in coherence],
        metadata={plain_text(name, LONGEST_NAME): values for name, values in columns.items()},
        terms=terms,
    )


def payload(described: Described, rank_selection: Any = None) -> dict[str, Any]:
    """Return what the scripts of the page draw, as plain lists and numbers for JSON."""
    probabilities = plsi_probabilities(described.W, described.components)
    n_components = len(described.components)
    n_words = min(30, max(10, 3000 // n_components))
    typical = typical_samples(probabilities, 5 if n_components <= 100 else 3, described.documents)
    drawn = _drawn_samples(described, probabilities)
    listed = np.unique(np.concatenate([*(members for _, _, members in drawn), *typical]))
    place = {int(sample): at for at, sample in enumerate(listed)}
    words, topics = _topics(described, probabilities, n_words)
    columns, left_out = shares_by_column(described.W, described.components, described.metadata)
    for topic in topics:
        best = typical[topic["id"]]
        shares = probabilities.component_given_sample[best, topic["id"]]
        topic["typical"] = [
            [place[int(i)], _per_mille(s)] for i, s in zip(best, shares, strict=True)
        ]
    return {
        "terms": described.terms._asdict(),
        **words,
        "topics": topics,
        "columns": columns,
        "left_out": left_out,
        "samples": _samples(described, probabilities, listed, np.unique(np.concatenate(typical))),
        "groups": [
            {"name": name, "count": count, "samples": [place[int(i)] for i in members]}
            for name, count, members in drawn
        ],
        "labelled": described.labels is not None,
        "history": _history(described.model),
        "tol": float(described.model.tol),
        "most_words": n_words,
        "rank": None if rank_selection is None else _rank(rank_selection),
    }


def _rank(selection: Any) -> dict[str, Any]:
    """Return what the chart of the ranks shows."""
    if not hasattr(selection, "table"):
        raise TypeError(
            f"rank_selection must be what select_rank returns; got {in_words(selection)}."
        )
    table = selection.table()
    return {
        "ranks": table["rank"].tolist(),
        "difference": [float(f"{value:.5g}") for value in table["difference"]],
        "error": [float(f"{value:.5g}") for value in table["standard_error"]],
        "stability": [_finite(x) for x in table["stability"]],
        "best": int(selection.best_rank),
    }


# ---- topics --------------------------------------------------------------------------------------


def _topics(
    described: Described, probabilities: Probabilities, n_words: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the words, and the topics, largest first, which refer to them."""
    # As everywhere, then those that only lead by weight, which the page can rank by too.
    components = described.components
    typical = leading_features(components, n_words, RANKING).features
    heaviest = leading_features(components, n_words, "weight").features
    kept = [
        np.array(list(dict.fromkeys([*first, *second])), dtype=np.intp)
        for first, second in zip(typical, heaviest, strict=True)
    ]
    leading = np.unique(np.concatenate(kept))
    index = word_index(
        probabilities, leading, lambda j: plain_text(described.words[j], LONGEST_WORD)
    )
    place = np.empty(len(described.words), dtype=np.intp)
    place[index.columns] = np.arange(index.columns.size)
    positions = topic_positions(probabilities.feature_given_component)
    largest = probabilities.component_given_sample.argmax(axis=1)[probabilities.sample > 0.0]
    largest_in = np.bincount(largest, minlength=len(kept))
    breadth, alone = effective_words(probabilities), exclusivity(probabilities)
    of_word = given_feature(probabilities)
    names = _topic_names(described)
    coherence = [_finite(x) for x in described.coherence or [math.nan] * len(names)]
    topics = [
        {
            "id": int(k),
            "name": names[k],
            "size": _rounded(probabilities.component[k]),
            "leading": int(largest_in[k]),
            "breadth": _rounded(breadth[k]),
            "exclusivity": _rounded(alone[k]),
            "coherence": coherence[k],
            "position": [_rounded(at) for at in positions[k]],
            "words": place[kept[k]].tolist(),
            "p": [_rounded(p) for p in probabilities.feature_given_component[k, kept[k]]],
            "of_word": [_rounded(share) for share in of_word[k, kept[k]]],
        }
        for k in np.argsort(-probabilities.component, kind="stable")
    ]
    return index.entries, topics


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
    members = {"": nonempty} if described.labels is None else _grouped(described.labels, nonempty)
    n_samples = sum(len(group) for group in members.values())
    fewest = min(FEWEST_OF_A_GROUP, MOST_SAMPLES // max(len(members), 1))
    share = min(1.0, (MOST_SAMPLES - fewest * len(members)) / max(n_samples, 1))
    rank = np.argsort(np.argsort(-probabilities.component, kind="stable"))
    generator = np.random.default_rng(0)
    groups = []
    for name, group in members.items():
        n_drawn = min(len(group), fewest + int(share * len(group)))
        drawn = np.sort(generator.choice(group, n_drawn, replace=False))
        shares = probabilities.component_given_sample[drawn]
        largest = shares.argmax(axis=1)
        order = np.lexsort((-shares.max(axis=1), rank[largest]))
        groups.append((name, len(group), drawn[order]))
    return groups


def _grouped(labels: list[str], nonempty: npt.NDArray[np.intp]) -> dict[str, Array]:
    """Group samples by label, in order of appearance; the rarest of too many labels are merged."""
    names, member = groups_of([labels[i] for i in nonempty], len(nonempty))
    found = {str(name): nonempty[member == k] for k, name in enumerate(names)}
    if len(found) > MOST_GROUPS:
        frequent = sorted(found, key=lambda label: -len(found[label]))[: MOST_GROUPS - 1]
        rest = [label for label in found if label not in frequent]
        merged = np.concatenate([found.pop(label) for label in rest])
        found[f"other labels ({len(rest)})"] = merged
    return found


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
        "totals": [_rounded(totals[i]) for i in listed],
        "shares": [_packed_shares(probabilities.component_given_sample[i]) for i in listed],
        "excerpts": {}
        if texts is None
        else {int(np.searchsorted(listed, i)): _excerpt(texts[int(i)]) for i in quoted},
    }


def _packed_shares(shares: Array) -> list[int]:
    """Topic and share in thousandths in turn, largest share first, without negligible ones."""
    order = np.argsort(-shares, kind="stable")[:MOST_SHARES]
    kept = order[shares[order] >= SMALLEST_SHARE]
    return [number for k in kept for number in (int(k), _per_mille(shares[k]))]


def _excerpt(text: Any) -> str:
    """Beginning of a document, on one line."""
    return plain_text(" ".join(str(text)[: 8 * LONGEST_EXCERPT].split()), LONGEST_EXCERPT)


# ---- convergence ---------------------------------------------------------------------------------


def _history(model: Any) -> dict[str, list[float | None]]:
    """Thin out the curves of the fit; None is what a logarithmic axis cannot show."""
    history = model.history_
    last = history[-1]["objective"] if history else 0.0
    chosen = np.unique(np.linspace(0, len(history) - 1, MOST_RECORDS).round().astype(int))
    records = [history[i] for i in chosen] if history else []
    return {
        "seconds": [_rounded(record["seconds"]) for record in records],
        "gap": [_positive(record.get("optimality_gap", np.nan)) for record in records],
        "excess": [
            _positive((record["objective"] - last) / (abs(last) or 1.0)) for record in records
        ],
        "final": [_positive(model.optimality_gap_)],
    }


# ---- checks and numbers --------------------------------------------------------------------------


def _check_length(argument: str, values: Any, expected: int, things: str = "samples") -> None:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{argument} must be a sequence with one entry per {things[:-1]}.")
    if len(values) != expected:
        raise ValueError(f"{argument} has {len(values)} entries for {expected} {things}.")


def _names(names: Any, expected: int, of_what: str, term: str) -> list[str]:
    """Return the names that were given, or the page's term with a number."""
    if names is None:
        return [f"{term} {i}" for i in range(expected)]
    return checked_names(names, expected, of_what)


def _labels(labels: Any, expected: int) -> list[str]:
    _check_length("labels", labels, expected)
    return [NO_LABEL if is_missing(x) else plain_text(x, LONGEST_NAME) for x in labels]


def _rounded(value: float) -> float:
    """Round to six digits, more than the page shows."""
    return float(f"{float(value):.6g}")


def _finite(value: float) -> float | None:
    return _rounded(value) if np.isfinite(value) else None


def _positive(value: float) -> float | None:
    return _rounded(value) if np.isfinite(value) and value > 0.0 else None


def _per_mille(share: float) -> int:
    return round(1000.0 * float(share))
