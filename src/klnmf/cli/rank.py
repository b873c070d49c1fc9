"""``klnmf rank``."""

import argparse
from typing import Any

from klnmf.cli.files import RANK
from klnmf.cli.long_runs import add_search_options, checked_files, run_options, save_picture
from klnmf.cli.messages import DONE, say
from klnmf.cli.options import (
    PENALTIES,
    add_backend,
    add_events,
    add_numbers,
    add_output,
    add_penalties,
    add_threads,
    read_numbers,
    several,
    some_ranks,
)

SUMMARY = "choose the number of components by predicting held-out entries of X"
EXAMPLES = """\
  klnmf rank counts.npz
  klnmf rank counts.npz --ranks 5,10,20,40 --plot rank.png
  klnmf rank sales.csv --modes customer,product,date --bins date=week
  klnmf rank big.npz -o rank.json                # run again to continue after Ctrl-C
"""
# Options that are arguments of select_rank under the same name.
_PARAMETERS = (*PENALTIES, "n_threads", "n_jobs", "backend", "random_state", "early_stop")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add_output(parser, "result to write (default: beside DATA, with its name and .rank.json)")
    text = "numbers of components to try, such as 1-20,30,40"
    add("--ranks", type=some_ranks, default="1-40", help=text)
    text = "number of folds of samples; each is predicted by a fit to the others"
    add("--splits", type=several, default=5, help=text)
    add("--no-early-stop", dest="early_stop", action="store_false", help="try every rank")
    add_numbers(parser)
    add_penalties(parser)
    add_threads(parser, "--n-threads")
    add_backend(parser)
    add_events(parser)
    add_search_options(parser, "fold", labels=False)


def run(args: argparse.Namespace) -> int:
    """Search, print, save. An interrupted search is continued."""
    from klnmf.cli.data import read_data
    from klnmf.cli.events import has_events, read_events, refuse_options
    from klnmf.model_selection import select_rank

    are_events = has_events(args)
    files = checked_files(args, RANK, ".rank.json")
    parameters = [name for name in _PARAMETERS if not (are_events and name in PENALTIES)]
    X: Any
    known: dict[str, Any] = {}
    if are_events:
        refuse_options(args, *parameters, "ranks", "splits", "plot", "json", "resume")
        X = read_events(args)
    else:
        known = read_numbers(args)
        X = read_data(args).X
    with run_options(args, files, line_of_search) as run:
        selection = select_rank(
            X,
            args.ranks,
            n_splits=args.splits,
            **{name: getattr(args, name) for name in parameters},
            **known,
            run=run,
        )
    selection.save(files.output)
    files.checkpoint.unlink(missing_ok=True)
    print(files.output.read_text(encoding="utf-8") if args.json else selection)
    say(args, f"result: {files.output}")
    save_picture(args, selection, files.picture)
    return DONE


def line_of_search(record: dict[str, Any]) -> str:
    """Return the line that a log gets of a search."""
    from klnmf.support.progress import duration

    left = record["seconds_left"]
    text = "" if left is None else f", at most about {duration(left)} left"
    return (
        f"rank {record['rank']}, {record['n_done']} of {record['n_fits']} fits done: held-out "
        f"deviance {record['deviance']:.5g}{text}"
    )
