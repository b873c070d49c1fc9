"""MODEL of a command line, and new data matched to its features."""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.cli.data import OpenedTable
from klnmf.cli.events import check_kind
from klnmf.cli.messages import CommandError, say
from klnmf.cli.options import numbers_of
from klnmf.data.validation import empty_samples_message, warn_caller
from klnmf.estimators.kl_nmf import load_model
from klnmf.named_features import (
    FeatureOverlap,
    match_features,
    model_of_features,
    transform_common,
    with_zeros,
)
from klnmf.readers import CountTable
from klnmf.readers.formats import chosen_format
from klnmf.saved.columns import EXCERPT
from klnmf.saved.models import SavedModel
from klnmf.texts.counting import VECTORIZER_OPTIONS
from klnmf.texts.stop_words import is_available

# Options that define the features and their counts: where the text is found, what a word is, which
# genes and which matrix of a file are read.
# Options that leave out words do not matter: the model has its list of words.
_KEPT = (
    *("encoding", "text_field", "id_field", "pattern", "delimiter", "normalize"),
    *("stop_words", "ngram_range", "token_pattern", "lowercase", "feature_type", "feature_names"),
    "layer",
)


def read_model(args: argparse.Namespace, *, takes_events: bool = False) -> SavedModel:
    """Load MODEL, which may be one of events only where that is said.

    An error says which files are models.
    """
    try:
        saved = load_model(args.model)
    except ValueError as error:
        raise CommandError(
            f"{error} MODEL must be a file written by `klnmf fit` or `klnmf consensus`; it comes "
            "before DATA."
        ) from error
    check_kind(args, saved, takes_events=takes_events)
    saved.model.set_params(backend="auto")  # that of the fit may not be here
    return saved


def take_options(args: argparse.Namespace, saved: SavedModel) -> None:
    """Read DATA with the options that define the features of a model, unless others were given."""
    path = Path(os.path.expanduser(args.data))
    how = saved.metadata.get("reading")  # of a strange file, it may be anything
    reading = how if isinstance(how, dict) else {}
    other = VECTORIZER_OPTIONS.difference(args.reading).intersection(reading)
    if other:  # as a `TopicModel` may have them
        raise CommandError(
            f"the words of the model were counted with {', '.join(sorted(other))}, for which there "
            "is no option here. Use klnmf.TopicModel.load in Python."
        )
    stored = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in reading.items()
        if name in _KEPT and _is_plain(value)
    }
    if not is_available(stored.get("stop_words")):  # a file that is no longer there
        del stored["stop_words"]
    if args.layout or args.columns:  # a table of counts
        stored.pop("text_field", None)
    given = {name: getattr(args, name) for name in stored if getattr(args, name) is not None}
    available = chosen_format(path, args.format, stored | given).options
    for name in available & (set(stored) - set(given)):
        setattr(args, name, stored[name])
        if name == "layer":  # another file may have its counts elsewhere
            say(args, f"reading {args.layer!r}, as for the model; --layer reads another matrix")


def _is_plain(value: Any) -> bool:
    entries = value if isinstance(value, list) else [value]
    return all(isinstance(entry, str | bool | int | float) for entry in entries)


def represent(args: argparse.Namespace, saved: SavedModel, table: CountTable | OpenedTable) -> Any:
    """W of new samples. Features are matched by name if model and data both have names."""
    if isinstance(table, OpenedTable):
        of_model, of_data = saved.feature_names, table.column_names
        if of_model is None or of_data is None or list(of_model) == list(of_data):
            _check_width(saved, table)
            return saved.model.transform(table.X)
        say(args, "DATA has other features than the model: reading it into memory to match them")
        table = table.in_memory()
    overlap = _matched(args, saved, table)
    say(args, _line(args, saved, overlap))
    if overlap is None:
        return saved.model.transform(table.X)
    return transform_common(saved.model, _common_counts(table, overlap), overlap)


def represent_sparsely(
    args: argparse.Namespace, saved: SavedModel, table: CountTable | OpenedTable
) -> Any:
    """W of new samples, with as few components in each as its likelihood allows."""
    from klnmf.uncertainty import sparse_assignment

    table = table.in_memory() if isinstance(table, OpenedTable) else table
    model, X = on_shared_features(args, saved, table)
    return sparse_assignment(model, X, sample_weight=numbers_of(args.sample_weight))


def on_shared_features(
    args: argparse.Namespace, saved: SavedModel, table: CountTable
) -> tuple[Any, Any]:
    """Return model and counts on the features that were observed."""
    overlap = _matched(args, saved, table)
    say(args, _line(args, saved, overlap))
    if overlap is None:
        return saved.model, table.X
    return model_of_features(saved.model, _common_counts(table, overlap), overlap)


def in_models_features(args: argparse.Namespace, saved: SavedModel, table: CountTable) -> Any:
    """Return counts of the model's features, with 0 for absent ones."""
    overlap = _matched(args, saved, table)
    if overlap is None:
        return table.X
    return with_zeros(table.X[:, overlap.data_positions], overlap)


def _matched(
    args: argparse.Namespace, saved: SavedModel, table: CountTable
) -> FeatureOverlap | None:
    """Features that both have; None if there are no names and the numbers of features agree."""
    if saved.feature_names is None or table.column_names is None:
        _check_width(saved, table)
        return None
    return match_features(
        saved.feature_names,
        table.column_names,
        absent_features=args.absent_features or table.absent_features,
        min_overlap=args.min_overlap,
    )


def _common_counts(table: CountTable, overlap: FeatureOverlap) -> Any:
    """Return counts of the common features; warn of samples that have only other features."""
    X = table.X[:, overlap.data_positions]
    is_without = (np.diff(X.indptr) == 0) & (np.diff(table.X.indptr) > 0)
    are_texts = table.excerpts is not None
    which = "that the model knows" if are_texts else "of features that the model has"
    message = empty_samples_message(is_without, table.row_names, which, are_texts)
    if message is not None:
        warn_caller(message, UserWarning)
    return X


def _line(args: argparse.Namespace, saved: SavedModel, overlap: FeatureOverlap | None) -> str:
    if overlap is None:
        return "features have no names: the columns of DATA are taken to be the model's, in order"
    is_unsure = overlap.missing and overlap.absent_features == "unobserved"
    if is_unsure and not args.absent_features and saved.metadata.get("open_features") is True:
        what = "Words" if EXCERPT in saved.sample_metadata else "Features"
        return (
            f"{overlap}. {what} missing from DATA are treated as unknown. If they simply do not "
            "occur, add --absent-features zero"
        )
    return str(overlap)


def _check_width(saved: SavedModel, table: CountTable | OpenedTable) -> None:
    if table.shape[1] != saved.model.n_features_in_:
        unnamed = "the model" if saved.feature_names is None else "DATA"
        raise CommandError(
            f"DATA has {table.shape[1]:,} features and the model {saved.model.n_features_in_:,}; "
            f"they cannot be matched because {unnamed} has no feature names. Give DATA with the "
            "features that the model was fitted to, or name them with --column-names."
        )
