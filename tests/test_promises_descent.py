"""The objective never rises and no step overshoots, for any data, start and penalties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st
from scipy.optimize import brentq

from klnmf.backends.base import Improve, Multiply
from klnmf.backends.reference import guarded_step
from klnmf.objective import Penalties, kl_divergence
from klnmf.simulate import simulate_counts
from klnmf.solvers import SparseCoordinateDescent
from klnmf.solvers.base import Problem, State
from strategies import (
    NEVER_RISES,
    PENALTY_SETS,
    Case,
    cases,
    efforts,
    every_long_run,
    fit_quietly,
    for_all,
    make_problem,
    objective_of,
    penalties,
    random_case,
    rounding_of,
    same_bits,
    start_run,
)

Array = np.ndarray


# ---- the objective never rises ------------------------------------------------------------------


def check_never_rises(case: Case, weights: Penalties, solver: Any, n_iterations: int = 6) -> None:
    run = start_run(case, solver, weights)
    state, rounding = run.state, rounding_of(run.problem)
    before = objective_of(case.X, run.problem.download(state.factors), weights)
    for iteration in range(n_iterations):
        run.solver.iterate(run.problem, state)
        state.iteration += 1
        objective = objective_of(case.X, run.problem.download(state.factors), weights)
        slack = rounding * (case.total + abs(objective))
        assert math.isfinite(objective), f"after iteration {iteration + 1}"
        assert objective <= before + slack, f"rose in iteration {iteration + 1}"
        if not math.isnan(state.objective):  # the value that the solver steers by is the true one
            exact = pytest.approx(objective, abs=1e-12 * (case.total + abs(objective)))
            assert state.objective == exact
        before = objective


@efforts(quick=100, thorough=4000)
@pytest.mark.parametrize("solver", NEVER_RISES.values(), ids=NEVER_RISES)
def test_the_objective_never_rises(solver: Any, n_examples: int) -> None:
    for_all(
        lambda case, weights: check_never_rises(case, weights, solver),
        n_examples,
        case=cases(),
        weights=penalties(),
    )


@every_long_run
def test_the_objective_never_rises_in_a_long_run(
    solver: Any, dtype: type, weights: Penalties
) -> None:
    case = random_case((40, 30), 6, seed=1, dtype=dtype, density=0.3, spread=2.0)
    check_never_rises(case, weights, solver, n_iterations=80)


@pytest.mark.parametrize("weights", PENALTY_SETS.values(), ids=PENALTY_SETS)
def test_the_objective_never_rises_from_single_to_double_precision(weights: Penalties) -> None:
    case = random_case((40, 30), 6, seed=1, density=0.3, spread=2.0)
    case.X.data = np.ceil(case.X.data)
    run = start_run(case, penalties=weights, was_drawn=True)
    dtypes, before = [], math.inf
    for _ in range(200):
        run.solver.iterate(run.problem, run.state)
        run.state.iteration += 1
        dtypes.append(run.state.factors[0].dtype.name)
        objective = objective_of(case.X, run.state.factors, weights)
        assert objective <= before + 1e-12 * (case.total + abs(objective))
        if run.state.iteration > 1:  # the opening does not compute it
            assert run.state.objective == pytest.approx(objective, rel=1e-12)
        before = objective
    n_narrow = dtypes.count("float32")
    assert 0 < n_narrow < 100
    assert dtypes == ["float32"] * n_narrow + ["float64"] * (200 - n_narrow)


def test_a_rise_in_single_precision_is_undone_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the iteration did with its arrays; the next one is in double precision."""
    case = random_case((40, 30), 6, seed=1, density=0.3)
    case.X.data = np.ceil(case.X.data)
    run = start_run(case, was_drawn=True)
    for _ in range(4):  # so that there are arrays to recycle
        run.solver.iterate(run.problem, run.state)
        run.state.iteration += 1
    before = [factor.copy() for factor in run.state.factors], run.state.objective
    assert before[0][0].dtype == np.float32
    descend = SparseCoordinateDescent._descend

    def rise(solver: Any, problem: Problem, state: State, momentum: Any) -> None:
        for _ in range(3):
            descend(solver, problem, state, momentum)
        state.objective = math.inf

    monkeypatch.setattr(SparseCoordinateDescent, "_descend", rise)
    assert not run.solver._iterate_narrow(run.problem, run.state)
    assert run.state.objective == before[1]
    assert run.state.factors[0].dtype == np.float64
    for factor, first in zip(run.state.factors, before[0], strict=True):
        assert same_bits(factor.astype(np.float32), first)


def test_single_precision_is_for_data_that_it_holds_and_starts_that_were_drawn() -> None:
    case = random_case((40, 30), 6, seed=1)
    case.X.data = np.ceil(case.X.data)
    assert start_run(case, was_drawn=True).state.factors[0].dtype == np.float32
    assert start_run(case, was_drawn=False).state.factors[0].dtype == np.float64
    case.X.data[3] += 1e-9
    assert start_run(case, was_drawn=True).state.factors[0].dtype == np.float64
    case.X.data[3] = 1e60
    assert start_run(case, was_drawn=True).state.factors[0].dtype == np.float64


