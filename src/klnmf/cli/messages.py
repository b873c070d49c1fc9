"""What a command prints besides its answer: notes, warnings and errors, each on one line."""

import argparse
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from klnmf.support.printable_text import escaped, printable

# Exit codes; argparse has 2 for an invalid command line, too.
DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

# Errors that users can cause. All others are bugs of klnmf.
EXPECTED = (OSError, ValueError, TypeError, ImportError, MemoryError)
# Any value but 0 shows the traceback of every error.
DEBUG_VARIABLE = "KLNMF_DEBUG"
# Warnings that users of a program cannot act on.
_FOR_PROGRAMMERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning)


class CommandError(Exception):
    """An error whose text is all that the user needs."""


class UsageError(CommandError):
    """An error in the command line itself, whatever the files hold."""


class OutputLostError(CommandError):
    """Nothing more can be written to stdout: its disk is full, or its reader has gone."""


def say(args: argparse.Namespace, line: str) -> None:
    """Print a note on stderr, unless --quiet was given."""
    if not getattr(args, "quiet", False):
        print(printable(line), file=sys.stderr, flush=True)


def report_error(error: Exception) -> None:
    """Print one line on stderr, below the traceback if KLNMF_DEBUG is set."""
    is_debugged = os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")
    if is_debugged:
        traceback.print_exception(error)
    line = f"klnmf: error: {one_line(error)}"
    if not isinstance(error, (CommandError, *EXPECTED)):
        line = (
            f"klnmf: internal error: {type(error).__name__}: {printable(str(error))[:500]}. This "
            "is a bug in klnmf: please report it"
        )
        line += "." if is_debugged else f" with what {DEBUG_VARIABLE}=1 klnmf ... prints."
    print(line, file=sys.stderr)


def one_line(error: BaseException) -> str:
    r"""Return the text of an error in one line.

    Examples
    --------
    >>> one_line(ValueError("n_components must be\n  at least 1"))
    'n_components must be at least 1'
    >>> one_line(MemoryError())
    'not enough memory.'
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return printable(f"{error.filename}: {error.strerror}")
    if isinstance(error, MemoryError):
        return printable(str(error)) or "not enough memory."
    return printable(str(error)) or type(error).__name__


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Print each warning once, without the Python file that it comes from."""
    shown = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        line = f"klnmf: warning: {printable(str(message))}"
        if line not in shown:
            shown.add(line)
            print(line, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in _FOR_PROGRAMMERS:
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield


@contextmanager
def notes_of_readers(args: argparse.Namespace) -> Iterator[None]:
    """Print what readers log: what they changed or left out. Other logs are not shown."""
    logging.getLogger("klnmf").addHandler(logging.NullHandler())
    logging.getLogger("klnmf").propagate = False
    logger, handler = logging.getLogger("klnmf.readers"), logging.Handler()
    handler.emit = lambda record: say(args, record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class StandardOutput:
    """Stdout whose errors say so (the system names no file for it), and safe for terminals.

    Control characters in the names of files, models and features could change what a terminal
    shows, or what it does: they are escaped there. Files and pipes get them as they are.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._is_terminal = stream, stream.isatty()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stream, name)

        def named(*texts: str) -> Any:
            try:
                return found(*(escaped(t, "\n\t") if self._is_terminal else t for t in texts))
            except OSError as error:
                raise OutputLostError(f"standard output: {error.strerror or error}") from error

        return named if name in ("write", "flush") else found
