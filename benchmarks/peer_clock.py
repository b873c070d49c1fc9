"""Measurements of a run: seconds, memory and divergence.

Only the work of the solver is timed. Between two timed parts, the benchmark computes the divergence
of the factors in float64, in blocks of nonzeros. The peak memory is reset at the start of a timed
part and read at its end. So the divergence counts neither as time nor as memory, and one run
measures both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import xlogy

from benchmarks.memory import resident, settle

Array = npt.NDArray[Any]

# Seconds that a run may take to reach the iterations it has to do.
CAP = 600.0
# Iterations of scikit-learn whose divergence is a target for all.
LANDMARK = 200
LARGEST_STEP = 100


def divergence(X: sp.csr_array, W: Array, H: Array, block: int = 1 << 17) -> float:
    """Σ_ij [X log(X / WH) − X + WH] in float64, whatever the types; W is n × r, H is r × m.

    Equal to ``klnmf.objective.kl_divergence``, but in bounded memory.
    """
    features = np.asarray(H).T
    total = float(W.sum(axis=0, dtype=np.float64) @ features.sum(axis=0, dtype=np.float64))
    for begin in range(0, X.nnz, block):
        end = min(begin + block, X.nnz)
        first = int(np.searchsorted(X.indptr, begin, side="right")) - 1
        last = int(np.searchsorted(X.indptr, end, side="left"))
        lengths = np.diff(np.clip(X.indptr[first : last + 1], begin, end))
        rows = np.repeat(np.arange(first, last), lengths)
        x = X.data[begin:end].astype(np.float64)
        left = W[rows].astype(np.float64)
        right = features[X.indices[begin:end]].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            total += float(np.sum(xlogy(x, x / np.einsum("pk,pk->p", left, right)) - x))
    return total


@dataclass
class Meter:
    """Clock, peak memory and trajectory of one run."""

    X: sp.csr_array
    before: int  # bytes of the process with X loaded
    seconds: float = 0.0
    peak: int = 0
    points: list[tuple[float, int, float]] = field(default_factory=list)

    @contextmanager
    def timed(self, restart: bool = False) -> Iterator[None]:
        """Measure time and memory of the block; ``restart`` resets the clock to 0 first."""
        settle()
        started = time.perf_counter()
        yield
        elapsed = time.perf_counter() - started
        self.seconds = elapsed if restart else self.seconds + elapsed
        self.peak = max(self.peak, resident("VmHWM") - self.before)

    def snapshot(self, iterations: int, W: Array, H: Array) -> None:
        """Add the divergence of the factors to the trajectory, without timing it."""
        self.points.append((self.seconds, iterations, divergence(self.X, W, H)))


@dataclass(frozen=True)
class Schedule:
    """Length of a run, and whether each snapshot is a separate run from the start."""

    seconds: float
    at_least: int = 0  # iterations to do even if they take longer, within the cap
    from_scratch: bool = False
    cap: float = CAP

    def limit(self, total: int) -> float:
        """Seconds at which a run with this many iterations ends."""
        return self.seconds if total >= self.at_least else max(self.seconds, self.cap)


def next_mark(total: int, from_scratch: bool = False) -> int:
    """Iterations of the next snapshot: a third more, at most 100 more, and 200 on the way.

    There are few calls, because scikit-learn and torchnmf compute an unneeded loss in each. They
    are close enough to notice soon when a target is reached. From scratch: twice as many.

    Examples
    --------
    >>> marks = [1]
    >>> while marks[-1] < 400:
    ...     marks.append(next_mark(marks[-1]))
    >>> marks
    [1, 5, 7, 10, 14, 19, 26, 35, 47, 63, 84, 112, 150, 200, 267, 356, 456]
    """
    if total <= 1:
        return 5 if total else 1  # the first tells how long an iteration takes
    following = 2 * total if from_scratch else total + min((total + 2) // 3, LARGEST_STEP)
    return LANDMARK if total < LANDMARK < following else following


def next_total(total: int, elapsed: float, schedule: Schedule) -> int | None:
    """Iterations in all after the next timed part, cut to what the time allows; None: it is over.

    ``elapsed`` is how long the ``total`` iterations took.
    """
    limit = schedule.limit(total)
    # Doing it all again for the last tenth would tell nothing new.
    if elapsed >= (0.9 * limit if schedule.from_scratch else limit):
        return None
    following = next_mark(total, schedule.from_scratch)
    if total == 0:
        return following
    affordable = math.ceil((limit - elapsed) * total / elapsed)
    return min(following, total + affordable)
