"""Hsieh and Dhillon's cyclic coordinate descent, which keeps the dense product W Hᵀ."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from klnmf.backends.base import DenseRule
from klnmf.solvers.base import Problem, Solver, State, alternate
from klnmf.solvers.memory import StoredMemory
from klnmf.support.option_names import option

# Files that hold this process's memory limit in bytes ("max" or a huge number: none).
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_memory() -> int | None:
    """Bytes that a new array could take at most, or None if that is unknown."""
    found: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.extend(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")
        )
    except OSError:
        pass
    for limit in _CGROUP_LIMITS:
        try:
            found.append(int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


@dataclass(frozen=True)
class DenseCyclicDescent(Solver):
    """Cyclic coordinate descent with the dense product maintained, for comparison.

    Each coordinate takes projected Newton steps until one changes it by less than half; every step
    updates a whole row of W Hᵀ. No entry falls below 1e-15, so that none is ever exactly 0. There
    is no guard: the objective may rise. The product is kept in float64: in float32 its differences
    drift away from it. Needs memory for n × m numbers; a MemoryError says so if it is not free.
    """

    name: ClassVar[str] = "ccd"
    rules: ClassVar[tuple[type, ...]] = (DenseRule,)
    never_rises: ClassVar[bool] = False

    relative_change: float = 0.5
    floor: float = 1e-15

    def prepare(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        n, m = problem.backend.data.shape
        needed = n * m * 8
        free = available_memory()
        if free is not None and needed > free:
            raise MemoryError(
                f"{option('solver', 'ccd')} keeps the dense product WHᵀ: {n} × {m} numbers, "
                f"{needed:,} bytes, and about {free:,} are free. Use {option('solver', 'srcd')}, "
                "whose memory grows with the nonzeros."
            )
        starts = [np.maximum(factor, self.floor) for factor in problem.download(state.factors)]
        state.factors = problem.upload(starts)
        W, H = (start.astype(np.float64) for start in starts)
        state.memory["product"] = problem.backend.upload(W @ H.T, np.float64)

    def stored_memory(self, state: State) -> StoredMemory:
        """See :class:`Solver`. The product is W Hᵀ up to rounding alone: it has to be stored."""
        return StoredMemory(arrays={"product": state.memory["product"]})

    def restore_memory(self, problem: Problem, state: State, stored: StoredMemory) -> None:
        """See :class:`Solver`."""
        stored.check_names(arrays=["product"])
        product = stored.array("product", problem.backend.data.shape, np.dtype(np.float64))
        state.memory = {"product": product}

    def iterate(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        rule = DenseRule(state.memory["product"], self.relative_change, self.floor)
        alternate(problem, state, rule)
