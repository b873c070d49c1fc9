"""A file that long work writes its state to from time to time, to go on from there if killed."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from klnmf.saved.container import Container, SavedFileError, write_container
from klnmf.validation import warn_caller

State = TypeVar("State")


@dataclass
class PeriodicFile(ABC, Generic[State]):
    """The file of one piece of work; subclasses say what is in it."""

    path: Path
    every: float  # seconds between two writes
    _last_time: float = field(default=-math.inf, init=False)

    @abstractmethod
    def packed(self, state: State) -> Container:
        """Return what the file is to hold."""

    def write_if_due(self, state: State) -> None:
        """Write if that is long enough ago; a first write that fails is an error."""
        if self._last_time == -math.inf:
            self._write(state)
        elif time.monotonic() - self._last_time >= self.every:
            self.write(state)

    def write(self, state: State) -> None:
        """Write now; a failure gives a warning, for it is no reason to lose long work."""
        try:
            self._write(state)
        except OSError as error:
            self._last_time = time.monotonic()
            warn_caller(
                f"The checkpoint {self.path} could not be written ({error}). The work goes on; "
                "what it did since the last checkpoint would be lost if it were killed.",
                UserWarning,
            )

    def _write(self, state: State) -> None:
        write_container(self.path, self.packed(state), is_only_writer=True)
        self.was_read()

    def was_read(self) -> None:
        """Note that the file holds the present state."""
        self._last_time = time.monotonic()


def klnmf_version() -> str:
    """Return the version that files are written by: another one may compute other bits."""
    return Container("", {}, {}).klnmf_version


def check_identity(path: Path, found: dict[str, Any], wanted: dict[str, Any], work: str) -> None:
    """Raise a SavedFileError that names all differences, if there are any."""
    differences = [
        f"{name} ({str(found.get(name))[:300]} there, {wanted[name]} here)"
        for name in wanted
        if found.get(name) != wanted[name]
    ]
    if differences:
        raise SavedFileError(
            f"The checkpoint {path} belongs to another {work}. It differs in: "
            f"{'; '.join(differences)}. Use the same data and the same arguments to go on with it, "
            f"give this {work} a checkpoint of its own, or delete the file."
        )
