"""``klnmf consensus``: components that many starts agree on."""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

from klnmf.cli.data import facts_of, read_data, say
from klnmf.cli.errors import DONE
from klnmf.cli.lines import how_to_tell
from klnmf.cli.outputs import MODEL
from klnmf.cli.searches import checked_files, interrupted, save_picture, way_out
from klnmf.data.not_counts import NotCountsWarning
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.model_selection import Consensus
from klnmf.model_selection import consensus as agreement_of_runs
from klnmf.model_selection.progress import duration
from klnmf.readers import CountTable


def consensus(args: argparse.Namespace) -> int:
    """Run, print, save a model; what an interrupted command did is kept, and gone on from."""
    files = checked_files(args, MODEL, ".consensus.klnmf")
    output, checkpoint, picture, result, is_resumed = files
    table = read_data(args)
    try:
        with way_out(files):
            found = agreement_of_runs(
                table.X,
                args.n_components,
                args.runs,
                density_threshold=args.density_threshold,
                init=args.init,
                max_iter=args.max_iter,
                n_jobs=args.n_jobs,
                random_state=args.random_state,
                checkpoint=checkpoint,
                resume=is_resumed,
                **how_to_tell(args, line_of_run),
            )
        model, W = _model(args, table, found)
    except KeyboardInterrupt:
        return interrupted(checkpoint)
    settings = ("n_components", "refit", "init", "max_iter", "random_state")
    facts = _facts(found) | {name: getattr(args, name) for name in settings}
    model.save(
        output,
        W=W,
        sample_names=table.row_names,
        feature_names=table.column_names,
        metadata=facts_of(args, table) | {"consensus": facts},
    )
    if result is not None:
        found.save(result)
    checkpoint.unlink(missing_ok=True)
    print(json.dumps(facts, indent=1) if args.json else found)
    say(args, f"model: {output}")
    if result is not None:
        say(args, f"all runs: {result}")
    if picture is not None:
        save_picture(found.plot(), picture)
        say(args, f"picture: {picture}")
    return DONE


def _model(args: argparse.Namespace, table: CountTable, found: Consensus) -> tuple[KLNMF, Any]:
    """Model and W: the medians as they are, or the optimum next to them."""
    if args.refit == "W":
        return found.to_model(), found.W
    model = KLNMF(args.n_components, random_state=args.random_state, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCountsWarning)  # the consensus has said it
        return model, model.fit_transform(table.X, H=found.components)


def _facts(found: Consensus) -> dict[str, Any]:
    """Everything about the components that JSON holds, in their order."""
    columns = {name: column.tolist() for name, column in found.table().items()}
    return columns | {
        "n_runs": len(found.run_objectives),
        "density_threshold": found.density_threshold,
        "n_left_out": found.n_left_out,
        "divergence_of_medians": found.divergence,
        "run_objectives": found.run_objectives.tolist(),
    }


def line_of_run(record: dict[str, Any]) -> str:
    """Say for a log how far the runs are."""
    return (
        f"{record['n_done']} of {record['n_runs']} runs done, the last one with the "
        f"divergence {record['objective']:.7g}, about {duration(record['seconds_left'])} left"
    )
