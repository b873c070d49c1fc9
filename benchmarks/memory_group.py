"""A memory cgroup (version 1 or 2), to measure and limit memory including the page cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryGroup:
    """A cgroup with a memory limit.

    Attributes
    ----------
    path : Path
        Its folder.
    version : int
        1 or 2.
    limit : int
        Bytes.
    """

    path: Path
    version: int
    limit: int

    def command(self, words: list[str]) -> list[str]:
        """Return the arguments that start a command in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"), *words]

    def reset(self) -> None:
        """Release the memory of the group and reset its peak, if that is possible."""
        files = {1: ("memory.force_empty", "memory.max_usage_in_bytes"), 2: ("memory.peak",)}
        for name in files[self.version]:
            with suppress(OSError):
                (self.path / name).write_text("0")

    @property
    def peak(self) -> int:
        """Peak memory in bytes, page cache included."""
        name = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}[self.version]
        return int((self.path / name).read_text())

    @property
    def n_reclaims(self) -> int:
        """Number of times the limit was reached and cached pages were dropped.

        Recent kernels always report 0 in version 1; the peak then equals the limit.
        """
        if self.version == 2:
            return self._event("max")
        files = [self.path / name for name in ("memory.failcnt", "memory.memsw.failcnt")]
        return sum(int(file.read_text()) for file in files if file.exists())

    @property
    def n_kills(self) -> int:
        """Number of processes killed for lack of memory."""
        return self._event("oom_kill")

    def _event(self, name: str) -> int:
        file = {1: "memory.oom_control", 2: "memory.events"}[self.version]
        fields = dict(line.split() for line in (self.path / file).read_text().splitlines())
        return int(fields.get(name, 0))


def _parent() -> tuple[Path, int]:
    if (_ROOT / "memory" / "memory.limit_in_bytes").exists():
        return _ROOT / "memory", 1
    if (_ROOT / "cgroup.controllers").exists():
        return _ROOT, 2
    raise SystemExit("This system has no memory cgroups. Run without --limit.")


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup]:
    """Make a group, and remove it at the end; its processes must have ended by then."""
    parent, version = _parent()
    path = parent / f"klnmf-{os.getpid()}"
    try:
        if version == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        path.mkdir()
    except OSError as error:
        raise SystemExit(
            f"Cannot make a memory cgroup ({error}). Run as root, or without --limit."
        ) from error
    try:
        name = {1: "memory.limit_in_bytes", 2: "memory.max"}[version]
        (path / name).write_text(str(limit))
        swap = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}[version]
        with suppress(OSError):  # where there is no account of swapping
            (path / swap).write_text(str(limit if version == 1 else 0))
        yield MemoryGroup(path, version, limit)
    finally:
        path.rmdir()


def run_in(group: MemoryGroup | None, words: list[str]) -> str:
    """Run a command, in the group if there is one, and return its output."""
    done = subprocess.run(
        words if group is None else group.command(words),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        killed = group is not None and group.n_kills
        why = "the memory limit is too small" if killed else f"status {done.returncode}"
        sys.exit(f"{' '.join(words)} failed: {why}")
    return done.stdout
