"""Files that a command reads: that they are there, and are what the command wants."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from klnmf.cli.errors import CommandError
from klnmf.readers.formats import recognised
from klnmf.saved.container import kind_of

# Where the name of a file to read is kept, in the order in which the files are looked at.
_INPUTS = ("model", "data", "row_names", "column_names", "rank")


def check_inputs(args: argparse.Namespace) -> None:
    """Refuse, before anything else is looked at, an input that is absent or of the wrong kind."""
    for name in _INPUTS:
        path = getattr(args, name, None)
        if path is not None:
            _check_is_there(path, may_be_folder=name == "data")
    model, data = (getattr(args, name, None) for name in ("model", "data"))
    if model is not None and kind_of(Path(model)) is None and _looks_like_data(model) is not None:
        raise CommandError(_not_a_model(args.command, model, data))
    if data is None:
        return
    kind = kind_of(Path(data))
    if kind == "model":
        raise CommandError(
            f"{data}: this is a model, not data. To look at it: "
            f"{_command('topics', data)}. To apply it to new data: "
            f"{_command('transform', data)} DATA -o W.csv"
        )
    if kind is not None:
        raise CommandError(f"{data}: this is a file of klnmf's own (a {kind}), not data.")


def _check_is_there(path: str, *, may_be_folder: bool) -> None:
    file = Path(os.path.expanduser(path))
    if not path:
        raise CommandError("the name of an input file is empty.")
    if not file.exists():
        wanted = "file or folder" if may_be_folder else "file"
        raise CommandError(f"{path}: there is no such {wanted}.")
    if file.is_dir():
        if not may_be_folder and _looks_like_data(path) in (None, "texts"):
            raise CommandError(f"{path} is a folder; name a file.")
    elif not file.is_file():
        raise CommandError(
            f"{path} is not a regular file. Write its content to a file first, and name that."
        )


def _looks_like_data(path: str) -> str | None:
    try:
        return recognised(Path(os.path.expanduser(path)))
    except ValueError:
        return None


def _not_a_model(command: str, path: str, data: str | None) -> str:
    are_texts = _looks_like_data(path) == "jsonl"
    what = "these are texts, not a model" if are_texts else "this is a matrix, not a model"
    if data is not None and kind_of(Path(data)) == "model":
        return f"{path}: {what}. The model comes first: {_command(command, data, path)}"
    return f"{path}: {what}. Fit a model to it first: {_command('fit', path)} -r 10 -o model.klnmf"


def _command(*words: str) -> str:
    return shlex.join(["klnmf", *words])