def test_a_fit_that_ends_in_single_precision_returns_double() -> None:
    X = simulate_counts(60, 50, 3, random_state=0).X.astype(np.float64)
    W, model = fit_quietly(X, n_components=3, max_iter=1, random_state=0)
    assert W.dtype == model.components_.dtype == np.float64
    assert model.divergence_ == pytest.approx(kl_divergence(X, W, model.components_), rel=1e-12)


@pytest.mark.parametrize(
    "rule",
    [Improve(np.zeros(1, np.int32), passes=1), Multiply()],
    ids=["guarded", "multiplicative"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_half_step_never_rises_at_any_scale_of_a_component(dtype: type, rule: Any) -> None:
    """W is tiny where H is huge, and the other way round; W starts a little to the right."""
    X = sp.csr_array(np.array([[1e-6]], dtype))
    problem = make_problem(X)
    for scale in np.logspace(-18, 18, 289):
        W, H = np.array([[1.003e-6 / scale]], dtype), np.array([[scale]], dtype)
        before = kl_divergence(X, W, H.T)
        factors = problem.upload([W, H])
        problem.update(0, factors, rule)
        after = kl_divergence(X, problem.download(factors)[0], H.T)
        assert after <= before + rounding_of(problem) * X.sum(), f"{scale:.3g}"


def check_first_half_step_is_finite(case: Case, weights: Penalties) -> None:
    for rule in (Improve(np.arange(case.W.shape[1], dtype=np.int32)), Multiply()):
        run = start_run(case, "mu", weights)
        run.problem.update(0, run.state.factors, rule)
        factors = run.problem.download(run.state.factors)
        assert math.isfinite(objective_of(case.X, factors, weights))


@efforts(quick=100, thorough=4000)
def test_the_first_half_step_makes_the_objective_finite(n_examples: int) -> None:
    for_all(check_first_half_step_is_finite, n_examples, case=cases(), weights=penalties())


def test_a_tiny_count_beside_a_huge_one_is_covered_in_single_precision() -> None:
    """Its column is empty in the start, and what it gets there times W is still a float32."""
    counts, H = np.array([[1e9, 0], [0, 1e-9]], np.float32), np.array([[1e-9], [0]], np.float32)
    case = Case(sp.csr_array(counts), np.zeros((2, 1), np.float32), H)
    for l1_W in (0.0, 0.01, 50.0):
        check_first_half_step_is_finite(case, Penalties.of_matrix(l1_W=l1_W))
        check_never_rises(case, Penalties.of_matrix(l1_W=l1_W), "srcd")


# ---- no step overshoots -------------------------------------------------------------------------


def check_step_stays_on_its_side(x: float, c: float, l2: float, seed: int) -> None:
    """One coordinate with y_i = a_i x + rest_i; the minimiser is found by bisection."""
    generator = np.random.default_rng(seed)
    p = int(generator.integers(1, 8))
    v, a = np.exp(generator.normal(0, 3, size=(2, p)))
    rest = np.exp(generator.normal(0, 4, size=p)) * (generator.random(p) < 0.7)
    if x == 0 and not (rest > 0).all():
        return  # not covered: nothing steps from there

    def slope(at: float) -> float:
        return float(c + l2 * at - np.sum(v * a / (a * at + rest)))

    uncovered_at_zero = not (rest > 0).all()
    smallest, largest = 1e-300 if uncovered_at_zero else 0.0, 2 * v.sum() / c
    minimiser = brentq(slope, smallest, largest, xtol=1e-300) if slope(smallest) < 0 else 0.0
    y = a * x + rest
    S, h = float(np.sum(v * a / y)), float(np.sum(v * (a / y) ** 2))
    top = float(np.max(a / y))
    moved = guarded_step(x, S, h, top, c, l2)
    near = 1e-9 * minimiser
    if x < minimiser:
        assert x <= moved <= minimiser + near
    else:
        assert minimiser - near <= moved <= x
        multiplicative = 2 * x * S / (c + math.sqrt(c * c + 4 * l2 * x * S))
        assert moved <= multiplicative * (1 + 1e-9)
    if abs(slope(x)) > 1e-6 * (c + S) and not (x == 0 and minimiser == 0):
        assert moved != x, "no progress"
    if minimiser == 0 and x * top < 1e-6 and slope(0.0) > 1e-5 * c:
        assert moved == 0  # close enough that the bound on S(0) sees it


@efforts(quick=200, thorough=20000)
def test_a_guarded_step_never_passes_the_minimiser(n_examples: int) -> None:
    positive = st.floats(-6, 6).map(lambda exponent: 10.0**exponent)
    for_all(
        check_step_stays_on_its_side,
        n_examples,
        x=st.just(0.0) | positive,
        c=positive,
        l2=st.just(0.0) | positive,
        seed=st.integers(0, 2**32 - 1),
    )
