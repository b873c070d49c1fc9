"""Files that appear under their names when they are whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.cli.errors import CommandError
from klnmf.readers.cells import as_cell, write_lines
from klnmf.support.whole_files import writing


def check_writable(path: str | Path, *others: str | Path | None) -> Path:
    """Refuse early where a result could not be written, or would take the place of another file.

    ``others`` are the files that are read or written besides: none may be this one.
    """
    if not str(path):
        raise CommandError("the name of the file to write is empty.")
    target = Path(path)
    folder = target.parent
    if not folder.is_dir():
        raise CommandError(f"{target}: there is no folder {folder}; create it first.")
    if target.is_dir():
        raise CommandError(f"{target} is a folder; name a file to write.")
    if target.exists() and not target.is_file():
        raise CommandError(f"{target} is not a regular file; choose another name.")
    for other in others:
        if other is not None and target.resolve() == Path(other).resolve():
            raise CommandError(
                f"{target} is read or written by this command already; choose another name."
            )
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{target}: the folder {folder} cannot be written to.")
    return target


class Kind(NamedTuple):
    """A kind of file that commands write, and how the names of such files end."""

    what: str
    endings: tuple[str, ...]


MODEL = Kind("a model", (".klnmf", ""))
RUNS = Kind("the runs of a consensus", (".klnmf", ""))
RANK = Kind("a result of klnmf rank", (".json", ""))
PAGE = Kind("a report", (".html", ".htm"))
PICTURE = Kind("a picture", (".png", ".pdf", ".svg"))
FACTOR = Kind("W", (".csv", ".tsv", ".npz", ".npy"))
TOPICS = Kind("a list of topics", (".txt", ".csv", ".tsv", ".json", ""))


def check_output(kind: Kind, path: str | Path, *others: str | Path | None) -> Path:
    """Refuse, before any work, a name that does not do for what will be written there."""
    target = check_writable(path, *others)
    if target.suffix.lower() not in kind.endings:
        endings = [ending for ending in kind.endings if ending]
        listed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise CommandError(f"{target}: {kind.what} is written as {listed}; choose such a name.")
    return target


def check_unused(path: Path, *, may_be_there: bool) -> None:
    """Refuse to overwrite a file unasked."""
    if path.exists() and not may_be_there:
        raise CommandError(f"{path} exists already; add --force to overwrite it.")


def write_rows(path: str | None, rows: Iterable[Sequence[Any]], delimiter: str = ",") -> None:
    """Write a table as CSV to a file, or to stdout for None and "-"."""
    lines = ([as_cell(value) for value in row] for row in rows)
    if path is None or path == "-":
        write_lines(sys.stdout, lines, delimiter)
        return
    with writing(check_writable(path), "w") as file:
        write_lines(file, lines, delimiter)


def write_factor(path: str, W: Any, sample_names: Sequence[str] | None) -> None:
    """Write W by the ending of the name: .csv, .tsv, .npz (sparse) or .npy."""
    suffix = Path(path).suffix.lower()
    if suffix == ".npz":
        with writing(check_writable(path)) as file:
            sp.save_npz(file, sp.csr_array(W))
    elif suffix == ".npy":
        with writing(check_writable(path)) as file:
            np.save(file, _dense(W), allow_pickle=False)
    else:
        write_rows(path, _rows(W, sample_names), delimiter="\t" if suffix == ".tsv" else ",")


def _rows(W: Any, sample_names: Sequence[str] | None) -> Iterator[list[Any]]:
    n_samples, rank = W.shape
    yield ["sample", *(f"component_{k}" for k in range(rank))]
    for i in range(n_samples):
        name = str(i) if sample_names is None else str(sample_names[i])
        yield [name, *(f"{value:.9g}" for value in _dense(W[[i]])[0])]


def _dense(W: Any) -> Any:
    return W.toarray() if sp.issparse(W) else np.asarray(W)
