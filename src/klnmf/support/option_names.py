"""How messages name an option: as a Python argument, or as an option of the command line."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Spelling = Callable[[str, tuple[Any, ...]], str | None]
# Options of a fit that Python has in klnmf.RunOptions.
RUN_OPTIONS = ("checkpoint", "checkpoint_every", "resume", "progress", "callback")


def option(name: str, *value: Any) -> str:
    """Name an argument in a message, as in Python or as an option of the command line.

    Use it in every message that users of the command line may see, with a value if the message
    names one. On the command line these are ``--encoding`` and ``--encoding latin-1``:

    >>> option("encoding"), option("encoding", "latin-1"), option("max_iter", 7)
    ('encoding', "encoding='latin-1'", 'max_iter=7')
    """
    return _SPELLING.get()(name, value) or _python(name, value)


def options_in_use(names: Iterable[str]) -> list[str]:
    """Name arguments as `option` does, leaving out those without an option."""
    return [spelled for name in names if (spelled := _SPELLING.get()(name, ())) is not None]


@contextmanager
def spelled_by(spelling: Spelling) -> Iterator[None]:
    """Name options with this function, which returns None for arguments without an option."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


def _python(name: str, value: tuple[Any, ...]) -> str:
    spelled = f"{name}={value[0]!r}" if value else name
    return f"RunOptions({spelled})" if value and name in RUN_OPTIONS else spelled


_SPELLING: ContextVar[Spelling] = ContextVar("spelling", default=_python)
