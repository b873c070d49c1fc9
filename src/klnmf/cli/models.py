"""A model file of a command line, and new data brought to its features."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from klnmf.cli.data import OpenedTable, open_data, read_data, say, stored_reading
from klnmf.cli.errors import CommandError
from klnmf.model_files import load_model
from klnmf.projection import match_features, project, restricted
from klnmf.readers import CountTable
from klnmf.readers.formats import recognised
from klnmf.saved.models import SavedModel

TEXT_FORMATS = ("texts", "jsonl")
# What a word is, and where the text stands; not which words are left out, the model knows its own.
_OF_TEXTS = (
    *("encoding", "text_field", "id_field", "label_field", "pattern", "stop_words"),
    *("ngram_range", "token_pattern", "lowercase"),
)


def read_model(path: str) -> SavedModel:
    """Load a model, with a hint where the file is something else."""
    try:
        return load_model(path)
    except ValueError as error:
        raise CommandError(
            f"{error} MODEL must be a file that `klnmf fit` or `klnmf consensus` wrote."
        ) from error


def read_new(args: argparse.Namespace, saved: SavedModel) -> CountTable:
    """Read DATA for a model: texts are taken apart as those were that it was fitted to."""
    _take_apart_as(args, saved)
    return read_data(args)


def open_new(args: argparse.Namespace, saved: SavedModel) -> CountTable | OpenedTable:
    """Read DATA for a model, or open it where it is a matrix that was prepared on disk."""
    _take_apart_as(args, saved)
    return open_data(args)


def _take_apart_as(args: argparse.Namespace, saved: SavedModel) -> None:
    name = args.format or (recognised(Path(args.data)) if Path(args.data).exists() else None)
    if name in TEXT_FORMATS:
        for option, value in stored_reading(saved.metadata).items():
            if option in _OF_TEXTS and getattr(args, option) is None:
                setattr(args, option, tuple(value) if isinstance(value, list) else value)


def represent(args: argparse.Namespace, saved: SavedModel, table: CountTable | OpenedTable) -> Any:
    """W of new samples: features are matched by name where both sides have names.

    A feature of the model that the data do not have was not counted there, and says nothing; but
    where the features are those that occur, as in texts, its count is 0.
    """
    if isinstance(table, OpenedTable):
        if saved.feature_names is None or table.column_names is None:
            _check_width(saved, table)
            return saved.model.transform(table.X)
        if list(saved.feature_names) == list(table.column_names):
            return saved.model.transform(table.X)
        say(args, "the features are not the model's: DATA is read into memory to match them")
        table = table.in_memory()
    if table.open_features or saved.feature_names is None or table.column_names is None:
        X, line = aligned(saved, table)
        say(args, line)
        return saved.model.transform(X)
    W, overlap = project(
        saved.model, table.X, table.column_names, model_feature_names=saved.feature_names
    )
    say(args, str(overlap))
    return W


def aligned(saved: SavedModel, table: CountTable) -> tuple[Any, str]:
    """Return counts in the model's features, absent ones being 0, and a line on the overlap."""
    if saved.feature_names is None or table.column_names is None:
        _check_width(saved, table)
        return table.X, "features are taken in the order of the model's: there are no names"
    overlap = match_features(saved.feature_names, table.column_names)
    selected = table.X[:, overlap.data_positions].tocoo()
    columns = overlap.model_positions[selected.col]
    shape = (table.shape[0], saved.model.n_features_in_)
    line = str(overlap)
    if table.open_features:
        line = (
            f"{overlap.n_found:,} of {overlap.n_model:,} features of the model occur, "
            f"{overlap.n_ignored:,} others ignored"
        )
    return type(table.X)((selected.data, (selected.row, columns)), shape=shape), line


def on_common_features(saved: SavedModel, table: CountTable) -> tuple[Any, Any, str]:
    """Return model, counts and a line on the overlap, on the features that both know.

    Where the features are those that occur, the counts of the others are 0, and all are known.
    """
    if table.open_features or saved.feature_names is None or table.column_names is None:
        return saved.model, *aligned(saved, table)
    overlap = match_features(saved.feature_names, table.column_names)
    X = table.X[:, overlap.data_positions]
    return restricted(saved.model, overlap.model_positions, X), X, str(overlap)


def _check_width(saved: SavedModel, table: CountTable | OpenedTable) -> None:
    if table.shape[1] != saved.model.n_features_in_:
        unnamed = "the model" if saved.feature_names is None else "DATA"
        raise CommandError(
            f"DATA has {table.shape[1]:,} features and the model {saved.model.n_features_in_:,}; "
            f"{unnamed} has no names by which they could be matched. Give DATA in the features "
            "that the model was fitted to, or with names (--column-names)."
        )
