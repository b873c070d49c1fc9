"""What a model file says about its data: how they were read, and how to run the fit again."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from klnmf.cli.messages import say

if TYPE_CHECKING:
    from klnmf.cli.data import OpenedTable
    from klnmf.readers import CountTable

# Options of single formats. Those that were not given are left to the readers' defaults; a reader
# refuses one that its format does not have.
OPTIONS_OF_FORMATS = (
    *("row_names", "column_names", "labels", "layout", "columns", "delimiter", "header", "index"),
    *("encoding", "text_field", "id_field", "label_field", "pattern"),
    *("skip_unreadable", "normalize", "min_df", "max_df"),
    *("max_features", "stop_words", "ngram_range", "token_pattern", "lowercase"),
    *("feature_type", "feature_names"),
)


# Bytes of metadata of samples that a model keeps.
MOST_BYTES = 20_000_000
READING_OPTIONS = ("format", "layer", "transpose", *OPTIONS_OF_FORMATS)


def given_options(
    args: argparse.Namespace, names: Sequence[str] = READING_OPTIONS
) -> dict[str, Any]:
    """Options for reading DATA that were given."""
    given = {name: getattr(args, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def facts_of(args: argparse.Namespace, table: CountTable | OpenedTable) -> dict[str, Any]:
    """Return the metadata of a model: its data, how they were read, and their labels."""
    n, m = table.shape
    options = given_options(args).items()
    facts: dict[str, Any] = {
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
    from klnmf.readers import CountTable
    from klnmf.saved.columns import EXCERPT

    columns = {} if table.labels is None else {label_column(table): list(table.labels)}
    if not isinstance(table, CountTable):  # prepared matrices have no more
        return columns
    excerpts = {} if table.excerpts is None else {EXCERPT: table.excerpts}
    return {**columns, **table.metadata, **excerpts}


def label_column(table: CountTable | OpenedTable) -> str:
    """Column of metadata that holds the labels, or a name for one that no other column has."""
    labels, metadata = list(table.labels), getattr(table, "metadata", {})
    same = [name for name, column in metadata.items() if list(map(str, column)) == labels]
    return same[0] if same else "labels" if "label" in metadata else "label"


def kept_columns(args: argparse.Namespace, table: CountTable | OpenedTable) -> dict[str, Any]:
    """Return the columns that go into a model file: all, unless they are too large."""
    columns = columns_of(table)
    sizes = {name: sum(map(_n_bytes, column)) for name, column in columns.items()}
    kept, total = set[str](), 0
    for name in sorted(sizes, key=lambda name: sizes[name]):
        total += sizes[name]
        if total <= MOST_BYTES:
            kept.add(name)
    left_out = [name for name in columns if name not in kept]
    if left_out:
        say(
            args,
            f"metadata left out of the model, which keeps at most {MOST_BYTES / 1e6:g} MB of "
            f"them: {', '.join(left_out)}",
        )
    return {name: columns[name] for name in columns if name in kept}


def _n_bytes(value: Any) -> int:
    return len(value) if isinstance(value, str) else 8


def labels_of(metadata: dict[str, Any], columns: dict[str, Any]) -> Any:
    """Return the labels of a model's samples. Metadata of a strange file may be anything."""
    column = metadata.get("label_column")
    found = columns.get(column) if isinstance(column, str) else metadata.get("labels")
    if not isinstance(found, list):
        return None
    return ["" if label is None else label for label in found]


def stored_reading(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return how the data of a model were read. Metadata of a strange file may be anything."""
    how = metadata.get("reading")
    if not isinstance(how, dict):
        return {}
    return {name: v for name, v in how.items() if name in READING_OPTIONS and _is_plain(v)}


def _is_plain(value: Any) -> bool:
    entries = value if isinstance(value, list) else [value]
    return all(isinstance(entry, str | bool | int | float) for entry in entries)


def reproduction(metadata: dict[str, Any]) -> dict[str, str]:
    """Return what a report says on how to run the fit again."""
    from klnmf.report.reproduce import option_words

    found = {"input": str(metadata["input"])} if "input" in metadata else {}
    how = stored_reading(metadata)
    found |= {"input options": option_words(how)} if how else {}
    command = _consensus_command(metadata.get("consensus"), found)
    return found | ({"command": command} if command else {})


def _consensus_command(facts: Any, found: dict[str, str]) -> str | None:
    """`klnmf consensus` as it was called; None for models of `klnmf fit` and for older files."""
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
        if "n_null_runs" in facts:
            options["null-runs"] = int(facts["n_null_runs"])
    except (KeyError, TypeError, ValueError):
        return None
    words = ["klnmf", "consensus", found.get("input", "DATA")]
    words += [word for name, value in options.items() for word in (f"--{name}", f"{value}")]
    return " ".join([shlex.join(words), *filter(None, [found.get("input options")])])
