"""``klnmf convert``."""

import argparse

from klnmf.cli.files import check_output, check_unused
from klnmf.cli.messages import DONE, UsageError, say
from klnmf.cli.options import add_data, add_output, add_quiet

SUMMARY = "read counts in one format and write them in another"
EXAMPLES = """\
  klnmf convert docword.kos.txt.gz kos.npz
  klnmf convert filtered_feature_bc_matrix/ cells.h5ad
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_data(parser)
    text = "file to write: .npz, .mtx(.gz), .h5ad, .csv, .tsv or .parquet"
    add_output(parser, text, is_last=True)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Read and write, names included."""
    from klnmf.cli.data import read_data
    from klnmf.readers import write_counts
    from klnmf.readers.formats import format_to_write

    output = check_output(args, None, args.output, args.data)
    try:
        written = format_to_write(output)
    except ValueError as error:  # a name without a known ending
        raise UsageError(str(error)) from error
    table = read_data(args, is_for_model=False)
    for file in written.files_beside(table, output):
        check_unused(args, file)
    write_counts(table, output)
    say(args, f"written: {output}")
    return DONE
