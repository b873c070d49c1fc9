"""What a command says when it cannot do its work: one line, and an exit code scripts can rely on.

0: done, also if a fit did not converge (a warning on stderr says so). 1: the data, the model or the
machine would not do. 2: the command line would not do. 130: interrupted.
"""

from __future__ import annotations

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class CommandError(Exception):
    """An error whose text is all that the user needs; no traceback is shown."""


def one_line(error: BaseException) -> str:
    r"""Return the text of an error in one line.

    Examples
    --------
    >>> one_line(ValueError("n_components must be\n  at least 1"))
    'n_components must be at least 1'
    >>> one_line(MemoryError())
    'MemoryError'
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
