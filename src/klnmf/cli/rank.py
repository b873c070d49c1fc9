"""``klnmf rank``."""

import argparse
from typing import Any

from klnmf.cli.files import RANK
from klnmf.cli.long_runs import (
    add_search_options,
    checked_files,
    interrupted,
    run_options,
    save_picture,
)
from klnmf.cli.messages import DONE, say
from klnmf.cli.options import (
    PENALTIES,
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
  klnmf rank big.npz -o rank.json                # run again to continue after Ctrl-C
"""
# Options that are arguments of select_rank under the same name.
_PARAMETERS = (*PENALTIES, "n_threads", "n_jobs", "random_state", "early_stop")


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
    add_search_options(parser, "fold", labels=False)


def run(args: argparse.Namespace) -> int:
    """Search, print, save. An interrupted search is continued."""
    from klnmf.cli.data import read_data
    from klnmf.model_selection import select_rank

    files = checked_files(args, RANK, ".rank.json")
    known = read_numbers(args)
    table = read_data(args)
    try:
        with run_options(args, files, line_of_search) as run:
            selection = select_rank(
                table.X,
                args.ranks,
                n_splits=args.splits,
                **{name: getattr(args, name) for name in _PARAMETERS},
                **known,
                run=run,
            )
    except KeyboardInterrupt:
        return interrupted(args, files.checkpoint)
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
