"""How a `TopicModel` is fitted to counts, and how its topics are merged."""

import math
import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from klnmf.constraints.names import named_samples
from klnmf.data.dominant_samples import DominantSamplesWarning
from klnmf.data.validation import EmptySamplesWarning
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.model_selection import RankSelection, select_rank
from klnmf.objective import kl_divergence, optimality_gap
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.support.number_checks import checked_whole
from klnmf.support.option_names import spelled_by
from klnmf.topic_model.seeds import found_seeds, lists_of_seeds, seeded_start
from klnmf.topics.checks import dense

MOST_TOPICS = 40  # of n_topics="auto"


class Fit(NamedTuple):
    """A fitted model, its W, how its rank was chosen, and the names of its first topics."""

    nmf: KLNMF
    W: Any
    rank_selection: RankSelection | None
    names: list[str]


def fitted_nmf(model: Any, X: Any, words: Sequence[str], documents: Sequence[str]) -> Fit:
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
        start, zeros = seeded_start(seeds, X, dense(free.components_))
        nmf = base.set_params(n_components=len(start), zero_components=zeros)
        return Fit(nmf, nmf.fit_transform(X, H=start), selection, seeds.names or [])


def check_parameters(model: Any) -> None:
    """Refuse wrong parameters of a `TopicModel` before its texts are read."""
    settings_of(model)._validate_params()
    given = model.n_topics
    numbers = list(given) if isinstance(given, Iterable) else [given]
    if (isinstance(given, str) and given != "auto") or not numbers:
        raise ValueError(f'n_topics must be a number, "auto" or numbers, got {described(given)}.')
    for number in () if isinstance(given, str) else numbers:
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
    shared = (*penalties, "n_threads", "backend", "random_state", "feature_weight")
    options: dict[str, Any] = {name: getattr(nmf, name) for name in shared}
    return select_rank(X, ranks, **options)


def facts_of_fit(nmf: KLNMF) -> dict[str, Any]:
    """Return what is said about a fit, also after topics were merged."""
    return {
        "n_topics": int(nmf.n_components_),
        "n_iter": int(nmf.n_iter_),
        "optimality_gap": float(nmf.optimality_gap_)
        if math.isfinite(nmf.optimality_gap_)
        else None,
        "converged": bool(nmf.converged_),
    }


# ---- merges --------------------------------------------------------------------------------------


def groups_of_topics(merged: Sequence[Sequence[int]], n_topics: int) -> list[list[int]]:
    """All groups, of one topic too, in the order of their first topics.

    >>> groups_of_topics([[3, 1]], 4)
    [[0], [1, 3], [2]]
    """
    named = [k for group in merged for k in group]
    if any(len(group) < 2 for group in merged) or len(set(named)) < len(named):
        raise ValueError(
            f"merge takes lists of at least two topics, each topic in one list; got {merged}."
        )
    alone = [[k] for k in range(n_topics) if k not in named]
    return sorted([*(sorted(group) for group in merged), *alone])


def merged_model(
    model: KLNMF, W: Any, X: Any, groups: Sequence[Sequence[int]]
) -> tuple[KLNMF, Array]:
    """Return the model with one component per group, and its W.

    With components h_k that sum to 1 and masses s_k = Σ_i W_ik, topics K become one with

        W_i = Σ_{k ∈ K} W_ik        h = Σ_{k ∈ K} s_k h_k / Σ_{k ∈ K} s_k

    It has as many counts in each document as they had together, and the words that they had on
    average. It is not the best topic for that purpose: a merged model is no stationary point of the
    divergence. Without X, the divergence and the gap are unknown.
    """
    components, W = dense(model.components_), dense(W)
    members = np.zeros((len(components), len(groups)))
    for place, group in enumerate(groups):
        members[group, place] = 1.0
    sums = components.sum(axis=1, dtype=np.float64)
    masses = W.sum(axis=0, dtype=np.float64) * sums
    weights = members * np.where(masses > 0, masses, np.finfo(np.float64).tiny)[:, np.newaxis]
    scaled = components / np.where(sums > 0, sums, 1.0)[:, np.newaxis]
    H = ((weights / weights.sum(axis=0)).T @ scaled).astype(components.dtype)
    new_W = ((W * sums) @ members).astype(W.dtype)
    known: dict[str, Any] = {}
    if X is not None and model.feature_weight_ is None:
        counts = sp.csr_array(X, dtype=np.float64)
        known = {
            "divergence": float(kl_divergence(counts, new_W, H)),
            "optimality_gap": float(optimality_gap(counts, new_W, H)),
        }
    parameters = model.get_params(deep=False) | {
        "n_components": len(groups),
        "zero_components": None,
        "fixed_components": None,
    }
    merged = KLNMF.from_components(
        H,
        history=model.history_,
        W_sums=new_W.sum(axis=0, dtype=np.float64),
        data_checksum=model.data_checksum_,
        converged=False,
        **known,
        **parameters,
    )
    return merged, new_W
