"""``klnmf consensus``."""

from __future__ import annotations

import argparse
import json
import warnings
from typing import TYPE_CHECKING, Any

from klnmf.cli.files import MODEL
from klnmf.cli.long_runs import (
    add_search_options,
    checked_files,
    run_options,
    save_picture,
)
from klnmf.cli.messages import DONE, say
from klnmf.cli.options import (
    STARTS,
    add_backend,
    add_n_components,
    add_numbers,
    add_output,
    natural,
    none_or_several,
    positive,
    read_numbers,
    several,
)

if TYPE_CHECKING:
    from klnmf.estimators.kl_nmf import KLNMF
    from klnmf.model_selection import Consensus

SUMMARY = "fit from many starts and save the components that the runs agree on"
EXAMPLES = """\
  klnmf consensus counts.npz -r 20 --plot consensus.png
  klnmf consensus counts.npz -r 20 --runs 200 -o m.klnmf   # run again to continue after Ctrl-C
"""
# Options that are arguments of consensus under the same name.
_PARAMETERS = (
    *("n_components", "n_null_runs", "density_threshold", "init", "max_iter"),
    *("n_jobs", "backend", "random_state"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add_output(parser, "model to write (default: beside DATA, with its name and .consensus.klnmf)")
    add_n_components(parser)
    add("--runs", type=several, default=100, help="number of runs, 2 or more")
    text = (
        "number of runs on counts without structure, to compare with; 0: none (default: 20, or as"
    )
    add("--null-runs", dest="n_null_runs", type=none_or_several, help=f"{text} many as --runs)")
    text = "leave out components whose mean distance to their nearest neighbours is larger than X"
    add("--density-threshold", type=positive, default=0.5, help=text)
    text = "refine W and the median components, or only W, as consensus() does in Python"
    add("--refit", choices=("both", "W"), default="both", help=text)
    add("--init", choices=STARTS, default="samples", help="initial factors")
    add("--max-iter", type=natural, default=300, help="maximum number of iterations per run")
    add("--result", metavar="FILE", help="also save all runs, for Consensus.load in Python")
    add_backend(parser)
    add_numbers(parser)
    add_search_options(parser, "run", labels=True)


def run(args: argparse.Namespace) -> int:
    """Run, print, save a model. An interrupted command is continued."""
    from klnmf.cli.data import columns_of, facts_of, read_data
    from klnmf.constraints.names import named_samples
    from klnmf.model_selection import consensus

    files = checked_files(args, MODEL, ".consensus.klnmf")
    known = read_numbers(args)
    table = read_data(args)
    with named_samples(table.row_names), run_options(args, files, line_of_run) as run:
        found = consensus(
            table.X,
            n_runs=args.runs,
            feature_names=table.column_names,
            **{name: getattr(args, name) for name in _PARAMETERS},
            **known,
            run=run,
        )
        divergence = found.divergence
        if args.refit == "both":
            model, found = _refitted(args, table.X, found, known)
        else:
            model = found.to_model()
    facts = _facts(found) | {"divergence_of_medians": divergence}
    model.save(
        files.output,
        W=found.W,
        sample_names=table.row_names,
        feature_names=table.column_names,
        sample_metadata=columns_of(table),
        metadata=facts_of(args, table) | {"consensus": facts},
    )
    if files.result is not None:
        found.save(files.result)
    files.checkpoint.unlink(missing_ok=True)
    print(json.dumps(facts, indent=1) if args.json else found)
    say(args, f"model: {files.output}")
    if files.result is not None:
        say(args, f"all runs: {files.result}")
    save_picture(args, found, files.picture)
    return DONE


def _refitted(
    args: argparse.Namespace, X: Any, found: Consensus, known: dict[str, Any]
) -> tuple[KLNMF, Consensus]:
    """Model that a fit reaches from the medians, and the consensus with its components.

    A fit from a given start keeps the order of the components, so that the groups stay theirs.
    """
    from dataclasses import replace

    from klnmf.data.dominant_samples import DominantSamplesWarning
    from klnmf.data.not_counts import NotCountsWarning
    from klnmf.estimators.kl_nmf import KLNMF
    from klnmf.estimators.run_options import RunOptions
    from klnmf.model_selection.consensus_groups import stability

    run = RunOptions(progress=False)
    of_fit = {name: numbers for name, numbers in known.items() if name != "feature_weight"}
    model = KLNMF(
        args.n_components,
        feature_weight=known["feature_weight"],
        random_state=args.random_state,
        run=run,
    )
    with warnings.catch_warnings():
        for known_by_now in (NotCountsWarning, DominantSamplesWarning):  # the runs have warned
            warnings.simplefilter("ignore", known_by_now)
        W = model.fit_transform(X, H=found.components, **of_fit)
    return model, replace(
        found,
        components=model.components_,
        W=W,
        divergence=model.divergence_,
        optimality_gap=model.optimality_gap_,
        kkt_residual=model.kkt_residual_,
        stability=stability(found.spectra, found.labels, model.components_),
        W_sums=model.W_sums_,
    )


def _facts(found: Consensus) -> dict[str, Any]:
    """Everything about the components that fits in JSON, in their order."""
    import numpy as np

    columns = {
        name: None if np.isnan(column).any() else column.tolist()
        for name, column in found.table().items()
    }
    null = found.null
    return columns | {
        "leading_features": None if found.feature_names is None else found.leading_features(),
        "n_runs": len(found.run_objectives),
        "n_null_runs": 0 if null is None else null.n_runs,
        "null_dispersion": None if null is None else null.dispersion,
        "density_threshold": found.density_threshold,
        "n_left_out": found.n_left_out,
        "run_objectives": found.run_objectives.tolist(),
    }


def line_of_run(record: dict[str, Any]) -> str:
    """Return the line that a log gets of the runs."""
    from klnmf.support.progress import duration

    return (
        f"{record['n_done']} of {record['n_runs']} runs done, the last one with "
        f"divergence {record['objective']:.7g}, about {duration(record['seconds_left'])} left"
    )
