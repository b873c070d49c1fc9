"""How a `TopicModel` is fitted to counts, and what a paper says about it."""

import math
import platform
import warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from klnmf.constraints.names import named_samples
from klnmf.data.dominant_samples import DominantSamplesWarning
from klnmf.data.validation import EmptySamplesWarning
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.model_selection import RankSelection, select_rank
from klnmf.support.descriptions import described
from klnmf.support.number_checks import checked_whole
from klnmf.support.option_names import spelled_by
from klnmf.support.percentages import percentage
from klnmf.topic_model.document_checks import in_words
from klnmf.topic_model.seeds import found_seeds, lists_of_seeds, seeded_start, seeded_zeros
from klnmf.topic_model.words import reading_of
from klnmf.topics.checks import dense

MOST_TOPICS = 40  # of n_topics="auto"


class Fit(NamedTuple):
    """A fitted model, its W, how its rank was chosen, and the names of its first topics."""

    nmf: KLNMF
    W: Any
    rank_selection: RankSelection | None
    names: list[str]


def fitted_model(model: Any, X: Any, words: Sequence[str], documents: Sequence[str]) -> Fit:
    """Fit a KLNMF with the parameters of a `TopicModel` to the counts of its words."""
    base = settings_of(model)
    seeds = found_seeds(model.seed_words, words)
    with warnings.catch_warnings(), named_samples(documents), spelled_by(_own_name):
        warnings.simplefilter("ignore", EmptySamplesWarning)  # TopicModel.fit has warned
        selection = _selection(model, base, X)
        n_topics = model.n_topics if selection is None else selection.stable_rank
        n_topics = checked_whole("n_topics", n_topics)
        if seeds is None:
            nmf = base.set_params(n_components=n_topics)
            return Fit(nmf, nmf.fit_transform(X), selection, [])
        n_free = n_topics - len(seeds.words)
        if selection is not None:
            n_free = max(n_free, 1)
        if n_free < 1:
            raise ValueError(
                f"n_topics={n_topics} must be more than the {len(seeds.words)} topics of "
                "seed_words: other words need a topic too."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DominantSamplesWarning)  # the fit of all topics warns
            free = clone(base).set_params(n_components=n_free).fit(X)
        start = seeded_start(seeds, X, dense(free.components_))
        nmf = base.set_params(
            n_components=len(start), zero_components=seeded_zeros(seeds, X, len(start))
        )
        return Fit(nmf, nmf.fit_transform(X, H=start), selection, seeds.names or [])


def check_parameters(model: Any) -> None:
    """Refuse wrong parameters of a `TopicModel` before its texts are read."""
    settings_of(model)._validate_params()
    n_topics = model.n_topics
    if isinstance(n_topics, str) and n_topics != "auto":
        raise ValueError(
            f'n_topics must be a number, "auto" or numbers, got {described(n_topics)}.'
        )
    if not isinstance(n_topics, str):
        for number in n_topics if isinstance(n_topics, Iterable) else [n_topics]:
            checked_whole("n_topics", number)
    if model.seed_words is not None:
        lists_of_seeds(model.seed_words)


def _own_name(name: str, value: tuple[Any, ...]) -> str | None:
    """Name an argument of `KLNMF` as one of `TopicModel`, which has no weights of documents."""
    if name == "sample_weight":
        return None
    name = "n_topics" if name == "n_components" else name
    return f"{name}={value[0]!r}" if value else name


def settings_of(model: Any) -> KLNMF:
    """Return an unfitted KLNMF with the settings of a `TopicModel`."""
    if not (model.nmf is None or isinstance(model.nmf, KLNMF)):
        raise TypeError(f"nmf must be a KLNMF, got {described(model.nmf)}.")
    nmf = KLNMF() if model.nmf is None else clone(model.nmf)
    nmf.set_output(transform="default")  # W_ is an array, whatever `transform` returns
    for name in ("n_threads", "random_state"):
        if getattr(model, name) is not None:
            nmf.set_params(**{name: getattr(model, name)})
    if model.seed_words is not None:
        for name in ("fixed_components", "zero_components"):
            if getattr(nmf, name) is not None:
                raise ValueError(f"seed_words cannot be used with {name} of nmf.")
    return nmf


