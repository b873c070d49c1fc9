"""``klnmf convert``: counts from one format to another."""

from __future__ import annotations

import argparse

from klnmf.cli.data import read_data, say
from klnmf.cli.errors import DONE, CommandError
from klnmf.cli.outputs import check_writable
from klnmf.readers import write_counts


def convert(args: argparse.Namespace) -> int:
    """Read and write again, names included."""
    output = check_writable(args.output, args.data)
    if output.exists() and not args.force:
        raise CommandError(f"{output} exists already; add --force to overwrite it.")
    write_counts(read_data(args), output)
    say(args, f"written: {output}")
    return DONE
