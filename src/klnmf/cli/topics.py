"""``klnmf topics``."""

import argparse
import json
from typing import Any

from klnmf.cli.files import TOPICS, check_output, write_rows, write_text
from klnmf.cli.messages import DONE
from klnmf.cli.options import add_model, add_output, natural

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
    """Print the top features of each component, or its top labels in every mode."""
    from klnmf.cli.events import is_of_events
    from klnmf.cli.models import read_model
    from klnmf.topics import component_shares, format_components, format_topics, top_features
    from klnmf.topics.modes import leading_labels, modes_of, sizes_of

    form = _form(args)
    saved = read_model(args, takes_events=True)
    model, titles, ranking = saved.model, saved.component_names, (args.top, args.by)
    if is_of_events(saved):
        if form == ".txt":
            write_text(args.output, format_components(model, *ranking, component_names=titles))
            return DONE
        shares, what = sizes_of(model), "label"
        top = {mode.name: leading_labels(model, mode, *ranking) for mode in modes_of(model)}
    else:
        about, W = (model.components_, saved.feature_names, *ranking), saved.W
        if form == ".txt":
            write_text(args.output, format_topics(*about, W=W, component_names=titles))
            return DONE
        shares, what = component_shares(model.components_, W), "feature"
        top = {"": top_features(*about, W=W)}
    named = [{} if titles is None else {"name": title} for title in titles or shares]
    if form == ".json":
        found = []
        for k, share in enumerate(shares):
            lists = {
                mode: [{what: name, args.by: score} for name, score in of_mode[k]]
                for mode, of_mode in top.items()
            }
            by_mode = {"features": lists[""]} if what == "feature" else {"modes": lists}
            found.append({"component": k, **named[k], "share": float(share), **by_mode})
        write_text(args.output, json.dumps(found, indent=2, ensure_ascii=False))
        return DONE
    column = [] if what == "feature" else ["mode"]
    rows: list[list[Any]] = [["component", *named[0], "share", *column, "rank", what, args.by]]
    for k, share in enumerate(shares):
        start = [k, *named[k].values(), f"{share:.6g}"]
        for mode, of_mode in top.items():
            for place, (name, score) in enumerate(of_mode[k], start=1):
                rows.append([*start, *[mode][: len(column)], place, str(name), f"{score:.6g}"])
    write_rows(args.output, rows, delimiter="\t" if form == ".tsv" else ",")
    return DONE


def _form(args: argparse.Namespace) -> str:
    """Return the format to write, as an ending: from the file name, or from the options."""
    asked = ".csv" if args.csv else ".json" if args.json else ".txt"
    if args.output is None or args.output == "-":
        return asked
    by_name = check_output(args, TOPICS, args.output, args.model).suffix.lower()
    return asked if by_name in ("", ".txt") else by_name
