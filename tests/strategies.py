"""Problems, starts and penalties that the tests share, drawn at random or by hypothesis."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.exceptions import ConvergenceWarning

from klnmf import KLNMF, RunOptions, backends
from klnmf.backends import make_backend
from klnmf.backends.base import Multiply
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.objective import penalised_objective
from klnmf.solvers import SOLVERS, SparseCoordinateDescent
from klnmf.solvers.base import Problem, State, alternate
from klnmf.solvers.extrapolation import Momentum
from klnmf.solvers.initialization import cover_columns
from klnmf.solvers.loop import MaxIterations, Run, Solution
from klnmf.solvers.multiplicative import MultiplicativeUpdates
from klnmf.solvers.row_solve import RowSolve

Array = np.ndarray
DTYPES = (np.float32, np.float64)
PENALTY_SETS = {
    "none": NO_PENALTIES,
    "l1_W": Penalties.of_matrix(l1_W=0.7),
    "l2_W": Penalties.of_matrix(l2_W=0.3),
    "l1_H": Penalties.of_matrix(l1_H=1.5),
    "l2_H": Penalties.of_matrix(l2_H=0.9),
    "all": Penalties.of_matrix(l1_W=0.7, l2_W=0.3, l1_H=1.5, l2_H=0.9),
}


@dataclass(frozen=True)
class Case:
    """Counts and a pair of factors to start from."""

    X: sp.csr_array
    W: Array
    H: Array

    @property
    def total(self) -> float:
        return float(self.X.data.sum(dtype=np.float64))


# ---- drawn from a seed --------------------------------------------------------------------------


def random_case(
    shape: tuple[int, int],
    rank: int,
    *,
    seed: int = 0,
    dtype: Any = np.float64,
    density: float = 0.5,
    spread: float = 1.0,
    zeros: float = 0.2,
) -> Case:
    """Values and factors without ties: log-normal, with that share of zeros in the factors.

    The first component has none, so that every nonzero is covered.
    """
    generator = np.random.default_rng(seed)
    values = np.exp(generator.normal(size=shape)) * (generator.random(shape) < density)

    def factor(n_rows: int) -> Array:
        entries = np.exp(spread * generator.normal(size=(n_rows, rank)))
        dropped = generator.random((n_rows, rank)) < zeros
        dropped[:, 0] = False
        return np.where(dropped, 0, entries).astype(dtype)

    return Case(sp.csr_array(values.astype(dtype)), factor(shape[0]), factor(shape[1]))


def with_int64_indices(X: sp.csr_array) -> sp.csr_array:
    """The same matrix, with the wide indices that SciPy uses for more than 2³¹ nonzeros."""
    X = X.copy()
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


# ---- drawn by hypothesis ------------------------------------------------------------------------

COUNTS = st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.0, 7.0, 0.3, 1e-9, 1e9])
STARTS = st.sampled_from([0.0, 0.0, 1.0, 0.5, 2.7, 1e-9, 1e-4, 1e5, 1e9])


@st.composite
def cases(draw: st.DrawFn, dtypes: tuple[Any, ...] = DTYPES, max_side: int = 6) -> Case:
    """Small matrices with empty rows and columns, huge and tiny values; starts with zeros too."""
    dtype = draw(st.sampled_from(dtypes))
    n, m = draw(st.integers(1, max_side)), draw(st.integers(1, max_side))
    rank = draw(st.integers(1, 4))
    X = draw(hnp.arrays(np.float64, (n, m), elements=COUNTS))
    W = draw(hnp.arrays(np.float64, (n, rank), elements=STARTS))
    H = draw(hnp.arrays(np.float64, (m, rank), elements=STARTS))
    return Case(sp.csr_array(X.astype(dtype)), W.astype(dtype), H.astype(dtype))


ALL_PENALTIES = [Penalties.of_matrix(*weights) for weights in product((0.0, 0.01, 50.0), repeat=4)]


def penalties() -> st.SearchStrategy[Penalties]:
    """Every combination of no, small and large penalties."""
    return st.sampled_from(ALL_PENALTIES)


def for_all(check: Callable[..., None], n_examples: int, **strategies: Any) -> None:
    """Run a check on many examples: a fixed set of them where they are few, new ones where not."""
    fixed = n_examples <= 200
    property_test = settings(max_examples=n_examples, derandomize=fixed)(given(**strategies)(check))
    property_test()


def efforts(quick: int, thorough: int) -> Any:
    """Parametrise a property test by its number of examples; the larger one is a slow test."""
    slow = pytest.param(thorough, id="thorough", marks=pytest.mark.slow)
    return pytest.mark.parametrize("n_examples", [pytest.param(quick, id="quick"), slow])


# ---- solvers ------------------------------------------------------------------------------------


class RelaxedUpdates(MultiplicativeUpdates):
    """The over-relaxed steps that a fit opens with, one iteration each."""

    def iterate(self, problem: Problem, state: State) -> None:
        alternate(problem, state, Multiply(relaxed=1))


def srcd(momentum: dict[str, float] | None = None, **settings: Any) -> SparseCoordinateDescent:
    """The default solver with other constants, also of its momentum."""
    names = [each.name for each in fields(SparseCoordinateDescent)]
    varied = {name: settings.pop(name) for name in names if name in settings}
    if momentum is not None:
        settings["momentum"] = type("OtherMomentum", (Momentum,), momentum)
    solver: SparseCoordinateDescent = type("OtherDescent", (SparseCoordinateDescent,), settings)(
        **varied
    )
    return solver


NO_MOMENTUM = {"FIRST": 0.0, "LARGEST": 0.0}
NEVER_RISES = {
    **{name: solver() for name, solver in SOLVERS.items() if solver.never_rises},
    "srcd, long opening": srcd(opening=20),
    "the steps of the opening": RelaxedUpdates(),
    "srcd without extrapolation": srcd(NO_MOMENTUM, opening=0),
    "srcd, bold extrapolation": srcd({"FIRST": 0.99}, opening=0, passes=1),
}
ROUNDING = {"float64": 1e-12, "float32": 1e-8}


def rounding_of(problem: Problem) -> float:
    """How much of the data and of the objective a step may lose to rounding."""
    # A GPU sums gradients in float32.
    return 1e-7 if problem.backend.name == "cuda" else ROUNDING[problem.backend.data.dtype.name]


def every_long_run(test: Any) -> Any:
    """Parametrise a test by the solvers that never raise the objective, type and penalties."""
    for mark in (
        pytest.mark.parametrize("solver", NEVER_RISES.values(), ids=NEVER_RISES),
        pytest.mark.parametrize("dtype", DTYPES),
        pytest.mark.parametrize("weights", PENALTY_SETS.values(), ids=PENALTY_SETS),
    ):
        test = mark(test)
    return test


# ---- fits ---------------------------------------------------------------------------------------


def default_backend(dtype: Any) -> str:
    """The back-end of tests that do not name one: "cpu" or, for float32 under --cuda, "cuda"."""
    is_cuda = "cuda or cpu" in backends.BACKENDS and np.dtype(dtype) == np.float32
    return "cuda" if is_cuda else "cpu"


def make_problem(
    X: sp.csr_array,
    penalties: Penalties = NO_PENALTIES,
    *,
    backend: str | None = None,
    n_threads: int = 1,
) -> Problem:
    data = InMemoryData(check_counts(X))
    made = make_backend(backend or default_backend(data.dtype), data, n_threads)
    return Problem(made, penalties)


def objective_of(X: Any, factors: Any, penalties: Penalties = NO_PENALTIES) -> float:
    """The penalised objective of factors as solvers hold them: H is m × r."""
    return penalised_objective(X, factors[0], factors[1].T, penalties)


def start_run(
    case: Case,
    solver: Any = "srcd",
    penalties: Penalties = NO_PENALTIES,
    *,
    n_threads: int = 1,
    seed: int = 0,
    was_drawn: bool = False,
) -> Run:
    """A fit that is about to start from the pair of the case, as the estimator would prepare it."""
    problem = make_problem(case.X, penalties, n_threads=n_threads)
    H = np.array(case.H, dtype=problem.backend.data.dtype)
    cover_columns(H, problem.backend.data.view(1))
    return Run.started(
        problem,
        SOLVERS[solver]() if isinstance(solver, str) else solver,
        State(problem.upload([case.W, H]), seed, was_drawn=was_drawn),
    )


def solution_after(run: Run, n_iterations: int) -> Solution:
    """What the fit would return at this iteration."""
    run.until(MaxIterations(n_iterations))
    return run.finish(RowSolve(tolerance=1e-10), tol=0.0)


def make_model(*arguments: Any, **parameters: Any) -> KLNMF:
    """Return a KLNMF with these parameters, of which some may be run options."""
    names = RunOptions().get_params()
    options = {name: parameters.pop(name) for name in list(parameters) if name in names}
    return KLNMF(*arguments, run=RunOptions(**options) if options else None, **parameters)


def fit_quietly(X: Any, **settings: Any) -> tuple[Array, KLNMF]:
    """W and the fitted model, whether it converged or not."""
    model = settings.pop("model", None) or KLNMF(**{"n_threads": 1, **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit_transform(X), model


def same_bits(*arrays: Array) -> bool:
    """Whether all arrays hold the same bytes, in the same shape and type."""
    described = [(array.shape, array.dtype, array.tobytes()) for array in arrays]
    return all(description == described[0] for description in described)
