"""The solve for one factor with the others fixed: what `transform` does, and how a fit ends."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from klnmf.backends.base import Solve
from klnmf.solvers.base import Problem
from klnmf.solvers.initialization import ZeroRows
from klnmf.support.array_types import Array

# Residual that nearly every row reaches, in units of the rounding of its type.
ROUNDING_OF_RESIDUALS = 16


@dataclass(frozen=True)
class RowSolve:
    """How far the row problems of a factor are solved."""

    tolerance: float
    rounds: int = 50  # steps of Newton's method at most
    relaxed: int = 6  # over-relaxed multiplicative steps before them, without a start

    def rule(self, dtype: np.dtype[Any], *, cold: bool) -> Solve:
        """Return the rule of such a solve, with a tolerance that the type can reach.

        Rows that rounding keeps above their tolerance would go on until their rounds are over.
        """
        tolerance = max(self.tolerance, ROUNDING_OF_RESIDUALS * float(np.finfo(dtype).eps))
        return Solve(tolerance, self.rounds, self.relaxed if cold else 0, cold)


def row_solve_of(tol: float) -> RowSolve:
    """Return how W is solved for at the end of a fit with this tolerance, and in ``transform``.

    Tighter than the fit: fit + transform and fit_transform agree where one solution is best.
    """
    return RowSolve(tolerance=min(1e-5, max(0.01 * tol, 1e-7)))


def solved_rows(problem: Problem, mode: int, factors: list[Any], how: RowSolve) -> Any:
    """Solve for the factor of a mode without a start; its place in ``factors`` is not looked at."""
    data, constraints = problem.backend.data, problem.constraints
    others = [factor for other, factor in enumerate(factors) if other != mode]
    start: Any = ZeroRows(data.shape[mode], others[0].shape[1], data.dtype)
    if constraints.fixed[mode] is not None:
        start = constraints.imposed_on(mode, np.asarray(start))
    factors = list(factors)
    factors[mode] = problem.backend.upload(start, mode)
    problem.update(mode, factors, how.rule(data.dtype, cold=True))
    return factors[mode]


def solved_W(problem: Problem, others: Iterable[Any], how: RowSolve) -> Array:  # noqa: N802
    """Return W, downloaded, for the factors of the other modes in the fit's units."""
    uploaded = (problem.backend.upload(factor, mode) for mode, factor in enumerate(others, 1))
    return problem.backend.download(solved_rows(problem, 0, [None, *uploaded], how))
