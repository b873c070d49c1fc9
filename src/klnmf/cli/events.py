"""Events of a command line: tables with --modes, tensors in files, and models of them."""

from __future__ import annotations

import argparse
import os
import zipfile
from typing import TYPE_CHECKING, Any

from klnmf.cli.messages import CommandError, UsageError, say
from klnmf.cli.options import EVENTS
from klnmf.support.option_names import option

if TYPE_CHECKING:
    from klnmf.data.sparse_tensor import SparseTensor
    from klnmf.saved.models import SavedModel

# Options of every command with events; those of one command are named there.
_OF_ALL = (*EVENTS, "output", "force", "quiet", "help")


def has_events(args: argparse.Namespace) -> bool:
    """Whether DATA is a table of events, or a tensor in a file."""
    if args.data is None:
        return False
    if args.modes is None and not is_tensor_file(args.data):
        given = [name for name in EVENTS if getattr(args, name) is not None]
        if given:
            raise UsageError(
                f"{option(given[0])} is for events: name the columns that identify them too, such "
                f"as {option('modes', 'customer,product,date')}."
            )
        return False
    return True


def is_tensor_file(path: str) -> bool:
    """Whether a file holds the nonzeros of a tensor: .tns, or .npz with coordinates."""
    name = os.path.expanduser(path).lower()
    if name.endswith((".tns", ".tns.gz")):
        return True
    if not name.endswith(".npz") or not zipfile.is_zipfile(os.path.expanduser(path)):
        return False
    with zipfile.ZipFile(os.path.expanduser(path)) as archive:
        held = set(archive.namelist())
    return "coords.npy" in held and not held.isdisjoint(("values.npy", "vals.npy"))


def refuse_options(args: argparse.Namespace, *taken: str) -> None:
    """Refuse options that were given and are for matrices."""
    for action in args.parser._actions:
        name = action.dest
        is_given = getattr(args, name, None) != args.parser.get_default(name)
        if action.option_strings and is_given and name not in (*_OF_ALL, *taken):
            raise UsageError(f"{option(name)} cannot be used with events: leave it out.")


def read_events(args: argparse.Namespace) -> SparseTensor:
    """Read DATA, and print its modes."""
    from klnmf.readers import read_tensor

    if args.modes is not None and len(args.modes) < 2:
        raise UsageError(
            f"{option('modes')} names one column; name two or more, such as "
            f"{option('modes', 'customer,product,date')}."
        )
    tensor = read_tensor(args.data, **{name: getattr(args, name) for name in EVENTS})
    say(args, f"{args.data}: {repr(tensor).partition('(')[2][:-1]}")
    return tensor


# ---- models --------------------------------------------------------------------------------------


def is_of_events(saved: SavedModel) -> bool:
    """Whether a model is a `klnmf.PoissonCP`."""
    return hasattr(saved.model, "factors_")


def facts_of_events(args: argparse.Namespace, tensor: SparseTensor) -> dict[str, Any]:
    """Return the metadata of a model: the command, its data, and how they were read."""
    return {
        "command": args.words,
        "input": str(args.data),
        "nonzeros": tensor.nnz,
        "total": tensor.total,
        "events": {"values": args.values, "bins": args.bins or {}},
    }


def read_like(args: argparse.Namespace, saved: SavedModel) -> SparseTensor:
    """Read DATA for a model, with the columns and bins that it was fitted to unless told."""
    how = saved.metadata.get("events")  # of a strange file, it may be anything
    how = how if isinstance(how, dict) else {}
    values, bins = how.get("values"), how.get("bins")
    if not is_tensor_file(args.data):
        args.modes = args.modes or list(saved.model.mode_names_)
        if args.values is None and isinstance(values, str):
            args.values = values
        if args.bins is None and isinstance(bins, dict):
            args.bins = {name: bin for name, bin in bins.items() if name in args.modes}
    return read_events(args)


def check_kind(args: argparse.Namespace, saved: SavedModel, *, takes_events: bool) -> None:
    """Refuse a model of events in a command for matrices, and options of events without one."""
    if is_of_events(saved) and not takes_events:
        modes = " × ".join(saved.model.mode_names_)
        raise CommandError(
            f"{args.model} is a model of events ({modes}), and `klnmf {args.command}` takes models "
            "of matrices. Use klnmf topics, transform, report, name or info, or "
            "klnmf.PoissonCP.load in Python; its score evaluates new events."
        )
    given = [name for name in EVENTS if getattr(args, name, None) is not None]
    if given and not is_of_events(saved):
        raise UsageError(
            f"{option(given[0])} is for models of events; {args.model} is a model of a matrix."
        )
