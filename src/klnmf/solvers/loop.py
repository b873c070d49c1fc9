"""The one loop: iterate, record, and stop when a rule says so."""

from __future__ import annotations

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from klnmf.constraints.penalties import factor_name
from klnmf.solvers.base import (
    Evaluation,
    Problem,
    Solver,
    State,
    relative_gain,
    relative_gap,
)
from klnmf.solvers.row_solve import RowSolve

Record = dict[str, Any]

# After this many iterations without a fall the objective is as low as rounding lets it become.
STALLED_AFTER = 20


def record_fields(n_modes: int) -> set[str]:
    """Names of what a record holds."""
    zeros = [f"zeros_{factor_name(mode)}" for mode in range(n_modes)]
    figures = ("divergence", "objective", "optimality_gap", "kkt_residual")
    return {"iteration", "seconds", *figures, *zeros}


@dataclass
class Solution:
    """The factors that a fit returns, evaluated in full."""

    factors: list[Any]
    evaluation: Evaluation
    converged: bool


@dataclass
class Run:
    """Iterations of a solver, with a record of each.

    The state, the history, ``n_untold`` and ``next_check`` are all that a run needs to go on later,
    from wherever between two iterations it was left.
    """

    problem: Problem
    solver: Solver
    state: State
    history: list[Record] = field(default_factory=list)
    n_untold: int = 0  # records at the end of the history that the callback has not judged
    next_check: int = 0  # no full evaluation before this iteration
    gain: float = math.inf  # share of the objective that the last iteration gained
    solution: Solution | None = None  # of the present state, if it was evaluated
    is_whole: bool = True  # whether the state is one between two iterations
    before_iteration: Callable[[Run], None] | None = None  # then Ctrl-C waits for whole iterations

    @classmethod
    def started(cls, problem: Problem, solver: Solver, state: State) -> Run:
        """Return a run that is about to begin with this state."""
        solver.prepare(problem, state)
        return cls(problem, solver, state)

    def until(self, *rules: StopRule) -> StopRule:
        """Iterate until one of the rules holds, and return it; they are asked in this order."""
        self.problem.backend.data.prepare()  # once for all iterations, and not the solver's time
        self.solution = None  # the rules may have another tolerance than last time
        while True:
            for rule in rules:
                if rule.holds(self):
                    return rule
            if self.before_iteration is not None:
                self.before_iteration(self)
            with nullcontext() if self.before_iteration is None else held_interrupts():
                self.is_whole, self.solution = False, None
                self._iterate()
                self.is_whole = True

    def _iterate(self) -> None:
        state, problem, before = self.state, self.problem, self.state.objective
        started = time.perf_counter()
        self.solver.iterate(problem, state)
        state.iteration += 1
        state.seconds += time.perf_counter() - started
        if math.isnan(state.objective):
            state.objective = problem.objective(state.factors)
        self.gain = relative_gain(before, state.objective)
        zeros = {
            f"zeros_{factor_name(mode)}": problem.backend.count_zeros(factor)
            / math.prod(factor.shape)
            for mode, factor in enumerate(state.factors)
        }
        self.n_untold += 1
        self.history.append(
            {
                "iteration": state.iteration,
                "seconds": state.seconds,
                "divergence": problem.divergence(state.objective, state.factors),
                "objective": state.objective,
                "optimality_gap": relative_gap(state.met.gap, state.objective),
                "kkt_residual": state.met.violation,
                **zeros,
            }
        )

    @property
    def is_stalled(self) -> bool:
        """Whether the objective has not fallen by more than its rounding for some iterations."""
        if len(self.history) <= STALLED_AFTER:
            return False
        before, after = (self.history[i]["objective"] for i in (-1 - STALLED_AFTER, -1))
        return bool(before - after <= self.problem.rounding(np.float64))

    def finish(self, how: RowSolve, tol: float) -> Solution:
        """Solve for W with the rest as it is, as ``transform`` would, and evaluate all in full.

        The state is left alone: a run that goes on from it is the one that never stopped.
        """
        if self.solution is not None:
            return self.solution
        backend = self.problem.backend
        dtype = backend.data.dtype
        # W is solved for in place; the others are as they are, but in the type of the data.
        factors = [
            factor if mode > 0 and factor.dtype == dtype else backend.copy(factor, dtype)
            for mode, factor in enumerate(self.state.factors)
        ]
        self.problem.update(0, factors, how.rule(dtype, cold=False))
        factors = self.problem.presented(factors, by_size=self.state.was_drawn)
        evaluation = self.problem.evaluate(factors)
        allowed = self.problem.allowed_gap(evaluation.objective, tol, dtype)
        if evaluation.gap > allowed and self.is_stalled:
            sharper = self.problem.gap_by_solving(factors, evaluation.objective)
            most = max(evaluation.objective, 0.0)  # no objective is below 0
            evaluation = evaluation._replace(gap=min(sharper, evaluation.gap, most))
        converged = evaluation.gap <= allowed and math.isfinite(evaluation.objective)
        self.solution = Solution(factors, evaluation, converged)
        return self.solution


