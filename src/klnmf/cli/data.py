"""DATA of a command line: read with its options, and what a model keeps of it."""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from klnmf.cli.events import is_tensor_file
from klnmf.cli.messages import CommandError, say
from klnmf.cli.options import TAKE_EVENTS
from klnmf.data.not_counts import NOT_RAW, NotCountsWarning, transformation_of, warn_of_fractions
from klnmf.data.on_disk.matrix import OnDiskMatrix, open_matrix
from klnmf.data.sparse_data import view_of
from klnmf.data.validation import EmptySamplesWarning, warn_of_empty_samples
from klnmf.readers import FORMATS, CountTable, read_counts
from klnmf.readers.formats import check_options, chosen_format, format_of
from klnmf.readers.hdf5 import h5ad_parts
from klnmf.readers.text_formats import TextFormat
from klnmf.saved.columns import EXCERPT
from klnmf.support.option_names import option
from klnmf.texts.pruning import OF_TEXTS, PRUNING_OPTIONS, all_kept

# Options of reading that are no options of single formats.
_OF_ALL_FORMATS = ("format", "layer", "transpose")
# Columns of metadata that are named.
_COLUMNS_NAMED = 8


class OpenedTable(NamedTuple):
    """A matrix on disk with its names: what a fit needs of a `CountTable`."""

    X: OnDiskMatrix
    row_names: Any
    column_names: Any
    labels: Any
    open_features: bool
    metadata: dict[str, Any]
    excerpts: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Samples and features."""
        return self.X.shape

    def in_memory(self) -> CountTable:
        """Read all of it into memory."""
        return read_counts(self.X.path, format="prepared")


# ---- reading -------------------------------------------------------------------------------------


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options for reading DATA that were given; the others are left to the readers' defaults."""
    given = {name: getattr(args, name) for name in args.reading}
    return {name: value for name, value in given.items() if value is not None}


def open_data(args: argparse.Namespace) -> CountTable | OpenedTable:
    """Read DATA, or open it if it is a matrix that was prepared on disk."""
    path = Path(args.data)
    is_folder = path.is_dir() and args.format in (None, "prepared")
    if not is_folder or format_of(path, args.format) != "prepared" or args.transpose:
        return read_data(args)
    given = {name: v for name, v in given_options(args).items() if name not in _OF_ALL_FORMATS}
    check_options(FORMATS["prepared"], given)
    for name in PRUNING_OPTIONS & given.keys():
        raise CommandError(
            f"{args.data} is a prepared matrix, whose features cannot be left out: use "
            f"{option(name)} with `klnmf prepare` instead."
        )
    X = open_matrix(path)
    n, m = X.shape
    say(args, f"{args.data}: {n:,} samples × {m:,} features, {X.nnz:,} nonzeros, on disk")
    table = OpenedTable(X, X.row_names, X.column_names, X.labels, X.open_features, {})
    _name_empty_samples(table, X.data.view(0).indptr)
    return table


def limits_by_default(args: argparse.Namespace) -> dict[str, Any]:
    """Set which words of texts are left out to what `klnmf.TopicModel` leaves out, if unsaid.

    Words of new texts are all counted: a model knows its own. Returns what was set.
    """
    given, path = given_options(args), Path(os.path.expanduser(args.data))
    is_of_texts = isinstance(chosen_format(path, args.format, given), TextFormat)
    if hasattr(args, "model") or not is_of_texts:
        return {}
    chosen = {name: value for name, value in OF_TEXTS.items() if name not in given}
    vars(args).update(chosen)  # a model keeps how its data were read
    return chosen


def say_limits(args: argparse.Namespace, chosen: dict[str, Any]) -> None:
    """Print which words are left out unless the user says otherwise."""
    words = " ".join(option(name, value) for name, value in chosen.items())
    if words:
        say(args, f"rare and frequent words are left out ({words}); {all_kept()} keep them")


