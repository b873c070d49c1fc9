"""What all readers share: errors with a place, streams with limits, and names."""

import codecs
import gzip
import io
import os
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from klnmf.support.nearest_names import did_you_mean, nearest_name
from klnmf.support.option_names import option

# Bytes of a line, or characters of a document: a hundred novels, or ten million fields.
LONGEST_LINE = 1 << 26
# Bytes that are unpacked however few they were.
UNPACKED_LIMIT = 1 << 25
# What the reader of gzip files raises.
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
_BLOCK = 1 << 16


class ReadError(ValueError):
    """A file that cannot be read as counts.

    Parameters
    ----------
    path : Path
        The file.
    problem : str
        What was found and what was expected.
    line : int, optional
        Line of the file, counted from 1, if the problem is in one line.

    Attributes
    ----------
    path : Path
        The file.
    line : int or None
        The line.
    """

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        super().__init__(path, problem, line)  # what pickling keeps
        self.path, self.line = path, line

    def __str__(self) -> str:
        path, problem, line = self.args
        return f"{path}: {problem}" if line is None else f"{path}, line {line}: {problem}"

    def with_advice(self, advice: str) -> "ReadError":
        """Return the same error with one more sentence."""
        return ReadError(self.path, f"{self.args[1]} {advice}", self.line)


