"""``klnmf transform`` and ``klnmf evaluate``: a model and new data."""

from __future__ import annotations

import argparse
import json

import numpy as np

from klnmf.cli.data import say
from klnmf.cli.errors import DONE
from klnmf.cli.models import on_known_features, open_new, read_model, read_new, represent
from klnmf.cli.outputs import FACTOR, check_output, write_factor
from klnmf.evaluation import evaluate as evaluated
from klnmf.topics import plsi_probabilities


def transform(args: argparse.Namespace) -> int:
    """Write W of new samples."""
    if args.output != "-":
        check_output(FACTOR, args.output, args.model, args.data)
    saved = read_model(args.model)
    saved.model.set_params(n_threads=args.n_threads)
    table = open_new(args, saved)
    W = represent(args, saved, table)
    if args.proportions:
        W = plsi_probabilities(W, saved.model.components_).component_given_sample
    write_factor(args.output, W, table.row_names)
    if args.output != "-":
        say(args, f"W: {args.output}, {W.shape[0]:,} samples × {W.shape[1]:,} components")
    return DONE


def evaluate(args: argparse.Namespace) -> int:
    """Print held-out likelihood, perplexity and coherence."""
    saved = read_model(args.model)
    saved.model.set_params(n_threads=args.n_threads)
    table = read_new(args, saved)
    model, X = on_known_features(args, saved, table)
    scores = evaluated(model, X, n_top=args.top)
    npmi, umass = (_mean(values) for values in (scores.npmi, scores.umass))
    if args.json:
        print(
            json.dumps(
                {
                    "samples": scores.n_samples,
                    "held_out_counts": scores.n_counts,
                    "features": scores.n_features,
                    "log_likelihood": scores.log_likelihood,
                    "perplexity": _number(scores.perplexity),
                    "npmi": npmi,
                    "umass": umass,
                    "npmi_of_components": [_number(value) for value in scores.npmi],
                    "umass_of_components": [_number(value) for value in scores.umass],
                },
                indent=2,
            )
        )
        return DONE
    print(f"samples                  {scores.n_samples:,}")
    print(f"held-out log-likelihood  {scores.log_likelihood:.4f} per sample")
    print(
        f"perplexity               {scores.perplexity:.2f} (an even guess: {scores.n_features:,})"
    )
    print(f"coherence, NPMI          {_shown(npmi)} (mean of the components; 1 is best)")
    print(f"coherence, UMass         {_shown(umass)} (mean of the components; 0 is best)")
    return DONE


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
