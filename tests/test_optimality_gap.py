"""The certificate: no other W for this H, and no other H for this W, gains more than the gap."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from constraint_cases import RANK, cases_with_known, everything_known, start_run
from constraint_cases import X as COUNTS_OF_KNOWN
from klnmf import KLNMF
from klnmf.backends.base import Improve, Multiply, Solve
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.reference import ReferenceBackend
from klnmf.data.sparse_data import InMemoryData
from klnmf.objective import Penalties, optimality_gap, penalised_objective
from klnmf.simulate import simulate_counts
from klnmf.solvers import SparseCoordinateDescent
from klnmf.solvers.base import ROUNDING_OF_GAPS, Problem, relative_gap
from klnmf.solvers.loop import Run
from strategies import (
    DTYPES,
    PENALTY_SETS,
    Case,
    efforts,
    fit_quietly,
    for_all,
    make_problem,
    penalties,
    random_case,
)

Array = np.ndarray
ROUNDING = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}


def gains(problem: Problem, mode: int, factors: list[Array]) -> list[float]:
    """What the rules find when they work on one factor for long, in units of the objective."""
    rank = factors[0].shape[1]
    before, found = problem.objective(factors), []
    for rule in (
        Solve(0.0, rounds=60),
        Improve(np.arange(rank, dtype=np.int32), rounds=40, passes=4),
    ):
        moved = [factor.copy() for factor in factors]
        problem.update(mode, moved, rule)
        found.append(before - problem.objective(moved))
    return found


def assert_no_rule_gains_more(run: Run) -> None:
    """At the start, and after each of a few iterations."""
    problem, state = run.problem, run.state
    for _ in range(3):
        factors = [factor.copy() for factor in state.factors]
        evaluation = problem.evaluate(factors)
        if math.isfinite(evaluation.objective):
            gaps = [problem._evaluate(mode, factors).gap for mode in range(2)]
            assert 0 <= min(gaps) <= max(gaps) == evaluation.gap < math.inf
            scale = problem.backend.data.total + abs(evaluation.objective)
            rounding = ROUNDING[factors[0].dtype] * scale
            found = [max(gains(problem, mode, factors)) for mode in range(2)]
            assert all(f <= gap + rounding for f, gap in zip(found, gaps, strict=True))
            assert max(found) <= problem.gap_by_solving(factors, evaluation.objective) + rounding
        else:
            assert evaluation.gap == evaluation.optimality_gap == math.inf
        run.solver.iterate(problem, state)
        state.iteration += 1


@efforts(60, 3000)
def test_no_rule_gains_more_than_the_gap(n_examples: int) -> None:
    """With huge and tiny values, zeros, penalties, and everything that may be known of a fit."""

    def check(known: tuple[Case, dict[str, Any]], weights: Penalties) -> None:
        run = start_run(*known, weights, SparseCoordinateDescent())
        if run is not None:
            assert_no_rule_gains_more(run)

    for_all(check, n_examples, known=cases_with_known(), weights=penalties())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weights", PENALTY_SETS.values(), ids=PENALTY_SETS)
@pytest.mark.parametrize("known", [*everything_known(), "all"])
def test_no_rule_gains_more_with_constraints(known: str, weights: Penalties, dtype: type) -> None:
    """Each by itself and all at once: hypothesis seldom draws one that is large enough."""
    everything = everything_known()
    given = everything if known == "all" else {known: everything[known]}
    generator = np.random.default_rng(1)
    X = COUNTS_OF_KNOWN.astype(dtype)
    W, H = (0.1 + generator.random((size, RANK)) for size in X.shape)
    run = start_run(
        Case(X, W.astype(dtype), H.astype(dtype)), given, weights, SparseCoordinateDescent()
    )
    assert run is not None
    assert_no_rule_gains_more(run)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weights", PENALTY_SETS.values(), ids=PENALTY_SETS)
def test_the_gap_of_solved_rows_is_rounding(weights: Penalties, dtype: type) -> None:
    """It is no loose bound: it vanishes where nothing is to be gained."""
    case = random_case((60, 40), 5, seed=3, dtype=dtype)
    problem = make_problem(case.X, weights)
    for mode in range(2):
        factors = [case.W.copy(), case.H.copy()]
        before = problem._evaluate(mode, factors).gap
        problem.update(mode, factors, Solve(0.0, rounds=200))
        after = problem._evaluate(mode, factors).gap
        assert before > 0.01 * case.total
        assert after <= ROUNDING_OF_GAPS * np.finfo(dtype).eps * case.total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", [CpuBackend, ReferenceBackend])
def test_half_steps_meet_the_gap_of_the_factors_they_start_from(backend: Any, dtype: type) -> None:
    case = random_case((40, 30), 4, seed=5, dtype=dtype)
    problem = Problem(backend(InMemoryData(case.X)), PENALTY_SETS["all"])
    order = np.arange(4, dtype=np.int32)
    for mode in range(2):
        expected = problem._evaluate(mode, [case.W, case.H]).gap
        for rule in (Improve(order), Multiply(), Solve(1e-6)):
            factors = [case.W.copy(), case.H.copy()]
            met = problem.update(mode, factors, rule).met.gap
            assert met == pytest.approx(expected, rel=1e-4 if dtype == np.float32 else 1e-12)


def test_the_specification_bounds_what_dense_formulas_find() -> None:
    generator = np.random.default_rng(0)
    X = generator.poisson(2.0, size=(6, 9)).astype(float)
    W, H = generator.random((6, 3)), generator.random((9, 3))
    gap, best = optimality_gap(X, W, H.T), W.copy()
    here = penalised_objective(X, W, H.T)
    for _ in range(3000):
        best *= (X / (best @ H.T)) @ H / H.sum(axis=0)
    gained = (here - penalised_objective(X, best, H.T)) / here
    assert 0.1 < gained <= gap
    scaled = W * [2, 3, 4], (H / [2, 3, 4]).T
    assert optimality_gap(X, *scaled) == pytest.approx(gap)  # free of scales
    W[0] = 0
    assert optimality_gap(X, W, H.T) == np.inf
    assert optimality_gap(np.zeros((6, 9)), 0 * W, H.T) == 0


def test_relative_gaps() -> None:
    assert relative_gap(2.0, -8.0) == 0.25
    assert relative_gap(0.0, 0.0) == 0
    assert relative_gap(1e-9, 0.0) == relative_gap(math.inf, math.inf) == math.inf
    assert relative_gap(math.nan, 1.0) is math.nan


# ---- fits ---------------------------------------------------------------------------------------

COUNTS = simulate_counts(120, 80, 4, counts_per_sample=150, random_state=0).X


@pytest.mark.parametrize("solver", ["srcd", "bmme", "srcd-paper"])
def test_a_fit_that_converged_has_the_gap_it_says(solver: str) -> None:
    W, model = fit_quietly(
        COUNTS, n_components=4, solver=solver, random_state=0, max_iter=2000, dtype=np.float64
    )
    assert model.converged_
    expected = optimality_gap(COUNTS, W, model.components_)
    assert model.optimality_gap_ == pytest.approx(expected, rel=1e-6)
    assert model.optimality_gap_ <= model.tol
    met = [record["optimality_gap"] for record in model.history_]
    assert np.isnan(met).all() if solver == "srcd-paper" else np.isfinite(met).all()


def test_a_smaller_tolerance_ends_lower() -> None:
    settings = {"n_components": 4, "random_state": 0}
    fits = [fit_quietly(COUNTS, tol=tol, **settings)[1] for tol in (1e-2, 1e-3, 1e-6)]
    for name in ("optimality_gap_", "divergence_"):
        figures = [getattr(fit, name) for fit in fits]
        assert figures == sorted(figures, reverse=True)
    for fit in fits[:2]:
        assert fit.divergence_ / fits[2].divergence_ - 1 <= fit.tol


def nearly_exact(scale: float) -> sp.csr_array:
    generator = np.random.default_rng(0)
    means = generator.random((60, 3)) @ generator.random((3, 40))
    return sp.csr_array(generator.poisson(scale * means).astype(float))


@pytest.mark.parametrize("scale", [1e6, 1e9])
def test_a_fit_of_large_counts_converges_where_its_objective_stalls(scale: float) -> None:
    """The objective is a share of 1e-7 or 1e-10 of Σ X: what is left to gain is lost in it."""
    X = nearly_exact(scale)
    W, model = fit_quietly(X, n_components=3, random_state=0, dtype=np.float64)
    assert model.divergence_ < 1e-6 * X.sum()
    assert model.converged_
    assert model.n_iter_ < model.max_iter
    assert model.optimality_gap_ <= model.tol
    assert optimality_gap(X, W, model.components_) > model.tol  # hundreds of iterations further
    factors = [W, np.ascontiguousarray(model.components_.T)]
    problem, rounding = make_problem(X), ROUNDING[np.dtype(np.float64)] * X.sum()
    for mode in range(2):
        allowed = model.optimality_gap_ * model.divergence_ + rounding
        assert max(gains(problem, mode, factors)) <= allowed


def test_the_gap_by_solving_falls_with_the_square_of_the_distance() -> None:
    problem = make_problem(nearly_exact(10.0))
    W, model = fit_quietly(nearly_exact(10.0), n_components=3, tol=1e-9, dtype=np.float64)
    sharper, coarse = [], []
    for distance in (1e-2, 1e-4):
        noise = 1 + distance * np.random.default_rng(1).standard_normal((40, 3))
        factors = [W, model.components_.T * noise]
        coarse.append(problem._evaluate(1, factors).gap)
        sharper.append(problem.gap_by_solving(factors, problem.objective(factors)))
    assert coarse[0] / coarse[1] == pytest.approx(1e2, rel=0.5)
    assert sharper[0] / sharper[1] == pytest.approx(1e4, rel=0.5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_exact_fit_converges_by_rounding(dtype: type) -> None:
    """Its objective is nearly 0, and no share of that is a gap that could be reached."""
    generator = np.random.default_rng(2)
    X = sp.csr_array(generator.integers(1, 9, (30, 1)) * generator.integers(1, 9, (1, 20)) * 1.0)
    _, model = fit_quietly(X.astype(dtype), n_components=1, random_state=0)
    assert model.converged_
    gap = model.optimality_gap_ * abs(model.divergence_)
    assert gap <= ROUNDING_OF_GAPS * np.finfo(dtype).eps * X.sum() or model.optimality_gap_ == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        endless = KLNMF(1, random_state=0, tol=0, max_iter=12, n_threads=1).fit(X.astype(dtype))
    assert endless.n_iter_ == 12 or endless.optimality_gap_ == 0


@pytest.mark.parametrize("seed", [63, 88, 297])
def test_a_perfect_fit_has_converged(seed: int) -> None:
    """No objective is below 0, so that one of 0 has no gap."""
    model = KLNMF(2, random_state=seed).fit(np.ones((4, 3)))
    assert model.converged_
    assert model.n_iter_ < model.max_iter
    assert model.divergence_ == pytest.approx(0.0, abs=1e-13)
