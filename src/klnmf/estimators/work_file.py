"""Checkpoints of long work that is not a fit, as its run options want them."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from klnmf.estimators.run_options import RunOptions
from klnmf.saved.checkpoints import should_resume
from klnmf.saved.container import read_container
from klnmf.saved.fields import Fields
from klnmf.saved.periodic_file import PeriodicFile
from klnmf.support.array_types import Array
from klnmf.support.number_checks import seed_of

Work = TypeVar("Work")


class WorkFile(PeriodicFile[Work]):
    """The checkpoint of one piece of work; without a path, nothing is written."""

    def __init__(self, options: RunOptions) -> None:
        path = None if options.checkpoint is None else Path(options.checkpoint)
        self.is_resumed = should_resume(path, options.resume)
        self._has_path = path is not None
        super().__init__(path or Path(), options.checkpoint_every)

    @abstractmethod
    def identity(self, work: Work) -> dict[str, Any]:
        """Return everything that decides the result, except for the seed."""

    @abstractmethod
    def unpacked(self, work: Work, content: Fields, arrays: dict[str, Array]) -> Work:
        """Return the work as the file holds it; ``work`` is where it began."""

    def seed(self, random_state: Any) -> int:
        """Return the seed of the file if none is given, or draw one."""
        if self.is_resumed and random_state is None:
            return self.stored_seed(Fields(read_container(self.path, self.kind).content, "content"))
        return seed_of(random_state)

    def resumed(self, work: Work, seed: int) -> Work:
        """Return the work from the file, or ``work`` itself if it is not resumed."""
        if not self.is_resumed:
            return work
        with self.reading(self.identity(work), seed) as (content, arrays):
            return self.unpacked(work, content, arrays)

    @contextmanager
    def kept(self, work: Work) -> Iterator[None]:
        """Write the work before and after the block: a wrong path is an error before any work."""
        self.write_if_due(work)
        try:
            yield
        finally:
            self.write(work)

    def _write(self, work: Work) -> None:
        if self._has_path:
            super()._write(work)
