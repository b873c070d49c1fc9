"""The command line's grammar; nothing here is slow to import, so that --help is quick."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from klnmf.cli.parsing import Parser
from klnmf.cli.values import (
    column_names,
    delimiter,
    encoding,
    natural,
    ngrams,
    nonnegative,
    positive,
    seed,
    several,
    share,
    share_of_features,
    share_or_count,
    some_ranks,
    workers,
)

FORMATS = (
    *("npz", "mtx", "10x", "10x-h5", "h5ad", "loom", "csv", "tsv", "parquet"),
    *("uci", "svmlight", "texts", "jsonl", "prepared"),
)
SOLVERS = ("srcd", "srcd-paper", "ccd", "mu", "bmme")
STARTS = ("samples", "random", "nndsvd")
RANKINGS = ("weight", "lift", "frex", "kl", "relevance")
SHELLS = ("bash", "zsh", "tcsh")

_EPILOG = """\
examples:
  klnmf demo                                          topics of an embedded corpus
  klnmf rank counts.npz                               how many components?
  klnmf fit counts.npz -r 20 -o model.klnmf           20 components of a sparse matrix
  klnmf fit letters/ -r 10 --min-df 3 --report r.html words of a folder of .txt files, with a report
  klnmf fit cells.h5ad --layer counts -r 15           AnnData
  klnmf consensus counts.npz -r 20                    which components do 100 starts agree on?
  klnmf topics model.klnmf                            what the components are about
  klnmf transform model.klnmf new.npz -o W.csv        the same components for new samples

