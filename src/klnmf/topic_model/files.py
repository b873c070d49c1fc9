"""`TopicModel` in files: a model file whose metadata say how its texts are read.

`klnmf fit` writes the same, so the command line and `TopicModel` read each other's files.
"""

import math
import os
from typing import Any

import numpy as np
from sklearn.base import clone

from klnmf.estimators.kl_nmf import KLNMF, load_model
from klnmf.model_selection.rank_selection import RankSelection
from klnmf.readers import read_documents
from klnmf.readers.format import keywords
from klnmf.saved import SavedFileError
from klnmf.saved.columns import EXCERPT
from klnmf.saved.fields import Fields, number_from_json
from klnmf.topic_model.fitting import facts_of
from klnmf.topic_model.words import OPTIONS, options_to_json, reading_of, vectorizer_from_json
from klnmf.topics.features import RANKING


def save_topic_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model with its documents, but without the counts of their words."""
    n_documents = len(model.document_names_)
    about: dict[str, Any] = {
        "n_topics": _plain(model.n_topics),
        "seed_words": _plain_seeds(model.seed_words),
        "fit": model.fit_facts_,
        "ranking": RANKING,  # of the words whose coherence it is
        "coherence": [None if math.isnan(x) else float(x) for x in model.coherence_],
    }
    if model.rank_selection_ is not None:
        about["rank_selection"] = model.rank_selection_.to_json()
    metadata: dict[str, Any] = {
        "n_samples": n_documents,
        "n_features": len(model.words_),
        "reading": reading_of(model),
        "open_features": True,
        "component_names": list(model.topic_names_),
        "topic_model": about,
    }
    if model.counts_ is not None:
        metadata["nonzeros"] = int(model.counts_.nnz)
        metadata["total"] = float(model.counts_.sum())
    model.nmf_.save(
        path,
        W=model.W_,
        sample_names=model.document_names_,
        feature_names=model.words_,
        sample_metadata={**model.metadata_, EXCERPT: model.excerpts_},
        metadata=metadata,
    )


def load_topic_model(cls: Any, path: str | os.PathLike[str]) -> Any:
    """Read a model that `TopicModel.save` or ``klnmf fit`` wrote."""
    saved = load_model(path)
    metadata = saved.metadata
    if saved.feature_names is None or saved.W is None or metadata.get("open_features") is not True:
        raise SavedFileError(
            f"{path} holds a model that was not fitted to texts. Read it with klnmf.load_model."
        )
    try:
        return _restored(cls, saved, metadata)
    except (TypeError, ValueError, OverflowError) as error:
        raise SavedFileError(f"{path} cannot be read as a TopicModel: {error}") from error


def _restored(cls: Any, saved: Any, metadata: dict[str, Any]) -> Any:
    about = Fields(metadata.get("topic_model", {}), "topic_model").members
    reading = Fields(metadata.get("reading", {}), "reading").members
    vectorizer = vectorizer_from_json(reading, saved.feature_names)
    options = {name: getattr(vectorizer, name) for name in OPTIONS}
    options["stop_words"] = reading.get("stop_words")
    is_plain = set(options_to_json(vectorizer)) <= set(OPTIONS)
    seeds = _plain_seeds(about.get("seed_words"))
    settings = saved.model.get_params(deep=False)
    if seeds is not None:  # they forbid entries
        settings["zero_components"] = None
    model = cls(
        _plain(about.get("n_topics", saved.model.n_components_)),
        **(options if is_plain else {"vectorizer": clone(vectorizer).set_params(vocabulary=None)}),
        seed_words=seeds,
        nmf=KLNMF(**settings),
    )
    n_documents, columns = saved.W.shape[0], dict(saved.sample_metadata)
    names = saved.sample_names
    model._set_documents(
        [f"document {i}" for i in range(n_documents)] if names is None else list(names),
        columns.pop(EXCERPT, [""] * n_documents),
        columns,
    )
    found = about.get("rank_selection")
    model.rank_selection_ = (
        None if found is None else RankSelection.from_json(Fields(found, "rank_selection"))
    )
    model._set_fitted(saved.model, vectorizer, saved.W, None)
    model.deviance_ratio_ = None
    source = {}
    if "input" in metadata:  # of klnmf fit
        read = {name: reading[name] for name in keywords(read_documents) if name in reading}
        source = {"path": metadata["input"], **read}
    facts = facts_of(saved.model) | {"source": source}
    model.fit_facts_ = facts | _facts(Fields(about.get("fit", {}), "fit"))
    names = metadata.get("component_names")
    if names is not None:
        model._set_names(names)
    # In files of other versions it is that of other words than are shown now.
    coherence = about.get("coherence") if about.get("ranking") == RANKING else None
    if isinstance(coherence, list) and len(coherence) == len(model.topic_names_):
        model.coherence_ = np.array([_number_or_nan(x, "coherence") for x in coherence])
    return model


def _facts(stored: Fields) -> dict[str, Any]:
    """Return what the file says of the fit; `reproduction` checks where its texts were."""
    facts: dict[str, Any] = {
        name: stored.whole(name) for name in ("n_topics", "n_iter") if name in stored
    }
    if "converged" in stored:
        facts["converged"] = stored.take("converged", bool)
    if "optimality_gap" in stored:
        gap = _number_or_nan(stored.members["optimality_gap"], "optimality_gap")
        facts["optimality_gap"] = gap if math.isfinite(gap) else None
    if "documents" in stored:
        counts = Fields(stored.members["documents"], "documents")
        names = ("missing", "without_words", "copies", "badly_explained")
        facts["documents"] = {name: counts.whole(name) for name in names}
    return facts | {k: stored.members[k] for k in ("source", "merges") if k in stored}


def _number_or_nan(stored: Any, name: str) -> float:
    return math.nan if stored is None else float(number_from_json(stored, name))


def _plain(n_topics: Any) -> Any:
    """Return a number of topics, numbers to choose from, or a word, for JSON."""
    if isinstance(n_topics, str):
        return n_topics
    return int(n_topics) if np.ndim(n_topics) == 0 else [int(n) for n in n_topics]


def _plain_seeds(seeds: Any) -> Any:
    if seeds is None:
        return None
    if hasattr(seeds, "items"):
        return {str(name): [str(word) for word in words] for name, words in seeds.items()}
    return [[str(word) for word in words] for words in seeds]
