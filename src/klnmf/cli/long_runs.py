"""What long commands share: lines about their progress, checkpoints, Ctrl-C, pictures."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from klnmf.cli.files import CHECKPOINT, PAGE, PICTURE, RUNS, Kind, check_output, stem_of
from klnmf.cli.messages import CommandError, one_line, say
from klnmf.cli.options import add_data, add_quiet, add_seed, workers
from klnmf.support.whole_files import writing

if TYPE_CHECKING:
    from klnmf.estimators.run_options import RunOptions

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
    add_restart(parser)
    add_quiet(parser)
    add_data(parser, labels=labels)


def add_restart(parser: argparse._ActionsContainer) -> None:
    """Add --restart, which all commands with checkpoints have."""
    text = "start again instead of continuing an interrupted run"
    add = partial(parser.add_argument, dest="resume", action="store_const")
    add("--restart", const=False, help=text)
    add("--resume", const=True, help=argparse.SUPPRESS)  # that is the default


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


class Files(NamedTuple):
    """The files that a run writes."""

    output: Path
    checkpoint: Path  # of a run that has not finished
    is_resumed: bool  # whether the run continues from the checkpoint
    picture: Path | None
    result: Path | None
    report: Path | None


def checked_files(args: argparse.Namespace, kind: Kind, ending: str) -> Files:
    """Check the names of all files before any work; ``ending`` is that of the default output."""
    taken: list[str | Path | None] = [args.data, args.row_names, args.column_names]
    taken.append(getattr(args, "model", None))

    def name(path: str | Path | None, kind: Kind, *, may_exist: bool = False) -> Any:
        if path is None:
            return None
        taken.append(check_output(args, kind, path, *taken, may_exist=may_exist))
        return taken[-1]

    wanted = f"{stem_of(args.data)}{ending}" if args.output is None else args.output
    checkpoint = Path(getattr(args, "checkpoint", None) or f"{wanted}.checkpoint")
    output = name(wanted, kind, may_exist=args.resume is False or checkpoint.exists())
    name(checkpoint, CHECKPOINT, may_exist=True)
    picture, result, report = (
        name(getattr(args, option, None), kind)
        for option, kind in (("plot", PICTURE), ("result", RUNS), ("report", PAGE))
    )
    if picture is not None:
        from klnmf.plots.style import pyplot

        pyplot().switch_backend("Agg")  # fails before any work if matplotlib is missing
    is_resumed = checkpoint.exists() and args.resume is not False
    if is_resumed:
        say(args, f"continuing from {checkpoint}; add --restart to start again instead")
    return Files(output, checkpoint, is_resumed, picture, result, report)


@contextmanager
def run_options(
    args: argparse.Namespace,
    files: Files,
    line: Line | None,
    *,
    after: Callable[[], str] = str,
    **others: Any,
) -> Iterator[RunOptions]:
    """Yield the options of a run: its checkpoint, and a bar on terminals or lines elsewhere.

    Without ``line`` there are no lines. An error of the checkpoint says what to do, and Ctrl-C how
    to continue and, by ``after``, how far the run is.
    """
    from klnmf.estimators.run_options import RunOptions
    from klnmf.saved.container import SavedFileError

    on_terminal = sys.stderr.isatty()
    # Commands have a seed by default, unlike Python: a command given again gives the same again.
    say(args, f"seed: {args.random_state}")
    try:
        yield RunOptions(
            checkpoint=files.checkpoint,
            resume=files.is_resumed,
            progress=on_terminal and not args.quiet,
            callback=None if on_terminal or args.quiet or line is None else ProgressLines(line),
            **others,
        )
    except SavedFileError as error:
        if not files.is_resumed:
            raise
        problem = one_line(error)
        hint = "" if "--restart" in problem else " Add --restart to start again."
        raise CommandError(f"{problem}{hint}") from error
    except KeyboardInterrupt as stopped:
        said, checkpoint = f"\nInterrupted{after()}.", files.checkpoint
        if checkpoint.exists():
            command = shlex.join(["klnmf", *args.words])
            said += f"\nThe progress is in {checkpoint}. To continue:\n  {command}"
        raise KeyboardInterrupt(said) from stopped


def save_picture(args: argparse.Namespace, result: Any, path: Path | None) -> None:
    """Plot a result, if that was asked for."""
    if path is not None:
        axes = result.plot()
        figure = axes.figure if hasattr(axes, "figure") else axes.flat[0].figure
        with writing(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)
        say(args, f"picture: {path}")
