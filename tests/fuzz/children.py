"""Tries in children: a batch of them in each, so that klnmf is imported once.

A child writes each case to disk before it reads it. Where it dies, the parent finds the case there,
and the stack in a log; another child goes on with the next case.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from fuzz.judge import TOO_LONG, Verdict, judged, limit_memory, within_time
from fuzz.seeds import Files, files_in
from fuzz.targets import Target

MakeCase = Callable[[int], Files]


@dataclass(frozen=True)
class Tried:
    """A try with its verdict; the files only where something was found."""

    number: int
    verdict: Verdict
    files: Files


class Workplace:
    """A folder in memory, where there is one, in which children read their cases."""

    def __init__(self, folder: Path) -> None:
        self.case, self.work, self.log = folder / "case", folder / "work", folder / "log"

    def put(self, files: Files) -> None:
        """Write a case twice: reading changes some of them."""
        for folder in (self.case, self.work):
            folder.mkdir()
            for name, content in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def clear(self) -> None:
        """Remove the case before this one."""
        for folder in (self.case, self.work):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def workplace() -> Iterator[Workplace]:
    """Workplace for as long as it is needed."""
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=where) as name:
        yield Workplace(Path(name))


def try_all(
    place: Workplace, target: Target, numbers: Sequence[int], make: MakeCase
) -> Iterator[Tried]:
    """Try cases by number, in as many children as it takes."""
    left = list(numbers)
    while left:
        done, status = _batch(place, target, left, make)
        for number, verdict in zip(left, done, strict=False):
            files = {} if verdict.kind != "found" else make(number)
            yield Tried(number, verdict, files)
        if len(done) < len(left):
            verdict = _death(place, status)
            # Where there is no case, the libraries that change files died, not those that read.
            if place.work.exists():
                yield Tried(left[len(done)], verdict, files_in(place.case))
        left = left[len(done) + 1 :]


def _batch(
    place: Workplace, target: Target, numbers: list[int], make: MakeCase
) -> tuple[list[Verdict], int]:
    """Verdicts of the tries up to the one that killed the child, and how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _in_child(place, target, numbers, make, writing)
        except BaseException:  # of the fuzzer, not of what it tries
            place.log.write_text(traceback.format_exc())
            os._exit(2)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        done = [Verdict(**json.loads(line)) for line in stream]
    return done, os.waitpid(child, 0)[1]


def _in_child(
    place: Workplace, target: Target, numbers: list[int], make: MakeCase, writing: int
) -> None:
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    limit_memory()
    with os.fdopen(writing, "w") as answers, place.log.open("w+") as log:
        for number in numbers:
            place.clear()
            verdict = within_time(log, lambda number=number: _one_try(place, target, make(number)))
            answers.write(json.dumps(asdict(verdict)) + "\n")
            answers.flush()


def _one_try(place: Workplace, target: Target, files: Files) -> Verdict:
    place.put(files)
    return judged(target, place.work)


def _death(place: Workplace, status: int) -> Verdict:
    """Verdict on a child that did not come to its end."""
    stack = place.log.read_text(errors="replace")
    how = f"exit status {os.waitstatus_to_exitcode(status)}"
    if os.WIFSIGNALED(status):
        how = signal.Signals(os.WTERMSIG(status)).name
    if how == TOO_LONG.name or "Timeout" in stack:
        how = "took too long"
    if how == "exit status 2":
        raise RuntimeError(f"The fuzzer failed:\n{stack}")
    ours = [line for line in stack.splitlines() if "/klnmf/" in line]
    where = ours[0].split("/")[-1].replace('"', "") if ours else ""
    return Verdict("found", f"{how} {where}".strip(), stack[-6000:])
