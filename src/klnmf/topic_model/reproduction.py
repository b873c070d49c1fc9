"""How to fit a `TopicModel` again, bit for bit: as Python code and as a command.

What a page cannot hold, such as texts that were passed in memory, has a name in the code and must
be put in.
"""

import pprint
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.readers import read_documents
from klnmf.readers.format import keywords
from klnmf.readers.stop_words import names_of
from klnmf.report.reproduce import as_python, command_line, constraint_names, option_words
from klnmf.topic_model.fitting import convergence, settings_of
from klnmf.topic_model.words import OPTIONS, options_to_json

# Options of reading and of words that `klnmf fit` has too.
_SHELL_OPTIONS = {*keywords(read_documents), *OPTIONS, "token_pattern", "lowercase"}
# Parameters of KLNMF that TopicModel has itself, or that do not change the result.
_NOT_OF_NMF = ("n_components", "n_threads", "random_state", "run")


def reproduction(model: Any) -> dict[str, str]:
    """Return code and command as `klnmf.report.write_report` takes them."""
    return {"python": _code(model), "command": _command(model)}


# ---- what was fitted -----------------------------------------------------------------------------


def _source(model: Any) -> dict[str, Any]:
    """Return the path of the texts and how they were read; without a path they were in memory."""
    source = model.fit_facts_.get("source")
    if not isinstance(source, dict):  # of an older file, or of a strange one
        return {}
    # A file may come from a stranger: only names and plain values must get into code.
    plain = (str, bool, int, float)
    return {k: v for k, v in source.items() if k.isidentifier() and isinstance(v, plain)}


def _word_options(model: Any) -> dict[str, Any] | None:
    """Return the options of the vectoriser; None if it cannot be written out."""
    if model.vectorizer is None:
        words = {name: _plain(getattr(model, name)) for name in OPTIONS}
        names = None if model.stop_words is None else names_of(model.stop_words)
        return words if names is None else words | {"stop_words": ",".join(names)}
    given = model.vectorizer
    try:
        options = {"min_df": given.min_df, "max_df": given.max_df} | options_to_json(given)
    except TypeError:  # it holds code
        return None
    dtype = {} if given.dtype is np.int64 else {"dtype": given.dtype}
    return None if given.vocabulary is not None else options | dtype


def _merges(model: Any) -> list[list[list[int]]] | None:
    """Return the topics of each call of ``merge``; None if that is not known."""
    facts = model.fit_facts_
    try:
        merges = [[[int(k) for k in group] for group in call] for call in facts.get("merges", [])]
        n_left = facts["n_topics"] - sum(len(g) - 1 for call in merges for g in call)
    except (TypeError, ValueError):  # of a strange file
        return None
    return merges if n_left == len(model.topic_names_) else None


def _given_names(model: Any) -> dict[int, str]:
    """Return the names that topics do not get by themselves in the fit and in merges."""
    seeds = model.seed_words if isinstance(model.seed_words, Mapping) else {}
    own = model._names_by_words()
    if not _merges(model):
        own[: len(seeds)] = map(str, seeds)
    return {k: name for k, name in enumerate(model.topic_names_) if name != own[k]}


# ---- Python --------------------------------------------------------------------------------------


def _code(model: Any) -> str:
    base = settings_of(model)
    imports, absent = ["from klnmf import TopicModel"], {}
    is_chosen = not isinstance(model.n_topics, int | np.integer)
    remark = "  # the number that was chosen" if is_chosen else ""
    arguments = [f"n_topics={model.fit_facts_['n_topics']!r},{remark}"]
    words = _word_options(model)
    if words is None:
        absent["vectorizer"] = "the vectorizer of the fit, which holds code or a vocabulary"
        arguments.append("vectorizer=vectorizer,")
    elif model.vectorizer is None:
        arguments += [_argument(name, value) for name, value in words.items()]
    else:
        imports.append("from sklearn.feature_extraction.text import CountVectorizer")
        arguments.append(f"vectorizer=CountVectorizer({_keywords(words)}),")
    if model.seed_words is not None:
        arguments.append(_argument("seed_words", _plain(model.seed_words)))
    unknown = constraint_names(base)
    defaults, settings = KLNMF().get_params(deep=False), base.get_params(deep=False)
    changed = [k for k in settings if k in unknown or settings[k] != defaults[k]]
    settings = {k: settings[k] for k in changed if k not in _NOT_OF_NMF}
    if settings:
        imports[0] = "from klnmf import KLNMF, TopicModel"
        absent |= {name: f"{name} of the fit" for name in unknown}
        arguments.append(f"nmf=KLNMF({_keywords(settings, unknown)}),")
    if base.n_threads is not None:
        arguments.append(f"n_threads={base.n_threads!r},")
    text, remark = as_python(base.random_state)
    arguments.append(f"random_state={text},{remark}")
    what, call = _fit_call(model)
    absent |= what
    if "read_documents" in call:
        imports.append("from klnmf.readers import read_documents")
    if "numpy." in "".join(arguments):
        imports.insert(0, "import numpy")
    return "\n".join(
        [
            *(*imports, ""),
            *(
                f"{name} = ...  # put in {what}: this page has no copy"
                for name, what in absent.items()
            ),
            *("model = TopicModel(", *(f"    {line}" for line in arguments), ")"),
            *(call, *_later_steps(model)),
        ]
    )


