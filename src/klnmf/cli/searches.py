"""What the long searches have in common: their files, pictures, and the words on Ctrl-C."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from klnmf.cli.data import say, stem_of
from klnmf.cli.errors import INTERRUPTED, CommandError, one_line
from klnmf.cli.outputs import (
    PICTURE,
    RUNS,
    Kind,
    check_output,
    check_unused,
    check_writable,
)
from klnmf.saved.container import SavedFileError
from klnmf.support.whole_files import writing


class SearchFiles(NamedTuple):
    """What a search writes, each under a name of its own."""

    output: Path
    checkpoint: Path  # of a search that is not over
    picture: Path | None
    result: Path | None
    is_resumed: bool  # whether the search goes on from the checkpoint


def checked_files(args: argparse.Namespace, kind: Kind, ending: str) -> SearchFiles:
    """Names of all files, refused before any work where one would take the place of another.

    ``kind`` is that of the output, ``ending`` the one of its name where none was given.
    """
    taken: list[str | Path | None] = [args.data, args.row_names, args.column_names]

    def name(path: str | Path, kind: Kind | None = None) -> Path:
        if kind is None:
            taken.append(check_writable(path, *taken))
        else:
            taken.append(check_output(kind, path, *taken))
        return Path(path)

    output = name(f"{stem_of(args.data)}{ending}" if args.output is None else args.output, kind)
    checkpoint = name(f"{output}.checkpoint")
    picture = None if args.plot is None else name(args.plot, PICTURE)
    wanted = getattr(args, "result", None)
    result = None if wanted is None else name(wanted, RUNS)
    if picture is not None:
        check_pictures_can_be_drawn()
    check_unused(output, may_be_there=args.force or args.restart or checkpoint.exists())
    if result is not None:
        check_unused(result, may_be_there=args.force)
    is_resumed = checkpoint.exists() and not args.restart
    if is_resumed:
        say(args, f"continuing from {checkpoint}; add --restart to start again instead")
    return SearchFiles(output, checkpoint, picture, result, is_resumed)


@contextmanager
def way_out(files: SearchFiles) -> Iterator[None]:
    """Say how to do without a checkpoint that is damaged or another search's."""
    try:
        yield
    except SavedFileError as error:
        if not files.is_resumed:
            raise
        raise CommandError(f"{one_line(error)} Add --restart to start again.") from error


def check_pictures_can_be_drawn() -> None:
    """Refuse, before any work, a picture if matplotlib is not installed."""
    from klnmf.plots.style import pyplot

    pyplot().switch_backend("Agg")


def save_picture(ax: Any, path: Path) -> None:
    """Write the figure of these axes."""
    with writing(path) as file:
        ax.figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)


def interrupted(checkpoint: Path) -> int:
    """Say how to go on; returns the exit code."""
    print("\nInterrupted.", file=sys.stderr)
    if checkpoint.exists():
        words = [word for word in sys.argv[1:] if word != "--restart"]
        print(
            f"The progress is in {checkpoint}. To continue:\n  {shlex.join(['klnmf', *words])}",
            file=sys.stderr,
        )
    return INTERRUPTED
