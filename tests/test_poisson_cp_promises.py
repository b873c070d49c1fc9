"""What holds for any tensor: the objective never rises, and the gap is a bound."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from klnmf import PoissonCP, RunOptions, SparseTensor
from klnmf.backends.base import Improve, Multiply, Solve
from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import Penalties
from klnmf.data.tensor_data import TensorData
from klnmf.simulate import simulate_tensor
from klnmf.solvers.base import Problem
from klnmf.solvers.start import start_state
from strategies import efforts, for_all

Array = np.ndarray
# Shares of the total, as in the promises of matrices.
ROUNDING = {"float64": 1e-12, "float32": 2e-8}


@dataclass(frozen=True)
class TensorCase:
    """A small tensor, the rank, and what is said of the fit."""

    X: SparseTensor
    rank: int
    start: list[Array] | None
    penalties: dict[str, Any]
    given: dict[str, Any] = field(default_factory=dict)

    def model(self, **parameters: Any) -> PoissonCP:
        defaults = {"random_state": 0, "n_threads": 1, "tol": 0.0, "max_iter": 8}
        return PoissonCP(self.rank, **{**defaults, **self.penalties, **parameters})


VALUES = st.sampled_from([1.0, 1.0, 2.0, 7.0, 0.3, 1e-4, 1e6])


@st.composite
def tensors(draw: st.DrawFn) -> TensorCase:
    """Small tensors with empty slices, modes of one slice, values below 1, and all constraints."""
    d = draw(st.integers(3, 5))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=d, max_size=d)))
    rank = draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_cells = draw(st.integers(1, 25))
    coords = np.array([generator.integers(size, size=n_cells) for size in shape])
    if draw(st.booleans()):
        coords[draw(st.integers(0, d - 1))] = 0  # one slice has all counts
    values = np.array(draw(st.lists(VALUES, min_size=n_cells, max_size=n_cells)), dtype)
    X = SparseTensor(coords, values, shape)
    start = None
    if draw(st.booleans()):
        start = [np.exp(2 * generator.normal(size=(size, rank))) for size in shape]
        for factor in start:
            factor[generator.random(factor.shape) < draw(st.sampled_from([0.0, 0.4]))] = 0
    penalties = {}
    for name in ("l1", "l2"):
        kind = draw(st.sampled_from(["none", "all", "by mode"]))
        if kind != "none":
            levels = generator.choice([0.01, 0.5, 20.0], size=d)
            if kind == "by mode":
                levels[draw(st.integers(0, d - 1))] = 0.0
            penalties[name] = tuple(map(float, levels))
    return TensorCase(X, rank, start, penalties, _constraints(draw, generator, shape, rank))


def _constraints(
    draw: st.DrawFn, generator: np.random.Generator, shape: tuple[int, ...], rank: int
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if draw(st.booleans()):
        given["weights"] = [
            generator.choice([0.5, 1.0, 3.0], size=size) if draw(st.booleans()) else None
            for size in shape
        ]
    if draw(st.booleans()):
        given["exposure"] = generator.choice([0.2, 1.0, 5.0], size=shape[0])
    if draw(st.booleans()):
        places = np.array([generator.integers(size, size=5) for size in shape])
        missing = SparseTensor(places, np.ones(5), shape)
        if missing.nnz < math.prod(shape):
            given["missing"] = missing
    known = draw(st.sampled_from(["nothing", "nothing", "fixed", "zeros"]))
    if known == "fixed":
        mode = draw(st.integers(0, len(shape) - 1))
        given["fixed"] = [None] * len(shape)
        given["fixed"][mode] = 0.1 + generator.random((shape[mode], 1))
    if known == "zeros":
        # The last component may be anywhere: every count can be explained.
        given["zeros"] = [
            (generator.random((size, rank)) < 0.3) & (np.arange(rank) < rank - 1) for size in shape
        ]
    return given


def histories(case: TensorCase, **parameters: Any) -> list[float] | None:
    """The objective of every iteration, or None for data that a fit may refuse."""
    model = case.model(**parameters)
    start = None if case.start is None else [factor.copy() for factor in case.start]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(case.X, start=start, **case.given)
    for factor in model.factors_:
        assert np.isfinite(factor).all()
        assert (factor >= 0).all()
    return [record["objective"] for record in model.history_]


def check_never_rises(case: TensorCase, solver: str) -> None:
    objectives = np.array(histories(case, solver=solver))
    assert np.isfinite(objectives).all()
    weights = [np.max(w) for w in case.given.get("weights", []) if w is not None]
    scale = case.X.total * float(np.prod(weights)) + np.abs(objectives).max()
    rises = np.diff(objectives) / scale
    assert rises.max(initial=0.0) <= ROUNDING[case.X.dtype.name], objectives


@pytest.mark.parametrize("solver", ["srcd", "mu"])
@efforts(quick=50, thorough=5000)
def test_the_objective_never_rises(solver: str, n_examples: int) -> None:
    def check(case: TensorCase) -> None:
        check_never_rises(case, solver)

    for_all(check, n_examples, case=tensors())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [3, 4, 5])
@pytest.mark.parametrize("solver", ["srcd", "mu"])
def test_a_long_fit_never_rises(solver: str, d: int, dtype: Any) -> None:
    X = simulate_tensor((25, 15, 8, 6, 4)[:d], 4, n_counts=4000, random_state=d).X
    case = TensorCase(X, 4, None, {})
    objectives = np.array(histories(case, solver=solver, dtype=dtype, max_iter=150))
    rises = np.diff(objectives).max() / X.total
    assert rises <= (1e-14 if dtype == np.float64 else 3e-9)
    assert objectives[-1] < objectives[0]


@pytest.mark.parametrize(
    ("dtype", "tiny"), [(np.float32, 1e-20), (np.float32, 1e-22), (np.float64, 1e-157)]
)
@pytest.mark.parametrize("rule", [Multiply(), Multiply(relaxed=1)], ids=["plain", "relaxed"])
def test_a_vanishing_component_takes_no_other_with_it(rule: Any, dtype: Any, tiny: float) -> None:
    """Its entries are numbers, but their products with those of another mode are hardly any."""
    X = SparseTensor([[0, 0], [0, 1], [0, 0]], np.array([1, 2], dtype), (1, 2, 1))
    problem = Problem(CpuBackend(TensorData(X), 1), Penalties((0.0,) * 3, (0.0,) * 3))
    start = [np.array([[1.0, 1.0]]), np.array([[1.0, tiny]] * 2), np.array([[1.0, tiny]])]
    factors = problem.upload(start)
    before = problem.objective(factors)
    problem.update(0, factors, rule)
    assert np.isfinite(factors[0]).all()
    assert problem.objective(factors) <= before


# ---- the gap -------------------------------------------------------------------------------------


def check_gap_is_a_bound(case: TensorCase, seed: int) -> None:
    """What solving for one mode gains is no more than the gap says, at any factors."""
    X = SparseTensor(case.X.coords, case.X.values.astype(np.float64), case.X.shape)
    d, generator = X.ndim, np.random.default_rng(seed)
    none = (0.0,) * d
    penalties = Penalties(case.penalties.get("l1", none), case.penalties.get("l2", none))
    problem = Problem(CpuBackend(TensorData(X), 1), penalties)
    start = [np.exp(generator.normal(size=(size, case.rank))) for size in X.shape]
    factors = problem.upload(start)
    for steps in (0, 3):
        for _ in range(steps):
            for mode in range(d):
                problem.update(mode, factors, Improve(np.arange(case.rank, dtype=np.int32)))
        evaluation = problem.evaluate(factors)
        gains = []
        for mode in range(d):
            solved = [factor.copy() for factor in factors]
            problem.update(mode, solved, Solve(tolerance=0.0, rounds=200))
            gains.append(evaluation.objective - problem.objective(solved))
        rounding = 1e-9 * (X.total + abs(evaluation.objective))
        assert max(gains) <= evaluation.gap + rounding
        assert min(gains) >= -rounding


@efforts(quick=60, thorough=3000)
def test_the_gap_is_a_bound(n_examples: int) -> None:
    seeds = st.integers(0, 2**32 - 1)
    for_all(check_gap_is_a_bound, n_examples, case=tensors(), seed=seeds)


def test_the_gap_is_nearly_reached_far_from_the_optimum() -> None:
    """So that it is a bound worth having: within a factor of 10 of what solving gains."""
    X = simulate_tensor((25, 15, 8), 4, n_counts=4000, random_state=0).X
    X = SparseTensor(X.coords, X.values.astype(np.float64), X.shape)
    problem = Problem(CpuBackend(TensorData(X), 1), Penalties((0.0,) * 3, (0.0,) * 3))
    generator = np.random.default_rng(0)
    factors = problem.upload([0.1 + generator.random((size, 4)) for size in X.shape])
    evaluation, gains = problem.evaluate(factors), []
    for mode in range(3):
        solved = [factor.copy() for factor in factors]
        problem.update(mode, solved, Solve(tolerance=0.0, rounds=200))
        gains.append(evaluation.objective - problem.objective(solved))
    assert evaluation.gap / 10 < max(gains) <= evaluation.gap


def test_a_fit_that_has_converged_is_within_its_tolerance() -> None:
    X = simulate_tensor((25, 15, 8, 4), 3, n_counts=4000, random_state=0).X
    for tol in (1e-2, 3e-4, 1e-6):
        model = PoissonCP(3, random_state=0, tol=tol, dtype=np.float64, n_threads=1).fit(X)
        assert model.converged_
        assert model.optimality_gap_ <= tol
        start = [f * s for f, s in zip(model.factors_, model.factor_sums_, strict=True)]
        data = TensorData(SparseTensor(X.coords, X.values.astype(np.float64), X.shape))
        problem = Problem(CpuBackend(data, 1), Penalties((0.0,) * 4, (0.0,) * 4))
        evaluation = problem.evaluate(problem.upload(start))
        assert evaluation.objective == pytest.approx(model.divergence_, rel=1e-9)
        assert evaluation.optimality_gap == pytest.approx(
            model.optimality_gap_, rel=1e-3, abs=1e-12
        )


# ---- given starts --------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["srcd", "mu"])
def test_a_given_start_is_never_made_worse(solver: str) -> None:
    """Also one that leaves nonzeros bare, of a cell whose rows are not bare."""
    X = simulate_tensor((20, 12, 6), 3, n_counts=1000, random_state=0).X
    generator = np.random.default_rng(0)
    start = [generator.random((size, 3)) for size in X.shape]
    start[1][:6, 0], start[1][6:, 1:], start[2][:, 0] = 0.0, 0.0, 0.0
    assert not (rates_at(X, start) > 0).all()
    problem = Problem(CpuBackend(TensorData(X), 1), Penalties((0.0,) * 3, (0.0,) * 3))
    given = [factor.astype(X.dtype) for factor in start]
    assert np.isfinite(problem.objective(start_state(problem, 3, "samples", 0, given).factors))
    seen: list[float] = []
    run = RunOptions(callback=lambda record: seen.append(record["objective"]))
    model = PoissonCP(3, random_state=0, n_threads=1, run=run, solver=solver).fit(X, start=start)
    assert len(seen) > 2
    assert np.isfinite(seen).all()
    assert np.diff(seen).max() <= 3e-9 * X.total
    assert math.isfinite(model.divergence_)


def rates_at(X: SparseTensor, factors: list[Array]) -> Array:
    rows = [factor[places] for factor, places in zip(factors, X.coords, strict=True)]
    return np.multiply.reduce(rows).sum(axis=1)
