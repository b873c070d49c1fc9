"""One try: read a file within limits of memory and time, and say what came of it."""

from __future__ import annotations

import faulthandler
import resource
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from fuzz.readings import ALLOWED, WrongResultError
from fuzz.targets import Target

# Bytes that reading a small file may take beyond what the process has.
MEMORY = 1 << 30
# Seconds of computing that reading a small file may take. What waits for something takes none:
# that may last longer, for the machine may be busy.
SECONDS = 10.0
SECONDS_OF_WAITING = 300.0
TOO_LONG = signal.SIGPROF
_OURS = "klnmf"


@dataclass(frozen=True)
class Verdict:
    """What came of a try."""

    kind: Literal["read", "refused", "found"]
    cause: str = ""  # class of the error, and where it was raised
    text: str = ""


def judged(target: Target, folder: Path) -> Verdict:
    """Read what is in the folder. Only errors that a reader may raise are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.use(folder)
    except ALLOWED as error:
        return Verdict("refused", text=f"{type(error).__name__}: {error}"[:500])
    except BaseException as error:
        text = "".join(traceback.format_exception(error, limit=-12))[-6000:]
        where = str(error) if isinstance(error, WrongResultError) else _raised_in(error)
        return Verdict("found", f"{type(error).__name__} {where}", text)
    return Verdict("read")


def _raised_in(error: BaseException) -> str:
    """Last place in klnmf that the error passed, and the one that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"/{_OURS}/" in frame.filename]
    places = [*ours[-1:], frames[-1]]
    return " ".join(dict.fromkeys(f"{Path(f.filename).name}:{f.name}" for f in places))


def limit_memory(beyond: int = MEMORY) -> None:
    """Bound the address space of this process to what it has now and some more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + beyond
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def within_time(log: IO[str], work: Callable[[], Verdict]) -> Verdict:
    """Do a piece of work; a process that takes too long ends, with its stack in the log."""
    log.seek(0)
    log.truncate()
    faulthandler.enable(log)
    faulthandler.register(TOO_LONG, log, chain=True)  # then it ends the process, as by default
    faulthandler.dump_traceback_later(SECONDS_OF_WAITING, exit=True, file=log)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
