"""``klnmf transform``."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from klnmf.cli.files import FACTOR, check_output, write_rows
from klnmf.cli.messages import DONE, CommandError, say
from klnmf.cli.options import (
    add_backend,
    add_data,
    add_events,
    add_matching,
    add_model,
    add_output,
    add_quiet,
    add_threads,
)
from klnmf.support.whole_files import writing

SUMMARY = "represent new samples by the components of a model"
EXAMPLES = """\
  klnmf transform model.klnmf new.npz -o W.csv
  klnmf transform model.klnmf new.h5ad -o W.npz       sparse; features matched by name
  klnmf transform model.klnmf tumours.SBS96.all -o W.csv --few-components
  klnmf transform sales.klnmf new_sales.csv -o shares.csv --proportions
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model(parser)
    text = "file for W, required: .csv, .tsv, .npz (sparse) or .npy; - prints CSV"
    add_output(parser, text, required=True)
    text = "write the shares of the components in each sample, which add up to 1"
    parser.add_argument("--proportions", action="store_true", help=text)
    text = (
        "keep only components that a sample needs, by a test (klnmf.uncertainty.sparse_assignment)"
    )
    parser.add_argument("--few-components", action="store_true", help=text)
    text = "for --few-components, if the model was fitted to DATA with it: the same file"
    parser.add_argument("--sample-weight", metavar="FILE", help=text)
    add_threads(parser)
    add_backend(parser)
    add_quiet(parser)
    add_matching(parser)
    add_events(parser)
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    """Write W of new samples."""
    from klnmf.cli.data import open_data
    from klnmf.cli.events import is_of_events, read_like, refuse_options
    from klnmf.cli.models import read_model, represent, represent_sparsely, take_options

    if args.sample_weight is not None and not args.few_components:
        raise CommandError("--sample-weight is for --few-components: W itself does not need it.")
    if args.output != "-":
        check_output(args, FACTOR, args.output, args.model, args.data)
    saved = read_model(args, takes_events=True)
    saved.model.set_params(n_threads=args.n_threads, backend=args.backend)
    if is_of_events(saved):
        refuse_options(args, "n_threads", "backend", "proportions")
        tensor = read_like(args, saved)
        W, names = saved.model.transform(tensor), tensor.labels[0]
        what, rows, column = saved.model.mode_names_[0], "labels", saved.model.mode_names_[0]
    else:
        take_options(args, saved)
        table = open_data(args)
        W = (represent_sparsely if args.few_components else represent)(args, saved, table)
        names, what, rows, column = table.row_names, "W", "samples", "sample"
    if args.proportions:
        W = saved.model.proportions(W)
    write_factor(args.output, W, names, saved.component_names, column)
    if args.output != "-":
        say(args, f"{what}: {args.output}, {W.shape[0]:,} {rows} × {W.shape[1]:,} components")
    return DONE


def write_factor(
    path: str,
    W: Any,
    sample_names: Sequence[str] | None,
    component_names: Sequence[str] | None = None,
    what: str = "sample",
) -> None:
    """Write W in the format of the file name: .csv, .tsv, .npz (sparse) or .npy."""
    import numpy as np
    import scipy.sparse as sp

    from klnmf.topics.checks import dense

    suffix = Path(path).suffix.lower()
    if suffix == ".npz":
        with writing(Path(path)) as file:
            sp.save_npz(file, sp.csr_array(W))
    elif suffix == ".npy":
        with writing(Path(path)) as file:
            np.save(file, dense(W), allow_pickle=False)
    else:
        rows = _rows(W, sample_names, component_names, what)
        write_rows(path, rows, delimiter="\t" if suffix == ".tsv" else ",")


def _rows(
    W: Any, sample_names: Sequence[str] | None, component_names: Sequence[str] | None, what: str
) -> Iterator[list[Any]]:
    from klnmf.topics.checks import dense

    n_samples, rank = W.shape
    yield [what, *(component_names or (f"component_{k}" for k in range(rank)))]
    for i in range(n_samples):
        name = str(i) if sample_names is None else str(sample_names[i])
        yield [name, *(f"{value:.9g}" for value in dense(W[[i]])[0])]
