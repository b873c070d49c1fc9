"""Standard output, with errors that say so: the system names no file for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from klnmf.cli.errors import CommandError


class AnswersLostError(CommandError):
    """Standard output takes no more: its disk is full, or its reader has gone."""


class Answers:
    """A stream for answers."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        with _named():
            return self._stream.write(text)

    def flush(self) -> None:
        """Write what waits to be written."""
        with _named():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AnswersLostError(f"standard output: {error.strerror or error}") from error
