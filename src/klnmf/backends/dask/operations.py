"""What the driver may ask of the workers: small, picklable, and the same again when repeated.

A *version* is a factor that never changes: each operation makes a new one, each worker its parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy.typing as npt

from klnmf.backends.base import Rule
from klnmf.backends.dask.partition import Partition, Pieces

Array = npt.NDArray[Any]


class Wants(NamedTuple):
    """What the driver wants to know of every new version, beside the number of its zeros."""

    sums: bool = False
    squares: bool = False


class Facts(NamedTuple):
    """What a worker tells about its part of a version."""

    zeros: int
    sums: Pieces | None
    squares: Pieces | None


@dataclass(frozen=True)
class Put:
    """Rows that come from the driver, or that a worker makes from their description."""

    mode: int
    rows: dict[int, Any]  # by part
    out: int

    def of_parts(self, parts: list[int]) -> Put:
        """Return the same for these parts alone."""
        return Put(self.mode, {part: self.rows[part] for part in parts}, self.out)


@dataclass(frozen=True)
class Extrapolate:
    """``max(newest + weight · (newest − previous), keep · newest)``."""

    mode: int
    newest: int
    previous: int
    weight: float
    keep: float
    out: int


@dataclass(frozen=True)
class Scale:
    """Columns times ``scales``."""

    mode: int
    x: int
    scales: Array
    out: int


@dataclass(frozen=True)
class Merge:
    """One column becomes a weighted sum of two, the other is replaced."""

    mode: int
    x: int
    pair: tuple[int, int]
    weights: tuple[float, float]
    column: Array | None
    out: int


@dataclass(frozen=True)
class Convert:
    """The same in another type."""

    mode: int
    x: int
    dtype: Any
    out: int


@dataclass(frozen=True)
class Update:
    """A rule on every row of x with A fixed. ``slopes`` is c, or the L1 weight that makes it."""

    mode: int
    x: int
    A: int
    slopes: Array | float
    l2: float
    rule: Rule
    out: int


@dataclass(frozen=True)
class Evaluate:
    """Values and residuals at x."""

    mode: int
    x: int
    A: int
    slopes: Array | float
    l2: float
    want_residual: bool


@dataclass(frozen=True)
class Describe:
    """The facts of a version."""

    mode: int
    x: int


@dataclass(frozen=True)
class WeightedSums:
    """Column sums of the entries and their squares, rows weighted as the penalties count them."""

    mode: int
    x: int


@dataclass(frozen=True)
class TakeRows:
    """Some rows of a version; all of them if ``rows`` is None."""

    mode: int
    x: int
    rows: Array | None


@dataclass(frozen=True)
class TakeData:
    """Some rows of X: indptr, indices and values."""

    mode: int
    rows: Array


@dataclass(frozen=True)
class Keep:
    """Hold copies of the parts of a neighbour, so that they outlive it."""

    mode: int
    x: int


Operation = (
    Put
    | Extrapolate
    | Scale
    | Merge
    | Convert
    | Update
    | Evaluate
    | Describe
    | WeightedSums
    | TakeRows
    | TakeData
    | Keep
)
# Those that make a version.
MAKERS = (Put, Extrapolate, Scale, Merge, Convert, Update)


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
    drops: list[int]  # versions that nobody needs after it
    wants: Wants


@dataclass(frozen=True)
class Reset:
    """A new layout. Of the versions only those listed stay, fetched from where they still are."""

    layout: Layout
    versions: dict[int, int]  # with their modes
    sources: dict[int, str]  # by part


@dataclass(frozen=True)
class Ping:
    """Nothing but the question what a worker holds."""


@dataclass(frozen=True)
class Close:
    """The fit is over."""


Message = Round | Reset | Ping | Close


class Outcome(NamedTuple):
    """Answer of one part to :class:`Update` and :class:`Evaluate`."""

    values: Pieces | None
    kkt: float
    facts: Facts | None
    fixed_sums: Array | None  # column sums of A, from the first part alone
    fixed_squares: Array | None


@dataclass
class Answer:
    """Of one worker: for every operation what its parts say."""

    by_operation: list[dict[int, Any]] = field(default_factory=list)
    bytes_received: int = 0
    seconds: float = 0.0  # in kernels
    held: frozenset[tuple[int, int]] | None = None  # versions and parts, to a ping
