"""``klnmf evaluate``."""

import argparse
import json
import math
from typing import Any

from klnmf.cli.messages import DONE
from klnmf.cli.options import (
    add_backend,
    add_data,
    add_matching,
    add_model,
    add_quiet,
    add_threads,
    natural,
)

SUMMARY = "score a model on data that it was not fitted to"
EXAMPLES = """\
  klnmf evaluate model.klnmf held_out.npz
  klnmf evaluate model.klnmf held_out.npz --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model(parser)
    text = "number of top features per component for the coherence"
    parser.add_argument("--top", type=natural, default=10, help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_threads(parser)
    add_backend(parser)
    add_quiet(parser)
    add_matching(parser)
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    """Print held-out likelihood, perplexity and coherence."""
    from klnmf.cli.data import read_data
    from klnmf.cli.models import on_shared_features, read_model, take_options
    from klnmf.evaluation import evaluate

    saved = read_model(args)
    saved.model.set_params(n_threads=args.n_threads, backend=args.backend)
    take_options(args, saved)
    model, X = on_shared_features(args, saved, read_data(args))
    scores = evaluate(model, X, n_top=args.top)
    if args.json:
        facts: dict[str, Any] = {
            "samples": scores.n_samples,
            "counts": scores.n_counts,
            "features": scores.n_features,
            "log_likelihood": scores.log_likelihood,
            "background": scores.background,
            "perplexity": _number(scores.perplexity),
        }
        for name, values in (("npmi", scores.npmi), ("umass", scores.umass)):
            defined = values[values == values]  # not NaN
            facts[name] = float(defined.mean()) if len(defined) else None
            facts[f"{name}_of_components"] = [_number(value) for value in values]
        print(json.dumps(facts, indent=2))
    else:
        print(scores)
    return DONE


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
