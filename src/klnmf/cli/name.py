"""``klnmf name``."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from klnmf.cli.files import MODEL, check_output
from klnmf.cli.messages import DONE, CommandError, UsageError, say
from klnmf.cli.options import add_model, add_output, add_quiet, shown_as

if TYPE_CHECKING:
    from klnmf.saved.models import SavedModel

SUMMARY = "name the components of a model"
EXAMPLES = """\
  klnmf name model.klnmf --component 3="The sea" --component 0=Farming
  klnmf name model.klnmf --component-names topics.txt -o named.klnmf
"""


@shown_as("NUMBER=NAME")
def component_name(text: str) -> tuple[int, str]:
    """Return the number and the name of a component.

    Examples
    --------
    >>> component_name("3=The sea")
    (3, 'The sea')
    """
    number, equals, name = text.partition("=")
    if not equals or not (number.isascii() and number.isdecimal()) or not name.strip():
        raise argparse.ArgumentTypeError(f"must be like 3='The sea', got {text!r}")
    return int(number), name.strip()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_model(parser)
    add_output(parser, "model to write (default: MODEL is replaced)")
    add = parser.add_argument
    text = "name a component, counted from 0 as klnmf topics does; may be repeated"
    add("--component", action="append", type=component_name, default=[], help=text)
    text = "file with the names of all components, one per line"
    add("--component-names", metavar="FILE", help=text)
    add_quiet(parser)


def run(args: argparse.Namespace) -> int:
    """Write the model again, with names."""
    from klnmf.cli.events import is_of_events
    from klnmf.cli.models import read_model
    from klnmf.support.input_files import read_names

    file = args.component_names
    if file is None and not args.component:
        raise UsageError(
            "there is nothing to name: give --component NUMBER=NAME or --component-names."
        )
    may_exist = args.output is None  # the model itself gets the names
    output = check_output(args, MODEL, args.output or args.model, file, may_exist=may_exist)
    saved = read_model(args, takes_events=True)
    n, what = int(saved.model.n_components_), f"components of {args.model}"
    names = _named(saved, args.component, None if file is None else read_names(Path(file), n, what))
    held = ("W", "sample_names", "feature_names", "sample_metadata")
    about = {} if is_of_events(saved) else {name: getattr(saved, name) for name in held}
    saved.model.save(output, metadata=saved.metadata | {"component_names": names}, **about)
    say(args, f"named components: {output}")
    return DONE


def _named(
    saved: SavedModel, given: list[tuple[int, str]], all_names: list[str] | None
) -> list[str]:
    """Names of all components: given, kept from before, or else the leading features."""
    from klnmf.cli.events import is_of_events
    from klnmf.topics import name_components
    from klnmf.topics.modes import names_by_labels

    n, chosen = int(saved.model.n_components_), dict(given)
    if len(chosen) < len(given):
        raise CommandError("--component names a component twice: give each one name.")
    if any(k >= n for k in chosen):
        raise CommandError(f"there is no component {max(chosen)}: they are 0 to {n - 1}.")
    names = all_names or saved.component_names
    if names is None and is_of_events(saved):
        names = names_by_labels(saved.model)
    elif names is None and saved.feature_names is not None:
        names = name_components(saved.model.components_, saved.feature_names)
    names = names or [f"component {k}" for k in range(n)]
    names = [chosen.get(k, name).strip() for k, name in enumerate(names)]
    if "" in names:
        raise CommandError(f"the name of component {names.index('')} is empty.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise CommandError(f"two components would have the name {repeated[0]!r}.")
    return names
