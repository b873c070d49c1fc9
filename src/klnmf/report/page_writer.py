"""Writes the report: template, style, scripts and data in a single HTML page."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy.typing as npt

from klnmf.report import gathering, reproduce, summary
from klnmf.report.plain_text import plain_text
from klnmf.report.vocabulary import Vocabulary, counted
from klnmf.support.descriptions import described as in_words
from klnmf.support.optional_packages import require
from klnmf.support.whole_files import writing
from klnmf.topics.checks import Names

# Joined in this order to one script.
_SCRIPTS = (
    *("elements", "selection", "cards", "map", "structure", "columns"),
    *("convergence", "rank", "tables", "search", "start"),
)
# Characters that could end the element that holds the data, or a line of JavaScript.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def write_report(
    path: str | os.PathLike[str],
    model: Any,
    W: Any,
    X: Any = None,
    *,
    feature_names: Names | None = None,
    sample_names: Names | None = None,
    labels: Sequence[Any] | npt.NDArray[Any] | None = None,
    documents: Sequence[str] | None = None,
    component_names: Sequence[str] | None = None,
    coherence: Sequence[float] | npt.NDArray[Any] | None = None,
    metadata: Mapping[str, Sequence[Any]] | None = None,
    vocabulary: Vocabulary | None = None,
    title: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    rank_selection: Any = None,
) -> Path:
    """Write an HTML report about a fitted model, to be opened in any browser.

    The report shows the components with their top features and most typical samples, a map of
    them, their shares in the samples and by the columns of ``metadata``, whether the fit converged,
    a summary of the data, and how to run the fit again. The search finds all features, and names,
    labels and excerpts of the samples on the page. It is one file that loads nothing else, and
    stays below 3 MB however large the data are: it holds the most typical samples and up to 600
    others, chosen at random, and as many features, the most frequent first, as 1.8 MB hold (about
    50,000 English words).

    Parameters
    ----------
    path : str or path
        File to write, such as ``"report.html"``. An existing file is replaced once the new one is
        complete.
    model : KLNMF
        A fitted model.
    W : array-like or sparse matrix of shape (n_samples, n_components)
        Representation of the samples, as ``fit_transform`` returns it.
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        The counts that the model was fitted to, for the summary of the data.
    feature_names : sequence of str, optional
        Names of the features. By default, those of the DataFrame that the model was fitted to, or
        their numbers.
    sample_names : sequence of str, optional
        Names of the samples. By default, their numbers.
    labels : sequence of shape (n_samples,), optional
        Label of each sample, to group the samples by, in addition to ``metadata``.
    documents : sequence of str, optional
        Text of each sample. The report shows the beginning of the most typical ones.
    component_names : sequence of str, optional
        Names of the components. By default, their top features.
    coherence : sequence of float, optional
        Coherence of the components, for the overview. By default, that of `klnmf.topics.coherence`
        (NPMI) in X if these are texts.
    metadata : mapping of str to sequence of shape (n_samples,), optional
        Columns with a value per sample, such as dates or authors. The report shows the mean shares
        by time, number or category, with intervals (`klnmf.topics.mean_shares`). Columns with more
        values than a chart can hold, such as names, are left out.
    vocabulary : {"texts", "counts"}, optional
        Words of the page: ``"texts"`` for documents, words and topics, ``"counts"`` for samples,
        features and components. By default ``"texts"`` if ``documents`` are given.
    title : str, optional
        Title of the report.
    parameters : mapping of str to object, optional
        What else is needed to run the fit again, such as how the counts were made. It is shown with
        the parameters of the model. ``"input"`` is the file name of the data. ``"python"`` and
        ``"command"`` are shown in place of the code and the command that fit a `KLNMF`.
    rank_selection : RankSelection, optional
        Result of `klnmf.model_selection.select_rank`, for a section on the number of
        components.

    Returns
    -------
    path : pathlib.Path
        The file that was written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from klnmf import KLNMF
    >>> from klnmf.datasets import load_bible
    >>> from klnmf.report import write_report
    >>> bible = load_bible()
    >>> model = KLNMF(n_components=3, random_state=0)
    >>> W = model.fit_transform(bible.data)
    >>> with TemporaryDirectory() as folder:
    ...     page = write_report(
    ...         Path(folder) / "report.html",
    ...         model,
    ...         W,
    ...         bible.data,
    ...         feature_names=bible.feature_names,
    ...         sample_names=bible.sample_names,
    ...         labels=bible.target_names[bible.target],
    ...     )
    ...     print(page.name, page.read_text(encoding="utf-8")[:15])
    report.html <!doctype html>
    """
    environment = _environment()
    described = gathering.checked(
        model,
        W,
        X,
        feature_names=feature_names,
        sample_names=sample_names,
        labels=labels,
        documents=documents,
        component_names=component_names,
        coherence=coherence,
        metadata=metadata,
        vocabulary=vocabulary,
    )
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(f"parameters must be a dict; got {in_words(parameters)}.")
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a str; got {in_words(title)}.")
    extra = {plain_text(key): plain_text(value) for key, value in (parameters or {}).items()}
    contents = gathering.payload(described, rank_selection)
    style, script = _asset("report.css"), _joined_scripts()
    n_components = len(described.components)
    html = environment.from_string(_asset("report.html.j2")).render(
        title=plain_text(title or counted(n_components, described.terms.component)),
        terms=described.terms,
        columns=bool(contents["columns"]),
        has_coherence=any(topic["coherence"] is not None for topic in contents["topics"]),
        verdict=summary.verdict(described),
        tiles=summary.fit_tiles(described),
        matrix_rows=summary.matrix_rows(described),
        sample_rows=summary.sample_rows(described),
        version_rows=summary.version_rows(),
        snippet=reproduce.python_snippet(model, extra),
        command=reproduce.command_line(model, extra),
        rank=None if rank_selection is None else summary.rank_facts(described, rank_selection),
        has_seed=getattr(model, "random_state", None) is not None,
        n_samples=len(described.W),
        n_features=described.components.shape[1],
        n_components=n_components,
        style=style,
        script=script,
        style_hash=_content_hash(style),
        script_hash=_content_hash(script),
        data=embedded_json(contents),
    )
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it, such as report.html.")
    with writing(target, "w") as stream:
        stream.write(html)
    return target


def embedded_json(value: Any) -> str:
    r"""Return JSON that is safe inside a script element, whatever its strings hold.

    Examples
    --------
    >>> print(embedded_json(["</script>"]))
    ["\u003c/script\u003e"]
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _environment() -> Any:
    """Return a jinja2 environment that escapes what it inserts and refuses unknown names."""
    jinja2 = require("jinja2", "A report", "report")
    return jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _asset(name: str) -> str:
    # Through importlib, because the package may be in a zip archive.
    return resources.files("klnmf.report").joinpath("page", name).read_text(encoding="utf-8")


def _joined_scripts() -> str:
    """All scripts inside one function, so that none of their names is global."""
    parts = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();'


def _content_hash(text: str) -> str:
    """Hash of an inline script or style for the Content-Security-Policy."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
