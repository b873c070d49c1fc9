"""Settings of the runs of the comparison with peers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Group:
    """Settings that compared runs have in common."""

    set: str
    rank: int
    dtype: str
    threads: int
    seconds: float

    @property
    def title(self) -> str:
        """As a heading."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.set}, r = {self.rank}, {self.dtype}, {threads}, {self.seconds:g} s"

    @property
    def name(self) -> str:
        """As part of a file name."""
        return f"{self.set}_r{self.rank}_{self.dtype}_t{self.threads}_{self.seconds:g}s"


@dataclass(frozen=True)
class Job:
    """One run."""

    set: str
    solver: str
    rank: int
    dtype: str
    seed: int
    threads: int
    seconds: float

    @property
    def name(self) -> str:
        """Name of the file with its results."""
        group = Group(self.set, self.rank, self.dtype, self.threads, self.seconds)
        return f"{group.name}_{self.solver}_{self.seed}"
