"""A file that long work writes its state to from time to time, to go on from there if killed."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from klnmf.data.validation import warn_caller
from klnmf.saved.container import Container, SavedFileError, write_container
from klnmf.support.option_names import option

Work = TypeVar("Work")


@dataclass
class PeriodicFile(ABC, Generic[Work]):
    """The file of one piece of work; subclasses say what is in it."""

    path: Path
    every: float  # seconds between two writes, not counting the writes
    _last_time: float = field(default=-math.inf, init=False)

    @abstractmethod
    def packed(self, work: Work) -> Container:
        """Return what the file is to hold."""

    def write_if_due(self, work: Work) -> None:
        """Write if that is long enough ago.

        A first write that fails is an error: the path is wrong, or this work cannot be written.
        Later ones give a warning, for a full disk is no reason to lose long work.
        """
        if self._last_time == -math.inf:
            self._write(work)
        elif time.monotonic() - self._last_time >= self.every:
            self.write(work)

    def write(self, work: Work) -> None:
        """Write now; a failure gives a warning."""
        try:
            self._write(work)
        except OSError as error:
            self._last_time = time.monotonic()
            warn_caller(
                f"The checkpoint {self.path} could not be written ({error}). The work goes on; "
                "what it did since the last checkpoint would be lost if it were killed.",
                UserWarning,
            )

    def _write(self, work: Work) -> None:
        write_container(self.path, self.packed(work))
        self.was_read()

    def was_read(self) -> None:
        """Note that the file holds the present state."""
        self._last_time = time.monotonic()


def klnmf_version() -> str:
    """Return the version that files are written by: another one may compute other bits."""
    return Container("", {}, {}).klnmf_version


def check_identity(
    path: Path,
    found: dict[str, Any],
    wanted: dict[str, Any],
    work: str,
    way_out: str = "delete the file",
) -> None:
    """Raise a SavedFileError that names all differences, if there are any."""
    differences = [
        f"{option(name)} ({str(found.get(name))[:300]} there, {wanted.get(name)} here)"
        for name in dict.fromkeys([*wanted, *found])
        if found.get(name) != wanted.get(name)
    ]
    if differences:
        raise SavedFileError(
            f"The checkpoint {path} belongs to another {work}. It differs in: "
            f"{'; '.join(differences)}. Use the same data and the same arguments to go on with it, "
            f"give this {work} a checkpoint of its own, or {way_out}."
        )
