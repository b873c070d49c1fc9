"""Options that several commands share."""

import argparse
from functools import partial
from typing import Any

from klnmf.cli.option_values import (
    column_names,
    delimiter,
    encoding,
    natural,
    ngrams,
    nonnegative,
    rank,
    seed,
    share_of_features,
    share_or_count,
    workers,
)

FORMATS = (
    *("npz", "mtx", "10x", "10x-h5", "h5ad", "loom", "csv", "tsv", "parquet"),
    *("uci", "svmlight", "texts", "jsonl", "prepared"),
)
FORMS = ("NFC", "NFKC", "NFD", "NFKD")
STARTS = ("samples", "random", "nndsvd")
DTYPES = ("float32", "float64")


def add_data(parser: argparse.ArgumentParser, *, labels: bool = True, **more: Any) -> None:
    """Add DATA and the options for reading it; without labels for commands that use none."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="file or folder of counts: .npz, .mtx(.gz), 10x folder, .h5ad, .loom, .csv, .tsv, "
        ".parquet, docword.*.txt, .svmlight, folder of .txt files, .jsonl, folder written by "
        "klnmf prepare",
        **more,
    )
    add = parser.add_argument_group("reading DATA").add_argument
    add_not = partial(add, action="store_const", const=False)
    listed = f"one of {', '.join(FORMATS)} (default: inferred from the file name)"
    add("--format", choices=FORMATS, metavar="FORMAT", help=listed)
    add("--layer", help="layer of an .h5ad or .loom file; 'raw' reads .raw of AnnData")
    kinds = "type of features to read from 10x or .h5ad files, or 'all' (default: Gene Expression)"
    add("--feature-type", metavar="TYPE", help=kinds)
    add("--feature-names", choices=("name", "id"), help="names of 10x features (default: name)")
    text = "the columns of the file are the samples"
    add("--transpose", action="store_true", default=None, help=text)
    add("--row-names", metavar="FILE", help="file with the names of the rows, one per line")
    add("--column-names", metavar="FILE", help="file with the names of the columns, one per line")
    if labels:
        add("--labels", metavar="COLUMN", help="column of obs in an .h5ad file to use as labels")
    holds = "what a .csv, .tsv or .parquet file holds (default: detected)"
    add("--layout", choices=("table", "triplets"), help=holds)
    add("--columns", type=column_names, help="columns to read from a file of triplets")
    add("--delimiter", type=delimiter, help="what separates fields of a .csv file; \\t for a tab")
    for name, which in (("header", "line of a .csv file"), ("index", "column of a table")):
        text = f"the first {which} holds names (default: detected)"
        add(f"--{name}", action="store_const", const=True, help=text)
        add_not(f"--no-{name}", dest=name, help=f"the first {which} holds counts")
    add("--encoding", type=encoding, help="encoding of text files (default: utf-8)")
    text = "field with the text (default: text in .jsonl); reads a .csv, .tsv or .parquet as texts"
    add("--text-field", metavar="NAME", help=text)
    add("--id-field", metavar="NAME", help="field with the names of the documents")
    if labels:
        add("--label-field", metavar="NAME", help="field with the labels of the documents")
    add("--pattern", help="names of the files to read in a folder of texts (default: *.txt)")
    text = "leave out texts that cannot be decoded or parsed, and name them"
    add("--skip-unreadable", action="store_true", default=None, help=text)
    add("--normalize", choices=FORMS, help="Unicode normal form to bring texts into")
    for name, which, number, share, default in (
        ("--min-df", "fewer", 5, 0.01, "2 for texts to fit, else 1"),
        ("--max-df", "more", 500, 0.5, "0.5 for texts to fit, else 1.0"),
    ):
        text = f"leave out features in {which} samples than this number ({number}) or share"
        add(name, type=share_or_count, help=f"{text} ({share}) (default: {default})")
    add("--max-features", type=natural, help="keep only the N most frequent features")
    text = "leave out the common words of a language, or those of a file with one word per line; "
    text += "several are separated by commas"
    add("--stop-words", metavar="LANGUAGE|FILE", help=text)
    add("--ngram-range", type=ngrams, help="count phrases of LOW to HIGH words, such as 1,2")
    add("--token-pattern", metavar="REGEX", help="regular expression that matches a word")
    add_not("--keep-case", dest="lowercase", help="do not convert to lower case")


PENALTIES = ("l1_W", "l2_W", "l1_H", "l2_H")


def add_penalties(parser: Any) -> None:
    """Add the penalties of a fit."""
    for name in PENALTIES:
        kind, factor = name.split("_")
        names = f"--{kind}-{factor}", f"--{kind}-{factor.lower()}"
        text = f"{kind.upper()} penalty on {factor}"
        parser.add_argument(*names, dest=name, type=nonnegative, default=0.0, help=text)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add MODEL."""
    text = "a file written by klnmf fit or klnmf consensus"
    parser.add_argument("model", metavar="MODEL", help=text)


def add_matching(parser: argparse.ArgumentParser) -> None:
    """Add how features of DATA are matched with those of MODEL."""
    add = parser.add_argument_group("matching features by name").add_argument
    add(
        "--absent-features",
        choices=("unobserved", "zero"),
        help="how to treat features of MODEL that DATA lacks: as not observed, or as counts of 0 "
        "(default: zero for texts and triplets, else unobserved)",
    )
    needed = "smallest share of MODEL's features in DATA if absent features are unobserved"
    add("--min-overlap", type=share_of_features, default=0.1, help=needed)


def add_output(
    parser: argparse.ArgumentParser, text: str, *, is_last: bool = False, **more: Any
) -> None:
    """Add -o, with what is written there, which may be the last argument, and --force."""
    if is_last:
        default = argparse.SUPPRESS  # what -o has set stays
        parser.add_argument("output", metavar="OUT", nargs="?", default=default, help=text)
        text = "the same as OUT"
    parser.add_argument("-o", "--output", metavar="FILE", help=text, **more)
    add_force(parser)


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add --force, which all commands that write files have."""
    text = "overwrite existing files; without it they are an error"
    parser.add_argument("--force", action="store_true", help=text)


def add_n_components(parser: argparse.ArgumentParser, *, default: int = 10) -> None:
    """Add -r, which is also called -k."""
    text = "number of components"
    parser.add_argument("-r", "-k", "--n-components", type=rank, default=default, help=text)


def add_seed(parser: argparse._ActionsContainer) -> None:
    """Add --seed."""
    parser.add_argument(
        "--seed", "--random-state", dest="random_state", type=seed, default=0, help="random seed"
    )


def add_threads(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add --threads, with other names of it."""
    text = "number of threads (default: all CPUs)"
    parser.add_argument("--threads", *names, dest="n_threads", type=workers, help=text)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add --quiet."""
    text = "print only warnings and errors on stderr"
    parser.add_argument("-q", "--quiet", action="store_true", help=text)
