"""``klnmf evaluate``."""

import argparse
import json
import math
from typing import Any

from klnmf.cli.messages import DONE
from klnmf.cli.option_values import natural
from klnmf.cli.options import add_data, add_matching, add_model, add_quiet, add_threads

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
    add_quiet(parser)
    add_matching(parser)
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    """Print held-out likelihood, perplexity and coherence."""
    from klnmf.cli.data import read_data
    from klnmf.cli.models import on_shared_features, read_model, take_options
    from klnmf.evaluation import evaluate

    saved = read_model(args.model)
    saved.model.set_params(n_threads=args.n_threads)
    take_options(args, saved)
    model, X = on_shared_features(args, saved, read_data(args))
    scores = evaluate(model, X, n_top=args.top)
    npmi, umass = (_mean(values) for values in (scores.npmi, scores.umass))
    if args.json:
        facts = {
            "samples": scores.n_samples,
            "counts": scores.n_counts,
            "features": scores.n_features,
            "log_likelihood": scores.log_likelihood,
            "background": scores.background,
            "perplexity": _number(scores.perplexity),
            "npmi": npmi,
            "umass": umass,
            "npmi_of_components": [_number(value) for value in scores.npmi],
            "umass_of_components": [_number(value) for value in scores.umass],
        }
        print(json.dumps(facts, indent=2))
        return DONE
    print(f"samples                  {scores.n_samples:,}")
    print(f"held-out log-likelihood  {scores.log_likelihood:.4f} per sample")
    print(
        f"perplexity               {scores.perplexity:.2f} (uniform guess: {scores.n_features:,})"
    )
    print(f"coherence, NPMI          {_shown(npmi)} (mean over the components; 1 is best)")
    print(f"coherence, UMass         {_shown(umass)} (mean over the components; 0 is best)")
    return DONE


def _mean(values: Any) -> float | None:
    defined = values[values == values]  # not NaN
    return float(defined.mean()) if len(defined) else None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
