"""Everything that the page shows about a model, gathered and bounded in size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.validation import check_counts, checked_input
from klnmf.report.measures import (
    DECIMALS,
    Probabilities,
    WordScores,
    effective_words,
    exclusivity,
    leading_at_any_weight,
    most_relevant,
    probabilities_of,
    topic_positions,
    typical_samples,
    word_scores,
)

Array = npt.NDArray[Any]

# The weights that the slider of the page can be set to, and where it stands at first.
RELEVANCE_WEIGHTS = np.arange(21) / 20
FIRST_WEIGHT = 0.6
# Bounds of what goes into the page; with them it stays below 3 MB up to some hundred topics.
MOST_SAMPLES = 600
MOST_GROUPS = 24
FEWEST_OF_A_GROUP = 12
MOST_RECORDS = 300
MOST_SHARES = 40  # of one sample
SMALLEST_SHARE = 0.002
LONGEST_WORD = 60
LONGEST_NAME = 80
LONGEST_EXCERPT = 160
WORDS_IN_NAME = 3
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


def checked(
    model: Any,
    W: Any,
    X: Any,
    feature_names: Any,
    sample_names: Any,
    labels: Any,
    documents: Any,
) -> Described:
    """Check the arguments of the report against each other; messages name what does not fit."""
    for attribute in ("components_", "history_"):
        if not hasattr(model, attribute):
            raise ValueError(
                f"model must be a fitted KLNMF; got {type(model).__name__} without {attribute}. "
                "Call fit or fit_transform of a KLNMF first."
            )
    components = _dense(model.components_, "components_")
    n_components, n_features = components.shape
    W = _dense(W, "W")
    if W.ndim != 2 or W.shape[1] != n_components or W.shape[0] == 0:
        raise ValueError(
            f"W must have one row for each sample and one column for each of the model's "
            f"{n_components} components, as fit_transform returns it; got shape {W.shape}."
        )
    for name, factor in (("W", W), ("components_", components)):
        # A NaN fails the comparison, so it is refused too.
        if not (np.isfinite(factor).all() and factor.min() >= 0.0):
            raise ValueError(f"{name} must be nonnegative and finite.")
    if X is not None:
        X = check_counts(checked_input(X), name="write_report")
        if X.shape != (len(W), n_features):
            raise ValueError(
                f"X must be what W and the model are about, of shape {(len(W), n_features)}; got "
                f"shape {X.shape}."
            )
    if feature_names is None:
        feature_names = getattr(model, "feature_names_in_", None)
    if documents is not None:
        _check_length("documents", documents, len(W), "samples")
    return Described(
        model=model,
        components=components,
        W=W,
        X=X,
        words=_names("feature_names", feature_names, n_features, "features", "feature"),
        samples=_names("sample_names", sample_names, len(W), "samples", "sample"),
        labels=None if labels is None else _labels(labels, len(W)),
        documents=documents,
    )


def payload(described: Described, rank_selection: Any = None) -> dict[str, Any]:
    """Gather what the scripts of the page draw, as plain lists and numbers for JSON."""
    probabilities = probabilities_of(described.components, described.W)
    n_components = len(described.components)
    n_words = min(30, max(10, 3000 // n_components))
    typical = typical_samples(probabilities, 5 if n_components <= 100 else 3)
    drawn = _drawn_samples(described, probabilities)
    listed = np.unique(np.concatenate([*(members for _, _, members in drawn), *typical]))
    place = {int(sample): at for at, sample in enumerate(listed)}
    words, topics = _topics(described, probabilities, n_words)
    for topic in topics:
        best = typical[topic["id"]]
        shares = probabilities.shares[best, topic["id"]]
        topic["typical"] = [
            [place[int(i)], _per_mille(s)] for i, s in zip(best, shares, strict=True)
        ]
    return {
        "words": words,
        "topics": topics,
        "samples": _samples(described, probabilities, listed, np.unique(np.concatenate(typical))),
        "groups": [
            {"name": name, "count": count, "samples": [place[int(i)] for i in members]}
            for name, count, members in drawn
        ],
        "labelled": described.labels is not None,
        "history": _history(described.model),
        "tol": float(described.model.tol),
        "weights": {"steps": len(RELEVANCE_WEIGHTS) - 1, "first": FIRST_WEIGHT},
        "most_words": n_words,
        "rank": None if rank_selection is None else _rank(rank_selection),
    }


def _rank(selection: Any) -> dict[str, Any]:
    """Gather what the chart of the ranks is drawn from."""
    table = selection.table()
    stability = [None if np.isnan(value) else _rounded(value) for value in table["stability"]]
    return {
        "ranks": table["rank"].tolist(),
        "difference": [float(f"{value:.5g}") for value in table["difference"]],
        "error": [float(f"{value:.5g}") for value in table["standard_error"]],
        "stability": stability,
        "best": int(selection.best_rank),
    }


def plain_text(value: Any, longest: int | None = None) -> str:
    """Text that any file can hold: no halves of surrogate pairs, no NUL, and not too long."""
    text = str(value).encode("utf-8", "replace").decode("utf-8").replace("\0", "�")
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


# ---- topics --------------------------------------------------------------------------------------


def _topics(
    described: Described, probabilities: Probabilities, n_words: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of the words in use, and the topics, largest first, which refer to them."""
    scores = word_scores(probabilities)
    kept = [leading_at_any_weight(score, RELEVANCE_WEIGHTS, n_words) for score in scores]
    columns = np.unique(np.concatenate([s.columns[k] for s, k in zip(scores, kept, strict=True)]))
    words = [plain_text(described.words[j], LONGEST_WORD) for j in columns]
    positions = topic_positions(probabilities.words)
    largest = probabilities.shares.argmax(axis=1)[probabilities.totals > 0.0]
    leading = np.bincount(largest, minlength=len(scores))
    breadth, alone = effective_words(probabilities), exclusivity(probabilities)
    topics = []
    for k in np.argsort(-probabilities.sizes, kind="stable"):
        places = kept[k]
        topics.append(
            {
                "id": int(k),
                "name": _topic_name(described.words, scores[k]),
                "size": _rounded(probabilities.sizes[k]),
                "leading": int(leading[k]),
                "breadth": _rounded(breadth[k]),
                "exclusivity": _rounded(alone[k]),
                "position": [_rounded(at) for at in positions[k]],
                "words": np.searchsorted(columns, scores[k].columns[places]).tolist(),
                "log_p": scores[k].log_p[places].round(DECIMALS).tolist(),
                "log_lift": scores[k].log_lift[places].round(DECIMALS).tolist(),
            }
        )
    return words, topics


