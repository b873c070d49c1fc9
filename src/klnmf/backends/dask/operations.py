"""What the driver asks of the workers: small, picklable, with the same result when repeated.

A *version* is a factor that never changes. Operations make new ones; each worker makes its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from klnmf.backends.base import Fixed, Rule
from klnmf.backends.dask.partition import Partition, Pieces
from klnmf.support.array_types import Array


class Wants(NamedTuple):
    """What the driver wants to know of every new version, beside the number of its zeros."""

    sums: bool = False
    squares: bool = False


class Facts(NamedTuple):
    """What a worker says about its part of a version."""

    zeros: int
    sums: Pieces | None
    squares: Pieces | None


@dataclass(frozen=True)
class Put:
    """Rows that come from the driver, or that a worker makes from their description."""

    mode: int
    rows: dict[int, Any]  # by part
    out: int
    sources: ClassVar[tuple[int, ...]] = ()

    def of_parts(self, parts: list[int]) -> Put:
        """Return the same for these parts alone."""
        return Put(self.mode, {part: self.rows[part] for part in parts}, self.out)


@dataclass(frozen=True)
class Derive:
    """A new version from others, each part by itself: see the functions in ``kernels``."""

    mode: int
    function: Callable[..., Array]  # of the context, the rows of the sources, and the settings
    sources: tuple[int, ...]
    settings: tuple[Any, ...]
    out: int


@dataclass(frozen=True)
class Look:
    """What the driver wants to know of versions or of X; makes no version."""

    mode: int
    function: Callable[..., Any]  # as in Derive
    sources: tuple[int, ...] = ()
    settings: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Update:
    """A rule on every row of x; the factors of ``fixed`` are numbers of versions."""

    mode: int
    sources: tuple[int]  # x
    fixed: Fixed
    rule: Rule
    out: int


@dataclass(frozen=True)
class Evaluate:
    """Values and residuals at x; ``fixed`` as in `Update`."""

    mode: int
    sources: tuple[int]  # x
    fixed: Fixed
    want_residual: bool


@dataclass(frozen=True)
class Keep:
    """Hold copies of the parts of another worker, so that they are not lost with it."""

    mode: int
    sources: tuple[int]


Operation = Put | Derive | Look | Update | Evaluate | Keep
MAKERS = (Put, Derive, Update)  # of versions


@dataclass(frozen=True)
class Layout:
    """Who has what: the partition of each mode, and by part the worker and the key of X there."""

    generation: int
    partitions: tuple[Partition, Partition]
    homes: tuple[str, ...]
    keys: tuple[tuple[Any, ...], tuple[Any, ...]]
    keepers: tuple[str | None, ...]  # by part: who holds the copies

    def parts_at(self, address: str) -> list[int]:
        """Parts of a worker."""
        return [part for part, home in enumerate(self.homes) if home == address]


@dataclass(frozen=True)
class Round:
    """One message to all workers."""

    number: int
    operations: list[Operation]
    drops: list[int]  # versions that are not needed after it
    wants: Wants


@dataclass(frozen=True)
class Reset:
    """A new layout. Only the versions listed stay, fetched from workers that still have them."""

    layout: Layout
    versions: dict[int, int]  # with their modes
    sources: dict[int, str]  # by part


@dataclass(frozen=True)
class Ping:
    """Asks what a worker holds."""


@dataclass(frozen=True)
class Close:
    """The fit is over."""


Message = Round | Reset | Ping | Close


class Outcome(NamedTuple):
    """Answer of one part to :class:`Update` and :class:`Evaluate`."""

    values: Pieces | None
    kkt: float
    gaps: Pieces | None
    facts: Facts | None
    fixed_sums: Array | None  # column sums of A, from the first part alone
    fixed_squares: Array | None


@dataclass
class Answer:
    """Answer of one worker: for every operation, the results of its parts."""

    by_operation: list[dict[int, Any]] = field(default_factory=list)
    bytes_received: int = 0
    seconds: float = 0.0  # in kernels
    held: frozenset[tuple[int, int]] | None = None  # versions and parts, to a ping
