"""Hsieh and Dhillon's cyclic coordinate descent, which keeps the dense product W Hᵀ."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from klnmf.backends.base import DenseRule, Rule
from klnmf.solvers.base import Problem, Solver, State, alternate
from klnmf.solvers.memory import StoredMemory
from klnmf.support.option_names import option


@dataclass(frozen=True)
class DenseCyclicDescent(Solver):
    """Cyclic coordinate descent with the dense product maintained, for comparison.

    Each coordinate takes projected Newton steps until one changes it by less than half; every step
    updates a whole row of W Hᵀ. No entry falls below 1e-15, so that none is ever exactly 0. There
    is no guard: the objective may rise. The product is kept in float64: in float32 its differences
    drift away from it. Needs memory for n × m numbers.
    """

    name: ClassVar[str] = "ccd"
    rules: ClassVar[frozenset[type[Rule]]] = frozenset({DenseRule})
    never_rises: ClassVar[bool] = False

    # Of Hsieh and Dhillon's code: when a coordinate is left, and the least value of an entry.
    relative_change: ClassVar[float] = 0.5
    floor: ClassVar[float] = 1e-15

    def prepare(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        starts = [np.maximum(factor, self.floor) for factor in problem.download(state.factors)]
        state.factors = problem.upload(starts)
        W, H = (start.astype(np.float64) for start in starts)
        try:
            product = W @ H.T
        except MemoryError as error:
            raise MemoryError(
                f"{option('solver', 'ccd')} keeps the dense product WHᵀ: {error}. Use "
                f"{option('solver', 'srcd')}, whose memory grows with the nonzeros."
            ) from error
        state.memory["product"] = problem.backend.upload(product, 0, np.float64)

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
