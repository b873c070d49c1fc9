"""Runs one command: its answer on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import warnings
from importlib.metadata import version
from typing import Any

from klnmf.cli.arguments import build_parser
from klnmf.cli.errors import FAILED, INTERRUPTED, CommandError, one_line

# Where each command lives; imported when it is called, so that --help is quick.
_MODULES = {
    "fit": "fitting",
    "demo": "fitting",
    "rank": "choosing",
    "consensus": "agreeing",
    "transform": "applying",
    "evaluate": "applying",
    "topics": "showing",
    "report": "showing",
    "info": "information",
    "completion": "information",
    "convert": "converting",
    "prepare": "converting",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    Examples
    --------
    >>> main(["topics", "nowhere.klnmf"])
    1
    """
    args = build_parser(version("klnmf")).parse_args(arguments)
    # What the library logs, commands say themselves.
    logging.getLogger("klnmf").addHandler(logging.NullHandler())
    logging.getLogger("klnmf").propagate = False
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _show_warning
        try:
            return _run(args)
        except KeyboardInterrupt:
            print("klnmf: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:
            # Whoever read our output has gone, as `| head` does. Nothing more can be written.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except (CommandError, OSError, ValueError, TypeError, ImportError, MemoryError) as error:
            print(f"klnmf: error: {one_line(error)}", file=sys.stderr)
            return FAILED


def _run(args: argparse.Namespace) -> int:
    module = importlib.import_module(f"klnmf.cli.{_MODULES[args.command]}")
    code: int = getattr(module, args.command)(args)
    sys.stdout.flush()
    return code


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"klnmf: warning: {' '.join(str(message).split())}", file=sys.stderr)
