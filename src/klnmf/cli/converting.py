"""``klnmf convert`` and ``klnmf prepare``: counts from one format to another."""

from __future__ import annotations

import argparse

from klnmf.cli.data import read_data, reading_options, say
from klnmf.cli.errors import DONE
from klnmf.cli.outputs import check_unused, check_writable
from klnmf.preparing import prepare as prepared
from klnmf.readers import write_counts
from klnmf.readers.formats import format_to_write


def convert(args: argparse.Namespace) -> int:
    """Read and write again, names included."""
    output = check_writable(args.output, args.data)
    format_to_write(output)  # refuses a name that says none, before the work
    check_unused(output, may_be_there=args.force)
    write_counts(read_data(args, is_for_model=False), output)
    say(args, f"written: {output}")
    return DONE


def prepare(args: argparse.Namespace) -> int:
    """Write the folder of a matrix that is fitted from the disk."""
    matrix = prepared(
        args.data,
        args.output,
        memory=args.memory,
        dtype=args.dtype,
        overwrite=args.overwrite,
        say=lambda line: say(args, line),
        format=args.format,
        layer=args.layer,
        transpose=args.transpose,
        **reading_options(args),
    )
    n, m = matrix.shape
    say(args, f"written: {args.output}, {n:,} samples × {m:,} features, {matrix.nnz:,} nonzeros")
    return DONE
