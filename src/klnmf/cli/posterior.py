"""``klnmf posterior``."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import TYPE_CHECKING, Any

from klnmf.cli.files import INTERVALS, MODEL, check_output, stem_of, write_rows
from klnmf.cli.long_runs import add_restart, checked_files, run_options, save_picture
from klnmf.cli.messages import DONE, say
from klnmf.cli.options import (
    NOISES,
    add_data,
    add_matching,
    add_model,
    add_output,
    add_quiet,
    add_seed,
    add_threads,
    natural,
    numbers_of,
    positive,
)

if TYPE_CHECKING:
    from klnmf.uncertainty import Posterior

SUMMARY = (
    "components and intervals with the samples integrated out, for components that share features"
)
EXAMPLES = """\
  klnmf posterior model.klnmf counts.npz
  klnmf posterior model.klnmf counts.npz -o better.klnmf --intervals words.csv --report r.html
  klnmf posterior model.klnmf counts.npz --sweeps 6000   # run again to continue after Ctrl-C
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add_model(parser)
    text = "model to write, with the mean components (default: beside MODEL, with its name and "
    add_output(parser, f"{text}.posterior.klnmf)")
    text = "number of sweeps of the sampler, 30 or more; the first third is not kept"
    add("--sweeps", type=natural, default=1500, help=text)
    text = "probability with which an interval should contain the true value"
    add("--level", type=positive, default=0.95, help=text)
    text = "whether counts vary as DATA do, or as Poisson counts"
    add("--noise", choices=NOISES, default=NOISES[0], help=text)
    text = "if the model was fitted with it: the same file"
    add("--exposure", metavar="FILE", help=text)
    add("--intervals", metavar="FILE", help="also write all intervals of components: .csv or .tsv")
    add("--report", metavar="FILE.html", help="also write an HTML report with the intervals")
    add("--title", help="title of the report")
    add("--plot", metavar="FILE", help="also plot the intervals: .png, .pdf or .svg")
    add("--json", action="store_true", help="print JSON instead of the table")
    add_seed(parser)
    add_threads(parser)
    add_restart(parser)
    add_quiet(parser)
    add_matching(parser)
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    """Sample, print, save a model. An interrupted command is continued."""
    from klnmf.cli.data import columns_of, read_data
    from klnmf.cli.models import in_models_features, read_model, take_options
    from klnmf.cli.report import samples_of, write_page
    from klnmf.constraints.names import named_samples
    from klnmf.estimators.kl_nmf import load_model
    from klnmf.uncertainty import posterior

    args.output = args.output or f"{stem_of(args.model)}.posterior.klnmf"
    files = checked_files(args, MODEL, "")
    if args.intervals is not None:
        check_output(args, INTERVALS, args.intervals, args.model, args.data, args.output)
    saved = read_model(args)
    take_options(args, saved)
    table = read_data(args)
    X, exposure = in_models_features(args, saved, table), numbers_of(args.exposure)
    with named_samples(table.row_names), run_options(args, files, None) as run:
        found = posterior(
            saved.model,
            X,
            n_sweeps=args.sweeps,
            level=args.level,
            noise=args.noise,
            feature_names=saved.feature_names,
            n_threads=args.n_threads,
            random_state=args.random_state,
            run=run,
            **({} if exposure is None else {"exposure": exposure}),
        )
    facts = _facts(found)
    names = None if saved.feature_names is None else [*map(str, saved.feature_names)]
    found.model_.set_params(run=None)
    found.model_.save(
        files.output,
        W=found.representation(),
        sample_names=table.row_names,
        feature_names=names,
        sample_metadata=columns_of(table),
        metadata=saved.metadata | {"command": args.words, "posterior": facts},
    )
    print(json.dumps(facts, indent=1) if args.json else found)
    say(args, f"model: {files.output}")
    if args.intervals is not None:
        delimiter = "\t" if args.intervals.lower().endswith(".tsv") else ","
        write_rows(args.intervals, _rows(found), delimiter)
        say(args, f"intervals: {args.intervals}")
    if files.report is not None:
        of_page = load_model(files.output)
        how = {"command": shlex.join(["klnmf", *args.words])}
        write_page(args, files.report, of_page, samples_of(of_page), X, how, intervals=found)
    save_picture(args, found, files.picture)
    files.checkpoint.unlink(missing_ok=True)
    return DONE


def _facts(found: Posterior) -> dict[str, Any]:
    """Return what is said of the sampler and of the components, in JSON."""
    sizes = found.sizes
    return {
        "n_sweeps": found.n_sweeps,
        "n_kept": found.n_kept,
        "level": found.level,
        "noise": found.noise,
        "dispersion": found.dispersion.common,
        "drift": found.drift,
        "effective_draws": found.effective_draws,
        "warning": found.warning,
        "share": sizes.estimate[0].tolist(),
        "lower": sizes.lower[0].tolist(),
        "upper": sizes.upper[0].tolist(),
    }


def _rows(found: Posterior) -> Any:
    """Yield the intervals of every component, its largest shares first."""
    for k in range(len(found.components.estimate)):
        columns = found.table(k, n_top=None)
        if k == 0:
            yield ["component", *columns]
        for row in zip(*columns.values(), strict=True):
            yield [k, str(row[0]), *(f"{x:.6g}" for x in row[1:-1]), bool(row[-1])]
