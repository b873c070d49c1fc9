"""Multiplicative updates, plain (Lee and Seung) and extrapolated (BMMe)."""

import math
from dataclasses import dataclass
from typing import ClassVar

from klnmf.backends.base import Multiply, Rule
from klnmf.constraints.penalties import factor_name
from klnmf.solvers.base import Met, Problem, Solver, State, alternate
from klnmf.solvers.memory import StoredMemory


@dataclass(frozen=True)
class MultiplicativeUpdates(Solver):
    """Lee and Seung's updates, on the nonzeros only: W_ik ← W_ik S_ik / c_k, then H.

    With L2 penalties the minimiser of the same majoriser takes its place. The objective never
    rises; an entry that is 0 stays 0.
    """

    name: ClassVar[str] = "mu"
    rules: ClassVar[frozenset[type[Rule]]] = frozenset({Multiply})
    never_rises: ClassVar[bool] = True

    def iterate(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        alternate(problem, state, Multiply())


@dataclass(frozen=True)
class ExtrapolatedMultiplicativeUpdates(Solver):
    """Block majorisation-minimisation with extrapolation (BMMe; Hien, Leplat and Gillis).

    Each factor is first moved on by the positive part of its last change, with Nesterov's weights,
    and then updated multiplicatively. The objective may rise for a while.
    """

    name: ClassVar[str] = "bmme"
    rules: ClassVar[frozenset[type[Rule]]] = frozenset({Multiply})
    never_rises: ClassVar[bool] = False

    def prepare(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        state.memory["previous"] = list(state.factors)
        state.memory["t"] = 1.0

    def stored_memory(self, state: State) -> StoredMemory:
        """See :class:`Solver`."""
        previous = zip(_names(state), state.memory["previous"], strict=True)
        return StoredMemory({"t": state.memory["t"]}, dict(previous))

    def restore_memory(self, problem: Problem, state: State, stored: StoredMemory) -> None:
        """See :class:`Solver`."""
        stored.check_names(["t"], _names(state))
        if not 1 <= stored.number("t", float) < math.inf:
            raise ValueError(f"the solver's t is {stored.numbers['t']}")
        state.memory = {
            "previous": [
                stored.array(name, factor.shape, factor.dtype)
                for name, factor in zip(_names(state), state.factors, strict=True)
            ],
            "t": stored.number("t", float),
        }

    def iterate(self, problem: Problem, state: State) -> None:
        """See :class:`Solver`."""
        previous = state.memory["previous"]
        t = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * state.memory["t"] ** 2))
        weight = (state.memory["t"] - 1.0) / t
        state.memory["t"] = t
        state.objective = math.nan
        met = []
        for mode, factor in enumerate(state.factors):
            factors = list(state.factors)
            # keep = 1: only the positive part of the change is extrapolated.
            factors[mode] = problem.backend.extrapolated(factor, previous[mode], weight, keep=1.0)
            step = problem.update(mode, factors, Multiply())
            state.factors, previous[mode] = factors, factor
            met.append(step.met)
        state.met = Met.worst(met)


def _names(state: State) -> list[str]:
    """Names of the previous factors in a file."""
    return [f"previous_{factor_name(mode)}" for mode in range(len(state.factors))]
