"""What a model file says about its data: how they were read, and how to run the fit again."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from klnmf.cli.messages import say
from klnmf.cli.numbers import NUMBERS

if TYPE_CHECKING:
    from klnmf.cli.data import OpenedTable
    from klnmf.estimators.kl_nmf import KLNMF
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
    numbers = given_options(args, tuple(NUMBERS))
    if numbers:
        facts["numbers"] = numbers
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
    known = {name: v for name, v in how.items() if name in READING_OPTIONS and _is_plain(v)}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in known.items()}


def _is_plain(value: Any) -> bool:
    entries = value if isinstance(value, list) else [value]
    return all(isinstance(entry, str | bool | int | float) for entry in entries)


def reproduction(metadata: dict[str, Any], model: KLNMF) -> dict[str, str]:
    """Return what a report says on how to run the fit again. Metadata may be anything."""
    from klnmf.report.reproduce import constraint_names, option_words

    if "input" not in metadata:
        return {}
    path, how, named = str(metadata["input"]), stored_reading(metadata), metadata.get("numbers")
    constraints, named = constraint_names(model), named if isinstance(named, dict) else {}
    # Files written before their names were kept have to be put in.
    files = {n: str(named.get(n, f"{n}.txt")) for n in NUMBERS if n in named or n in constraints}
    found = {"input": path, "input options": option_words(how | files)}
    arguments = ", ".join([repr(path), *(f"{name}={value!r}" for name, value in how.items())])
    code = [f"X = read_counts({arguments}).X"]
    code += [f"{name} = numpy.loadtxt({file!r}, ndmin=1)" for name, file in files.items()]
    found["python reading"] = "\n".join(["from klnmf.readers import read_counts", "", *code])
    return found | _of_consensus(metadata.get("consensus"), found, code, list(files))


def _of_consensus(
    facts: Any, found: dict[str, str], code: list[str], files: list[str]
) -> dict[str, str]:
    """Code and command of `klnmf consensus`; nothing for `klnmf fit` and for older files."""
    try:
        r, refit, seed = int(facts["n_components"]), str(facts["refit"]), int(facts["random_state"])
        options = {
            "n_runs": int(facts["n_runs"]),
            "density_threshold": float(facts["density_threshold"]),
            "init": str(facts["init"]),
            "max_iter": int(facts["max_iter"]),
            "random_state": seed,
        }
        if "n_null_runs" in facts:
            options["n_null_runs"] = int(facts["n_null_runs"])
    except (KeyError, TypeError, ValueError):
        return {}
    words = ["klnmf", "consensus", found["input"], "--n-components", f"{r}", "--refit", refit]
    names = {"n_runs": "runs", "n_null_runs": "null-runs", "random_state": "seed"}
    for name, value in options.items():
        words += [f"--{names.get(name, name.replace('_', '-'))}", f"{value}"]
    given = "".join(f", {name}={name}" for name in files)
    of_fit = given.replace(", feature_weight=feature_weight", "")
    of_model = ", feature_weight=feature_weight" if of_fit != given else ""
    arguments = "".join(f", {name}={value!r}" for name, value in options.items())
    lines = [
        *(["import numpy", ""] if files else []),
        *(["from klnmf import KLNMF"] if refit == "both" else []),
        "from klnmf.model_selection import consensus",
        *("from klnmf.readers import read_counts", "", *code),
        f"agreed = consensus(X, {r}{arguments}{given})",
    ]
    if refit == "both":
        lines.append(f"model = KLNMF({r}, random_state={seed}{of_model})")
        lines.append(f"W = model.fit_transform(X, H=agreed.components{of_fit})")
    else:
        lines.append("model, W = agreed.to_model(), agreed.W")
    command = " ".join(filter(None, [shlex.join(words), found["input options"]]))
    return {"command": command, "python": "\n".join(lines)}
