"""Options that several commands share, and the types of their values."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from klnmf.cli.messages import CommandError

FORMATS = (
    *("npz", "mtx", "10x", "10x-h5", "h5ad", "loom", "csv", "tsv", "parquet"),
    *("uci", "texts", "jsonl", "prepared"),
)
FORMS = ("NFC", "NFKC", "NFD", "NFKD")
STARTS = ("samples", "random", "nndsvd")
NOISES = ("estimated", "poisson")
DTYPES = ("float32", "float64")
PENALTIES = ("l1_W", "l2_W", "l1_H", "l2_H")
# Options of tables of events.
EVENTS = ("modes", "values", "bins")
TAKE_EVENTS = (
    "klnmf fit, rank, transform and report take events. In Python, klnmf.model_selection.consensus "
    "takes a klnmf.SparseTensor, and PoissonCP.score evaluates new events"
)
# Weights and exposures, and what each of them has a number for.
NUMBERS = {"sample_weight": "sample", "feature_weight": "feature", "exposure": "sample"}

# ---- values --------------------------------------------------------------------------------------
# What a value means to the library is checked there. Here are numbers, so that a wrong one is
# refused before any file is read, and values that are written otherwise than in Python.

Number = TypeVar("Number", int, float)
Parse = TypeVar("Parse", bound=Callable[[str], Any])
_KINDS = {int: "a whole number", float: "a number"}


def shown_as(metavar: str) -> Callable[[Parse], Parse]:
    """Give a type of options the name that its values have in --help."""

    def named(parse: Parse) -> Parse:
        parse.metavar = metavar  # type: ignore[attr-defined]
        return parse

    return named


def _checked(
    kind: type[Number], metavar: str, wanted: str, is_right: Callable[[Number], bool]
) -> Callable[[str], Number]:
    """Make the type of an option: a number for which a condition holds."""

    @shown_as(metavar)
    def checked(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            problem = f"must be {_KINDS[kind]}, got {text!r}"
            raise argparse.ArgumentTypeError(problem) from None
        if not is_right(value):
            raise argparse.ArgumentTypeError(f"must be {wanted}, got {text}")
        return value

    return checked


_INFINITY = float("inf")
_LARGEST_SEED = (1 << 32) - 1
_WORKERS = "from 1 to 1024, or negative (-1: all CPUs, -2: all but one)"

natural = _checked(int, "N", "1 or more", lambda value: value >= 1)
rank = _checked(int, "R", "1 or more", lambda value: value >= 1)
several = _checked(int, "N", "2 or more", lambda value: value >= 2)
none_or_several = _checked(int, "N", "0, or 2 or more", lambda n: n == 0 or n >= 2)
seed = _checked(int, "SEED", f"from 0 to {_LARGEST_SEED}", lambda n: 0 <= n <= _LARGEST_SEED)
workers = _checked(int, "N", _WORKERS, lambda value: value != 0 and value <= 1024)
positive = _checked(float, "X", "a positive number", lambda value: 0 < value < _INFINITY)
nonnegative = _checked(float, "X", "0 or more", lambda value: 0 <= value < _INFINITY)


@shown_as("N")
def share_or_count(text: str) -> float | int:
    """Return a whole number, or a share written with a point, as in scikit-learn."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