def _topic_name(words: list[str], scores: WordScores) -> str:
    """Leading words of a topic, which stand for it everywhere on the page."""
    places = most_relevant(scores, FIRST_WEIGHT, WORDS_IN_NAME)
    leading = [plain_text(words[j], 24) for j in scores.columns[places]]
    return ", ".join(leading) or "(empty)"


# ---- samples -------------------------------------------------------------------------------------


def _drawn_samples(
    described: Described, probabilities: Probabilities
) -> list[tuple[str, int, npt.NDArray[np.intp]]]:
    """Name, number of samples and drawn samples of each group, in the order of drawing.

    Small groups are drawn whole, large ones at random in proportion to what they hold.
    """
    nonempty = np.flatnonzero(probabilities.totals > 0.0)
    members = {"": nonempty} if described.labels is None else _grouped(described.labels, nonempty)
    n_samples = sum(len(group) for group in members.values())
    fewest = min(FEWEST_OF_A_GROUP, MOST_SAMPLES // max(len(members), 1))
    share = min(1.0, (MOST_SAMPLES - fewest * len(members)) / max(n_samples, 1))
    rank = np.argsort(np.argsort(-probabilities.sizes, kind="stable"))
    generator = np.random.default_rng(0)
    groups = []
    for name, group in members.items():
        n_drawn = min(len(group), fewest + int(share * len(group)))
        drawn = np.sort(generator.choice(group, n_drawn, replace=False))
        shares = probabilities.shares[drawn]
        largest = shares.argmax(axis=1)
        order = np.lexsort((-shares.max(axis=1), rank[largest]))
        groups.append((name, len(group), drawn[order]))
    return groups


def _grouped(labels: list[str], nonempty: npt.NDArray[np.intp]) -> dict[str, Array]:
    """Group samples by label, in order of appearance; of too many labels the rarest become one."""
    found: dict[str, list[int]] = {}
    for i in nonempty.tolist():
        found.setdefault(labels[i], []).append(i)
    if len(found) > MOST_GROUPS:
        frequent = sorted(found, key=lambda label: -len(found[label]))[: MOST_GROUPS - 1]
        rest = [label for label in found if label not in frequent]
        merged = [i for label in rest for i in found[label]]
        found = {label: group for label, group in found.items() if label in frequent}
        found[f"other labels ({len(rest)})"] = merged
    return {label: np.array(group) for label, group in found.items()}


def _samples(
    described: Described,
    probabilities: Probabilities,
    listed: npt.NDArray[np.intp],
    quoted: npt.NDArray[np.intp],
) -> dict[str, Any]:
    """Names, labels, totals and shares of the listed samples, and excerpts of the quoted ones."""
    totals = probabilities.totals
    if described.X is not None:
        totals = np.asarray(described.X.sum(axis=1, dtype=np.float64)).ravel()
    labels = described.labels
    texts = described.documents
    return {
        "names": [plain_text(described.samples[i], LONGEST_NAME) for i in listed],
        "labels": [] if labels is None else [labels[i] for i in listed],
        "totals": [_rounded(totals[i]) for i in listed],
        "shares": [_packed_shares(probabilities.shares[i]) for i in listed],
        "excerpts": {}
        if texts is None
        else {int(np.searchsorted(listed, i)): _excerpt(_item(texts, int(i))) for i in quoted},
    }


def _packed_shares(shares: Array) -> list[int]:
    """Topic and share in thousandths by turns, largest first, without the negligible ones."""
    order = np.argsort(-shares, kind="stable")[:MOST_SHARES]
    kept = order[shares[order] >= SMALLEST_SHARE]
    return [number for k in kept for number in (int(k), _per_mille(shares[k]))]


def _excerpt(text: Any) -> str:
    """Beginning of a document, on one line."""
    return plain_text(" ".join(str(text)[: 8 * LONGEST_EXCERPT].split()), LONGEST_EXCERPT)


# ---- convergence ---------------------------------------------------------------------------------


def _history(model: Any) -> dict[str, list[float | None]]:
    """Thin out the curves of the fit; the excess is that of the objective over its last value.

    Points that a logarithmic axis cannot hold are None.
    """
    history = model.history_
    last = history[-1]["objective"] if history else 0.0
    chosen = np.unique(np.linspace(0, len(history) - 1, MOST_RECORDS).round().astype(int))
    records = [history[i] for i in chosen] if history else []
    return {
        "seconds": [_rounded(record["seconds"]) for record in records],
        "residual": [_positive(record["kkt_residual"]) for record in records],
        "excess": [
            _positive((record["objective"] - last) / (abs(last) or 1.0)) for record in records
        ],
        "final": [_positive(model.kkt_residual_)],
    }


# ---- checks and numbers --------------------------------------------------------------------------


def _dense(matrix: Any, name: str) -> Array:
    matrix = checked_matrix(matrix, name)
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def _check_length(argument: str, values: Any, expected: int, what: str) -> None:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{argument} must be a sequence with one entry for each of the {what}.")
    if len(values) != expected:
        raise ValueError(f"{argument} has {len(values)} entries for {expected} {what}.")


def _names(argument: str, names: Any, expected: int, what: str, default: str) -> list[str]:
    if names is None:
        return [f"{default} {i}" for i in range(expected)]
    _check_length(argument, names, expected, what)
    return [str(name) for name in names]


def _labels(labels: Any, expected: int) -> list[str]:
    _check_length("labels", labels, expected, "samples")
    return [NO_LABEL if _is_missing(x) else plain_text(x, LONGEST_NAME) for x in labels]


def _is_missing(label: Any) -> bool:
    """Whether a label is None, NaN or pandas' NA, which refuses to be compared."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def _item(values: Any, i: int) -> Any:
    """Entry by position, also of a pandas Series."""
    return values.iloc[i] if hasattr(values, "iloc") else values[i]


def _rounded(value: float) -> float:
    """Six digits are more than a page shows."""
    return float(f"{float(value):.6g}")


def _positive(value: float) -> float | None:
    return _rounded(value) if np.isfinite(value) and value > 0.0 else None


def _per_mille(share: float) -> int:
    return round(1000.0 * float(share))
