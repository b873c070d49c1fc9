"""``klnmf prepare``."""

import argparse

from klnmf.cli.messages import DONE, say
from klnmf.cli.metadata import given_options
from klnmf.cli.option_values import memory
from klnmf.cli.options import DTYPES, add_data, add_quiet

SUMMARY = "write a matrix that is larger than memory so that it can be fitted from disk"
EXAMPLES = """\
  klnmf prepare big.npz big.disk --memory 2G
  klnmf fit big.disk -r 50 -o big.klnmf
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_data(parser)
    add = parser.add_argument
    add("output", metavar="OUT", help="folder to write; named OUT.partial until it is complete")
    add("--memory", type=memory, default="2G", help="memory to use, such as 512M")
    add("--dtype", choices=DTYPES, help="type of the values (default: as the data)")
    text = "overwrite an existing prepared matrix"
    add("--force", dest="overwrite", action="store_true", help=text)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Write the folder of a matrix that can be fitted from disk."""
    from klnmf.preparing import prepare

    matrix = prepare(
        args.data,
        args.output,
        memory=args.memory,
        dtype=args.dtype,
        overwrite=args.overwrite,
        say=lambda line: say(args, line),
        **given_options(args),
    )
    n, m = matrix.shape
    say(args, f"written: {args.output}, {n:,} samples × {m:,} features, {matrix.nnz:,} nonzeros")
    return DONE
