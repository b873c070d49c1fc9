"""Files that a command reads or writes: their names are checked before the work starts."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from klnmf.cli.messages import CommandError, UsageError
from klnmf.support.whole_files import link_target, writing

# ---- inputs --------------------------------------------------------------------------------------

# Arguments that name a file to read, in the order in which they are checked.
_INPUTS = ("model", "data", "row_names", "column_names", "component_names", "rank")


def check_inputs(args: argparse.Namespace) -> None:
    """Refuse, before any other check, an input that does not exist or is of the wrong kind."""
    from klnmf.saved.container import kind_of
    from klnmf.support.input_files import not_there

    for name in _INPUTS:
        path = getattr(args, name, None)
        if path is None:
            continue
        file = Path(os.path.expanduser(path))
        if not path:
            raise CommandError("the name of an input file is empty.")
        if not file.exists():
            raise not_there(file)
        if file.is_dir() and name not in ("data", "model"):
            raise CommandError(f"{path} is a folder; name a file.")
        if not (file.is_file() or file.is_dir()):
            raise CommandError(
                f"{path} is not a regular file. Write its content to a file first, and name that "
                "file."
            )
        if name == "data" and (kind := kind_of(file)) is not None:
            raise CommandError(f"{path}: this is a {kind} written by klnmf, not data.")


# ---- outputs -------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind of file that commands write, and how the names of such files end."""

    what: str
    endings: tuple[str, ...]


MODEL = Kind("a model", (".klnmf", ""))
CHECKPOINT = Kind("a checkpoint", (".checkpoint",))
RUNS = Kind("the runs of a consensus", (".klnmf", ""))
RANK = Kind("a result of klnmf rank", (".json", ""))
PAGE = Kind("a report", (".html", ".htm"))
PICTURE = Kind("a picture", (".png", ".pdf", ".svg"))
FACTOR = Kind("W", (".csv", ".tsv", ".npz", ".npy"))
INTERVALS = Kind("a table of intervals", (".csv", ".tsv"))
TOPICS = Kind("a list of topics", (".txt", ".csv", ".tsv", ".json", ""))


def check_output(
    args: argparse.Namespace,
    kind: Kind | None,
    path: str | Path,
    *others: str | Path | None,
    may_exist: bool = False,
) -> Path:
    """Refuse a name that cannot be written to or does not fit the kind, and an existing file.

    The others are files that the command reads or writes too.
    """
    if not str(path):
        raise CommandError("the name of the file to write is empty.")
    target = Path(path)
    folder, real = target.parent, link_target(target)
    if not folder.is_dir():
        raise CommandError(f"{target}: there is no folder {folder}; create it first.")
    if target.is_dir():
        raise CommandError(f"{target} is a folder; name a file to write.")
    if target.exists() and not target.is_file():
        raise CommandError(f"{target} is not a regular file; choose another name.")
    for other in others:
        if other is not None and real == Path(os.path.realpath(other)):
            raise CommandError(
                f"{target} is read or written by this command already; choose another name."
            )
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{target}: the folder {folder} is not writable; name a file elsewhere.")
    if kind is not None and target.suffix.lower() not in kind.endings:
        endings = [ending for ending in kind.endings if ending]
        listed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise UsageError(f"{target}: {kind.what} is written as {listed}; choose such a name.")
    if not may_exist:
        check_unused(args, target)
    return target


def check_unused(args: argparse.Namespace, path: str | Path) -> None:
    """Refuse to overwrite anything unless that was asked for: the rule of all commands."""
    if os.path.lexists(path) and not args.force:
        raise CommandError(f"{path} exists already; add --force to overwrite it.")


def stem_of(path: str) -> str:
    """Path of a file or folder without its endings: results are named after it, and lie beside it.

    Examples
    --------
    >>> stem_of("data/counts.mtx.gz"), stem_of("letters/")
    ('data/counts', 'letters')
    """
    given = Path(os.path.expanduser(path))
    given = Path(os.path.realpath(given)) if given.name in ("", ".", "..") else given
    name = given.name
    for ending in (".gz", Path(name.removesuffix(".gz")).suffix):
        name = name.removesuffix(ending) if ending else name
    return str(given.with_name(name) if name else given / "klnmf")


def write_text(path: str | None, text: str) -> None:
    """Write a text to a file, or to stdout for None and "-"."""
    with _opened(path) as file:
        file.write(f"{text}\n")


def write_rows(path: str | None, rows: Iterable[Sequence[Any]], delimiter: str = ",") -> None:
    """Write a table as CSV to a file, or to stdout for None and "-"."""
    from klnmf.support.spreadsheet_cells import as_cell, write_lines

    with _opened(path) as file:
        write_lines(file, ([as_cell(value) for value in row] for row in rows), delimiter)


def _opened(path: str | None) -> AbstractContextManager[Any]:
    if path is None or path == "-":
        return nullcontext(sys.stdout)
    return writing(Path(path), "w")
