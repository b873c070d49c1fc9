"""A model file of a command line, and new data brought to its features."""

from __future__ import annotations

import argparse
from typing import Any

from klnmf.cli.data import OpenedTable, say
from klnmf.cli.errors import CommandError
from klnmf.model_files import load_model
from klnmf.on_disk import OnDiskMatrix
from klnmf.projection import match_features, project
from klnmf.readers import CountTable
from klnmf.saved.models import SavedModel


def read_model(path: str) -> SavedModel:
    """Load a model, with a hint where the file is something else."""
    try:
        return load_model(path)
    except ValueError as error:
        raise CommandError(f"{error} MODEL must be a file that `klnmf fit` wrote.") from error


def represent(args: argparse.Namespace, saved: SavedModel, table: CountTable | OpenedTable) -> Any:
    """W of new samples: features are matched by name where both sides have names."""
    if saved.feature_names is None or table.column_names is None:
        _check_width(saved, table)
        return saved.model.transform(table.X)
    X = table.X
    if isinstance(X, OnDiskMatrix):
        if list(saved.feature_names) == list(table.column_names):
            return saved.model.transform(X)
        say(args, "the features are not the model's: DATA is read into memory to match them")
        X = X.as_csr()
    W, overlap = project(
        saved.model, X, table.column_names, model_feature_names=saved.feature_names
    )
    say(args, str(overlap))
    return W


def aligned(saved: SavedModel, table: CountTable) -> tuple[Any, str | None]:
    """Return counts in the model's features, absent ones being 0, and a line on the overlap."""
    if saved.feature_names is None or table.column_names is None:
        _check_width(saved, table)
        return table.X, None
    overlap = match_features(saved.feature_names, table.column_names)
    selected = table.X[:, overlap.data_positions].tocoo()
    columns = overlap.model_positions[selected.col]
    shape = (table.shape[0], saved.model.n_features_in_)
    return type(table.X)((selected.data, (selected.row, columns)), shape=shape), str(overlap)


def _check_width(saved: SavedModel, table: CountTable | OpenedTable) -> None:
    if table.shape[1] != saved.model.n_features_in_:
        unnamed = "the model" if saved.feature_names is None else "DATA"
        raise CommandError(
            f"DATA has {table.shape[1]:,} features and the model {saved.model.n_features_in_:,}; "
            f"{unnamed} has no names by which they could be matched. Give DATA in the features "
            "that the model was fitted to, or with names (--column-names)."
        )
