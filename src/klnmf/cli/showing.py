"""``klnmf topics`` and ``klnmf report``: a model for readers."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from klnmf.cli.data import reproduction, say, stem_of
from klnmf.cli.errors import DONE, CommandError
from klnmf.cli.models import in_models_features, read_model, read_new, represent
from klnmf.cli.outputs import PAGE, TOPICS, check_output, write_rows
from klnmf.model_selection import RankSelection
from klnmf.readers import CountTable
from klnmf.saved.models import SavedModel
from klnmf.support.whole_files import writing
from klnmf.topics import component_shares, format_topics, top_features


def topics(args: argparse.Namespace) -> int:
    """Print the leading features of each component."""
    form = _form(args)
    saved = read_model(args.model)
    components, names, W = saved.model.components_, saved.feature_names, saved.W
    if form == ".txt":
        text = format_topics(components, names, n_top=args.top, by=args.by, W=W)
        _print(args.output, text + "\n")
        return DONE
    leading = top_features(components, names, n_top=args.top, by=args.by, W=W)
    shares = component_shares(components, W)
    if form in (".csv", ".tsv"):
        rows: list[list[Any]] = [["component", "share", "rank", "feature", args.by]]
        rows += [
            [k, f"{shares[k]:.6g}", place, str(name), f"{score:.6g}"]
            for k, features in enumerate(leading)
            for place, (name, score) in enumerate(features, start=1)
        ]
        write_rows(args.output, rows, delimiter="\t" if form == ".tsv" else ",")
        return DONE
    found = [
        {
            "component": k,
            "share": float(shares[k]),
            "features": [{"feature": name, args.by: score} for name, score in features],
        }
        for k, features in enumerate(leading)
    ]
    _print(args.output, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return DONE


def _form(args: argparse.Namespace) -> str:
    """Return the form to write, as an ending: by the options, or by the name of the output."""
    asked = ".csv" if args.csv else ".json" if args.json else None
    if args.output is None or args.output == "-":
        return asked or ".txt"
    by_name = check_output(TOPICS, args.output, args.model).suffix.lower()
    if asked and by_name not in ("", ".txt", asked) and (asked, by_name) != (".csv", ".tsv"):
        raise CommandError(f"--{asked[1:]} cannot be used with the name {args.output}.")
    if by_name in ("", ".txt"):
        return asked or ".txt"
    return by_name


def report(args: argparse.Namespace) -> int:
    """Write the page about a model; with DATA, its summary too."""
    from klnmf.report import write_report

    default = f"{stem_of(args.model)}.html"
    output = default if args.output is None else args.output
    check_output(PAGE, output, args.model, args.data, args.rank)
    saved = read_model(args.model)
    rank = None if args.rank is None else RankSelection.load(args.rank)
    W, X = saved.W, None
    labels, sample_names = saved.metadata.get("labels"), saved.sample_names
    if args.data is not None:
        table = read_new(args, saved)
        if not _is_what_was_fitted(saved, table):
            W, labels, sample_names = represent(args, saved, table), None, table.row_names
        labels = labels if table.labels is None else table.labels
        X = in_models_features(args, saved, table)
    if W is None:
        raise CommandError(
            f"{args.model} does not hold W, which a report needs: name the data, as in "
            f"`klnmf report {args.model} DATA`."
        )
    write_report(
        output,
        saved.model,
        W,
        X,
        feature_names=saved.feature_names,
        sample_names=sample_names,
        labels=_of_right_length(labels, W.shape[0]),
        title=args.title,
        parameters=reproduction(saved.metadata),
        rank_selection=rank,
    )
    say(args, f"report: {output}")
    return DONE


def _is_what_was_fitted(saved: SavedModel, table: CountTable) -> bool:
    """Whether the data are those that the W in the file belongs to, as far as can be told."""
    facts = saved.metadata
    known = (facts.get("n_samples"), facts.get("nonzeros"), facts.get("total"))
    found = (table.shape[0], int(table.X.nnz), float(table.X.sum()))
    names, new_names = saved.sample_names, table.row_names
    same_names = (names is None) == (new_names is None) and (
        names is None or np.array_equal(names, new_names)
    )
    return saved.W is not None and known == found and same_names


def _of_right_length(labels: Any, n_samples: int) -> Any:
    is_list = isinstance(labels, list | np.ndarray)  # metadata of a file may be anything
    return labels if is_list and len(labels) == n_samples else None


def _print(path: str | None, text: str) -> None:
    if path is None or path == "-":
        print(text, end="")
        return
    with writing(path, "w") as file:
        file.write(text)
