"""Algorithms, all on the same row problem and the same loop; the one table of names."""

from klnmf.solvers.base import Solver
from klnmf.solvers.coordinate_descent import PaperCoordinateDescent, SparseCoordinateDescent
from klnmf.solvers.dense_descent import DenseCyclicDescent
from klnmf.solvers.multiplicative import (
    ExtrapolatedMultiplicativeUpdates,
    MultiplicativeUpdates,
)

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
]
