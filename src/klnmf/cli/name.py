"""``klnmf name``."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from klnmf.cli.files import MODEL, check_output
from klnmf.cli.messages import DONE, CommandError, UsageError, say
from klnmf.cli.option_values import component_name
from klnmf.cli.options import add_model, add_output, add_quiet

if TYPE_CHECKING:
    from klnmf.saved.models import SavedModel

SUMMARY = "add names to a model: of its components, features or samples"
EXAMPLES = """\
  klnmf name model.klnmf --component 3="The sea" --component 0=Farming
  klnmf name model.klnmf --component-names topics.txt -o named.klnmf
  klnmf name model.klnmf --column-names vocab.txt --row-names documents.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model(parser)
    add_output(parser, "model to write (default: MODEL is replaced)")
    add = parser.add_argument
    text = "name a component, counted from 0 as klnmf topics does; may be repeated"
    add("--component", action="append", type=component_name, default=[], help=text)
    for what, each in (("component", "components"), ("column", "features"), ("row", "samples")):
        text = f"file with the names of all {each}, one per line"
        add(f"--{what}-names", metavar="FILE", help=text)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Write the model again, with names."""
    from klnmf.cli.models import read_model
    from klnmf.constraints.names import names_seen_in_fit
    from klnmf.saved.naming import add_names
    from klnmf.support.input_files import read_names

    files = {name: getattr(args, name) for name in ("column_names", "row_names", "component_names")}
    if not any(files.values()) and not args.component:
        raise UsageError(
            "there is nothing to name: give --component NUMBER=NAME, --component-names, "
            "--column-names or --row-names."
        )
    output = check_output(
        args,
        MODEL,
        args.output or args.model,
        *filter(None, files.values()),
        may_exist=args.output is None,  # the model itself gets the names
    )
    saved = read_model(args.model)
    sizes = {
        "column_names": int(saved.model.n_features_in_),
        "row_names": _n_samples(saved),
        "component_names": int(saved.model.n_components_),
    }
    if args.row_names and sizes["row_names"] is None:
        raise CommandError(f"{args.model} does not hold W, whose rows would be named.")
    if args.column_names and names_seen_in_fit(saved.model) is not None:
        raise CommandError(
            f"the features of {args.model} were named in the fit, and cannot be named again."
        )
    names = {
        what: read_names(Path(file), sizes[what] or 0, f"{_EACH[what]} of {args.model}")
        for what, file in files.items()
        if file
    }
    chosen = dict(args.component)
    if len(chosen) < len(args.component):
        raise CommandError("--component names a component twice: give each one name.")
    components = _named(saved, chosen, names.get("component_names"))
    add_names(
        args.model,
        output,
        feature_names=names.get("column_names"),
        sample_names=names.get("row_names"),
        component_names=components,
    )
    given = [_EACH[what] for what in names] + ["components"] * bool(args.component)
    say(args, f"named {', '.join(dict.fromkeys(given))}: {output}")
    return DONE


_EACH = {"column_names": "features", "row_names": "samples", "component_names": "components"}


def _n_samples(saved: SavedModel) -> int | None:
    if saved.W is not None:
        return int(saved.W.shape[0])
    return None if saved.sample_names is None else len(saved.sample_names)


def _named(
    saved: SavedModel, chosen: dict[int, str], all_names: list[str] | None
) -> list[str] | None:
    """Names of all components: given, kept from before, or else the leading features."""
    from klnmf.saved.naming import stored_component_names
    from klnmf.topics import name_components

    if not chosen and all_names is None:
        return None
    n = int(saved.model.n_components_)
    wrong = [k for k in chosen if k >= n]
    if wrong:
        raise CommandError(f"there is no component {wrong[0]}: they are 0 to {n - 1}.")
    names = all_names or stored_component_names(saved.metadata, n)
    if names is None and saved.feature_names is not None:
        names = name_components(saved.model.components_, saved.feature_names)
    elif names is None:
        names = [f"component {k}" for k in range(n)]
    names = [chosen.get(k, name).strip() for k, name in enumerate(names)]
    for k, name in enumerate(names):
        if not name:
            raise CommandError(f"the name of component {k} is empty.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise CommandError(f"two components would have the name {repeated[0]!r}.")
    return names