def _selection(model: Any, nmf: KLNMF, X: Any) -> RankSelection | None:
    """Choose the number of topics, if it is to be chosen."""
    ranks = model.n_topics
    if isinstance(ranks, Integral):
        return None
    if isinstance(ranks, str):
        ranks = range(1, min(MOST_TOPICS, *X.shape) + 1)
    penalties = ("l1_W", "l2_W", "l1_H", "l2_H")
    shared = (*penalties, "n_threads", "random_state", "feature_weight")
    options: dict[str, Any] = {name: getattr(nmf, name) for name in shared}
    return select_rank(X, ranks, **options)


def facts_of(nmf: KLNMF) -> dict[str, Any]:
    """Return what is said about a fit, also after topics were merged."""
    return {
        "n_topics": int(nmf.n_components_),
        "n_iter": int(nmf.n_iter_),
        "optimality_gap": float(nmf.optimality_gap_)
        if math.isfinite(nmf.optimality_gap_)
        else None,
        "converged": bool(nmf.converged_),
    }


def statement(model: Any) -> str:
    """Return sentences for a paper about a fitted `TopicModel`."""
    nmf, n_documents = model.nmf_, len(model.document_names_)
    lines = [
        f"Data: {n_documents:,} documents, {len(model.words_):,} words{_totals(model)}.",
        f"Words: CountVectorizer({_options(model)}).",
        f"Model: {len(model.topic_names_)} topics, Poisson NMF (KL divergence)"
        f"{'' if nmf.random_state is None else f', random_state={nmf.random_state}'}.",
    ]
    if "documents" in model.fit_facts_:  # not in files of klnmf fit and of older versions
        lines.insert(1, in_words(model.fit_facts_["documents"]))
    if model.seed_words is not None:
        lines.append(f"Seeded topics: {len(model.seed_words)}.")
    lines.append(convergence(model))
    selection = model.rank_selection_
    if selection is not None:
        lines.append(_choice(selection))
    packages = ", ".join(f"{name} {version(name)}" for name in ("klnmf", "scikit-learn"))
    return "\n".join([*lines, f"Software: {packages}, Python {platform.python_version()}."])


def _choice(selection: RankSelection) -> str:
    best, chosen = selection.best_rank, selection.stable_rank
    stability = dict(zip(selection.ranks.tolist(), selection.stability, strict=True))
    rule = f"held-out deviance ({selection.n_splits} folds"
    made = f"Number of topics: {chosen}, chosen from {_listed(selection.ranks)} by"
    if chosen == best:
        return f"{made} {rule}); stability {stability[best]:.2f}."
    return (
        f"{made} stability ({stability[chosen]:.2f}). By {rule}) it would be {best}, with a "
        f"stability of {stability[best]:.2f}."
    )


def _listed(ranks: Any) -> str:
    if len(ranks) > 2 and (np.diff(ranks) == 1).all():
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks))


def _totals(model: Any) -> str:
    if model.counts_ is None:
        return ""
    return f", {int(model.counts_.sum()):,} occurrences"


def _options(model: Any) -> str:
    try:
        return ", ".join(f"{k}={_short(v)}" for k, v in reading_of(model).items())
    except TypeError:  # it holds code
        return "..."


def _short(value: Any) -> str:
    is_long = isinstance(value, list) and len(value) > 4
    return f"[{len(value)} words]" if is_long else repr(value)


def convergence(model: Any) -> str:
    """Say whether the fit converged, before any merge, and how well the model fits now."""
    facts, divergence = model.fit_facts_, model.nmf_.divergence_
    gap, n_fitted = facts["optimality_gap"], facts["n_topics"]
    state = "converged" if facts["converged"] else "did not converge"
    of_what = "" if n_fitted == len(model.topic_names_) else f" of {n_fitted} topics"
    bound = "" if gap is None else f", optimality gap {percentage(gap)}"
    known = "unknown" if math.isnan(divergence) else f"{divergence:,.0f}"
    return (
        f"The fit{of_what} {state} after {facts['n_iter']} iterations{bound}. KL divergence "
        f"{'' if not of_what else 'after merging '}{known}."
    )
