"""What a command says when it cannot do its work: one line, and an exit code scripts can rely on.

0: done, also if a fit did not converge (a warning on stderr says so). 1: an error in the data, the
model or the system. 2: a wrong command line. 130: interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

# What is expected to go wrong: everything else is a mistake of klnmf's.
EXPECTED = (OSError, ValueError, TypeError, ImportError, MemoryError)
# Set to anything but 0, it shows the traceback of every error.
DEBUG_VARIABLE = "KLNMF_DEBUG"


class CommandError(Exception):
    """An error whose text is all that the user needs."""


def report_error(error: Exception) -> None:
    """Write one line on stderr, and the traceback above it if it was asked for."""
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


def printable(text: str) -> str:
    r"""Return a text in one line, without characters that would control a terminal.

    Examples
    --------
    >>> print(printable("a\n b \x1b[2J"))
    a b \x1b[2J
    """
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
