"""Checkpoints: files to which long work writes its state from time to time."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from klnmf.data.sparse_data import CountData
from klnmf.data.validation import warn_caller
from klnmf.saved.container import Container, SavedFileError, write_container
from klnmf.support.option_names import option

Work = TypeVar("Work")


@dataclass
class PeriodicFile(ABC, Generic[Work]):
    """The file of one piece of work; subclasses define its content."""

    path: Path
    every: float  # seconds from the end of one write to the next write
    _last_time: float = field(default=-math.inf, init=False)

    @abstractmethod
    def packed(self, work: Work) -> Container:
        """Return the content of the file."""

    def write_if_due(self, work: Work) -> None:
        """Write if the last write is long enough ago.

        If the first write fails, that is an error: the path is wrong, or the work cannot be
        written. If a later one fails, the work continues with a warning.
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
                f"The checkpoint {self.path} could not be written ({error}). The work continues, "
                "but if it is killed, everything since the last checkpoint is lost.",
                UserWarning,
            )

    def _write(self, work: Work) -> None:
        write_container(self.path, self.packed(work))
        self.was_read()

    def was_read(self) -> None:
        """Note that the file holds the current state."""
        self._last_time = time.monotonic()


def klnmf_version() -> str:
    """Return the version of klnmf: other versions may give slightly different results."""
    return Container("", {}, {}).klnmf_version


def data_identity(data: CountData) -> dict[str, Any]:
    """Return the entries by which a checkpoint recognises its data."""
    (n, m), nnz, dtype, checksum = data.fingerprint
    return {
        "shape of X": [n, m],
        "nonzeros of X": nnz,
        "type of X": dtype,
        "checksum of X": checksum,
    }


def check_identity(
    path: Path,
    found: dict[str, Any],
    wanted: dict[str, Any],
    work: str,
    way_out: str = "delete the file",
) -> None:
    """Raise a SavedFileError that lists all differences, if there are any."""
    differences = [
        f"{option(name)} ({str(found.get(name))[:300]} there, {wanted.get(name)} here)"
        for name in dict.fromkeys([*wanted, *found])
        if found.get(name) != wanted.get(name)
    ]
    if differences:
        raise SavedFileError(
            f"The checkpoint {path} belongs to another {work}. It differs in: "
            f"{'; '.join(differences)}. To resume that {work}, use the same data and arguments. "
            f"Otherwise choose another checkpoint file, or {way_out}."
        )
