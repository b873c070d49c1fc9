"""`TopicModel` in files: a model file whose metadata say how its texts are read.

`klnmf fit` writes the same, so the command line and `TopicModel` read each other's files.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer

from klnmf.estimators.kl_nmf import KLNMF, load_model
from klnmf.model_selection.rank_selection import RankSelection
from klnmf.readers import read_documents
from klnmf.readers.format import keywords
from klnmf.saved import SavedFileError
from klnmf.saved.columns import EXCERPT
from klnmf.saved.fields import Fields, number_from_json
from klnmf.texts.counting import vectorizer_of
from klnmf.texts.stop_words import is_available, names_of
from klnmf.topic_model.corpus import OPTIONS
from klnmf.topic_model.fitting import check_parameters, facts_of_fit
from klnmf.topics.features import RANKING

# Options of vectorisers that hold no setting of ours: X has its own type, texts are given as str.
_NOT_STORED = ("vocabulary", "dtype", "input", "encoding", "decode_error")


def save_topic_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model with its documents, but without the counts of their words."""
    n_documents = len(model.document_names_)
    about: dict[str, Any] = {
        "n_topics": _as_json(model.n_topics),
        "seed_words": _as_json(model.seed_words),
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
    seeds = about.get("seed_words")
    settings = saved.model.get_params(deep=False)
    if seeds is not None:  # they forbid entries
        settings["zero_components"] = None
    model = cls(
        about.get("n_topics", int(saved.model.n_components_)),
        **(options if is_plain else {"vectorizer": clone(vectorizer).set_params(vocabulary=None)}),
        seed_words=seeds,
        nmf=KLNMF(**settings),
    )
    check_parameters(model)
    n_documents, names = saved.W.shape[0], saved.sample_names
    names = [f"document {i}" for i in range(n_documents)] if names is None else names
    model.document_names_, model.metadata_ = list(names), dict(saved.sample_metadata)
    model.excerpts_ = model.metadata_.pop(EXCERPT, [""] * n_documents)
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
    facts = facts_of_fit(saved.model) | {"source": source}
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
    """Return what the file says of the fit; `code_of_fit` checks where its texts were."""
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


# ---- how words are counted -----------------------------------------------------------------------


def options_to_json(vectorizer: CountVectorizer) -> dict[str, Any]:
    """Return the options that differ from scikit-learn's defaults; code is refused."""
    if type(vectorizer) is not CountVectorizer:
        raise TypeError(
            f"A {type(vectorizer).__name__} is code of yours, and files hold no code: only models "
            "with a plain CountVectorizer can be saved."
        )
    defaults, stored = CountVectorizer().get_params(), {}
    for name, value in vectorizer.get_params().items():
        if name in _NOT_STORED or value is defaults[name] or value == defaults[name]:
            continue
        if callable(value):
            raise TypeError(
                f"The vectorizer has {name}={value!r}, and files hold no code: the model cannot be "
                "saved. Prepare the texts with it first, and pass them to a plain CountVectorizer."
            )
        stored[name] = _as_json(value)
    return stored


def reading_of(model: Any) -> dict[str, Any]:
    """Return how the texts of a `TopicModel` are read, with stop words by name if they have one."""
    stored = options_to_json(model.vectorizer_)
    names = None if model.stop_words is None else names_of(model.stop_words)
    if model.vectorizer is None and names is not None:
        stored["stop_words"] = ",".join(names)
    return stored


def vectorizer_from_json(options: Mapping[str, Any], words: Sequence[str]) -> CountVectorizer:
    """Return a vectoriser that counts these words, with options as stored."""
    known = CountVectorizer().get_params()
    given = {k: v for k, v in options.items() if k in known and k not in _NOT_STORED}
    if isinstance(given.get("ngram_range"), list):
        given["ngram_range"] = tuple(given["ngram_range"])
    if not is_available(given.get("stop_words")):  # a file that is no longer there
        del given["stop_words"]
    vectorizer = vectorizer_of(given, vocabulary=list(words))
    try:
        vectorizer.transform(["a text to try the options"])
    except (TypeError, ValueError, OverflowError, re.error) as error:
        raise ValueError(f"the options {given!r} cannot be used ({error}).") from error
    return vectorizer


def _as_json(value: Any) -> Any:
    """Return parameters as JSON holds them."""
    if isinstance(value, Mapping):
        return {str(name): _as_json(entry) for name, entry in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        listed = sorted(value) if isinstance(value, set | frozenset) else value
        return [_as_json(entry) for entry in listed]
    return value.item() if isinstance(value, np.generic) else value
