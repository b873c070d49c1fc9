"""What all readers and writers share: errors with a place, streams, names, files that replace."""

from __future__ import annotations

import gzip
import io
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from klnmf.option_names import option

_BLOCK = 1 << 16
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class ReadError(ValueError):
    """A file that cannot be read as counts.

    Parameters
    ----------
    path : Path
        The file.
    problem : str
        What stood there and what was expected.
    line : int, optional
        Line of the file, from 1 on, where the problem is in one.

    Attributes
    ----------
    path : Path
        The file.
    line : int or None
        The line.
    """

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        self.path, self.line = path, line
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.path, self.line, str(self))


def _rebuilt(path: Path, line: int | None, message: str) -> ReadError:
    """Error after pickling, which the processes of a pool do."""
    error = ReadError(path, "", line)
    error.args = (message,)
    return error


def require(module: str, for_what: str, extra: str = "files") -> Any:
    """Import an optional package, or say what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{for_what} needs the package {module.partition('.')[0]}, which is not installed. "
            f'Install it with: pip install "klnmf[{extra}]"'
        ) from error


# ---- streams -------------------------------------------------------------------------------------


def open_binary(path: Path) -> BinaryIO:
    """Bytes of a file, unpacked where it begins as a gzip file does, whatever its name."""
    stream = path.open("rb")
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if not packed:
        return stream
    stream.close()
    return cast("BinaryIO", io.BufferedReader(cast("Any", gzip.open(path)), _BLOCK))


def byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines of a file, packed or not, with their numbers from 1 on.

    Raises
    ------
    ReadError
        If the compressed data are damaged or cut off.
    """
    number = 0
    with open_binary(path) as stream:
        try:
            for number, line in enumerate(stream, 1):
                yield number, line
        except _DAMAGED as error:
            raise ReadError(
                path,
                f"the compressed data are damaged or cut off: {error}. Get the file again.",
                number + 1,
            ) from error


def text_blocks(path: Path, encoding: str | None = None) -> Iterator[io.StringIO]:
    """Text of a file in blocks of whole lines, without a byte-order mark.

    Iterating over a block gives its lines, cut at line feeds alone, line ends included.
    """
    line = 1
    with open_binary(path) as stream:
        try:
            while content := stream.read(_BLOCK):
                content += stream.readline()
                text = decoded(path, content, encoding, line)
                yield io.StringIO(text.removeprefix("\ufeff") if line == 1 else text, newline="\n")
                line += content.count(b"\n")
        except _DAMAGED:
            deque(byte_lines(path), maxlen=0)  # which says in what line
            raise


def text_lines(path: Path, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """Lines of a text with their numbers from 1 on."""
    return enumerate(chain.from_iterable(text_blocks(path, encoding)), 1)


def decoded(path: Path, content: bytes, encoding: str | None = None, line: int = 1) -> str:
    """Text of bytes that begin at ``line``; an error names the line that cannot be decoded.

    ``encoding`` is None for files that are always UTF-8.
    """
    try:
        return content.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        bad = content[error.start : error.start + 8]
        advice = "This file must be UTF-8: convert it, for example with iconv."
        if encoding is not None:
            advice = (
                "If the file is in another encoding, name it, for example "
                f"{option('encoding', 'latin-1')}."
            )
        raise ReadError(
            path,
            f"{bad!r} is not {encoding or 'utf-8'} text. {advice}",
            line + content.count(b"\n", 0, error.start),
        ) from error
    except LookupError:
        raise ValueError(
            f"{option('encoding')} must name an encoding of text, such as utf-8 or latin-1; got "
            f"{encoding!r}."
        ) from None


# ---- names ---------------------------------------------------------------------------------------


def read_names(path: Path, expected: int, of_what: str) -> list[str]:
    """One name per line, as many as the matrix has rows or columns."""
    if not path.is_file():
        raise ReadError(path, f"there is no such file; it should name the {of_what}.")
    names = [line.rstrip("\r\n") for _, line in text_lines(path)]
    check_number_of_names(path, len(names), expected, of_what)
    return names


def check_number_of_names(path: Path, found: int, expected: int, of_what: str) -> None:
    """Refuse a file of names that does not fit its matrix."""
    if found != expected:
        raise ReadError(path, f"{found:,} names where the {of_what} need {expected:,}.")


def base_name(path: Path, suffixes: Iterable[str]) -> str:
    """Name of a file without its folder, without ``.gz``, and without one of the suffixes."""
    name = path.name.removesuffix(".gz")
    for suffix in suffixes:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


# ---- writing -------------------------------------------------------------------------------------


@contextmanager
def compressed_if_named_so(path: Path) -> Iterator[BinaryIO]:
    """Stream to write to; gzip where the name ends so, the same bytes for the same content."""
    with path.open("wb") as stream:
        if path.suffix != ".gz":
            yield stream
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed:
            yield cast("BinaryIO", packed)
