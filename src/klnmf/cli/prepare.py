"""``klnmf prepare``."""

import argparse

from klnmf.cli.files import check_unused
from klnmf.cli.messages import DONE, say
from klnmf.cli.options import DTYPES, add_data, add_output, add_quiet

SUMMARY = "write a matrix that is larger than memory so that it can be fitted from disk"
EXAMPLES = """\
  klnmf prepare big.npz big.disk --memory 2G
  klnmf fit big.disk -r 50 -o big.klnmf
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_data(parser)
    add = parser.add_argument
    text = "folder to write; named OUT.partial until it is complete"
    add_output(parser, text, is_last=True)
    add("--memory", metavar="SIZE", default="2G", help="memory to use, such as 512M")
    add("--dtype", choices=DTYPES, help="type of the values (default: as the data)")
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Write the folder of a matrix that can be fitted from disk."""
    from klnmf.cli.data import given_options, limits_by_default, say_limits
    from klnmf.readers import prepare

    check_unused(args, args.output)
    chosen = limits_by_default(args)
    matrix = prepare(
        args.data,
        args.output,
        memory=args.memory,
        dtype=args.dtype,
        overwrite=args.force,
        say=lambda line: say(args, line),
        **given_options(args),
    )
    n, m = matrix.shape
    say(args, f"written: {args.output}, {n:,} samples × {m:,} features, {matrix.nnz:,} nonzeros")
    say_limits(args, chosen)
    return DONE
