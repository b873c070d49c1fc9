"""Checkpoints: files to which long work writes its state from time to time."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from klnmf.data.sparse_data import CountData
from klnmf.data.validation import warn_caller
from klnmf.saved.container import Container, SavedFileError, read_container, write_container
from klnmf.saved.fields import Fields
from klnmf.support.option_names import option

Work = TypeVar("Work")


@dataclass
class PeriodicFile(ABC, Generic[Work]):
    """The file of one piece of work; subclasses define its content."""

    kind: ClassVar[str]  # of the file
    work_name: ClassVar[str]  # in messages
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
        self._last_time = time.monotonic()

    def stored_seed(self, content: Fields) -> int:
        """Return the seed of the work in the file."""
        return content.whole("seed")

    @contextmanager
    def reading(
        self, identity: dict[str, Any], seed: int | None, way_out: str = "delete the file"
    ) -> Iterator[tuple[Fields, dict[str, Any]]]:
        """Give the content and the arrays of the file, if it has this identity and seed.

        Without a seed, any will do. Other versions of klnmf may give slightly different results.
        """
        container = read_container(self.path, self.kind)
        content = Fields(container.content, "content")
        stored_seed = self.stored_seed(content)
        found = content.fields("identity").members | {
            "version of klnmf": container.klnmf_version,
            "seed from random_state": stored_seed,
        }
        wanted = identity | {
            "version of klnmf": version("klnmf"),
            "seed from random_state": stored_seed if seed is None else seed,
        }
        differences = [
            f"{option(name)} ({str(found.get(name))[:300]} there, {wanted.get(name)} here)"
            for name in dict.fromkeys([*wanted, *found])
            if found.get(name) != wanted.get(name)
        ]
        work = self.work_name
        if differences:
            raise SavedFileError(
                f"The checkpoint {self.path} belongs to another {work}. It differs in: "
                f"{'; '.join(differences)}. To resume that {work}, use the same data and "
                f"arguments. Otherwise choose another checkpoint file, or {way_out}."
            )
        try:
            yield content, container.arrays
        except ValueError as error:
            raise SavedFileError(f"Cannot read the checkpoint {self.path}: {error}") from error
        self._last_time = time.monotonic()


def data_identity(data: CountData) -> dict[str, Any]:
    """Return the entries by which a checkpoint recognises its data."""
    shape, nnz, dtype, checksum = data.fingerprint
    size = {"shape of X": list(shape), "nonzeros of X": nnz}
    return size | {"type of X": dtype, "checksum of X": checksum}
