"""Extrapolation with restart: half-steps against a factor moved on along its last change.

A half-step keeps the pair (fixed factor it used, factor it solved for), and the value it computes
on the way belongs to exactly that pair. The pair is accepted if this value is no higher than the
one before; otherwise the momentum is dropped and the half-step is done again from the pair that is
kept, without extrapolation, which cannot raise the objective.

At first, until that happens once, both half-steps of an iteration are judged together, by the value
of the second: one value less to compute, and none of the first iterations fails as a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from klnmf.backends.base import GuardedRule
from klnmf.solvers.base import Array, HalfStep, Problem, State
from klnmf.solvers.memory import StoredMemory

# An extrapolated entry keeps at least this share of its value: one that falls to 0 might be the
# last cover of a nonzero, and an entry that wants to be 0 is set to 0 by the next half-step anyway.
KEPT_SHARE = 0.01


@dataclass(frozen=True)
class ExtrapolationWeights:
    """Weight of the last change: grows on success, shrinks on a restart."""

    first: float = 0.5
    largest: float = 0.99
    growth: float = 1.05
    shrinkage: float = 0.75


class Momentum:
    """The factors that the last half-steps solved for, and those before them.

    Four arrays a mode at most are alive: the kept one, the last solved, the one solved before, and
    one to write to; the last three are recycled here.
    """

    def __init__(self, state: State, weights: ExtrapolationWeights) -> None:
        self.weights = weights
        self.weight = weights.first
        self.solved: list[Any] = list(state.factors)
        self.previous: list[Any] = [None, None]
        self.restarted = False  # since the last iteration that went through
        self.has_failed = False  # ever
        self._spare: list[list[Any]] = [[], []]
        self._kept: list[Any] = []  # a pair that is not to be written to

    NUMBERS = ("weight", "restarted", "has_failed")
    ARRAYS = ("solved_W", "solved_H", "previous_W", "previous_H")

    def stored(self) -> StoredMemory:
        """Everything but the arrays to write to; what is None has no entry."""
        arrays = dict(zip(self.ARRAYS, [*self.solved, *self.previous], strict=True))
        return StoredMemory(
            {
                "weight": float(self.weight),
                "restarted": self.restarted,
                "has_failed": self.has_failed,
            },
            {name: array for name, array in arrays.items() if array is not None},
        )

    @classmethod
    def restored(
        cls, state: State, weights: ExtrapolationWeights, stored: StoredMemory
    ) -> Momentum:
        """Momentum of a state whose factors are there already."""
        momentum = cls(state, weights)
        momentum.weight = stored.number("weight", float)
        if not 0 <= momentum.weight <= max(weights.first, weights.largest):
            raise ValueError(f"the solver's weight is {momentum.weight}")
        momentum.restarted = stored.number("restarted", bool)
        momentum.has_failed = stored.number("has_failed", bool)
        for mode, letter in enumerate("WH"):
            like = state.factors[mode].shape, state.factors[mode].dtype
            momentum.solved[mode] = stored.array(f"solved_{letter}", *like)
            if f"previous_{letter}" in stored.arrays:
                momentum.previous[mode] = stored.array(f"previous_{letter}", *like)
        return momentum

    def arrays(self, mode: int) -> list[Any]:
        """Every array of a mode that belongs to the state, apart from the kept factor."""
        return [array for array in (self.solved[mode], self.previous[mode]) if array is not None]

    def iterate(
        self, problem: Problem, state: State, rule: GuardedRule, extrapolate: bool
    ) -> float:
        """Solve for W and then for H, keep the better pairs; returns the largest residual met."""
        violation = None
        if extrapolate and not self.has_failed and self.previous[1] is not None:
            violation = self._try_both(problem, state, rule)
        if violation is None:
            # The value in between is for the test of an extrapolated half-step only.
            rule_of_W = replace(rule, want_value=extrapolate)
            of_W = self.half_step(problem, state, 0, rule_of_W, extrapolate)
            of_H = self.half_step(problem, state, 1, rule, extrapolate)
            violation = max(of_W.violation, of_H.violation)
        if not self.restarted:
            # The momentum is trusted more after an iteration without a restart.
            self.weight = min(self.weights.largest, self.weight * self.weights.growth)
        self.restarted = False
        return violation

    def half_step(
        self, problem: Problem, state: State, mode: int, rule: GuardedRule, extrapolate: bool = True
    ) -> HalfStep:
        """Solve for the factor of ``mode`` and keep the better pair; returns the step kept."""
        if extrapolate and self.previous[1 - mode] is not None:
            step = self._try(problem, state, mode, rule, self._extrapolated(problem, mode))
            if step is not None:
                return step
            self._restart(state)
        step = self._try(problem, state, mode, rule, None)
        assert step is not None
        return step

    def _restart(self, state: State) -> None:
        self.weight *= self.weights.shrinkage
        self.restarted = self.has_failed = True
        self._drop_momentum(state)

    def _try_both(self, problem: Problem, state: State, rule: GuardedRule) -> float | None:
        """Both half-steps against moved factors; None, after a restart, if the pair would be worse.

        The same steps as two calls of ``half_step`` whose first pair is kept untested.
        """
        self._give(0, self._forget_previous(0), state)  # W moves along its change in this iteration
        moved_H = self._extrapolated(problem, 0)
        W, moved_W = self._take(problem, 0), self._take(problem, 0)
        problem.backend.copy_into(W, state.factors[0])
        of_W = problem.update(0, W, moved_H, replace(rule, want_value=False))
        problem.backend.extrapolate(W, self.solved[0], self.weight, KEPT_SHARE, moved_W)
        H = self._take(problem, 1)
        problem.backend.copy_into(H, moved_H)
        of_H = problem.update(1, H, moved_W, rule)
        if not of_H.objective <= state.objective:
            for mode, unused in ((0, W), (0, moved_W), (1, H), (1, moved_H)):
                self._give(mode, unused)
            self._restart(state)
            return None
        old_kept, old_previous = state.factors, self._forget_previous(1)
        self.previous, self.solved = self.solved, [W, H]
        state.factors, state.objective = [moved_W, H], of_H.objective
        self._give(0, old_kept[0], state)
        for released in (old_kept[1], old_previous, moved_H):
            self._give(1, released, state)
        return max(of_W.violation, of_H.violation)

    def _forget_previous(self, mode: int) -> Any:
        forgotten, self.previous[mode] = self.previous[mode], None
        return forgotten

    def _extrapolated(self, problem: Problem, mode: int) -> Any:
        other = 1 - mode
        target = self._take(problem, other)
        problem.backend.extrapolate(
            self.solved[other], self.previous[other], self.weight, KEPT_SHARE, target
        )
        return target

    def _try(
        self, problem: Problem, state: State, mode: int, rule: GuardedRule, moved: Any
    ) -> HalfStep | None:
        """Half-step against ``moved`` (None: the kept factor); None if the pair would be worse."""
        other = 1 - mode
        x = self._take(problem, mode)
        problem.backend.copy_into(x, state.factors[mode])
        step = problem.update(mode, x, state.factors[other] if moved is None else moved, rule)
        if moved is not None and not step.objective <= state.objective:
            self._give(mode, x)
            self._give(other, moved)
            return None
        old_kept, old_previous = list(state.factors), self.previous[mode]
        self.previous[mode], self.solved[mode] = self.solved[mode], x
        # From here on the new pair is the state: one assignment, so that an interrupt finds one
        # pair.
        pair = list(state.factors)
        pair[mode] = x
        if moved is not None:
            pair[other] = moved
        state.factors, state.objective = pair, step.objective
        for released in (old_kept[mode], old_previous):
            self._give(mode, released, state)
        self._give(other, old_kept[other], state)
        return step

    def _drop_momentum(self, state: State) -> None:
        for mode in (0, 1):
            dropped = self.arrays(mode)
            self.solved[mode], self.previous[mode] = state.factors[mode], None
            for array in dropped:
                self._give(mode, array, state)

    def _take(self, problem: Problem, mode: int) -> Any:
        """Return an array of that mode to write to."""
        spare = self._spare[mode]
        return spare.pop() if spare else problem.backend.copy(self.solved[mode])

    @contextmanager
    def kept_as_it_is(self, state: State) -> Iterator[None]:
        """Leave the arrays of the present pair alone, even where the state has got a new one."""
        self._kept = list(state.factors)
        yield
        kept, self._kept = self._kept, []
        for mode, array in enumerate(kept):
            self._give(mode, array, state)

    def _give(self, mode: int, array: Any, state: State | None = None) -> None:
        """Take back an array that nothing uses any more."""
        if array is None:
            return
        used = [*self.arrays(mode), *self._spare[mode], *self._kept]
        if state is not None:
            used.append(state.factors[mode])
        if not any(array is other for other in used):
            self._spare[mode].append(array)

    def widen(self, problem: Problem, state: State) -> None:
        """Bring the pair to the type of the data; the momentum is dropped."""
        self.release(state)
        dtype = problem.backend.data.dtype
        state.factors = [problem.backend.converted(factor, dtype) for factor in state.factors]
        self.solved = list(state.factors)

    def release(self, state: State) -> None:
        """Drop the momentum and free its memory; what it learnt about its weight stays."""
        self.solved, self.previous, self._spare = list(state.factors), [None, None], [[], []]

    def rescaled(self, problem: Problem, state: State, scales: tuple[Array, Array]) -> None:
        """Scale the columns of the kept pair and of the momentum.

        The pair is replaced in one assignment, so that an interrupt finds the old one or the new.
        """
        pair = []
        for mode in (0, 1):
            factor = self._take(problem, mode)
            problem.backend.copy_into(factor, state.factors[mode])
            problem.backend.scale_columns(factor, scales[mode])
            pair.append(factor)
        old_pair, state.factors = state.factors, pair
        for mode in (0, 1):
            if self.solved[mode] is old_pair[mode]:
                self.solved[mode] = pair[mode]
            for array in self.arrays(mode):
                if array is not pair[mode] and array is not old_pair[mode]:
                    problem.backend.scale_columns(array, scales[mode])
            if self.previous[mode] is old_pair[mode]:
                self.previous[mode] = None
            self._give(mode, old_pair[mode], state)
