"""``klnmf report``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klnmf.cli.files import PAGE, check_output, stem_of
from klnmf.cli.messages import DONE, CommandError, say
from klnmf.cli.options import (
    add_data,
    add_events,
    add_matching,
    add_model,
    add_output,
    add_quiet,
)

if TYPE_CHECKING:
    from klnmf.data.sparse_tensor import SparseTensor
    from klnmf.model_selection import RankSelection
    from klnmf.readers import CountTable
    from klnmf.saved.models import SavedModel

SUMMARY = "write an HTML report about a model"
EXAMPLES = """\
  klnmf report model.klnmf -o report.html
  klnmf report model.klnmf counts.npz -o report.html   with a summary of the data
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model(parser)
    add_output(parser, "report to write (default: beside MODEL, with its name and .html)")
    parser.add_argument("--rank", metavar="FILE", help="also show this result of klnmf rank")
    parser.add_argument("--title", help="title of the report")
    add_quiet(parser)
    add_matching(parser)
    add_events(parser)
    add_data(parser, nargs="?")


def run(args: argparse.Namespace) -> int:
    """Write the report on a model, with a summary of DATA if it is given."""
    from klnmf.cli.data import read_data
    from klnmf.cli.events import is_of_events, refuse_options
    from klnmf.cli.models import in_models_features, read_model, represent, take_options
    from klnmf.model_selection import RankSelection

    output = f"{stem_of(args.model)}.html" if args.output is None else args.output
    output = check_output(args, PAGE, output, args.model, args.data, args.rank)
    saved = read_model(args, takes_events=True)
    rank = None if args.rank is None else RankSelection.load(args.rank)
    if rank is not None:
        _check_same_data(args.rank, rank, saved)
    if is_of_events(saved):
        refuse_options(args, "rank", "title")
        X = None if args.data is None else _fitted_events(args, saved)
        write_page(args, output, saved, {}, X, _how_to_fit(args, saved), rank)
        return DONE
    samples, X = samples_of(saved), None
    if args.data is not None:
        take_options(args, saved)
        table = read_data(args)
        X = in_models_features(args, saved, table)
        if not _is_what_was_fitted(saved, table, X):
            samples = samples_of(table, represent(args, saved, table))
        elif table.labels is not None:
            samples["labels"] = table.labels
    if samples["W"] is None:
        raise CommandError(
            f"{args.model} does not hold W, which a report needs: name the data, as in "
            f"`klnmf report {args.model} DATA`."
        )
    write_page(args, output, saved, samples, X, _how_to_fit(args, saved), rank)
    return DONE


def samples_of(found: SavedModel | CountTable, W: Any = None) -> dict[str, Any]:
    """Return W and what is known of its samples, as arguments of `klnmf.report.write_report`."""
    from klnmf.cli.data import columns_of
    from klnmf.readers import CountTable
    from klnmf.saved.columns import EXCERPT

    if isinstance(found, CountTable):
        columns, labels, names = columns_of(found), found.labels, found.row_names
    else:
        W, columns, names = found.W, dict(found.sample_metadata), found.sample_names
        labels = _labels(found.metadata, columns, None if W is None else W.shape[0])
    documents = columns.pop(EXCERPT, None)
    about = {"labels": labels, "documents": documents, "metadata": columns}
    return {"W": W, "sample_names": names, **about}


def write_page(
    args: argparse.Namespace,
    path: Path,
    saved: SavedModel,
    samples: dict[str, Any],
    X: Any,
    how: dict[str, Any],
    rank: RankSelection | None = None,
    intervals: Any = None,
) -> None:
    """Write the report on a saved model and these samples."""
    from klnmf.report import write_report

    write_report(
        path,
        saved.model,
        X=X,
        feature_names=saved.feature_names,
        component_names=saved.component_names,
        vocabulary="texts" if saved.metadata.get("open_features") is True else None,
        title=args.title,
        parameters=how,
        rank_selection=rank,
        intervals=intervals,
        **samples,
    )
    say(args, f"report: {path}")


def _how_to_fit(args: argparse.Namespace, saved: SavedModel) -> dict[str, Any]:
    """Return the command that made the model, or the code of a `TopicModel`."""
    metadata = saved.metadata
    if isinstance(metadata.get("command"), list):
        # Words of a file that may come from a stranger: no shell takes them for other commands.
        return {"command": shlex.join(["klnmf", *map(str, metadata["command"])])}
    if "topic_model" not in metadata:
        return {"input": metadata["input"]} if "input" in metadata else {}
    from klnmf.topic_model import TopicModel
    from klnmf.topic_model.statements import code_of_fit

    return {"python": code_of_fit(TopicModel.load(args.model))}


def _labels(metadata: dict[str, Any], columns: dict[str, Any], n_samples: int | None) -> Any:
    """Return the labels of a model's samples. Metadata of a strange file may be anything."""
    column = metadata.get("label_column")
    found = columns.get(column) if isinstance(column, str) else metadata.get("labels")
    if not isinstance(found, list) or len(found) != n_samples:
        return None
    return ["" if label is None else label for label in found]


def _fitted_events(args: argparse.Namespace, saved: SavedModel) -> SparseTensor:
    """Read DATA, which must be what a model of events was fitted to."""
    from klnmf.cli.events import read_like

    X, total = read_like(args, saved), saved.metadata.get("total")
    if X.shape != saved.model.shape_ or total not in (None, X.total):
        raise CommandError(
            f"{args.data} is not what {args.model} was fitted to. A report on events is about the "
            "fit: leave DATA out. klnmf transform represents new events."
        )
    return X


def _check_same_data(path: str, rank: RankSelection, saved: SavedModel) -> None:
    """Refuse the ranks of data of another shape than those of the model."""
    n_fitted = None if saved.W is None else int(saved.W.shape[0])
    n_features = getattr(saved.model, "n_features_in_", None)
    if n_features is None:  # of events
        n_fitted, n_features = saved.model.shape_[:2]
    shape, of_model = (rank.n_samples, rank.n_features), (n_fitted, n_features)
    if shape[1] != of_model[1] or of_model[0] not in (None, shape[0]):
        raise CommandError(
            f"{path} is about {shape[0]:,} samples × {shape[1]:,} features, and the model about "
            f"{'' if n_fitted is None else f'{n_fitted:,} samples × '}{of_model[1]:,} features. "
            "Name the result of klnmf rank for the data of the model."
        )


def _is_what_was_fitted(saved: SavedModel, table: CountTable, X: Any) -> bool:
    """Whether the data, X on the model's features, seem to be those of the W in the file."""
    facts, (names, new_names) = saved.metadata, (saved.sample_names, table.row_names)
    fitted = (facts.get("n_samples"), facts.get("nonzeros"), facts.get("total"))
    found = (X.shape[0], int(X.nnz), float(X.sum()))
    same_names = (None if names is None else list(names)) == (
        None if new_names is None else list(new_names)
    )
    return saved.W is not None and fitted == found and same_names