Each command has its own --help. Exit codes: 0 done (also for a fit that did not converge, with a
warning), 1 error in data, model or system, 2 wrong command line, 130 interrupted. With
KLNMF_DEBUG=1 in the environment, errors show Python's traceback.
"""


def build_parser(version: str) -> argparse.ArgumentParser:
    """Return the whole grammar."""
    parser = Parser(
        prog="klnmf",
        description="Nonnegative matrix factorisation of sparse counts (Poisson NMF, PLSI).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"klnmf {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (
        *(_add_rank, _add_fit, _add_consensus, _add_transform, _add_topics, _add_evaluate),
        *(_add_report, _add_convert, _add_prepare, _add_info, _add_demo, _add_completion),
    ):
        add(commands)
    return parser


def _command(commands: Any, name: str, summary: str, examples: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser)
    return parser


def add_data(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Add DATA, and how it is read."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="file or folder of counts: .npz, .mtx(.gz), 10x folder, .h5ad, .loom, .csv, .tsv, "
        ".parquet, docword.*.txt, .svmlight, folder of .txt, .jsonl, folder of klnmf prepare",
        **more,
    )
    group = parser.add_argument_group("how DATA is read")
    add = group.add_argument
    add_not = partial(add, action="store_const", const=False)
    add("--format", choices=FORMATS, help="format of DATA (inferred from its name)")
    add("--layer", help="layer of .h5ad or .loom to read; 'raw' is AnnData's raw")
    add(
        "--feature-type", metavar="TYPE", help="features to read of 10x data (Gene Expression); all"
    )
    add("--feature-names", choices=("name", "id"), help="what to call features of 10x data (name)")
    add("--transpose", action="store_true", help="samples are the columns of the file")
    add("--row-names", metavar="FILE", help="names of the rows, one per line")
    add("--column-names", metavar="FILE", help="names of the columns, one per line")
    add("--labels", metavar="COLUMN", help="column of an .h5ad's obs to take as known classes")
    add("--layout", choices=("table", "triplets"), help="what a .csv, .tsv or .parquet holds")
    add(
        "--columns",
        type=column_names,
        metavar="ROW,COLUMN[,COUNT]",
        help="columns to read of a .csv, .tsv or .parquet with triplets",
    )
    add("--delimiter", type=delimiter, help="character between the fields of a .csv; tab is \\t")
    add_not("--no-header", dest="header", help="the first line of a .csv does not name columns")
    add_not("--no-index", dest="index", help="the first column of a table does not name rows")
    add("--encoding", type=encoding, help="encoding of text files, such as latin-1 (utf-8)")
    add("--text-field", metavar="NAME", help="field of a .jsonl with the text (text)")
    add("--id-field", metavar="NAME", help="field of a .jsonl with the document's name")
    add("--label-field", metavar="NAME", help="field of a .jsonl with a known class")
    add("--pattern", help="names of the files in a folder of texts (*.txt)")
    add("--min-df", type=share_or_count, help="words in fewer documents are left out: 3, or 0.01")
    add("--max-df", type=share_or_count, help="words in more documents are left out: 0.5")
    add("--max-features", type=natural, help="keep the most frequent words")
    add("--stop-words", choices=("english",), help="leave out the usual words of a language")
    add("--ngram-range", type=ngrams, metavar="LOW,HIGH", help="count phrases too: 1,2")
    add("--token-pattern", metavar="REGEX", help="what a word is")
    add_not("--keep-case", dest="lowercase", help="do not convert to lower case")


def _add_output(parser: argparse.ArgumentParser, text: str, **more: Any) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help=text, **more)


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="nothing on stderr but warnings and errors"
    )


def _add_matching(parser: argparse.ArgumentParser) -> None:
    """Add how features of DATA are matched with those of MODEL."""
    add = parser.add_argument_group("how features are matched by name").add_argument
    add(
        "--absent-features",
        choices=("unobserved", "zero"),
        help="counts of features that DATA does not have (zero for texts and triplets, else "
        "unobserved)",
    )
    add(
        "--min-overlap",
        type=share_of_features,
        default=0.1,
        metavar="SHARE",
        help="least share of MODEL's features that DATA must have, unless absent ones are zero "
        "(0.1)",
    )


def _add_rank(commands: Any) -> None:
    parser = _command(
        commands,
        "rank",
        "choose the number of components by predicting held-out counts",
        "  klnmf rank counts.npz\n"
        "  klnmf rank counts.npz --ranks 5,10,20,40 --plot rank.png\n"
        "  klnmf rank big.npz -o rank.json                  continues if run again\n",
    )
    add_data(parser)
    _add_output(parser, "result to write (DATA's name with .rank.json)")
    add = parser.add_argument
    add("--ranks", type=some_ranks, default="1-40", metavar="LIST", help="1-20,30,40 (1-40)")
    add("--splits", type=natural, default=5, metavar="N", help="number of splits of the data (5)")
    add("--train-fraction", type=share, default=0.9, help="share of the counts to fit to (0.9)")
    add(
        "--background",
        type=share,
        metavar="SHARE",
        help="of the rates, spread over all features (the best for each rank)",
    )
    add("--no-early-stop", dest="early_stop", action="store_false", help="try every rank")
    add("--seed", "--random-state", dest="random_state", type=seed, default=0, help="(0)")
    add("--jobs", dest="n_jobs", type=workers, metavar="N", help="splits at a time (all CPUs)")
    add("--threads", "--n-threads", dest="n_threads", type=workers, metavar="N", help="(all CPUs)")
    add("--plot", metavar="FILE", help="also draw the result: .png, .pdf or .svg")
    add("--json", action="store_true", help="print JSON instead of the table")
    add("--force", action="store_true", help="overwrite an existing result")
    add("--restart", action="store_true", help="start again, ignoring an interrupted run")
    _add_quiet(parser)


def _add_fit(commands: Any) -> None:
    parser = _command(
        commands,
        "fit",
        "learn components from a file of counts and save the model",
        "  klnmf fit counts.npz -r 20 -o model.klnmf\n"
        "  klnmf fit docs.jsonl -r 30 --min-df 5 --stop-words english --report r.html\n"
        "  klnmf fit big.npz -r 50 -o big.klnmf --resume      continue after Ctrl-C or a crash\n",
    )
    add_data(parser)
    _add_output(parser, "model to write (DATA's name with .klnmf)")
    add = parser.add_argument
    add("-r", "--n-components", type=natural, default=10, metavar="R", help="components (10)")
    add("--report", metavar="FILE.html", help="also write an HTML report")
    add("--title", help="heading of the report")
    add("--force", action="store_true", help="overwrite an existing model")
    _add_quiet(parser)
    fit = parser.add_argument_group("the fit")
    add = fit.add_argument
    add("--solver", choices=SOLVERS, default="srcd", help="(srcd)")
    add("--init", choices=STARTS, default="samples", help="where to start (samples)")
    add("--n-init", type=natural, default=1, metavar="K", help="starts to try first (1)")
    add("--max-iter", type=natural, default=500, metavar="N", help="iterations at most (500)")
    add("--tol", type=nonnegative, default=1e-3, help="KKT residual to stop at (0.001)")
    add("--seed", "--random-state", dest="random_state", type=seed, default=0, help="(0)")
    add("--threads", "--n-threads", dest="n_threads", type=workers, metavar="N", help="(all CPUs)")
    add("--dtype", choices=("float32", "float64"), help="(as the data)")
    for factor in ("W", "H"):
        for kind in ("l1", "l2"):
            names = (f"--{kind}-{factor}", f"--{kind}-{factor.lower()}")
            add(
                *names,
                dest=f"{kind}_{factor}",
                type=nonnegative,
                default=0.0,
                metavar="WEIGHT",
                help=f"{kind.upper()} penalty on {factor} (0)",
            )
    group = parser.add_argument_group("interrupted fits")
    add = group.add_argument
    either = group.add_mutually_exclusive_group()
    for word, const, text in (
        ("--resume", True, "continue from the checkpoint"),
        ("--restart", False, "start again, and overwrite the checkpoint and the model"),
    ):
        either.add_argument(word, dest="resume", action="store_const", const=const, help=text)
    add("--checkpoint", metavar="FILE", help="(the model's name with .checkpoint)")
    add("--checkpoint-every", type=nonnegative, default=60.0, metavar="SECONDS", help="(60)")
    add("--no-checkpoint", action="store_true", help="write none")


def _add_consensus(commands: Any) -> None:
    parser = _command(
        commands,
        "consensus",
        "fit from many starts and save the components that the runs agree on",
        "  klnmf consensus counts.npz -r 20 --plot consensus.png\n"
        "  klnmf consensus counts.npz -r 20 --runs 200 -o m.klnmf   continues if run again\n",
    )
    add_data(parser)
    _add_output(parser, "model to write (DATA's name with .consensus.klnmf)")
    add = parser.add_argument
    add("-r", "-k", "--n-components", type=natural, default=10, metavar="R", help="components (10)")
    add("--runs", type=several, default=100, metavar="N", help="number of starts, 2 or more (100)")
    add(
        "--density-threshold",
        type=positive,
        default=0.5,
        metavar="DISTANCE",
        help="components of runs that are farther from their neighbours are left out (0.5)",
    )
    add(
        "--refit",
        choices=("both", "W"),
        default="both",
        help="what the model holds: components refined from the medians of the runs, or the "
        "medians themselves with W solved for them, as consensus() in Python returns (both)",
    )
    add("--init", choices=STARTS, default="samples", help="where runs start (samples)")
    add("--max-iter", type=natural, default=300, metavar="N", help="iterations of a run (300)")
    add("--seed", "--random-state", dest="random_state", type=seed, default=0, help="(0)")
    add("--jobs", dest="n_jobs", type=workers, metavar="N", help="runs at a time (all CPUs)")
    add("--plot", metavar="FILE", help="also draw the result: .png, .pdf or .svg")
    add("--result", metavar="FILE", help="also save all runs, for Consensus.load in Python")
    add("--json", action="store_true", help="print JSON instead of the table")
    add("--force", action="store_true", help="overwrite existing files")
    add("--restart", action="store_true", help="start again, ignoring an interrupted run")
    _add_quiet(parser)


def _add_transform(commands: Any) -> None:
    parser = _command(
        commands,
        "transform",
        "represent new samples by the components of a model",
        "  klnmf transform model.klnmf new.npz -o W.csv\n"
        "  klnmf transform model.klnmf new.h5ad -o W.npz       sparse; features matched by name\n",
    )
    parser.add_argument("model", metavar="MODEL", help="a file that klnmf fit wrote")
    add_data(parser)
    _add_matching(parser)
    _add_output(parser, "W: .csv, .tsv, .npz (sparse) or .npy; - is CSV on stdout", required=True)
    parser.add_argument(
        "--proportions", action="store_true", help="shares of the components that add up to 1"
    )
    parser.add_argument("--threads", dest="n_threads", type=workers, metavar="N", help="(all CPUs)")
    _add_quiet(parser)


def _add_topics(commands: Any) -> None:
    parser = _command(
        commands,
        "topics",
        "show what the components of a model are about",
        "  klnmf topics model.klnmf\n"
        "  klnmf topics model.klnmf --by frex --top 15\n"
        "  klnmf topics model.klnmf --csv > topics.csv\n",
    )
    parser.add_argument("model", metavar="MODEL", help="a file that klnmf fit wrote")
    parser.add_argument("--top", type=natural, default=10, metavar="N", help="features each (10)")
    parser.add_argument("--by", choices=RANKINGS, default="weight", help="ranking (weight)")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--csv", action="store_true", help="a line for each feature")
    either.add_argument("--json", action="store_true", help="as JSON")
    _add_output(parser, "file to write: .txt, .csv, .tsv or .json (text on stdout)")


def _add_evaluate(commands: Any) -> None:
    parser = _command(
        commands,
        "evaluate",
        "score a model on data it has not seen",
        "  klnmf evaluate model.klnmf held_out.npz\n"
        "  klnmf evaluate model.klnmf held_out.npz --json\n",
    )
    parser.add_argument("model", metavar="MODEL", help="a file that klnmf fit wrote")
    add_data(parser)
    _add_matching(parser)
    parser.add_argument("--top", type=natural, default=10, metavar="N", help="for coherence (10)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--threads", dest="n_threads", type=workers, metavar="N", help="(all CPUs)")
    _add_quiet(parser)


def _add_report(commands: Any) -> None:
    parser = _command(
        commands,
        "report",
        "write an HTML page about a model",
        "  klnmf report model.klnmf -o report.html\n"
        "  klnmf report model.klnmf counts.npz -o report.html   with a summary of the data\n",
    )
    parser.add_argument("model", metavar="MODEL", help="a file that klnmf fit wrote")
    add_data(parser, nargs="?")
    _add_matching(parser)
    _add_output(parser, "page to write (MODEL's name with .html)")
    parser.add_argument("--rank", metavar="FILE", help="a result of klnmf rank, to be shown too")
    parser.add_argument("--title", help="heading of the page")
    _add_quiet(parser)


def _add_convert(commands: Any) -> None:
    parser = _command(
        commands,
        "convert",
        "read counts in one format and write them in another",
        "  klnmf convert docword.kos.txt.gz kos.npz\n"
        "  klnmf convert filtered_feature_bc_matrix/ cells.h5ad\n",
    )
    add_data(parser)
    parser.add_argument(
        "output", metavar="OUT", help=".npz, .mtx(.gz), .h5ad, .csv, .tsv, .parquet"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    _add_quiet(parser)


def _add_prepare(commands: Any) -> None:
    parser = _command(
        commands,
        "prepare",
        "write a matrix larger than memory so that it can be fitted from the disk",
        "  klnmf prepare big.npz big.disk --memory 2G\n  klnmf fit big.disk -r 50 -o big.klnmf\n",
    )
    add_data(parser)
    add = parser.add_argument
    add("output", metavar="OUT", help="folder to write; OUT.partial until it is complete")
    add("--memory", default="2G", metavar="SIZE", help="memory to work in, such as 512M (2G)")
    add("--dtype", choices=("float32", "float64"), help="(as the data)")
    add(
        "--force",
        dest="overwrite",
        action="store_true",
        help="replace an existing prepared matrix",
    )
    _add_quiet(parser)


def _add_info(commands: Any) -> None:
    parser = _command(commands, "info", "show versions, instruction set, threads and back-ends")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="also what a model file holds")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _add_demo(commands: Any) -> None:
    parser = _command(commands, "demo", "fit the embedded corpus and show its topics")
    parser.add_argument("-r", "--n-components", type=natural, default=20, metavar="R", help="(20)")
    parser.add_argument("--report", metavar="FILE.html", help="also write an HTML report")
    _add_quiet(parser)


def _add_completion(commands: Any) -> None:
    parser = _command(
        commands,
        "completion",
        "print a script that completes klnmf's commands and options",
        "  klnmf completion bash > ~/.local/share/bash-completion/completions/klnmf\n"
        "  klnmf completion zsh > ~/.zfunc/_klnmf\n",
    )
    parser.add_argument("shell", choices=SHELLS)