@shown_as("LIST")
def some_ranks(text: str) -> list[int]:
    """Return whole numbers from a list of numbers and ranges.

    Examples
    --------
    >>> some_ranks("1-3,10")
    [1, 2, 3, 10]
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        try:
            first, last = natural(low), natural(high if dash else low)
        except argparse.ArgumentTypeError:
            first, last = 1, 0
        if first > last:
            raise argparse.ArgumentTypeError(f"must be like 1-40 or 5,10,20, got {text}")
        found.update(range(first, last + 1))
    return sorted(found)


@shown_as("LOW,HIGH")
def ngrams(text: str) -> tuple[int, int]:
    """Return one or two numbers separated by a comma: 1,2."""
    parts = text.split(",")
    if all(part.isdecimal() for part in parts) and len(parts) <= 2:
        low, high = int(parts[0]), int(parts[-1])
        if 1 <= low <= high:
            return low, high
    wanted = "must be like 1,2, which counts words and pairs of words"
    raise argparse.ArgumentTypeError(f"{wanted}; got {text!r}")


@shown_as("CHARACTER")
def delimiter(text: str) -> str:
    r"""Return one character; a tab may be written as \t.

    Examples
    --------
    >>> delimiter(";"), delimiter(r"\t")
    (';', '\t')
    """
    character = "\t" if text in (r"\t", "tab") else text
    if len(character) != 1 or character in '\r\n"':
        problem = f"must be one character such as ';' (or \\t for a tab), got {text!r}"
        raise argparse.ArgumentTypeError(problem)
    return character


@shown_as("ROW,COLUMN[,COUNT]")
def column_names(text: str) -> list[str]:
    """Return names separated by commas."""
    return text.split(",")


@shown_as("COLUMN=BIN,...")
def bins(text: str) -> dict[str, str]:
    """Return the bins of columns of dates.

    Examples
    --------
    >>> bins("date=month")
    {'date': 'month'}
    """
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name and bin for name, _, bin in parts):
        raise argparse.ArgumentTypeError(f"must be like date=week; got {text!r}")
    return {name: bin for name, _, bin in parts}


# ---- options -------------------------------------------------------------------------------------


def add_data(parser: argparse.ArgumentParser, *, labels: bool = True, **more: Any) -> None:
    """Add DATA and the options for reading it; without labels for commands that use none."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="file or folder of counts: .npz, .mtx(.gz), 10x folder, .h5ad, .loom, .csv, .tsv, "
        ".parquet, docword.*.txt, folder of .txt files, .jsonl, folder written by "
        "klnmf prepare",
        **more,
    )
    group = parser.add_argument_group("reading DATA")
    add = group.add_argument
    add_not = partial(add, action="store_const", const=False)
    listed = f"one of {', '.join(FORMATS)} (default: inferred from the file name)"
    add("--format", choices=FORMATS, metavar="FORMAT", help=listed)
    text = "layer of an .h5ad or .loom file; 'raw' reads .raw of AnnData, 'X' or 'matrix' the main"
    add("--layer", help=f"{text} matrix")
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
    add("--encoding", metavar="NAME", help="encoding of text files (default: utf-8)")
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
    parser.set_defaults(reading=[action.dest for action in group._group_actions])


def add_events(parser: argparse.ArgumentParser) -> None:
    """Add the options of tables of events, which become tensors."""
    add = parser.add_argument_group(
        "events and tensors (.csv, .tsv, .parquet, .tns, .npz)"
    ).add_argument
    text = "columns that say what happened, to whom, when, such as customer,product,date; of a "
    text += ".tns or .npz file, names of the modes"
    add("--modes", type=lambda text: text.split(","), metavar="COLUMN,...", help=text)
    add("--values", metavar="COLUMN", help="column of counts (default: each line counts 1)")
    text = "count dates by day, week, month or year, such as date=week"
    add("--bins", type=bins, help=text)


def add_numbers(parser: Any) -> None:
    """Add the options that name files of weights and exposures."""
    for name, each in NUMBERS.items():
        text = f"text file with one number per {each}, in the order of DATA"
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=text)


def read_numbers(args: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of each file, or None where none was given."""
    return {name: numbers_of(getattr(args, name)) for name in NUMBERS}


def numbers_of(path: str | None) -> Any:
    """Numbers of a text file, one per line."""
    if path is None:
        return None
    import numpy as np

    try:
        return np.loadtxt(path, ndmin=1)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read as one number per line: {error}") from error


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
    add("--min-overlap", type=float, metavar="SHARE", default=0.1, help=needed)


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


def add_n_components(parser: argparse.ArgumentParser) -> None:
    """Add -r, which is also called -k."""
    text = "number of components; klnmf rank DATA shows which suits DATA"
    parser.add_argument("-r", "-k", "--n-components", type=rank, default=10, help=text)


def add_seed(parser: argparse._ActionsContainer) -> None:
    """Add --seed."""
    parser.add_argument(
        "--seed", "--random-state", dest="random_state", type=seed, default=0, help="random seed"
    )


def add_threads(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add --threads, with other names of it."""
    text = "number of threads (default: all CPUs)"
    parser.add_argument("--threads", *names, dest="n_threads", type=workers, help=text)


def add_backend(parser: argparse._ActionsContainer) -> None:
    """Add --backend."""
    text = "where to compute; auto is the CPU, cuda an NVIDIA GPU, in float32"
    parser.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto", help=text)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add --quiet."""
    text = "print only warnings and errors on stderr"
    parser.add_argument("-q", "--quiet", action="store_true", help=text)
