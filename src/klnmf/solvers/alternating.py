"""The one outer loop: iterate, record, stop; and the solve for W alone that ends every fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klnmf.backends.base import SolveRule
from klnmf.solvers.base import Evaluation, Problem, Solver, State
from klnmf.starts.initialization import ZeroRows
from klnmf.support.interrupts import held_interrupts

Record = dict[str, Any]
RECORD_FIELDS = frozenset(
    ("iteration", "seconds", "divergence", "objective", "kkt_residual", "zeros_W", "zeros_H")
)

# Residual that nearly every row reaches, in units of the rounding of its type.
ROUNDING_OF_RESIDUALS = 16


@dataclass(frozen=True)
class RowSolve:
    """How far the row problems of W are solved when H is given."""

    tolerance: float
    rounds: int = 50  # steps of Newton's method at most
    relaxed: int = 6  # over-relaxed multiplicative steps before them, where nothing is known of W

    def rule(self, dtype: np.dtype[Any], *, cold: bool) -> SolveRule:
        """Return the rule of such a solve, with a tolerance that the type can reach.

        Rows that rounding keeps above their tolerance would go on until their rounds are over.
        """
        tolerance = max(self.tolerance, ROUNDING_OF_RESIDUALS * float(np.finfo(dtype).eps))
        return SolveRule(tolerance, self.rounds, self.relaxed if cold else 0, cold)


@dataclass(frozen=True)
class StopRule:
    """Stop at this many iterations in all, or once the returned pair's residual is at most tol."""

    max_iter: int
    tol: float


@dataclass
class Solution:
    """The pair a fit returns, judged in full."""

    factors: list[Any]
    evaluation: Evaluation
    converged: bool


@dataclass
class Run:
    """One fit: its state, its history, and whom to tell about each record.

    The state, the history, ``next_check`` and ``is_judged`` are all that a fit which goes on later
    needs to know, wherever between two iterations it was left.
    """

    problem: Problem
    solver: Solver
    state: State
    row_solve: RowSolve
    on_record: Callable[[Record], bool] = lambda record: False  # True stops the fit
    history: list[Record] = field(default_factory=list)
    stopped_early: bool = False  # somebody who was told about a record said stop
    next_check: int = 0  # no full evaluation before this iteration
    is_judged: bool = True  # whether the last iteration was, by the callback and the stop rule
    n_untold: int = 0  # records at the end of the history that nobody was told about
    is_whole: bool = True  # whether the state is one between two iterations
    before_iteration: Callable[[Run], None] | None = None  # then Ctrl-C waits for whole iterations

    def solve(self, stop: StopRule) -> Solution:
        """Iterate until the stop rule holds or somebody says stop."""
        state = self.state
        self.problem.backend.data.prepare()  # once for all iterations, and not the solver's time
        solution: Solution | None = None
        while True:
            if not self.is_judged:
                self.stopped_early = self._tell()
                if self.stopped_early:
                    break
                # The residual met on the way belongs to moving iterates: cheap, no certificate.
                if state.violation <= stop.tol and state.iteration >= self.next_check:
                    solution = self.finish(stop.tol)
                    if solution.converged:
                        break
                    self.next_check = state.iteration + 1 + state.iteration // 10
                self.is_judged = True
            if state.iteration >= stop.max_iter:
                break
            if self.before_iteration is not None:
                self.before_iteration(self)
            solution = None
            with nullcontext() if self.before_iteration is None else held_interrupts():
                self.is_whole = self.is_judged = False
                self._iterate()
                self.is_whole = True
        return solution or self.finish(stop.tol)

    def advance(self, n_iterations: int) -> None:
        """Do some iterations whatever comes of them; `solve` tells of them and judges the last."""
        self.problem.backend.data.prepare()
        for _ in range(n_iterations):
            self._iterate()
        self.is_judged = n_iterations == 0

    def _tell(self) -> bool:
        """Tell of every record that nobody knows; returns whether somebody says stop."""
        untold = self.history[len(self.history) - self.n_untold :]
        self.n_untold = 0
        return any([self.on_record(record) for record in untold])

    def _iterate(self) -> None:
        state, problem = self.state, self.problem
        started = time.perf_counter()
        self.solver.iterate(problem, state)
        state.iteration += 1
        state.seconds += time.perf_counter() - started
        if math.isnan(state.objective):
            state.objective = problem.objective(state.factors)
        sizes = [math.prod(factor.shape) for factor in state.factors]
        self.n_untold += 1
        zeros = [problem.backend.count_zeros(factor) for factor in state.factors]
        self.history.append(
            {
                "iteration": state.iteration,
                "seconds": state.seconds,
                "divergence": problem.divergence(state.objective, state.factors),
                "objective": state.objective,
                "kkt_residual": state.violation,
                "zeros_W": zeros[0] / sizes[0],
                "zeros_H": zeros[1] / sizes[1],
            }
        )

    def finish(self, tol: float) -> Solution:
        """Solve for W with H as it is, as ``transform`` would, and judge the pair in full.

        The state is left alone: a fit that goes on from it is the one that never stopped.
        """
        backend, (W, H) = self.problem.backend, self.state.factors
        dtype = backend.data.dtype
        # W is solved for in place; H is as it is, but in the type of the data.
        W, H = backend.converted(W, dtype), H if H.dtype == dtype else backend.converted(H, dtype)
        solve_rows(self.problem, 0, W, H, self.row_solve)
        evaluation = self.problem.evaluate([W, H])
        converged = evaluation.kkt_residual <= tol and math.isfinite(evaluation.objective)
        return Solution([W, H], evaluation, converged)


def solved_rows(problem: Problem, mode: int, A: Any, how: RowSolve) -> Any:
    """Solve for a factor, with the other one fixed; a start it has not got."""
    data, known = problem.backend.data, problem.known
    start: Any = ZeroRows(data.shape[mode], A.shape[1], data.dtype)
    if known is not None and known.fixed[mode] is not None:
        start = known.with_known(mode, np.asarray(start))
    x = problem.backend.upload(start)
    problem.update(mode, x, A, how.rule(data.dtype, cold=True))
    return x


def solve_rows(problem: Problem, mode: int, x: Any, A: Any, how: RowSolve) -> None:
    """Solve every row problem of a factor, in place, with the other one fixed."""
    problem.update(mode, x, A, how.rule(problem.backend.data.dtype, cold=False))