@contextmanager
def parsed_by_others(path: Path, problem: str) -> Iterator[None]:
    """Turn every error of another package's parser into a `ReadError` that begins so.

    On damaged or made-up files those parsers raise errors of any class. This is the one place that
    catches them all.
    """
    try:
        yield
    except (ReadError, ImportError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        if isinstance(error, MemoryError):
            problem = "it needs more memory than there is"
        raise ReadError(path, f"{problem}: {str(error) or type(error).__name__}") from error


def check_unpacked(path: Path, packed: int, unpacked: int, times: int = 500) -> None:
    """Refuse bytes that unpack to far more than counts do: a mistake or an attack."""
    if unpacked > max(UNPACKED_LIMIT, times * packed):
        sizes = f"{packed:,} bytes of this file become {unpacked:,}"
        problem = f"{sizes}, more than {times} times as many."
        hint = "Files of counts do not compress so well. If it is one, unpack it yourself first."
        raise ReadError(path, f"{problem} {hint}")


def not_there(path: Path) -> FileNotFoundError:
    """Error of a path that does not exist, with a name in its folder that may be meant."""
    try:
        names = [entry.name for entry in islice(os.scandir(path.parent), 1000)]
    except OSError:
        names = []
    # Equal endings do not make names alike.
    names = [name for name in names if nearest_name(path.stem, [Path(name).stem])]
    question = did_you_mean(path.name, names, lambda name: repr(str(path.with_name(name))))
    what = "file" if path.suffix else "file or folder"
    return FileNotFoundError(f"There is no {what} {str(path)!r}.{question}")


# ---- streams -------------------------------------------------------------------------------------


class _Lines(io.BufferedReader):
    """Buffered bytes of a file in which no line may be longer than ``LONGEST_LINE``."""

    def __init__(self, path: Path, raw: Any) -> None:
        super().__init__(raw, _BLOCK)
        self.path = path

    def readline(self, size: int | None = -1) -> bytes:  # iteration calls it, too
        line = super().readline(LONGEST_LINE + 1 if size is None or size < 0 else size)
        if len(line) > LONGEST_LINE:
            raise _too_long(self.path, "bytes")
        return line


class _Unpacked(gzip.GzipFile):
    """Content of a gzip file, as far as it is not out of all proportion."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self.path, self._n_read = path, 0

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self._n_read += len(content)
        if self._n_read > UNPACKED_LIMIT:
            check_unpacked(self.path, cast("Any", self.fileobj).tell(), self._n_read)
        return content


def open_binary(path: Path) -> BinaryIO:
    """Bytes of a file, unpacked where it begins as a gzip file does, whatever its name."""
    raw = path.open("rb", buffering=0)
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    if packed:
        raw.close()
        return _Lines(path, _Unpacked(path))
    return _Lines(path, raw)


def byte_lines(path: Path) -> Generator[tuple[int, bytes], None, None]:
    """Lines of a file, packed or not, with their numbers from 1 on."""
    number = 0
    with open_binary(path) as stream:
        try:
            for number, line in enumerate(stream, 1):
                yield number, line
        except DAMAGED as error:
            raise _cut_off(path, error, number + 1) from error


def line_blocks(path: Path, size: int, n_head: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the rest of a file, after some lines, in blocks of whole lines of about this size.

    Each comes with the number of the lines before it. The last line ends with a line feed too.
    """
    line = n_head
    with open_binary(path) as stream:
        try:
            for _ in range(n_head):
                stream.readline()
            while content := stream.read(size):
                content = content if content.endswith(b"\n") else content + stream.readline()
                content = content if content.endswith(b"\n") else content + b"\n"
                yield line, content
                line += content.count(b"\n")
        except DAMAGED as error:
            raise _cut_off(path, error, line + 1) from error


def _cut_off(path: Path, error: Exception, line: int) -> ReadError:
    problem = f"the compressed data are damaged or cut off: {error}. Get the file again."
    return ReadError(path, problem, line)


def text_blocks(
    path: Path, encoding: str | None = None, errors: str = "strict"
) -> Generator[io.StringIO, None, None]:
    """Text in blocks of whole lines, cut at line feeds alone, without a byte-order mark.

    ``encoding`` is None for files that must be UTF-8. ``errors`` says how to decode, as in Python.
    """
    decoder = _decoder(encoding, errors)
    line, is_first = 1, True
    begun: list[str] = []  # what there is of the line that is begun
    with open_binary(path) as stream:
        try:
            for content in chain(iter(partial(stream.read, _BLOCK), b""), [b""]):
                text = _decoded(path, decoder, content, encoding, line)
                if errors == "strict" and ("\0" in text or (is_first and _is_pdf(content))):
                    number = line + text.count("\n", 0, max(0, text.find("\0")))
                    raise not_text(path, content, encoding, number)
                text, is_first = text.removeprefix("\ufeff") if is_first else text, False
                lines, end, rest = text.rpartition("\n") if content else (text, "", "")
                if not (end or not content):
                    begun.append(text)
                    _check_length(path, begun, line)
                    continue
                whole = "".join([*begun, lines, end])
                begun = [rest]
                if whole:
                    yield io.StringIO(whole, newline="\n")
                line += whole.count("\n")
        except DAMAGED:
            deque(byte_lines(path), maxlen=0)  # which says in what line
            raise


def _check_length(path: Path, pieces: list[str], line: int) -> None:
    if sum(map(len, pieces)) > LONGEST_LINE:
        raise _too_long(path, "characters", line)


def _too_long(path: Path, unit: str, line: int | None = None) -> ReadError:
    problem = f"a line has more than {LONGEST_LINE:,} {unit}, the most that is read."
    hint = "Is this a file of another format, or are its line ends missing?"
    return ReadError(path, f"{problem} {hint}", line)


def whole_text(path: Path, encoding: str | None = None) -> str:
    """Text of a file that is one document."""
    blocks, length = [], 0
    for block in text_blocks(path, encoding):
        blocks.append(block.getvalue())
        length += len(blocks[-1])
        if length > LONGEST_LINE:
            most = f"{LONGEST_LINE:,} characters, the most that a document may have"
            problem = f"the text has more than {most}. Split it into several documents."
            raise ReadError(path, problem)
    return "".join(blocks)


def text_lines(
    path: Path, encoding: str | None = None, errors: str = "strict"
) -> Iterator[tuple[int, str]]:
    """Lines of a text with their numbers from 1 on."""
    return enumerate(chain.from_iterable(text_blocks(path, encoding, errors)), 1)


def _decoder(encoding: str | None, errors: str) -> codecs.IncrementalDecoder:
    try:
        b"".decode(encoding or "utf-8")  # refuses what is no encoding of text, such as base64
        return codecs.getincrementaldecoder(encoding or "utf-8")(errors)
    except (LookupError, ValueError):
        raise ValueError(
            f"{option('encoding')} must name an encoding of text, such as utf-8 or latin-1; got "
            f"{encoding!r}."
        ) from None


def _decoded(
    path: Path, decoder: codecs.IncrementalDecoder, content: bytes, encoding: str | None, line: int
) -> str:
    """Next text of a file, in which ``content`` follows; no content is the end."""
    try:
        return decoder.decode(content, not content)
    except UnicodeError as error:
        held, start = content, 0
        if isinstance(error, UnicodeDecodeError):
            held, start = error.object, error.start
        number = line + held.count(b"\n", 0, start)
        raise not_text(path, held, encoding, number, start) from error


def not_text(path: Path, held: bytes, encoding: str | None, line: int, start: int = 0) -> ReadError:
    """Error of bytes that are not text from ``start`` on, or that are binary.

    ``encoding`` is None for files that must be UTF-8.
    """
    bad, likely = held[start : start + 8], _wide_encoding(held)
    if likely is None or likely == encoding:
        what = None
        if _is_pdf(held):
            what = "this is a PDF file, which is binary"
        elif b"\0" in held:
            what = "it has NUL bytes, which do not occur in texts: the file is binary or damaged"
        if what is not None:
            return ReadError(path, f"{what}. Save its text as plain text first.", line)
    advice = "This file must be UTF-8: convert it, for example with iconv."
    if encoding is not None:
        likely = likely or "latin-1"
        advice = (
            "If all files to be read are in another encoding, name it, for example "
            f"{option('encoding', likely)}. If this one alone is, convert it to "
            f"{encoding}, for example with iconv."
        )
    return ReadError(path, f"{bad!r} is not {encoding or 'utf-8'} text. {advice}", line)


def _is_pdf(content: bytes) -> bool:
    return content.startswith(b"%PDF-")


def _wide_encoding(content: bytes) -> str | None:
    """Return the encoding of bytes that begin with the mark of UTF-16 or 32, or with wide ASCII."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-32" if content[2:4] == b"\0\0" else "utf-16"
    first, second = content[:64:2], content[1:64:2]
    for name, zeros, others in (("utf-16-le", second, first), ("utf-16-be", first, second)):
        if len(zeros) > 1 and not any(zeros) and all(others):
            return name
    return None


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
        raise ReadError(path, f"expected {expected:,} names for the {of_what}, found {found:,}.")


def base_name(path: Path, suffixes: Iterable[str]) -> str:
    """Name of a file without its folder, without ``.gz``, and without one of the suffixes."""
    name = path.name.removesuffix(".gz")
    for suffix in suffixes:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name