class StopRule(ABC):
    """When a run stops; `Run.until` takes any number of these."""

    @abstractmethod
    def holds(self, run: Run) -> bool:
        """Whether to stop here; asked before every iteration."""


@dataclass(frozen=True)
class MaxIterations(StopRule):
    """Stop at this iteration, counted from the start of the state."""

    n_iterations: int

    def holds(self, run: Run) -> bool:
        """See :class:`StopRule`."""
        return run.state.iteration >= self.n_iterations


@dataclass(frozen=True)
class SmallGain(StopRule):
    """Stop after an iteration that gained less than this share of the objective.

    Not while the solver has other ways to go down.
    """

    share: float

    def holds(self, run: Run) -> bool:
        """See :class:`StopRule`."""
        return run.gain < self.share and not run.solver.has_more_to_try(run.state)


# The gap met on the way is 1.2 to 6 times that of the pair which would be returned, W being solved
# for there, and 2.4 times in the median (docs/performance_log.md): from here on it pays to look.
MET_PER_GAP = 2.0


@dataclass(frozen=True)
class SmallGap(StopRule):
    """Stop when no other W and no other H could lower the objective by more than ``tol`` of it.

    That is certain for the factors that would be returned. Not while the solver has other ways to
    go down, which change both.
    """

    tol: float
    row_solve: RowSolve

    def holds(self, run: Run) -> bool:
        """See :class:`StopRule`."""
        state = run.state
        if state.iteration < run.next_check or run.solver.has_more_to_try(state):
            return False
        # The gap met on the way belongs to moving factors: cheap, but no certificate. It is
        # infinite before the first iteration, and NaN for solvers that do not compute it.
        allowed = run.problem.allowed_gap(state.objective, self.tol, state.factors[0].dtype)
        is_far = math.isinf(state.met.gap) or state.met.gap > MET_PER_GAP * allowed
        # No iteration could bring it nearer.
        if is_far and not (self.tol > 0 and run.is_stalled):
            return False
        if run.finish(self.row_solve, self.tol).converged:
            return True
        run.next_check = state.iteration + 1 + state.iteration // 10
        return False


@dataclass(frozen=True)
class CallbackStop(StopRule):
    """Stop when the callback, which gets every record, returns True."""

    callback: Callable[[Record], bool]

    def holds(self, run: Run) -> bool:
        """See :class:`StopRule`."""
        untold = run.history[len(run.history) - run.n_untold :]
        is_over = any([self.callback(record) for record in untold])
        # A run that goes on from a file asks once more about the record that stopped it.
        run.n_untold = int(is_over)
        return is_over


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Delay the first Ctrl-C until the end of the block; a second one takes effect at once.

    This does nothing outside the main thread, or if the user has installed a signal handler.

    >>> with held_interrupts():
    ...     sum(range(10))
    45
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    was_pressed = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal was_pressed
        if was_pressed:
            raise KeyboardInterrupt
        was_pressed = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if was_pressed:
        raise KeyboardInterrupt