def _fit_call(model: Any) -> tuple[dict[str, str], str]:
    """Return the data that must be put in, and the call of ``fit``."""
    options = _source(model)
    path, column = options.pop("path", None), options.get("text_field")
    if path is not None and options.keys() <= {"text_field", "encoding", "skip_unreadable"}:
        given = {"text" if k == "text_field" else k: v for k, v in options.items()}
        return {}, f"model.fit({', '.join(filter(None, [repr(path), _keywords(given)]))})"
    if path is not None:
        return {}, f"model.fit(read_documents({path!r}, {_keywords(options)}))"
    n = f"{len(model.document_names_):,}"
    if column is not None:
        call = f"model.fit(table, text={column!r})"
        return {"table": f"the {n} rows of the fit, in their order"}, call
    return {"texts": f"the {n} texts of the fit, in their order"}, "model.fit(texts)"


def _later_steps(model: Any) -> list[str]:
    """Return the calls after the fit, and a line that compares the counts."""
    merges, names, checksum = _merges(model), _given_names(model), model.nmf_.data_checksum_
    steps = [] if merges == [] else [f"# {convergence(model)}"]
    steps += [f"model.merge({groups})" for groups in merges or []]
    if merges is None:
        steps.append("# Topics were merged then; this model does not hold which ones.")
    if names:
        steps.append(f"model.rename({names})")
    if checksum is not None:
        same = f"print(model.nmf_.data_checksum_ == {checksum})"
        steps.append(f"{same}  # True if the counts are the same")
    return steps


def _argument(name: str, value: Any) -> str:
    """Return an argument; long lists are wrapped."""
    text = pprint.pformat(value, width=90, compact=True, sort_dicts=False)
    return f"{name}={text},".replace("\n", "\n    ")


def _keywords(options: Mapping[str, Any], unknown: Any = ()) -> str:
    return ", ".join(f"{k}={k if k in unknown else as_python(v)[0]}" for k, v in options.items())


def _plain(value: Any) -> Any:
    """Return seeds, stop words, and numbers as objects that are written as they are."""
    if isinstance(value, Mapping):
        return {str(name): _plain(words) for name, words in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str | tuple) or not hasattr(value, "__iter__"):
        return value
    return [_plain(entry) for entry in value]


# ---- the command line ----------------------------------------------------------------------------


def _command(model: Any) -> str:
    base, reading, words = settings_of(model), _source(model), _word_options(model)
    path = reading.pop("path", None)
    reading |= {k: v for k, v in (words or {}).items() if v is not None}
    in_the_way = [
        *(name for name in reading if name not in _SHELL_OPTIONS),
        *(["a vectorizer of your own"] if words is None else []),
        *(["a list of stop words"] if isinstance(reading.get("stop_words"), list) else []),
        *(["seed_words"] if model.seed_words is not None else []),
        *(["merge"] if _merges(model) != [] else []),
        *constraint_names(base),
    ]
    if in_the_way:
        named = ", ".join(in_the_way)
        return f"# not available on the command line: {named} can only be used in Python"
    base.set_params(n_components=model.fit_facts_["n_topics"])
    about = {"input": path or "DATA", "input options": option_words(reading)}
    command = command_line(base, about)
    if path is None:
        command = f"# DATA: a file or folder with the texts of the fit, in their order\n{command}"
    names = [f"--component={k}={name}" for k, name in _given_names(model).items()]
    if names:
        named = shlex.join(["klnmf", "name", "model.klnmf", *names])
        command = f"{command} --output model.klnmf\n{named}"
    return command
