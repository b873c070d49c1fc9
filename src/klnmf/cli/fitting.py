"""``klnmf fit`` and ``klnmf demo``."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from klnmf.cli.data import OpenedTable, facts_of, open_data, reproduction, say, stem_of
from klnmf.cli.errors import DONE, INTERRUPTED, CommandError
from klnmf.cli.lines import ProgressLines
from klnmf.cli.outputs import MODEL, PAGE, check_output, check_unused, check_writable
from klnmf.datasets import load_bible
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.readers import CountTable
from klnmf.saved.container import SavedFileError, read_container
from klnmf.topics import format_topics

_MODEL_OPTIONS = (
    *(
        "n_components",
        "solver",
        "init",
        "n_init",
        "l1_W",
        "l2_W",
        "l1_H",
        "l2_H",
        "max_iter",
        "tol",
    ),
    *("n_threads", "random_state", "dtype"),
)


def fit(args: argparse.Namespace) -> int:
    """Read, fit, save; a checkpoint is kept until the model is written."""
    default = f"{stem_of(args.data)}.klnmf"
    output = check_output(MODEL, default if args.output is None else args.output, args.data)
    report = None if args.report is None else check_output(PAGE, args.report, args.data, output)
    checkpoint = _checkpoint(args, output)
    if checkpoint is not None:
        check_writable(checkpoint, args.data, output, report)
    check_unused(output, may_be_there=args.force or args.resume is not None)
    table = open_data(args)
    model = _model(args, checkpoint)
    try:
        W = model.fit_transform(table.X)
    except KeyboardInterrupt:
        return _interrupted(model, checkpoint)
    metadata = facts_of(args, table)
    model.set_params(checkpoint=None, callback=None)
    model.save(
        output,
        W=W,
        sample_names=table.row_names,
        feature_names=table.column_names,
        metadata=metadata,
    )
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    _say_outcome(args, model, output)
    if report is not None:
        _write_report(args, report, model, W, table, reproduction(metadata))
    return DONE


def demo(args: argparse.Namespace) -> int:
    """Fit the embedded corpus and print its topics."""
    report = None if args.report is None else check_output(PAGE, args.report)
    bible = load_bible()
    table = CountTable(
        bible.data, bible.sample_names, bible.feature_names, bible.target_names[bible.target]
    )
    n, m = table.shape
    say(args, f"King James Bible: {n:,} chapters × {m:,} words, {table.X.nnz:,} nonzeros")
    model = KLNMF(args.n_components, random_state=0)
    W = model.fit_transform(table.X)
    print(format_topics(model.components_, table.column_names, W=W))
    _say_outcome(args, model, None)
    if report is not None:
        args.title = "King James Bible"
        _write_report(args, report, model, W, table, {})
    return DONE


# ---- parts ---------------------------------------------------------------------------------------


def _model(args: argparse.Namespace, checkpoint: Path | None) -> KLNMF:
    options = {name: getattr(args, name) for name in _MODEL_OPTIONS}
    on_terminal = sys.stderr.isatty()
    lines = None if on_terminal or args.quiet else ProgressLines(args.max_iter)
    return KLNMF(
        **options,
        sparse_output=True,
        progress=on_terminal and not args.quiet,
        callback=lines,
        checkpoint=checkpoint,
        checkpoint_every=args.checkpoint_every,
        resume=bool(args.resume),
    )


def _checkpoint(args: argparse.Namespace, output: Path) -> Path | None:
    """File for checkpoints; one of an interrupted fit is never overwritten unasked."""
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
    """Refuse to take some other file of the user's for a checkpoint that may be replaced."""
    try:
        read_container(path, "checkpoint")
    except SavedFileError as error:
        raise CommandError(f"{error} Name another file with --checkpoint.") from error


def _interrupted(model: KLNMF, checkpoint: Path | None) -> int:
    done = getattr(model, "n_iter_", None)
    after = "" if done is None else f" after {done} iterations"
    print(f"\nInterrupted{after}.", file=sys.stderr)
    if checkpoint is not None and checkpoint.exists():
        words = [word for word in sys.argv[1:] if word not in ("--resume", "--restart")]
        command = shlex.join(["klnmf", *words, "--resume"])
        print(f"The progress is in {checkpoint}. To continue:\n  {command}", file=sys.stderr)
    return INTERRUPTED


def _say_outcome(args: argparse.Namespace, model: KLNMF, output: Path | None) -> None:
    state = "converged" if model.converged_ else "not converged"
    seconds = model.history_[-1]["seconds"]
    say(
        args,
        f"{state} after {model.n_iter_} iterations, {seconds:.2f} s: KL divergence "
        f"{model.divergence_:.8g}, KKT residual {model.kkt_residual_:.1e}",
    )
    if output is not None:
        say(args, f"model: {output}")


def _write_report(
    args: argparse.Namespace,
    path: Path,
    model: KLNMF,
    W: Any,
    table: CountTable | OpenedTable,
    parameters: dict[str, str],
) -> None:
    from klnmf.report import write_report

    write_report(
        path,
        model,
        W,
        None if isinstance(table, OpenedTable) else table.X,  # its summary takes X in memory
        feature_names=table.column_names,
        sample_names=table.row_names,
        labels=table.labels,
        title=args.title,
        parameters=parameters,
    )
    say(args, f"report: {path}")
