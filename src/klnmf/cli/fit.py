"""``klnmf fit``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klnmf.cli.files import MODEL, PAGE, check_output, check_writable, stem_of
from klnmf.cli.long_runs import Line, interrupted, progress_options
from klnmf.cli.messages import DONE, CommandError, say
from klnmf.cli.metadata import columns_of, facts_of, kept_columns, reproduction
from klnmf.cli.numbers import add_numbers, read_numbers
from klnmf.cli.option_values import natural, nonnegative
from klnmf.cli.options import (
    DTYPES,
    STARTS,
    add_data,
    add_n_components,
    add_output,
    add_penalties,
    add_quiet,
    add_seed,
    add_threads,
)

if TYPE_CHECKING:
    from klnmf.cli.data import OpenedTable
    from klnmf.estimators.kl_nmf import KLNMF
    from klnmf.readers import CountTable

SUMMARY = "learn components from a file of counts and save the model"
EXAMPLES = """\
  klnmf fit counts.npz -r 20 -o model.klnmf
  klnmf fit docs.jsonl -r 30 --min-df 5 --stop-words english --report r.html
  klnmf fit big.npz -r 50 -o big.klnmf --resume      # continue after Ctrl-C or a crash
"""
SOLVERS = ("srcd", "srcd-paper", "ccd", "mu", "bmme")
# Options that are parameters of KLNMF under the same name.
_PARAMETERS = (
    *("n_components", "solver", "init", "n_init", "l1_W", "l2_W", "l1_H", "l2_H"),
    *("max_iter", "tol", "n_threads", "random_state", "dtype"),
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
    _add_checkpoint_options(parser.add_argument_group("interrupted fits"))
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
        help="stop when changing only W, or only H, cannot lower the objective by more than this "
        "share",
    )
    add_seed(group)
    add_threads(group, "--n-threads")
    add("--dtype", choices=DTYPES, help="type of the factors (default: as the data)")
    add_numbers(group)
    add_penalties(group)


def _add_checkpoint_options(group: argparse._ArgumentGroup) -> None:
    either = group.add_mutually_exclusive_group()
    add_one = partial(either.add_argument, dest="resume", action="store_const")
    add_one("--resume", const=True, help="continue from the checkpoint")
    add_one("--restart", const=False, help="start again, overwriting the checkpoint and the model")
    add = group.add_argument
    text = "file for checkpoints (default: the model's name with .checkpoint)"
    add("--checkpoint", metavar="FILE", help=text)
    text = "seconds between two checkpoints"
    add("--checkpoint-every", type=nonnegative, default=60.0, help=text)
    add("--no-checkpoint", action="store_true", help="write no checkpoints")


def run(args: argparse.Namespace) -> int:
    """Read, fit, save. The checkpoint is removed once the model is written."""
    from klnmf.cli.data import open_data
    from klnmf.constraints.names import named_samples
    from klnmf.estimators.kl_nmf import KLNMF
    from klnmf.estimators.run_options import RunOptions

    name = f"{stem_of(args.data)}.klnmf" if args.output is None else args.output
    checkpoint = _checkpoint(args, check_writable(name, args.data))
    output = check_output(args, MODEL, name, may_exist=args.resume is not None)
    report = args.report
    if report is not None:
        report = check_output(args, PAGE, report, args.data, output)
    if checkpoint is not None:
        check_writable(checkpoint, args.data, output, report)
    known = read_numbers(args)
    table = open_data(args)
    model = KLNMF(
        feature_weight=known.pop("feature_weight"),
        **{name: getattr(args, name) for name in _PARAMETERS},
        sparse_output=True,
        run=RunOptions(
            checkpoint=checkpoint,
            checkpoint_every=args.checkpoint_every,
            resume=bool(args.resume),
            **progress_options(args, line_of_iteration(args.tol, args.max_iter)),
        ),
    )
    try:
        with named_samples(table.row_names):
            W = model.fit_transform(table.X, **known)
    except KeyboardInterrupt:
        after = f" after {model.n_iter_} iterations" if hasattr(model, "n_iter_") else ""
        return interrupted(checkpoint, after, "--resume")
    metadata = facts_of(args, table)
    model.set_params(run=None)
    model.save(
        output,
        W=W,
        sample_names=table.row_names,
        feature_names=table.column_names,
        sample_metadata=kept_columns(args, table),
        metadata=metadata,
    )
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    say_outcome(args, model)
    say(args, f"model: {output}")
    if report is not None:
        write_report_of_fit(args, report, model, W, table, reproduction(metadata, model))
    return DONE


def line_of_iteration(tol: float, max_iter: int) -> Line:
    """Make the lines that a log gets of a fit."""
    from klnmf.support.progress import PredictedEnd

    first: dict[str, Any] = {}
    predicted = PredictedEnd(tol, max_iter)

    def line(record: dict[str, Any]) -> str:
        first.update(first or record)
        end = predicted.after(record["iteration"], record["optimality_gap"])
        text = (
            f"iteration {record['iteration']}, {record['seconds']:.1f} s: objective "
            f"{record['objective']:.6g}, optimality gap {record['optimality_gap']:.1e}"
        )
        done = record["iteration"] - first["iteration"]
        if done > 0:
            seconds = (record["seconds"] - first["seconds"]) / done
            left = seconds * max(end - record["iteration"], 0)
            text += f", about {left:.0f} s left"
        return text

    return line


def _checkpoint(args: argparse.Namespace, output: Path) -> Path | None:
    """File for checkpoints. One of an interrupted fit is not overwritten unless asked for."""
    if args.no_checkpoint:
        if args.resume or args.checkpoint:
            raise CommandError("--no-checkpoint cannot be used with --resume or --checkpoint.")
        return None
    path = check_writable(args.checkpoint or f"{output}.checkpoint")
    if path.exists() and not args.resume:
        _check_is_checkpoint(path)
    if path.exists() and args.resume is None:
        raise CommandError(
            f"{path} holds an interrupted fit: add --resume to continue it, or --restart to start "
            "again."
        )
    if args.resume and not path.exists():
        raise CommandError(
            f"there is no checkpoint {path} to continue from; leave out --resume to start a new "
            "fit."
        )
    return path


def _check_is_checkpoint(path: Path) -> None:
    """Refuse to overwrite a file that is not a checkpoint."""
    from klnmf.saved.container import SavedFileError, read_container

    try:
        read_container(path, "checkpoint")
    except SavedFileError as error:
        raise CommandError(f"{error} Name another file with --checkpoint.") from error


def say_outcome(args: argparse.Namespace, model: KLNMF) -> None:
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
        text += f"; changing only W, or only H, cannot lower the objective by more than {bound}"
    say(args, text)


def write_report_of_fit(
    args: argparse.Namespace,
    path: Path,
    model: KLNMF,
    W: Any,
    table: CountTable | OpenedTable,
    parameters: dict[str, str],
) -> None:
    """Write the report of a fit that has just been done."""
    from klnmf.readers import CountTable
    from klnmf.report import write_report
    from klnmf.saved.columns import EXCERPT

    columns = columns_of(table)
    write_report(
        path,
        model,
        W,
        table.X if isinstance(table, CountTable) else None,  # the summary needs X in memory
        feature_names=table.column_names,
        sample_names=table.row_names,
        labels=table.labels,
        documents=columns.pop(EXCERPT, None),
        metadata=columns,
        vocabulary="texts" if table.open_features else None,
        title=args.title,
        parameters=parameters,
    )
    say(args, f"report: {path}")
