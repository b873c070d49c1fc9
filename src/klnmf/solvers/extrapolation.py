"""Extrapolation with restart: half-steps against factors moved on along their last change.

A half-step keeps the fixed factors that it used and the factor that it solved for; the value that
it computes on the way belongs to exactly these. They are accepted if this value is no higher than
the one before. Otherwise the momentum is dropped and the half-step is done again from the factors
that are kept, without extrapolation, which cannot raise the objective.

At first, until that happens once, all half-steps of an iteration are judged together, by the value
of the last: fewer values to compute, and none of the first iterations fails as a rule. Where a
value costs a pass over the data, they always are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from klnmf.backends.base import Improve
from klnmf.constraints.penalties import factor_name
from klnmf.solvers.base import HalfStep, Met, Problem, State
from klnmf.solvers.memory import StoredMemory
from klnmf.support.array_types import Array

# An extrapolated entry keeps at least this share of its value: one that falls to 0 might be the
# last cover of a nonzero, and an entry that wants to be 0 is set to 0 by the next half-step anyway.
KEPT_SHARE = 0.01


class Momentum:
    """The factors that the last half-steps solved for, and those before them.

    Half-steps write to none of them, nor to the state's factors: they make new ones. At most four
    arrays per mode are alive: the kept one, the last solved, the one before, and the new one.
    """

    NUMBERS = ("weight", "restarted", "has_failed")
    # The weight of the last change: it grows on success, and shrinks on a restart. From 0.5 to 0.99
    # is the usual range; a faster growth leads to more restarts than it saves iterations.
    FIRST, LARGEST = 0.5, 0.99
    GROWTH, SHRINKAGE = 1.05, 0.75

    def __init__(self, state: State) -> None:
        self.weight = self.FIRST
        self.restarted = False  # since the last iteration that went through
        self.has_failed = False  # ever
        self.release(state)

    def release(self, state: State) -> None:
        """Drop the momentum and free its memory; what it learnt about its weight stays."""
        self.solved: list[Any] = list(state.factors)
        self.previous: list[Any] = [None for _ in state.factors]

    @staticmethod
    def array_names(n_modes: int) -> list[str]:
        """Names of the arrays in a file, in the order of `solved` and `previous`."""
        modes = range(n_modes)
        return [f"{kind}_{factor_name(mode)}" for kind in ("solved", "previous") for mode in modes]

    def stored(self) -> StoredMemory:
        """Everything, for a file; what is None has no entry."""
        arrays = zip(
            self.array_names(len(self.solved)), [*self.solved, *self.previous], strict=True
        )
        return StoredMemory(
            {
                "weight": float(self.weight),
                "restarted": self.restarted,
                "has_failed": self.has_failed,
            },
            {name: array for name, array in arrays if array is not None},
        )

    @classmethod
    def restored(cls, state: State, stored: StoredMemory) -> Momentum:
        """Momentum of a state whose factors are already set."""
        momentum = cls(state)
        momentum.weight = stored.number("weight", float)
        if not 0 <= momentum.weight <= max(cls.FIRST, cls.LARGEST):
            raise ValueError(f"the solver's weight is {momentum.weight}")
        momentum.restarted = stored.number("restarted", bool)
        momentum.has_failed = stored.number("has_failed", bool)
        for mode, factor in enumerate(state.factors):
            name, like = factor_name(mode), (factor.shape, factor.dtype)
            momentum.solved[mode] = stored.array(f"solved_{name}", *like)
            if f"previous_{name}" in stored.arrays:
                momentum.previous[mode] = stored.array(f"previous_{name}", *like)
        return momentum

    def arrays(self, mode: int) -> list[Any]:
        """Every array of a mode that belongs to the state, apart from the kept factor."""
        return [array for array in (self.solved[mode], self.previous[mode]) if array is not None]

    def iterate(self, problem: Problem, state: State, rule: Improve, extrapolate: bool) -> Met:
        """Solve for one factor after the other, keep what is better; returns what was met.

        A value in between is for the test of an extrapolated half-step only.
        """
        met, is_costly = None, problem.backend.values_cost_a_pass
        can_move = all(array is not None for array in self.previous[1:])
        if extrapolate and can_move and (is_costly or not self.has_failed):
            met = self._try_together(problem, state, rule)
        if met is None:
            extrapolate &= not is_costly
            last = len(state.factors) - 1
            rules = [replace(rule, want_value=extrapolate)] * last + [rule]
            met = Met.worst(
                self.half_step(problem, state, mode, its_rule, extrapolate).met
                for mode, its_rule in enumerate(rules)
            )
        if not self.restarted:
            # The momentum is trusted more after an iteration without a restart.
            self.weight = min(self.LARGEST, self.weight * self.GROWTH)
        self.restarted = False
        return met

    def half_step(
        self, problem: Problem, state: State, mode: int, rule: Improve, extrapolate: bool = True
    ) -> HalfStep:
        """Solve for the factor of ``mode``, keep the better factors; returns the step kept."""
        moved = self._moved_others(problem, mode) if extrapolate else {}
        if moved:
            step = self._try(problem, state, mode, rule, moved)
            if step is not None:
                return step
            self._restart(state)
        step = self._try(problem, state, mode, rule, {})
        assert step is not None
        return step

    def _restart(self, state: State) -> None:
        self.weight *= self.SHRINKAGE
        self.restarted = self.has_failed = True
        self.release(state)

    def _try_together(self, problem: Problem, state: State, rule: Improve) -> Met | None:
        """All half-steps against moved factors; None, after a restart, if that would be worse.

        The same steps as calls of ``half_step`` whose results are kept untested, but for the last.
        """
        self.previous[0] = None  # the first factor moves along its change in this iteration
        factors = [state.factors[0], *self._moved_others(problem, 0).values()]
        last, steps, solved = len(factors) - 1, [], []
        for mode in range(last + 1):
            factors[mode] = problem.backend.copy(factors[mode])
            step = problem.update(mode, factors, replace(rule, want_value=mode == last))
            steps.append(step)
            solved.append(factors[mode])
            if mode < last:
                factors[mode] = self._moved(problem, factors[mode], self.solved[mode])
        if not step.objective <= state.objective:
            self._restart(state)
            return None
        self.previous, self.solved = self.solved, solved
        state.factors, state.objective = factors, step.objective
        return Met.worst(step.met for step in steps)

    def _moved_others(self, problem: Problem, mode: int) -> dict[int, Any]:
        """Factors of the other modes, moved on along their last change, where they have one."""
        return {
            other: self._moved(problem, self.solved[other], previous)
            for other, previous in enumerate(self.previous)
            if other != mode and previous is not None
        }

    def _moved(self, problem: Problem, newest: Any, previous: Any) -> Any:
        return problem.backend.extrapolated(newest, previous, self.weight, KEPT_SHARE)

    def _try(
        self, problem: Problem, state: State, mode: int, rule: Improve, moved: dict[int, Any]
    ) -> HalfStep | None:
        """Half-step against kept and ``moved`` factors; None if those would be worse."""
        factors = [moved.get(other, factor) for other, factor in enumerate(state.factors)]
        factors[mode] = problem.backend.copy(state.factors[mode])
        step = problem.update(mode, factors, rule)
        if moved and not step.objective <= state.objective:
            return None
        self.previous[mode], self.solved[mode] = self.solved[mode], factors[mode]
        # One assignment: an interrupt finds factors that belong together.
        state.factors, state.objective = factors, step.objective
        return step

    def widen(self, problem: Problem, state: State) -> None:
        """Bring the factors to the type of the data; the momentum is dropped."""
        dtype = problem.backend.data.dtype
        state.factors = [problem.backend.copy(factor, dtype) for factor in state.factors]
        self.release(state)

    def rescaled(self, problem: Problem, state: State, scales: Sequence[Array]) -> None:
        """Scale the columns of the kept factors and of the momentum."""
        scaled = problem.backend.scaled
        is_kept = [x is factor for x, factor in zip(self.solved, state.factors, strict=True)]
        state.factors = list(map(scaled, state.factors, scales))
        for mode, (factor, of_mode) in enumerate(zip(state.factors, scales, strict=True)):
            self.solved[mode] = factor if is_kept[mode] else scaled(self.solved[mode], of_mode)
            if self.previous[mode] is not None:
                self.previous[mode] = scaled(self.previous[mode], of_mode)
