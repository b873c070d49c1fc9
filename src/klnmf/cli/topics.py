"""``klnmf topics``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from klnmf.cli.files import TOPICS, check_output, write_rows, write_text
from klnmf.cli.messages import DONE
from klnmf.cli.options import add_model, add_output, natural

if TYPE_CHECKING:
    from klnmf.saved.models import SavedModel

SUMMARY = "show what the components of a model are about"
EXAMPLES = """\
  klnmf topics model.klnmf
  klnmf topics model.klnmf --by weight --top 15
  klnmf topics model.klnmf --csv > topics.csv
"""
RANKINGS = ("lift", "weight", "frex", "relevance", "kl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model(parser)
    parser.add_argument("--top", type=natural, default=10, help="number of features per component")
    parser.add_argument("--by", choices=RANKINGS, default=RANKINGS[0], help="how to rank features")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--csv", action="store_true", help="write CSV, one line per feature")
    either.add_argument("--json", action="store_true", help="write JSON")
    add_output(parser, "file to write: .txt, .csv, .tsv or .json (default: text on stdout)")


def run(args: argparse.Namespace) -> int:
    """Print the top features of each component."""
    from klnmf.cli.events import is_of_events
    from klnmf.cli.models import read_model
    from klnmf.topics import component_shares, format_topics, top_features

    form = _form(args)
    saved = read_model(args, takes_events=True)
    if is_of_events(saved):
        return _write_modes(args, form, saved)
    components, names, W = saved.model.components_, saved.feature_names, saved.W
    titles = saved.component_names
    if form == ".txt":
        text = format_topics(
            components, names, n_top=args.top, by=args.by, W=W, component_names=titles
        )
        write_text(args.output, text)
        return DONE
    top = top_features(components, names, n_top=args.top, by=args.by, W=W)
    shares = component_shares(components, W)
    if form == ".json":
        found = [
            {
                "component": k,
                **({} if titles is None else {"name": titles[k]}),
                "share": float(shares[k]),
                "features": [{"feature": name, args.by: score} for name, score in features],
            }
            for k, features in enumerate(top)
        ]
        write_text(args.output, json.dumps(found, indent=2, ensure_ascii=False))
        return DONE
    column = [] if titles is None else ["name"]
    rows: list[list[Any]] = [["component", *column, "share", "rank", "feature", args.by]]
    rows += [
        [k, *(titles or [])[k : k + 1], f"{shares[k]:.6g}", place, str(name), f"{score:.6g}"]
        for k, features in enumerate(top)
        for place, (name, score) in enumerate(features, start=1)
    ]
    write_rows(args.output, rows, delimiter="\t" if form == ".tsv" else ",")
    return DONE


def _write_modes(args: argparse.Namespace, form: str, saved: SavedModel) -> int:
    """Write the top labels of each component in every mode."""
    from klnmf.topics.modes import format_components, leading_labels, modes_of, sizes_of

    model, titles = saved.model, saved.component_names
    if form == ".txt":
        text = format_components(model, args.top, args.by, component_names=titles)
        write_text(args.output, text)
        return DONE
    modes, shares = modes_of(model), sizes_of(model)
    top = {mode.name: leading_labels(model, mode, args.top, args.by) for mode in modes}
    named = [{} if titles is None else {"name": title} for title in titles or shares]
    if form == ".json":
        found = [
            {
                "component": k,
                **named[k],
                "share": float(shares[k]),
                "modes": {
                    mode: [{"label": label, args.by: score} for label, score in labels[k]]
                    for mode, labels in top.items()
                },
            }
            for k in range(len(shares))
        ]
        write_text(args.output, json.dumps(found, indent=2, ensure_ascii=False))
        return DONE
    rows: list[list[Any]] = [
        ["component", *named[0], "share", "mode", "rank", "label", args.by],
        *(
            [k, *named[k].values(), f"{shares[k]:.6g}", mode, place, label, f"{score:.6g}"]
            for k in range(len(shares))
            for mode, labels in top.items()
            for place, (label, score) in enumerate(labels[k], start=1)
        ),
    ]
    write_rows(args.output, rows, delimiter="\t" if form == ".tsv" else ",")
    return DONE


def _form(args: argparse.Namespace) -> str:
    """Return the format to write, as an ending: from the file name, or from the options."""
    asked = ".csv" if args.csv else ".json" if args.json else ".txt"
    if args.output is None or args.output == "-":
        return asked
    by_name = check_output(args, TOPICS, args.output, args.model).suffix.lower()
    return asked if by_name in ("", ".txt") else by_name
