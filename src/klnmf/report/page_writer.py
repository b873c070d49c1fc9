"""Writes the report: template, style, scripts and data in a single HTML page."""

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.constraints.names import names_seen_in_fit
from klnmf.report import gathering, reproduce, summary, tensors
from klnmf.report.gathering import check_length
from klnmf.report.vocabulary import Vocabulary, counted, plain_text, terms_of
from klnmf.support.descriptions import described as in_words
from klnmf.support.optional_packages import require
from klnmf.support.whole_files import writing
from klnmf.topics import coherence as coherence_in
from klnmf.topics.checks import Names, checked_names

# Joined in this order to one script.
_SCRIPTS = (
    *("elements", "selection", "course", "cards", "map", "structure", "columns"),
    *("rank", "tables", "search", "start"),
)
# Characters that could end the element that holds the data, or a line of JavaScript.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def write_report(
    path: str | os.PathLike[str],
    model: Any,
    W: Any = None,
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
    intervals: Any = None,
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
    model : KLNMF or PoissonCP
        A fitted model. The report on a `klnmf.PoissonCP` shows the labels that lead each component
        in every mode, and lines over modes of dates or of a few numbers. It takes ``X``,
        ``component_names``, ``title``, ``parameters`` and ``rank_selection``; all else is for
        matrices.
    W : array-like or sparse matrix of shape (n_samples, n_components)
        Representation of the samples, as ``fit_transform`` returns it.
    X : array-like or sparse matrix of shape (n_samples, n_features), or SparseTensor, optional
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
        the code that fits the model. ``"python"`` or ``"command"``, other code or the command that
        made the model, is shown in its place.
    rank_selection : RankSelection, optional
        Result of `klnmf.model_selection.select_rank`, for a section on the number of
        components.
    intervals : Posterior or Bootstrap, optional
        Result of `klnmf.uncertainty.posterior` or `klnmf.uncertainty.bootstrap` for this model, for
        a section on how sure the shares are.

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
    described: summary.Subject
    if hasattr(model, "factors_"):
        refused = {"W": W, "feature_names": feature_names, "sample_names": sample_names}
        refused |= {"labels": labels, "documents": documents, "coherence": coherence}
        refused |= {"metadata": metadata, "vocabulary": vocabulary}
        described = tensors.checked_tensor(model, X, component_names, refused)
    else:
        components, W, X = gathering.checked_factors(model, W, X)
        n_samples, (n_components, n_features) = len(W), components.shape
        terms = terms_of(vocabulary, has_documents=documents is not None)
        columns: dict[str, Any] = dict(metadata or {})
        for name, column in columns.items():
            check_length(f"metadata[{name!r}]", column, n_samples)
        check_length("documents", documents, n_samples)
        check_length("labels", labels, n_samples)
        check_length("coherence", coherence, n_components, "components")
        if labels is not None:
            columns |= {"label": labels}
        if coherence is None and X is not None and terms.component == "topic":
            coherence = coherence_in(components, X, "npmi")
        if feature_names is None:
            feature_names = names_seen_in_fit(model)
        if component_names is not None:
            component_names = checked_names(component_names, n_components, "component")
        described = gathering.Described(
            model=model,
            components=components,
            W=W,
            X=X,
            words=_names(feature_names, n_features, "feature", terms.feature),
            samples=_names(sample_names, n_samples, "sample", terms.sample),
            labels=gathering.cut_labels(labels),
            documents=documents,
            component_names=component_names,
            coherence=None if coherence is None else [float(value) for value in coherence],
            metadata={plain_text(name, gathering.LONGEST_NAME): x for name, x in columns.items()},
            terms=terms,
        )
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(f"parameters must be a dict; got {in_words(parameters)}.")
    if rank_selection is not None and not hasattr(rank_selection, "table"):
        given = in_words(rank_selection)
        raise TypeError(f"rank_selection must be what select_rank returns; got {given}.")
    if intervals is not None:
        summary.check_intervals(described, intervals)
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a str; got {in_words(title)}.")
    extra = {plain_text(key): plain_text(value) for key, value in (parameters or {}).items()}
    command = extra.pop("command", None)
    snippet = extra.pop("python", None)
    if command is None and snippet is None:
        snippet = reproduce.python_snippet(model, extra)
    if isinstance(described, tensors.DescribedTensor):
        contents = tensors.tensor_payload(described, rank_selection)
    else:
        contents = gathering.payload(described, rank_selection)
    terms, n_components = described.terms, described.n_components
    style, script = _asset("report.css"), _joined_scripts()
    html = environment.from_string(_asset("report.html.j2")).render(
        title=plain_text(title or counted(n_components, terms.component)),
        terms=terms,
        columns=bool(contents["columns"]),
        has_coherence=bool(np.isfinite([t["coherence"] for t in contents["topics"]]).any()),
        verdict=summary.verdict(described),
        data_rows=summary.data_rows(described),
        version_rows=summary.version_rows(),
        snippet=snippet,
        command=command,
        rank=None if rank_selection is None else summary.rank_facts(described, rank_selection),
        intervals=None if intervals is None else intervals._shown(),
        level="" if intervals is None else f"{100 * intervals.level:.3g}",
        has_seed=getattr(model, "random_state", None) is not None,
        size=described.size,
        is_tensor="modes" in contents,
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
    plain = _plain(value)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _plain(value: Any) -> Any:
    """Arrays as lists, numbers with six digits, more than the page shows; None if not finite.

    >>> _plain({"totals": np.array([1234567.0, 1 / 3, np.nan])})
    {'totals': [1234567, 0.333333, None]}
    """
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, float):
        return value
    if value.is_integer():
        return int(value)
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _names(names: Any, expected: int, of_what: str, term: str) -> list[str]:
    """Return the names that were given, or the page's term with a number."""
    if names is None:
        return [f"{term} {i}" for i in range(expected)]
    return checked_names(names, expected, of_what)


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
