"""How the rows of a mode are cut into parts, who has them, and how sums over parts stay the same.

Every sum over rows is a sum of blocks of ``ROWS_PER_SUM`` rows. A part returns the sums of the
blocks that it has as a whole. Of a block that is cut by a border it returns the rows themselves, so
that this block can be summed as on one machine.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from klnmf.data.sums import ROWS_PER_SUM
from klnmf.support.array_types import Array

# A border is moved to the nearest border of blocks if that is within this share of a part.
ALIGNED_WITHIN = 0.03
# What a row costs beside its nonzeros, in nonzeros; and how much more a nonzero costs in long rows,
# which use more components. Measured on Zipf columns, with the cost in rows of up to 1,300 as 1:
# 1.4 at 5,400 nonzeros, 2.2 at 11,000, 3.6 from 20,000 on.
COST_OF_ROW = 4.0
LONG_ROW = 8192
LONG_ROW_COSTS = 2.5


class Pieces(NamedTuple):
    """What a part adds to a sum over all rows."""

    head: Array  # rows of the block that begins in an earlier part
    whole: list[Any]  # sums of whole blocks
    tail: Array  # rows of the block that ends in a later part


@dataclass(frozen=True)
class Partition:
    """Part p has the rows from ``bounds[p]`` to ``bounds[p + 1]``; it may have none."""

    bounds: tuple[int, ...]

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return len(self.bounds) - 1

    @property
    def n_rows(self) -> int:
        """Rows in all."""
        return self.bounds[-1]

    def rows(self, part: int) -> slice:
        """Return the rows of a part."""
        return slice(self.bounds[part], self.bounds[part + 1])

    def size(self, part: int) -> int:
        """Rows of a part."""
        return self.bounds[part + 1] - self.bounds[part]

    def _whole_blocks(self, part: int) -> tuple[int, int]:
        """First and last row (exclusive) of the blocks that a part has as a whole."""
        begin, end = self.bounds[part], self.bounds[part + 1]
        first = min(-(-begin // ROWS_PER_SUM) * ROWS_PER_SUM, end)
        last = end if end == self.n_rows else end // ROWS_PER_SUM * ROWS_PER_SUM
        return first, max(first, last)

    def pieces(self, part: int, rows: Array, block_sum: Callable[[Array], Any]) -> Pieces:
        """Sum what a part can sum alone; ``rows`` has an entry, or a row, for each row of it."""
        begin = self.bounds[part]
        first, last = (row - begin for row in self._whole_blocks(part))
        whole = [
            block_sum(rows[start : min(start + ROWS_PER_SUM, last)])
            for start in range(first, last, ROWS_PER_SUM)
        ]
        return Pieces(rows[:first], whole, rows[last:])

    def total(self, pieces: Iterable[Pieces], block_sum: Callable[[Array], Any], zero: Any) -> Any:
        """Add up the pieces of all parts, in order."""
        total, cut, position = zero, [], 0
        for part, (head, whole, tail) in enumerate(pieces):
            position = self.bounds[part]
            if len(head):
                cut.append(head)
                position += len(head)
            if cut and (position % ROWS_PER_SUM == 0 or position == self.n_rows):
                total = total + block_sum(np.concatenate(cut))
                cut = []
            for block in whole:
                total = total + block
            if len(tail):
                cut.append(tail)
        return total


def balanced(costs: Array, shares: Sequence[float]) -> Partition:
    """Cut rows into parts with these shares of the cost, at borders of blocks where possible.

    Parameters
    ----------
    costs : ndarray of shape (n_rows,)
        What a row costs; not negative.
    shares : sequence of float
        One for each part.

    Examples
    --------
    >>> import numpy as np
    >>> balanced(np.ones(10), [1, 1]).bounds
    (0, 5, 10)
    >>> balanced(np.ones(100_000), [1, 1]).bounds
    (0, 49152, 100000)
    """
    ends = np.concatenate([[0.0], np.cumsum(costs, dtype=np.float64)])
    targets = np.cumsum(shares)[:-1] / np.sum(shares) * ends[-1]
    allowed = ALIGNED_WITHIN * ends[-1] * min(shares) / np.sum(shares)
    bounds = [0]
    for target in targets:
        row = int(np.searchsorted(ends, target))
        near = int(round(row / ROWS_PER_SUM) * ROWS_PER_SUM)
        if near < len(ends) and abs(ends[near] - target) <= allowed:
            row = near
        bounds.append(max(bounds[-1], min(row, len(costs))))
    return Partition((*bounds, len(costs)))


def costs_of_rows(lengths: Array) -> Array:
    """Return the costs of rows with these numbers of nonzeros, in nonzeros of a short row."""
    of_a_nonzero = 1 + np.minimum(lengths / LONG_ROW, LONG_ROW_COSTS)
    return np.asarray(lengths * of_a_nonzero + COST_OF_ROW)


def cut_both(
    by_rows: Array, by_columns: Array, shares: Sequence[float]
) -> tuple[Partition, Partition]:
    """Partition of each mode from its indptr."""
    rows, columns = (
        balanced(costs_of_rows(np.diff(indptr)), shares) for indptr in (by_rows, by_columns)
    )
    return rows, columns


# ---- who has which part -------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Who has what: the partition of each mode, and by part the worker and the key of X there."""

    partitions: tuple[Partition, Partition]
    homes: tuple[str, ...]
    keys: tuple[tuple[Any, ...], tuple[Any, ...]]
    keepers: tuple[str | None, ...]  # by part: who holds the copies

    def parts_at(self, address: str) -> list[int]:
        """Parts of a worker."""
        return [part for part, home in enumerate(self.homes) if home == address]

    def copies_at(self, address: str) -> list[int]:
        """Parts of other workers of which a worker holds copies."""
        return [part for part, keeper in enumerate(self.keepers) if keeper == address]


def homes_for(old: tuple[str, ...], workers: list[str]) -> tuple[str, ...]:
    """By part, its worker: the old one if it still exists; idle workers take over from others.

    Examples
    --------
    >>> homes_for(("a", "b", "c"), ["a", "c", "d"])
    ('a', 'd', 'c')
    >>> homes_for(("a", "b", "a"), ["a", "b", "d"])
    ('a', 'b', 'd')
    """
    homes = [home if home in workers else None for home in old]
    load = {address: homes.count(address) for address in workers}
    for part, home in enumerate(homes):
        if home is None:
            homes[part] = min(load, key=lambda address: load[address])
            load[str(homes[part])] += 1
    for idle in [address for address in workers if load[address] == 0]:
        crowded = max(load, key=lambda address: load[address])
        if load[crowded] > 1:
            homes[max(part for part, home in enumerate(homes) if home == crowded)] = idle
            load[crowded] -= 1
            load[idle] += 1
    return tuple(map(str, homes))


def keepers_for(homes: tuple[str, ...]) -> tuple[str | None, ...]:
    """By part, the worker that holds its copies: on another machine if there is one."""

    def host(address: str) -> str:
        return address.rpartition(":")[0]

    workers = list(dict.fromkeys(homes))
    keepers: list[str | None] = []
    for home in homes:
        place = workers.index(home)
        others = workers[place + 1 :] + workers[:place]
        far = [other for other in others if host(other) != host(home)]
        keepers.append(next(iter(far or others), None))
    return tuple(keepers)
