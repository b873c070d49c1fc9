"""Algorithms, all on the same row problem and the same loop; the one table of names."""

from klnmf.solvers.base import Solver
from klnmf.solvers.coordinate_descent import PaperCoordinateDescent, SparseCoordinateDescent
from klnmf.solvers.dense_descent import DenseCyclicDescent
from klnmf.solvers.multiplicative import (
    ExtrapolatedMultiplicativeUpdates,
    MultiplicativeUpdates,
)
from klnmf.support.descriptions import described

SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver
    for solver in (
        SparseCoordinateDescent,
        PaperCoordinateDescent,
        DenseCyclicDescent,
        MultiplicativeUpdates,
        ExtrapolatedMultiplicativeUpdates,
    )
}

__all__ = [
    "SOLVERS",
    "DenseCyclicDescent",
    "ExtrapolatedMultiplicativeUpdates",
    "MultiplicativeUpdates",
    "PaperCoordinateDescent",
    "Solver",
    "SparseCoordinateDescent",
    "make_solver",
]


def make_solver(solver: str | Solver) -> Solver:
    """Solver by name with its default settings, or the instance itself."""
    if isinstance(solver, Solver):
        return solver
    if solver not in SOLVERS:
        raise ValueError(
            f"solver must be one of {list(SOLVERS)} or a Solver, got {described(solver)}."
        )
    return SOLVERS[solver]()
