"""Files that appear under their names when they are whole: the one way in which klnmf writes files.

A file is written under a temporary name in the same folder, ``.RANDOM.CHECKSUM.part.END``, with a
checksum of its own name and the end of it (the whole of a long name would make one that is too
long), brought to the disk, and renamed. Whatever happens, the old file or the new one is there. A
process that is killed leaves its temporary file behind; whoever writes a file of this name more
than an hour later removes it.
"""

import gzip
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

_HAS_FLOCK = True
try:
    import fcntl
except ModuleNotFoundError:  # Windows
    _HAS_FLOCK = False
_END = 12  # characters of a name that hold every ending that writers go by, such as .parquet.gz
_HOUR = 3600.0  # seconds


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Temporary name to write to, which becomes ``path`` when the block ends without an error.

    The temporary name has the same ending: some writers go by it. An ``OSError`` of the block that
    names no file, as that of a full disk, names ``path``.
    """
    given, path = Path(path), link_target(path)  # a link stays a link
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {path.parent} to write {path.name} to. Make it first, or choose "
            "another path."
        )
    if path.exists() and not path.is_file():
        problem = f"{given} is a folder or a device. Only files are written: choose another path."
        raise OSError(problem)
    with naming(given):
        _remove_leftovers(path)
        part = path.with_name(f".{secrets.token_hex(4)}{_part_ending(path.name)}")
        part.touch(exist_ok=False)
        try:
            with naming(given, instead_of=part):
                yield part
                _sync(part, os.O_RDWR)
                os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        with suppress(OSError):  # not every file system can do that for a folder
            _sync(path.parent, os.O_RDONLY)


def link_target(path: str | os.PathLike[str]) -> Path:
    """Return what a path stands for after all links; OSError if they lead round in a circle."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(f"{path} is a link that leads back to itself. Choose another path.")
    return target


@contextmanager
def writing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Stream to write to, bytes or (with mode "w") UTF-8 text; see `replacing`."""
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    with replacing(path) as part, part.open(mode, **text) as stream:  # type: ignore[call-overload]
        yield stream


@contextmanager
def packed_if_named_so(path: Path) -> Iterator[BinaryIO]:
    """Stream to write to; gzip if the name ends in .gz, the same bytes for the same content."""
    with path.open("wb") as stream:
        if path.suffix != ".gz":
            yield stream
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed:
            yield cast("BinaryIO", packed)


@contextmanager
def naming(path: Path, instead_of: Path | None = None) -> Iterator[None]:
    """Let errors of the system that name no file, or ``instead_of``, name ``path``."""
    try:
        yield
    except OSError as error:
        unnamed = error.filename is None or error.filename == str(instead_of)
        if error.errno is None or not unnamed:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def _part_ending(name: str) -> str:
    """Return what the temporary names for a name have in common."""
    return f".{zlib.crc32(os.fsencode(name)):08x}.part.{name[-_END:]}"


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files that dead writers of ``path`` have left."""
    pattern = re.compile(rf"\.[0-9a-f]{{8}}{re.escape(_part_ending(path.name))}", re.DOTALL)
    with os.scandir(path.parent) as entries:
        parts = [entry for entry in entries if pattern.fullmatch(entry.name) and entry.is_file()]
    for part in parts:
        with suppress(OSError):  # it is gone, or cannot be removed
            if time.time() - part.stat().st_mtime > _HOUR:
                os.unlink(part)


def _sync(path: Path, how: int) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, how)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, also while it is renamed; BlockingIOError if it is held already.

    The system gives it up with the process. Windows has no ``flock``, but a file that is open there
    cannot be removed: an open file beside the folder is the lock.
    """
    if _HAS_FLOCK:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)
        return
    beside = folder.with_name(f"{folder.name}.lock")
    try:
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except (PermissionError, FileExistsError) as error:
        raise BlockingIOError(f"{folder} is held by another process.") from error
    try:
        yield
    finally:
        os.close(descriptor)
        beside.unlink(missing_ok=True)
