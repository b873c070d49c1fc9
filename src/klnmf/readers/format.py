"""What a file format is: a class that reads, streams and writes counts."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from klnmf.data.streams import CountStream, collected, stream_of_matrix
from klnmf.readers.table import CountTable, table_of_file

# Entries per block when a whole file is read.
_ENTRIES = 1 << 18


class Format:
    """A file format.

    To add one, write a subclass with `stream`, or with `read` if it cannot be read in blocks, and
    put it into the table in ``readers/formats.py``. The keyword-only arguments of that method are
    its options. Here ``*_`` lets type checkers accept any of them.
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

    def read(self, path: Path, *_: Any, **options: Any) -> CountTable:
        """Read all counts into memory, with their names."""
        stream = self.stream(path, **options)
        matrix = collected(stream.blocks(_ENTRIES), lambda: stream.outline().shape, stream.in_order)
        return table_of_file(path, matrix, **stream.outline().about, hint=stream.hint)

    def stream(self, path: Path, *_: Any, **options: Any) -> CountStream:
        """Read counts in blocks. Formats without blocks read the whole file at once."""
        table = self.read(path, **options)
        return stream_of_matrix(table.X, table.about)

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
        return keywords(self.read) | keywords(self.stream)


def keywords(function: Callable[..., Any]) -> set[str]:
    """Names of the keyword-only arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
