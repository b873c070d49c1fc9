"""What is said about a fitted `TopicModel`: sentences for a paper, and code that fits it again.

The code gives the same bits. What a page cannot hold, such as texts that were passed in memory, has
a name in the code and must be put in.
"""

import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from klnmf.model_selection import RankSelection
from klnmf.report.reproduce import as_code, to_put_in
from klnmf.support.descriptions import percentage
from klnmf.topic_model.document_checks import in_words
from klnmf.topic_model.files import reading_of
from klnmf.uncertainty.equal_fits import equal_fits_in_words

_OPTIONS_OF_FIT = {
    "text_field": "text",
    "encoding": "encoding",
    "skip_unreadable": "skip_unreadable",
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
    if other := equal_fits_in_words(model.W_, nmf.components_, "topic"):
        lines.append(other)
    selection = model.rank_selection_
    if selection is not None:
        lines.append(_choice(selection))
    packages = ", ".join(f"{name} {version(name)}" for name in ("klnmf", "scikit-learn"))
    return "\n".join([*lines, f"Software: {packages}, Python {platform.python_version()}."])


def _choice(selection: RankSelection) -> str:
    ranks, chosen = selection.ranks.tolist(), selection.stable_rank
    return (
        f"Number of topics: {chosen}, chosen by stability "
        f"({selection.stability[ranks.index(chosen)]:.2f}) from {len(ranks)} numbers between "
        f"{ranks[0]} and {ranks[-1]}. Held-out deviance ({selection.n_splits} folds) chooses "
        f"{selection.best_rank}."
    )


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


# ---- code ----------------------------------------------------------------------------------------


def code_of_fit(model: Any) -> str:
    """Return code with the parameters, the call of ``fit``, merges and names."""
    chosen = {"n_topics": model.fit_facts_["n_topics"]}
    code = as_code(type(model)(**model.get_params(deep=False) | chosen))
    imports, absent, call = list(code.imports), [to_put_in(name) for name in code.absent], ""
    options = _source(model)
    path, n = options.pop("path", None), f"{len(model.document_names_):,}"
    if path is None and "text_field" in options:
        absent.append(to_put_in("table", f"the {n} rows of the fit, in their order"))
        call = f"model.fit(table, text={options['text_field']!r})"
    elif path is None:
        absent.append(to_put_in("texts", f"the {n} texts of the fit, in their order"))
        call = "model.fit(texts)"
    elif options.keys() <= _OPTIONS_OF_FIT.keys():
        given = [f"{_OPTIONS_OF_FIT[name]}={value!r}" for name, value in options.items()]
        call = f"model.fit({', '.join([repr(path), *given])})"
    else:
        imports.append("from klnmf.readers import read_documents")
        given = [f"{name}={value!r}" for name, value in options.items()]
        call = f"model.fit(read_documents({', '.join([repr(path), *given])}))"
    return "\n".join([*imports, "", *absent, f"model = {code.text}", call, *_later_steps(model)])


def _source(model: Any) -> dict[str, Any]:
    """Return the path of the texts and how they were read; without a path they were in memory."""
    source = model.fit_facts_.get("source")
    if not isinstance(source, dict):  # of an older file, or of a strange one
        return {}
    # A file may come from a stranger: only names and plain values must get into code.
    plain = (str, bool, int, float)
    return {k: v for k, v in source.items() if k.isidentifier() and isinstance(v, plain)}


def _later_steps(model: Any) -> list[str]:
    """Return the calls after the fit, and a line that compares the counts."""
    facts, checksum = model.fit_facts_, model.nmf_.data_checksum_
    try:
        merges = [[[int(k) for k in group] for group in call] for call in facts.get("merges", [])]
        n_left = facts["n_topics"] - sum(len(g) - 1 for call in merges for g in call)
        are_known = n_left == len(model.topic_names_)
    except (TypeError, ValueError):  # of a strange file
        are_known = False
    steps = []
    if not are_known:
        merges = []
        steps.append("# Topics were merged then; this model does not hold which ones.")
    elif merges:
        steps.append(f"# {convergence(model)}")
    steps += [f"model.merge({groups})" for groups in merges]
    own = model._names_by_words()
    if are_known and not merges and isinstance(model.seed_words, Mapping):
        own[: len(model.seed_words)] = map(str, model.seed_words)
    names = {k: name for k, name in enumerate(model.topic_names_) if name != own[k]}
    if names:
        steps.append(f"model.rename({names})")
    if checksum is not None:
        same = f"print(model.nmf_.data_checksum_ == {checksum})"
        steps.append(f"{same}  # True if the counts are the same")
    return steps
