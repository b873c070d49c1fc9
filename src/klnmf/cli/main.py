"""Runs one command: its answer on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from typing import IO, Any, cast

from klnmf.cli.answers import Answers, AnswersLostError
from klnmf.cli.arguments import build_parser
from klnmf.cli.errors import FAILED, INTERRUPTED, printable, report_error
from klnmf.cli.parsing import spelling_of
from klnmf.support.option_names import spelled_by

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
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `2>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, as long as the process
    args = build_parser(version("klnmf")).parse_args(arguments)
    # What the library logs, commands say themselves.
    logging.getLogger("klnmf").addHandler(logging.NullHandler())
    logging.getLogger("klnmf").propagate = False
    with (
        _warnings_in_one_line(),
        _lines_of_readers(getattr(args, "quiet", False)),
        spelled_by(spelling_of(args.parser)),
    ):
        try:
            with redirect_stdout(cast("IO[str]", Answers(sys.stdout))):
                return _run(args)
        except KeyboardInterrupt:
            print("klnmf: interrupted", file=sys.stderr)
            return INTERRUPTED
        except AnswersLostError as error:
            # What Python has not written yet, it would try to write again at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error.__cause__, BrokenPipeError):  # whose reader has gone: `| head`
                report_error(error)
            return FAILED
        except Exception as error:
            report_error(error)
            return FAILED


def _run(args: argparse.Namespace) -> int:
    from klnmf.cli.inputs import check_inputs  # slow to import, which --help need not wait for

    check_inputs(args)
    module = importlib.import_module(f"klnmf.cli.{_MODULES[args.command]}")
    code: int = getattr(module, args.command)(args)
    sys.stdout.flush()
    return code


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show each warning once, without the place in Python that it comes from."""
    shown = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        line = f"klnmf: warning: {printable(str(message))}"
        if line not in shown:
            shown.add(line)
            print(line, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # For those who write programs, not for those who run them.
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.showwarning = show
        yield


@contextmanager
def _lines_of_readers(quiet: bool) -> Iterator[None]:
    """Print what readers log, which is what they changed or left out."""

    class Printed(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not quiet:
                print(printable(record.getMessage()), file=sys.stderr, flush=True)

    logger, handler = logging.getLogger("klnmf.readers"), Printed()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
