"""Locks on files and folders that the system gives up with the process that holds them.

Where there is ``fcntl``, a lock is one of ``flock``. Windows has none of it, and needs none: a file
that is open there cannot be removed, so that an open file is a lock on itself.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OPEN_FILES_MOVE = True  # whether a file that is open can be renamed and removed
try:
    import fcntl
except ModuleNotFoundError:
    OPEN_FILES_MOVE = False


def lock(descriptor: int) -> None:
    """Keep an open file from `remove_unless_locked` until it is closed; wait if that is at work."""
    if OPEN_FILES_MOVE:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def remove_unless_locked(path: str | os.PathLike[str]) -> None:
    """Remove a file; OSError if it is in use, or gone, or on a file system without locks."""
    if not OPEN_FILES_MOVE:
        os.unlink(path)
        return
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, also while it is renamed; BlockingIOError if it is held already."""
    if OPEN_FILES_MOVE:
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
