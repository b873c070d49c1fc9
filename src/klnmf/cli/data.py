"""DATA of a command line, read with its options."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from klnmf.cli.arguments import add_data
from klnmf.cli.errors import printable
from klnmf.cli.parsing import words_for
from klnmf.data.not_counts import NOT_RAW, NotCountsWarning, transformation_of, warn_of_fractions
from klnmf.data.sparse_data import view_of
from klnmf.data.validation import EmptySamplesWarning, warn_of_empty_samples
from klnmf.preparing import OnDiskMatrix, open_matrix
from klnmf.readers import CountTable, read_counts
from klnmf.readers.formats import checked_options, format_of
from klnmf.readers.hdf5 import Compressed, h5ad_parts

# Options of the readers; those that were not given are left to the readers' defaults, and one that
# a format does not know is an error there.
_OPTIONS = (
    *("row_names", "column_names", "labels", "layout", "columns", "delimiter", "header", "index"),
    *("encoding", "text_field", "id_field", "label_field", "pattern", "min_df", "max_df"),
    *("max_features", "stop_words", "ngram_range", "token_pattern", "lowercase"),
    *("feature_type", "feature_names"),
)
# Entries of another layer that tell whether it holds counts.
_LOOKED_AT = 1 << 14
_ROWS_LOOKED_AT = 20


def reading_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options of the format that were given."""
    given = {name: getattr(args, name) for name in _OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def how_read(args: argparse.Namespace) -> dict[str, Any]:
    """Everything that was given on how to read DATA, as a model file keeps it."""
    given = {name: getattr(args, name) for name in ("format", "layer", "transpose")}
    given = {name: value for name, value in given.items() if value}
    options = reading_options(args).items()
    return given | {name: list(v) if isinstance(v, tuple) else v for name, v in options}


def words_of_reading(how: dict[str, Any]) -> str:
    """Return the words of a command line that read DATA like this.

    Examples
    --------
    >>> words_of_reading({"layer": "raw counts", "transpose": True, "ngram_range": [1, 2]})
    "--layer 'raw counts' --transpose --ngram-range 1,2"
    """
    parser = argparse.ArgumentParser()
    add_data(parser)
    words = [words_for(parser, name, value) or [] for name, value in how.items()]
    return shlex.join(chain.from_iterable(words))


def stored_reading(metadata: dict[str, Any]) -> dict[str, Any]:
    """How DATA were read that a model was fitted to: nothing where a command did not write it.

    A file may come from a stranger, and metadata may be anything.
    """
    how = metadata.get("reading")
    if not isinstance(how, dict):
        return {}
    known = {"format", "layer", "transpose", *_OPTIONS}
    return {name: value for name, value in how.items() if name in known and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    entries = value if isinstance(value, list) else [value]
    return all(isinstance(entry, str | bool | int | float) for entry in entries)


def reproduction(metadata: dict[str, Any]) -> dict[str, str]:
    """Return what a report says on how to run the fit again, from a model's metadata."""
    found = {"input": str(metadata["input"])} if "input" in metadata else {}
    how = stored_reading(metadata)
    found |= {"input options": words_of_reading(how)} if how else {}
    command = _command_of_consensus(metadata.get("consensus"), found)
    return found | ({"command": command} if command else {})


def _command_of_consensus(facts: Any, found: dict[str, str]) -> str | None:
    """`klnmf consensus` as it was called; None for models of `klnmf fit`, and of older files."""
    try:
        options = {
            "n-components": int(facts["n_components"]),
            "runs": int(facts["n_runs"]),
            "density-threshold": float(facts["density_threshold"]),
            "refit": str(facts["refit"]),
            "init": str(facts["init"]),
            "max-iter": int(facts["max_iter"]),
            "seed": int(facts["random_state"]),
        }
    except (KeyError, TypeError, ValueError):
        return None
    words = ["klnmf", "consensus", found.get("input", "DATA")]
    words += [word for name, value in options.items() for word in (f"--{name}", f"{value}")]
    return " ".join([shlex.join(words), *filter(None, [found.get("input options")])])


@dataclass(frozen=True)
class OpenedTable:
    """A matrix on disk with its names: what a fit needs of a `CountTable`."""

    X: OnDiskMatrix

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and features."""
        return self.X.shape

    @property
    def row_names(self) -> Any:
        """Names of the samples, or None."""
        return self.X.row_names

    @property
    def column_names(self) -> Any:
        """Names of the features, or None."""
        return self.X.column_names

    @property
    def labels(self) -> Any:
        """Known classes of the samples, or None."""
        return self.X.labels

    @property
    def open_features(self) -> bool:
        """Whether the features are those that occur, as words of texts are."""
        return self.X.open_features

    def in_memory(self) -> CountTable:
        """All of it, read into memory."""
        return read_counts(self.X.path, format="prepared")


def open_data(args: argparse.Namespace) -> CountTable | OpenedTable:
    """Read DATA, or open it where it is a matrix that was prepared on disk."""
    path = Path(args.data)
    is_folder = path.is_dir() and args.format in (None, "prepared")
    if not is_folder or format_of(path, args.format) != "prepared" or args.transpose:
        return read_data(args)
    checked_options("prepared", reading_options(args))
    table = OpenedTable(open_matrix(path))
    n, m = table.shape
    say(args, f"{args.data}: {n:,} samples × {m:,} features, {table.X.nnz:,} nonzeros, on disk")
    _name_empty_samples(table, table.X.data.view(0).indptr)
    return table


def read_data(args: argparse.Namespace, *, is_for_model: bool = True) -> CountTable:
    """Read DATA, and say on stderr what it is and what a model will not make much of."""
    table = read_counts(
        args.data,
        format=args.format,
        layer=args.layer,
        transpose=args.transpose,
        **reading_options(args),
    )
    n, m = table.shape
    say(args, f"{args.data}: {n:,} samples × {m:,} features, {table.X.nnz:,} nonzeros")
    if is_for_model:
        _name_empty_samples(table, table.X.indptr)
        _warn_of_counts_elsewhere(args, table)
    return table


def _name_empty_samples(table: CountTable | OpenedTable, indptr: Any) -> None:
    """Warn of empty samples by their names, which a fit would not know."""
    warn_of_empty_samples(np.diff(indptr) == 0, table.row_names)
    warnings.simplefilter("ignore", EmptySamplesWarning)  # they have been named


def _warn_of_counts_elsewhere(args: argparse.Namespace, table: CountTable) -> None:
    """Name the layers of a file that hold whole numbers, where fractions were read."""
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
        warnings.simplefilter("ignore", NotCountsWarning)  # it has been said


def _holds_counts(path: Path, layer: str) -> bool:
    """Whether the first values of a layer are whole numbers."""
    try:
        with h5ad_parts(path, layer, None) as parts:
            found = parts.matrix
            if isinstance(found, Compressed):
                values = found.data[:_LOOKED_AT]
            else:
                values = found[:_ROWS_LOOKED_AT]
    except ValueError:  # this layer is damaged, and was not asked for
        return False
    return bool(values.any()) and bool((values == np.floor(values)).all())


def facts_of(args: argparse.Namespace, table: CountTable | OpenedTable) -> dict[str, Any]:
    """Return what the file says of the data, and the labels that a report groups by."""
    n, m = table.shape
    facts: dict[str, Any] = {
        "input": str(args.data),
        "n_samples": n,
        "n_features": m,
        "nonzeros": int(table.X.nnz),
        "total": float(table.X.sum()),
        "reading": how_read(args),
        "open_features": table.open_features,
    }
    if table.labels is not None:
        facts["labels"] = [str(label) for label in table.labels]
    return facts


def say(args: argparse.Namespace, line: str) -> None:
    """Tell the user something, unless it is to be quiet."""
    if not getattr(args, "quiet", False):
        print(printable(line), file=sys.stderr, flush=True)


def stem_of(path: str) -> str:
    """Name of a file or folder without its endings: what results are named after.

    Examples
    --------
    >>> stem_of("data/counts.mtx.gz"), stem_of("letters/")
    ('counts', 'letters')
    """
    name = Path(path).resolve().name if Path(path).name in ("", ".", "..") else Path(path).name
    for ending in (".gz", Path(name.removesuffix(".gz")).suffix):
        name = name.removesuffix(ending) if ending else name
    return name or "klnmf"
