"""What fit, rank and consensus share: lines about their progress, checkpoints, Ctrl-C, pictures."""

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from klnmf.cli.files import PICTURE, RUNS, Kind, check_output, check_writable, stem_of
from klnmf.cli.messages import INTERRUPTED, CommandError, one_line, say
from klnmf.cli.option_values import workers
from klnmf.cli.options import add_data, add_quiet, add_seed
from klnmf.support.whole_files import writing

SECONDS_BETWEEN_LINES = 10.0
Line = Callable[[dict[str, Any]], str]


def add_search_options(parser: argparse.ArgumentParser, what: str, *, labels: bool) -> None:
    """Add DATA and the options of a command that runs many fits; ``what`` names one of them."""
    add_seed(parser)
    add = parser.add_argument
    text = f"number of {what}s in parallel (default: all CPUs)"
    add("--jobs", dest="n_jobs", type=workers, help=text)
    add("--plot", metavar="FILE", help="also plot the result: .png, .pdf or .svg")
    add("--json", action="store_true", help="print JSON instead of the table")
    text = "start again instead of continuing an interrupted run"
    add("--restart", action="store_true", help=text)
    add_quiet(parser)
    add_data(parser, labels=labels)


class ProgressLines:
    """A callback that prints a line about a record: the first at once, then every ten seconds."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._next = 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        """Print a line if it is time for one."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SECONDS_BETWEEN_LINES
            print(self._line(record), file=sys.stderr, flush=True)


def progress_options(args: argparse.Namespace, line: Line) -> dict[str, Any]:
    """Return ``progress`` and ``callback`` of a fit: a bar on terminals, lines elsewhere."""
    on_terminal = sys.stderr.isatty()
    callback = None if on_terminal or args.quiet else ProgressLines(line)
    return {"progress": on_terminal and not args.quiet, "callback": callback}


class SearchFiles(NamedTuple):
    """The files that a search writes."""

    output: Path
    checkpoint: Path  # of a search that has not finished
    picture: Path | None
    result: Path | None
    is_resumed: bool  # whether the search continues from the checkpoint


def checked_files(args: argparse.Namespace, kind: Kind, ending: str) -> SearchFiles:
    """Check the names of all files before any work; ``ending`` is that of the default output."""
    taken: list[str | Path | None] = [args.data, args.row_names, args.column_names]

    def name(path: str | Path, kind: Kind, *, may_exist: bool = False) -> Path:
        taken.append(check_output(args, kind, path, *taken, may_exist=may_exist))
        return Path(path)

    wanted = f"{stem_of(args.data)}{ending}" if args.output is None else args.output
    checkpoint = Path(f"{wanted}.checkpoint")
    output = name(wanted, kind, may_exist=args.restart or checkpoint.exists())
    taken.append(check_writable(checkpoint, *taken))
    picture = None if args.plot is None else name(args.plot, PICTURE)
    wanted = getattr(args, "result", None)
    result = None if wanted is None else name(wanted, RUNS)
    if picture is not None:
        from klnmf.plots.style import pyplot

        pyplot().switch_backend("Agg")  # fails before any work if matplotlib is missing
    is_resumed = checkpoint.exists() and not args.restart
    if is_resumed:
        say(args, f"continuing from {checkpoint}; add --restart to start again instead")
    return SearchFiles(output, checkpoint, picture, result, is_resumed)


@contextmanager
def search_options(
    args: argparse.Namespace, files: SearchFiles, line: Line
) -> Iterator[dict[str, Any]]:
    """Yield the arguments that all searches take; an error of the checkpoint says what to do."""
    from klnmf.saved.container import SavedFileError

    try:
        yield {
            "n_jobs": args.n_jobs,
            "random_state": args.random_state,
            "checkpoint": files.checkpoint,
            "resume": files.is_resumed,
            **progress_options(args, line),
        }
    except SavedFileError as error:
        if not files.is_resumed:
            raise
        raise CommandError(f"{one_line(error)} Add --restart to start again.") from error


def interrupted(checkpoint: Path | None, after: str = "", *more: str) -> int:
    """Say how to continue, with ``more`` on the command line; returns the exit code."""
    print(f"\nInterrupted{after}.", file=sys.stderr)
    if checkpoint is not None and checkpoint.exists():
        words = [word for word in sys.argv[1:] if word not in ("--resume", "--restart")]
        command = shlex.join(["klnmf", *words, *more])
        print(f"The progress is in {checkpoint}. To continue:\n  {command}", file=sys.stderr)
    return INTERRUPTED


def save_picture(args: argparse.Namespace, result: Any, path: Path | None) -> None:
    """Plot a result, if that was asked for."""
    if path is not None:
        with writing(path) as file:
            result.plot().figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)
        say(args, f"picture: {path}")