def read_data(args: argparse.Namespace, *, is_for_model: bool = True) -> CountTable:
    """Read DATA, print its size, and warn of what a model cannot make much of."""
    if is_tensor_file(args.data):
        here = " with this model" if hasattr(args, "model") else ""
        raise CommandError(
            f"{args.data} holds a tensor, and `klnmf {args.command}` takes "
            f"matrices{here}. {TAKE_EVENTS}."
        )
    chosen = limits_by_default(args) if is_for_model else {}
    table = read_counts(args.data, **given_options(args))
    n, m = table.shape
    say(args, f"{args.data}: {n:,} samples × {m:,} features, {table.X.nnz:,} nonzeros")
    say_limits(args, chosen)
    found = _found(table)
    if found:
        say(args, found)
    if is_for_model:
        _name_empty_samples(table, table.X.indptr)
        _warn_of_counts_elsewhere(args, table)
    return table


def _found(table: CountTable) -> str:
    """Line about the names, labels and metadata that were found, and where."""
    origins = dict(table.origins)
    if table.labels is not None and "labels" not in origins:
        column = label_column(table)
        origins["labels"] = f"{column!r}" if column in table.metadata else "the file"
    of_what = {"column_names": "feature names", "row_names": "sample names", "labels": "labels"}
    parts = [f"{what} from {origins[name]}" for name, what in of_what.items() if name in origins]
    if table.column_names is None:
        parts.insert(0, f"no feature names: give {option('column_names', 'FILE')}")
    if table.metadata:
        more = len(table.metadata) - _COLUMNS_NAMED
        listed = ", ".join(list(table.metadata)[:_COLUMNS_NAMED])
        parts.append(f"metadata: {listed}{f' and {more} more' if more > 0 else ''}")
    return "; ".join(parts)


def _name_empty_samples(table: CountTable | OpenedTable, indptr: Any) -> None:
    """Warn of empty samples by name. A fit knows only their numbers."""
    warn_of_empty_samples(np.diff(indptr) == 0, table.row_names, table.excerpts)
    warnings.simplefilter("ignore", EmptySamplesWarning)  # the fit need not repeat it


def _warn_of_counts_elsewhere(args: argparse.Namespace, table: CountTable) -> None:
    """Name the other layers of a file if fractions were read."""
    path, values = Path(os.path.expanduser(args.data)), table.X.data
    fractions = values[values != np.floor(values)]
    if not len(fractions) or format_of(path, args.format) != "h5ad":
        return
    with h5ad_parts(path, args.layer, None) as parts:
        where = parts.hint.strip()
    if where:
        looks = transformation_of(view_of(table.X)) or NOT_RAW
        warn_of_fractions(f"{args.layer or 'X'} of {args.data}", fractions[0], looks, where)
        warnings.simplefilter("ignore", NotCountsWarning)  # the fit need not repeat it


# ---- in a model ----------------------------------------------------------------------------------


def facts_of(args: argparse.Namespace, table: CountTable | OpenedTable) -> dict[str, Any]:
    """Return the metadata of a model: the command, its data, how they were read, their labels."""
    n, m = table.shape
    options = given_options(args).items()
    facts: dict[str, Any] = {
        "command": args.words,
        "input": str(args.data),
        "n_samples": n,
        "n_features": m,
        "nonzeros": int(table.X.nnz),
        "total": float(table.X.sum()),
        "reading": {name: list(v) if isinstance(v, tuple) else v for name, v in options},
        "open_features": table.open_features,
    }
    if table.labels is not None:
        facts["label_column"] = label_column(table)
    return facts


def columns_of(table: CountTable | OpenedTable) -> dict[str, Any]:
    """Return what is known of each sample: metadata, its label and, of a text, the beginning."""
    columns = {} if table.labels is None else {label_column(table): list(table.labels)}
    excerpts = {} if table.excerpts is None else {EXCERPT: table.excerpts}
    return {**columns, **table.metadata, **excerpts}


def label_column(table: CountTable | OpenedTable) -> str:
    """Column of metadata that holds the labels, or a name for one that no other column has."""
    labels, columns = list(table.labels), table.metadata
    same = [name for name, column in columns.items() if list(map(str, column)) == labels]
    return same[0] if same else "labels" if "label" in columns else "label"
