"""``klnmf fit``."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from klnmf.cli.files import MODEL
from klnmf.cli.long_runs import Line, add_restart, checked_files, run_options
from klnmf.cli.messages import DONE, say
from klnmf.cli.options import (
    DTYPES,
    PENALTIES,
    STARTS,
    add_backend,
    add_data,
    add_events,
    add_n_components,
    add_numbers,
    add_output,
    add_penalties,
    add_quiet,
    add_seed,
    add_threads,
    natural,
    nonnegative,
    read_numbers,
)

SUMMARY = "learn components from a file of counts and save the model"
EXAMPLES = """\
  klnmf fit counts.npz -r 20 -o model.klnmf
  klnmf fit docs.jsonl -r 30 --min-df 5 --stop-words english --report r.html
  klnmf fit sales.csv --modes customer,product,date --values units --bins date=week -r 20
  klnmf fit big.npz -r 50 -o big.klnmf   # run again to continue after Ctrl-C or a crash
"""
SOLVERS = ("srcd", "srcd-paper", "ccd", "mu", "bmme")
# Options that are parameters of KLNMF under the same name.
_PARAMETERS = (
    *("n_components", "solver", "init", "n_init", *PENALTIES),
    *("max_iter", "tol", "n_threads", "backend", "random_state", "dtype"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add_output(parser, "model to write (default: beside DATA, with its name and .klnmf)")
    add_n_components(parser)
    add("--report", metavar="FILE.html", help="also write an HTML report")
    add("--title", help="title of the report")
    add_quiet(parser)
    _add_fit_options(parser.add_argument_group("fitting"))
    group = parser.add_argument_group("interrupted fits")
    add_restart(group)
    text = "file for checkpoints (default: the model's name with .checkpoint)"
    group.add_argument("--checkpoint", metavar="FILE", help=text)
    text = "seconds between two checkpoints"
    group.add_argument("--checkpoint-every", type=nonnegative, default=60.0, help=text)
    add_events(parser)
    add_data(parser)


def _add_fit_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--solver", choices=SOLVERS, default="srcd", help="algorithm")
    add("--init", choices=STARTS, default="samples", help="initial factors")
    add("--n-init", type=natural, default=1, help="number of starts to try; the best one continues")
    add("--max-iter", type=natural, default=500, help="maximum number of iterations")
    add(
        "--tol",
        type=nonnegative,
        default=3e-4,
        help="stop when changing only W, or only H (or one mode), cannot lower the objective by "
        "more than this share",
    )
    add_seed(group)
    add_threads(group, "--n-threads")
    add_backend(group)
    add("--dtype", choices=DTYPES, help="type of the factors (default: as the data)")
    add_numbers(group)
    add_penalties(group)


def run(args: argparse.Namespace) -> int:
    """Read, fit, save. The checkpoint is removed once the model is written."""
    from klnmf.cli.data import columns_of, facts_of
    from klnmf.cli.events import facts_of_events, has_events
    from klnmf.constraints.names import named_samples
    from klnmf.estimators.kl_nmf import load_model

    are_events = has_events(args)
    files = checked_files(args, MODEL, ".klnmf")
    model, table, known = (_tensor_and_model if are_events else _matrix_and_model)(args)
    X, names = (table, None) if are_events else (table.X, table.row_names)
    line = line_of_iteration(args.tol, args.max_iter)

    def after() -> str:
        return f" after {model.n_iter_} iterations" if hasattr(model, "n_iter_") else ""

    every = args.checkpoint_every
    run = run_options(args, files, line, after=after, checkpoint_every=every)
    with named_samples(names), run as model.run:
        W = model.fit_transform(X, **known)
    model.set_params(run=None)
    if are_events:
        model.save(files.output, metadata=facts_of_events(args, table))
    else:
        model.save(
            files.output,
            W=W,
            sample_names=names,
            feature_names=table.column_names,
            sample_metadata=columns_of(table),
            metadata=facts_of(args, table),
        )
    files.checkpoint.unlink(missing_ok=True)
    say_outcome(args, model)
    say(args, f"model: {files.output}")
    if files.report is not None:
        from klnmf.cli.report import samples_of, write_page
        from klnmf.data.on_disk.matrix import OnDiskMatrix

        X = None if isinstance(X, OnDiskMatrix) else X  # the summary needs X in memory
        saved, command = load_model(files.output), shlex.join(["klnmf", *args.words])
        samples = {} if are_events else samples_of(saved)
        write_page(args, files.report, saved, samples, X, {"command": command})
    return DONE


def _matrix_and_model(args: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """Read DATA; return a model to fit, the table, and what is known of its samples."""
    from klnmf.cli.data import open_data
    from klnmf.estimators.kl_nmf import KLNMF

    known = read_numbers(args)
    table = open_data(args)
    model = KLNMF(
        feature_weight=known.pop("feature_weight"),
        **{name: getattr(args, name) for name in _PARAMETERS},
        sparse_output=True,
    )
    return model, table, known


def _tensor_and_model(args: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """Read DATA with events; return a model to fit, and the tensor."""
    from klnmf.cli.events import read_events, refuse_options
    from klnmf.estimators.poisson_cp import PoissonCP

    parameters = [name for name in _PARAMETERS if name not in PENALTIES]
    checkpoints = ("resume", "checkpoint", "checkpoint_every")
    refuse_options(args, *parameters, *checkpoints, "report", "title")
    tensor = read_events(args)
    model = PoissonCP(**{name: getattr(args, name) for name in parameters}, sparse_output=True)
    return model, tensor, {}


def line_of_iteration(tol: float, max_iter: int) -> Line:
    """Make the lines that a log gets of a fit."""
    from klnmf.support.progress import PredictedEnd

    predicted = PredictedEnd(tol, max_iter)

    def line(record: dict[str, Any]) -> str:
        done, seconds, gap = (record[k] for k in ("iteration", "seconds", "optimality_gap"))
        end = predicted.after(done, gap)
        left = "" if end is None else f", about {seconds / done * max(end - done, 0):.0f} s left"
        return (
            f"iteration {done}, {seconds:.1f} s: objective {record['objective']:.6g}, optimality "
            f"gap {gap:.1e}{left}"
        )

    return line


def say_outcome(args: argparse.Namespace, model: Any) -> None:
    """Print whether a fit converged."""
    from klnmf.estimators.fitted import bound_in_words

    state = "converged" if model.converged_ else "not converged"
    seconds = model.history_[-1]["seconds"]
    text = (
        f"{state} after {model.n_iter_} iterations, {seconds:.2f} s: KL divergence "
        f"{model.divergence_:.8g}"
    )
    bound = bound_in_words(model)
    if bound is not None:
        is_matrix = not hasattr(model, "factors_")
        only = "changing only W, or only H," if is_matrix else "changing the factor of any one mode"
        text += f"; {only} cannot lower the objective by more than {bound}"
    say(args, text)
