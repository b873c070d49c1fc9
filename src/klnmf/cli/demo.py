"""``klnmf demo``."""

import argparse

from klnmf.cli.files import PAGE, check_output
from klnmf.cli.fit import say_outcome, write_report_of_fit
from klnmf.cli.messages import DONE, say
from klnmf.cli.options import add_force, add_n_components, add_quiet

SUMMARY = "fit the embedded corpus and show its topics"
EXAMPLES = "  klnmf demo --report bible.html\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_n_components(parser, default=20)
    parser.add_argument("--report", metavar="FILE.html", help="also write an HTML report")
    add_force(parser)
    add_quiet(parser)
    parser.set_defaults(title="King James Bible")


def run(args: argparse.Namespace) -> int:
    """Fit the embedded corpus and print its topics."""
    from klnmf.datasets import load_bible
    from klnmf.estimators.kl_nmf import KLNMF
    from klnmf.readers import CountTable
    from klnmf.topics import format_topics

    report = None if args.report is None else check_output(args, PAGE, args.report)
    bible = load_bible()
    labels = bible.target_names[bible.target]
    names = (bible.sample_names, bible.feature_names, labels)
    table = CountTable(bible.data, *names, open_features=True)
    n, m = table.shape
    say(args, f"King James Bible: {n:,} chapters × {m:,} words, {table.X.nnz:,} nonzeros")
    model = KLNMF(args.n_components, random_state=0)
    W = model.fit_transform(table.X)
    print(format_topics(model.components_, table.column_names, W=W))
    say_outcome(args, model)
    if report is not None:
        write_report_of_fit(args, report, model, W, table, {})
    return DONE
