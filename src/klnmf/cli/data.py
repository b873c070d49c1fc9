"""DATA of a command line, read with its options."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klnmf.cli.errors import CommandError
from klnmf.on_disk import OnDiskMatrix, open_matrix
from klnmf.readers import CountTable, read_counts
from klnmf.readers.formats import checked_options, format_of

# Options of the readers; those that were not given are left to the readers' defaults, and one that
# a format does not know is an error there.
_OPTIONS = (
    *("row_names", "column_names", "labels", "layout", "text_field", "id_field", "label_field"),
    *("pattern", "min_df", "max_df", "max_features", "stop_words", "ngram_range"),
    *("token_pattern", "lowercase"),
)


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
    words = []
    for name, value in how.items():
        if name == "lowercase":
            words.append("--keep-case")
            continue
        words.append(f"--{name.replace('_', '-')}")
        if isinstance(value, list):
            words.append(",".join(map(str, value)))
        elif value is not True:
            words.append(str(value))
    return shlex.join(words)


def reproduction(metadata: dict[str, Any]) -> dict[str, str]:
    """Return what a report says on how to run the fit again, from a model's metadata."""
    found = {"input": str(metadata["input"])} if "input" in metadata else {}
    how = metadata.get("reading")
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

    def in_memory(self) -> CountTable:
        """All of it, read into memory."""
        return read_counts(self.X.path, format="prepared")


def open_data(args: argparse.Namespace) -> CountTable | OpenedTable:
    """Read DATA, or open it where it is a matrix that was prepared on disk."""
    path = Path(args.data)
    is_folder = bool(args.data) and path.is_dir() and args.format in (None, "prepared")
    if not is_folder or format_of(path, args.format) != "prepared" or args.transpose:
        return read_data(args)
    checked_options("prepared", reading_options(args))
    table = OpenedTable(open_matrix(path))
    n, m = table.shape
    say(args, f"{args.data}: {n:,} samples × {m:,} features, {table.X.nnz:,} nonzeros, on disk")
    return table


def read_data(args: argparse.Namespace) -> CountTable:
    """Read DATA, and say on stderr what it is."""
    if not args.data:
        raise CommandError("the name of DATA is empty.")
    table = read_counts(
        args.data,
        format=args.format,
        layer=args.layer,
        transpose=args.transpose,
        **reading_options(args),
    )
    n, m = table.shape
    say(args, f"{args.data}: {n:,} samples × {m:,} features, {table.X.nnz:,} nonzeros")
    return table


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
    }
    if table.labels is not None:
        facts["labels"] = [str(label) for label in table.labels]
    return facts


def say(args: argparse.Namespace, line: str) -> None:
    """Tell the user something, unless it is to be quiet."""
    if not getattr(args, "quiet", False):
        print(line, file=sys.stderr, flush=True)


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
