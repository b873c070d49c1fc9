"""DATA of a command line, read with its options."""

import argparse
import os
import shlex
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from klnmf.cli.messages import CommandError, say
from klnmf.cli.metadata import OPTIONS_OF_FORMATS, given_options, label_column
from klnmf.cli.parser import words_for
from klnmf.data.not_counts import NOT_RAW, NotCountsWarning, transformation_of, warn_of_fractions
from klnmf.data.sparse_data import view_of
from klnmf.data.validation import EmptySamplesWarning, warn_of_empty_samples
from klnmf.preparing import OnDiskMatrix, open_matrix
from klnmf.readers import FORMATS, CountTable, read_counts
from klnmf.readers.documents import TextFormat
from klnmf.readers.formats import check_options, chosen_format, format_of
from klnmf.readers.hdf5 import Compressed, h5ad_parts
from klnmf.readers.pruning import OF_TEXTS, PRUNING_OPTIONS, all_kept
from klnmf.support.option_names import option

# How many entries, or rows of a dense matrix, show whether another layer holds counts.
_ENTRIES_READ = 1 << 14
_ROWS_READ = 20
# Columns of metadata that are named.
_COLUMNS_NAMED = 8


class OpenedTable(NamedTuple):
    """A matrix on disk with its names: what a fit needs of a `CountTable`."""

    X: OnDiskMatrix
    shape: tuple[int, int]
    row_names: Any
    column_names: Any
    labels: Any
    open_features: bool

    def in_memory(self) -> CountTable:
        """Read all of it into memory."""
        return read_counts(self.X.path, format="prepared")


def open_data(args: argparse.Namespace) -> CountTable | OpenedTable:
    """Read DATA, or open it if it is a matrix that was prepared on disk."""
    path = Path(args.data)
    is_folder = path.is_dir() and args.format in (None, "prepared")
    if not is_folder or format_of(path, args.format) != "prepared" or args.transpose:
        return read_data(args)
    given = given_options(args, OPTIONS_OF_FORMATS)
    check_options(FORMATS["prepared"], given)
    for name in PRUNING_OPTIONS & set(given):
        raise CommandError(
            f"{args.data} is a prepared matrix, whose features cannot be left out: use "
            f"{option(name)} with `klnmf prepare` instead."
        )
    X = open_matrix(path)
    n, m = X.shape
    say(args, f"{args.data}: {n:,} samples × {m:,} features, {X.nnz:,} nonzeros, on disk")
    _name_empty_samples(X, X.data.view(0).indptr)
    return OpenedTable(X, X.shape, X.row_names, X.column_names, X.labels, X.open_features)


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


def _name_empty_samples(table: CountTable | OnDiskMatrix, indptr: Any) -> None:
    """Warn of empty samples by name. A fit knows only their numbers."""
    texts = getattr(table, "excerpts", None)
    warn_of_empty_samples(np.diff(indptr) == 0, table.row_names, texts)
    warnings.simplefilter("ignore", EmptySamplesWarning)  # the fit need not repeat it


def _warn_of_counts_elsewhere(args: argparse.Namespace, table: CountTable) -> None:
    """Name the layers of a file that hold whole numbers, if fractions were read."""
    path, values = Path(os.path.expanduser(args.data)), table.X.data
    fractions = values[values != np.floor(values)]
    if not len(fractions) or format_of(path, args.format) != "h5ad":
        return
    with h5ad_parts(path, args.layer, None) as parts:
        others = parts.others
    layers = [words_for(args.parser, "layer", name) for name in others if _holds_counts(path, name)]
    if layers:
        where = f"Whole numbers are in: {', '.join(shlex.join(w) for w in layers if w)}."
        looks = transformation_of(view_of(table.X)) or NOT_RAW
        warn_of_fractions(f"{args.layer or 'X'} of {args.data}", fractions[0], looks, where)
        warnings.simplefilter("ignore", NotCountsWarning)  # the fit need not repeat it


def _holds_counts(path: Path, layer: str) -> bool:
    """Whether the first values of a layer are whole numbers."""
    try:
        with h5ad_parts(path, layer, None) as parts:
            X = parts.matrix
            values = X.data[:_ENTRIES_READ] if isinstance(X, Compressed) else X[:_ROWS_READ]
    except ValueError:  # this layer is damaged, but it is not the one to read
        return False
    return bool(values.any()) and bool((values == np.floor(values)).all())
