"""What a file format is: a class that reads, streams and writes counts."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from klnmf.readers.streams import CountStream, stream_of_table
from klnmf.readers.table import CountTable


class Format(ABC):
    """A file format.

    To add one, write a subclass and put it into the table in ``readers/formats.py``. The
    keyword-only arguments of `read` (or, in a `StreamedFormat`, of `stream`) are its options. Here
    ``*_`` lets type checkers accept any of them.
    """

    name: ClassVar[str]  # what users call it
    endings: ClassVar[tuple[str, ...]] = ()  # of the names of its files, in lower case
    may_be_packed: ClassVar[bool] = False  # whether files may also end in .gz
    is_folder: ClassVar[bool | None] = False  # None: it may be a file, too

    def matches(self, path: Path) -> bool:
        """Whether a path looks like this format, by its name or by what is beside or in it."""
        name = path.name.lower()
        name = name.removesuffix(".gz") if self.may_be_packed else name
        return name.endswith(self.endings)

    @abstractmethod
    def read(self, path: Path, *_: Any, **options: Any) -> CountTable:
        """Read all counts into memory, with their names."""

    def stream(self, path: Path, *_: Any, **options: Any) -> CountStream:
        """Read counts in blocks. Formats without blocks read the whole file for the first one."""
        return stream_of_table(partial(self.read, path, **options))

    def write(self, table: CountTable, path: Path) -> None:
        """Write counts to a new file; ``path`` has one of the endings."""
        raise ValueError(f"Counts cannot be written as {self.name}.")

    def files_beside(self, table: CountTable, path: Path) -> dict[Path, bytes]:
        """Return the other files to write beside ``path``, and their content."""
        return {}

    @property
    def is_writable(self) -> bool:
        """Whether the format has a `write` method."""
        return type(self).write is not Format.write

    @property
    def options(self) -> set[str]:
        """Names of the options."""
        return keywords(self.read)


class StreamedFormat(Format):
    """A format whose files are read in blocks, also into memory."""

    @abstractmethod
    def stream(self, path: Path, *_: Any, **options: Any) -> CountStream:
        """Read counts in blocks."""

    def read(self, path: Path, *_: Any, **options: Any) -> CountTable:
        """Read all counts into memory, with their names."""
        return self.stream(path, **options).table(path)

    @property
    def options(self) -> set[str]:
        """Names of the options."""
        return keywords(self.stream)


def keywords(function: Callable[..., Any]) -> set[str]:
    """Names of the keyword-only arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
