"""``klnmf rank``: how many components."""

from __future__ import annotations

import argparse
from typing import Any

from klnmf.cli.data import read_data, say
from klnmf.cli.errors import DONE
from klnmf.cli.lines import how_to_tell
from klnmf.cli.outputs import RANK
from klnmf.cli.searches import checked_files, interrupted, save_picture, way_out
from klnmf.model_selection import select_rank
from klnmf.model_selection.progress import duration


def rank(args: argparse.Namespace) -> int:
    """Search, print, save; what an interrupted search did is kept, and gone on from."""
    files = checked_files(args, RANK, ".rank.json")
    output, checkpoint, picture, _, is_resumed = files
    table = read_data(args)
    try:
        with way_out(files):
            selection = select_rank(
                table.X,
                args.ranks,
                n_splits=args.splits,
                train_fraction=args.train_fraction,
                background="best" if args.background is None else args.background,
                early_stop=args.early_stop,
                n_jobs=args.n_jobs,
                n_threads=args.n_threads,
                random_state=args.random_state,
                checkpoint=checkpoint,
                resume=is_resumed,
                **how_to_tell(args, line_of_search),
            )
    except KeyboardInterrupt:
        return interrupted(checkpoint)
    selection.save(output)
    checkpoint.unlink(missing_ok=True)
    print(output.read_text(encoding="utf-8") if args.json else selection)
    say(args, f"result: {output}")
    if picture is not None:
        save_picture(selection.plot(), picture)
        say(args, f"picture: {picture}")
    return DONE


def line_of_search(record: dict[str, Any]) -> str:
    """Say for a log how far the search is."""
    left = record["seconds_left"]
    text = "" if left is None else f", at most about {duration(left)} left"
    return (
        f"rank {record['rank']}, {record['n_done']} of {record['n_fits']} fits done: held-out "
        f"deviance {record['deviance']:.5g}{text}"
    )
