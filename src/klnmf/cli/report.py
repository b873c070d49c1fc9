"""``klnmf report``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from klnmf.cli.files import PAGE, check_output, stem_of
from klnmf.cli.messages import DONE, CommandError, say
from klnmf.cli.metadata import columns_of, labels_of, reproduction
from klnmf.cli.options import add_data, add_matching, add_model, add_output, add_quiet

if TYPE_CHECKING:
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
    add_data(parser, nargs="?")


def run(args: argparse.Namespace) -> int:
    """Write the report on a model, with a summary of DATA if it is given."""
    from klnmf.cli.data import read_data
    from klnmf.cli.models import in_models_features, read_model, represent, take_options
    from klnmf.model_selection import RankSelection
    from klnmf.report import write_report
    from klnmf.saved.columns import EXCERPT
    from klnmf.saved.naming import stored_component_names

    output = f"{stem_of(args.model)}.html" if args.output is None else args.output
    check_output(args, PAGE, output, args.model, args.data, args.rank)
    saved = read_model(args.model)
    rank = None if args.rank is None else RankSelection.load(args.rank)
    if rank is not None:
        _check_same_data(args.rank, rank, saved)
    W, X, columns = saved.W, None, dict(saved.sample_metadata)
    labels, sample_names = labels_of(saved.metadata, columns), saved.sample_names
    if args.data is not None:
        take_options(args, saved)
        table = read_data(args)
        X = in_models_features(args, saved, table)
        if not _is_what_was_fitted(saved, table, X):
            W, labels, sample_names = represent(args, saved, table), None, table.row_names
            columns = columns_of(table)
        labels = labels if table.labels is None else table.labels
    if W is None:
        raise CommandError(
            f"{args.model} does not hold W, which a report needs: name the data, as in "
            f"`klnmf report {args.model} DATA`."
        )
    excerpts = columns.pop(EXCERPT, None)
    write_report(
        output,
        saved.model,
        W,
        X,
        feature_names=saved.feature_names,
        sample_names=sample_names,
        labels=_of_right_length(labels, W.shape[0]),
        documents=excerpts,
        component_names=stored_component_names(saved.metadata, W.shape[1]),
        metadata=columns,
        vocabulary="texts" if saved.metadata.get("open_features") is True else None,
        title=args.title,
        parameters=_how_to_fit(args, saved),
        rank_selection=rank,
    )
    say(args, f"report: {output}")
    return DONE


def _how_to_fit(args: argparse.Namespace, saved: SavedModel) -> dict[str, str]:
    """Return what the report says on how to run the fit again, of a `TopicModel` too."""
    if "topic_model" not in saved.metadata:
        return reproduction(saved.metadata, saved.model)
    from klnmf.topic_model import TopicModel
    from klnmf.topic_model.reproduction import reproduction as of_topic_model

    return of_topic_model(TopicModel.load(args.model))


def _check_same_data(path: str, rank: RankSelection, saved: SavedModel) -> None:
    """Refuse the ranks of data of another shape than those of the model."""
    n_fitted = None if saved.W is None else int(saved.W.shape[0])
    shape, of_model = (rank.n_samples, rank.n_features), (n_fitted, saved.model.n_features_in_)
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


def _of_right_length(values: Any, n_expected: int) -> Any:
    """Return labels or names if there are so many. Metadata of a file may be anything."""
    is_list = hasattr(values, "__len__") and not isinstance(values, str | dict)
    return values if is_list and len(values) == n_expected else None
