"""What the design promises, each as a property that must hold for any data, start and penalties."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st
from scipy.optimize import brentq, linear_sum_assignment

from klnmf import KLNMF
from klnmf.backends.base import GuardedRule, MultiplicativeRule
from klnmf.backends.reference import guarded_step
from klnmf.objective import (
    NO_PENALTIES,
    Penalties,
    kkt_residual,
    kl_divergence,
    penalised_objective,
)
from klnmf.simulate import simulate_counts
from klnmf.solvers import SOLVERS, SparseCoordinateDescent
from klnmf.solvers.alternating import StopRule
from klnmf.solvers.base import Problem, State, alternate
from klnmf.solvers.extrapolation import ExtrapolationWeights
from klnmf.solvers.multiplicative import MultiplicativeUpdates
from strategies import (
    PENALTY_SETS,
    Case,
    cases,
    fit_quietly,
    for_all,
    make_problem,
    penalties,
    random_case,
    same_bits,
    start_run,
)

Array = np.ndarray


class RelaxedUpdates(MultiplicativeUpdates):
    """The over-relaxed steps that a fit opens with, one iteration each."""

    def iterate(self, problem: Problem, state: State) -> None:
        alternate(problem, state, MultiplicativeRule(relaxed=1))


NEVER_RISES = {
    **{name: solver() for name, solver in SOLVERS.items() if solver.never_rises},
    "srcd, long opening": SparseCoordinateDescent(opening=20),
    "the steps of the opening": RelaxedUpdates(),
    "srcd without extrapolation": SparseCoordinateDescent(opening=0, extrapolation=None),
    "srcd, bold extrapolation": SparseCoordinateDescent(
        opening=0, sweeps=1, extrapolation=ExtrapolationWeights(first=0.99)
    ),
}
ROUNDING = {"float64": 1e-12, "float32": 1e-8}
BOTH_SIDES = {name: weights for name, weights in PENALTY_SETS.items() if not weights.is_one_sided}


def efforts(quick: int, thorough: int) -> Any:
    """Parametrise a property test by its number of examples; the larger one is a slow test."""
    slow = pytest.param(thorough, id="thorough", marks=pytest.mark.slow)
    return pytest.mark.parametrize("n_examples", [pytest.param(quick, id="quick"), slow])


# ---- the objective never rises ------------------------------------------------------------------


def check_never_rises(case: Case, weights: Penalties, solver: Any, n_iterations: int = 6) -> None:
    run = start_run(case, solver, weights)
    state, rounding = run.state, ROUNDING[case.X.dtype.name]
    before = penalised_objective(case.X, *state.factors, weights)
    for iteration in range(n_iterations):
        run.solver.iterate(run.problem, state)
        state.iteration += 1
        objective = penalised_objective(case.X, *state.factors, weights)
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


@pytest.mark.parametrize("weights", PENALTY_SETS.values(), ids=PENALTY_SETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", NEVER_RISES.values(), ids=NEVER_RISES)
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
        objective = penalised_objective(case.X, *run.state.factors, weights)
        assert objective <= before + 1e-12 * (case.total + abs(objective))
        if run.state.iteration > 1:  # the opening does not compute it
            assert run.state.objective == pytest.approx(objective, rel=1e-12)
        before = objective
    n_narrow = dtypes.count("float32")
    assert 0 < n_narrow < 100
    assert dtypes == ["float32"] * n_narrow + ["float64"] * (200 - n_narrow)


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
    assert model.divergence_ == pytest.approx(kl_divergence(X, W, model.components_.T), rel=1e-12)


@pytest.mark.parametrize(
    "rule",
    [GuardedRule(np.zeros(1, np.int32), sweeps=1), MultiplicativeRule()],
    ids=["guarded", "multiplicative"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_half_step_never_rises_at_any_scale_of_a_component(dtype: type, rule: Any) -> None:
    """W is tiny where H is huge, and the other way round; W starts a little to the right."""
    X = sp.csr_array(np.array([[1e-6]], dtype))
    problem = make_problem(X)
    for scale in np.logspace(-18, 18, 289):
        W, H = np.array([[1.003e-6 / scale]], dtype), np.array([[scale]], dtype)
        before = kl_divergence(X, W, H)
        problem.update(0, W, H, rule)
        assert kl_divergence(X, W, H) <= before + ROUNDING[X.dtype.name] * X.sum(), f"{scale:.3g}"


def check_first_half_step_is_finite(case: Case, weights: Penalties) -> None:
    for rule in (GuardedRule(np.arange(case.W.shape[1], dtype=np.int32)), MultiplicativeRule()):
        run = start_run(case, "mu", weights)
        W, H = run.state.factors
        run.problem.update(0, W, H, rule)
        assert math.isfinite(penalised_objective(case.X, W, H, weights))


@efforts(quick=100, thorough=4000)
def test_the_first_half_step_makes_the_objective_finite(n_examples: int) -> None:
    for_all(check_first_half_step_is_finite, n_examples, case=cases(), weights=penalties())


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


# ---- same bits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_change_no_bit_of_a_fit(solver: str, dtype: type) -> None:
    X = simulate_counts(130, 90, 4, counts_per_sample=60, random_state=0).X.astype(dtype)
    fits = [
        fit_quietly(X, n_components=4, solver=solver, random_state=1, max_iter=8, n_threads=threads)
        for threads in (1, 2, 5)
    ]
    assert same_bits(*(W for W, _ in fits))
    assert same_bits(*(model.components_ for _, model in fits))
    for model in (fits[1][1], fits[2][1]):
        assert model.divergence_ == fits[0][1].divergence_
        assert timeless(model.history_) == timeless(fits[0][1].history_)


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


@pytest.mark.parametrize("solver", SOLVERS)
def test_dense_and_sparse_input_give_the_same_bits(solver: str) -> None:
    X = simulate_counts(50, 40, 3, counts_per_sample=30, random_state=0).X
    settings = {"n_components": 3, "solver": solver, "random_state": 0, "max_iter": 6}
    inputs = (X, X.toarray(), sp.coo_array(X), sp.csc_matrix(X), np.asfortranarray(X.toarray()))
    fits = [fit_quietly(form, **settings) for form in inputs]
    assert same_bits(*(W for W, _ in fits))
    assert same_bits(*(model.components_ for _, model in fits))


@pytest.mark.parametrize("weights", BOTH_SIDES.values(), ids=BOTH_SIDES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_resumed_run_is_the_run_that_never_stopped(solver: str, weights: Penalties) -> None:
    case = random_case((40, 30), 4, seed=2, density=0.3, zeros=0.0)
    whole, parts = start_run(case, solver, weights), start_run(case, solver, weights)
    expected = whole.solve(StopRule(max_iter=20, tol=0.0))
    parts.solve(StopRule(max_iter=10, tol=0.0))
    parts.state = pickle.loads(pickle.dumps(parts.state))  # as from a file
    found = parts.solve(StopRule(max_iter=20, tol=0.0))
    for mode in (0, 1):
        assert same_bits(found.factors[mode], expected.factors[mode])
    assert found.evaluation == expected.evaluation
    assert timeless(parts.history) == timeless(whole.history)
    assert [record["iteration"] for record in whole.history] == list(range(1, 21))


@pytest.mark.parametrize("solver", SOLVERS)
def test_warm_start_goes_on_where_the_last_fit_stopped(solver: str) -> None:
    X = simulate_counts(50, 40, 3, counts_per_sample=30, random_state=0).X
    settings = {"n_components": 3, "solver": solver, "random_state": 0, "tol": 0.0}
    W, whole = fit_quietly(X, **settings, max_iter=20)
    model = KLNMF(**settings, max_iter=10, warm_start=True, n_threads=1)
    fit_quietly(X, model=model)
    history = model.history_
    resumed_W, _ = fit_quietly(X, model=model)
    assert same_bits(resumed_W, W)
    assert same_bits(model.components_, whole.components_)
    assert timeless(history + model.history_) == timeless(whole.history_)
    assert model.n_iter_ == 10
    assert model.divergence_ == whole.divergence_


# ---- symmetries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", NEVER_RISES.values(), ids=NEVER_RISES)
def test_permuting_the_samples_permutes_their_factor(solver: Any) -> None:
    case = random_case((40, 30), 4, seed=3, density=0.4, zeros=0.0, spread=0.5)
    order = np.random.default_rng(0).permutation(40)
    permuted = Case(case.X[order], case.W[order], case.H)
    runs = [start_run(each, solver) for each in (case, permuted)]
    solutions = [run.solve(StopRule(max_iter=6, tol=0.0)) for run in runs]
    W, H = solutions[0].factors
    np.testing.assert_allclose(solutions[1].factors[0], W[order], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(solutions[1].factors[1], H, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("make_rule", [GuardedRule, lambda order: MultiplicativeRule()])
def test_transposing_exchanges_the_factors(make_rule: Any) -> None:
    case, rule = random_case((20, 30), 4, seed=4), make_rule(np.arange(4, dtype=np.int32))
    weights = PENALTY_SETS["all"]
    swapped = Penalties(weights.l1_H, weights.l2_H, weights.l1_W, weights.l2_W)
    problem, mirror = make_problem(case.X, weights), make_problem(sp.csr_array(case.X.T), swapped)
    for mode, (x, A) in enumerate([(case.W, case.H), (case.H, case.W)]):
        here, there = x.copy(), x.copy()
        step = problem.update(mode, here, A, rule)
        mirrored = mirror.update(1 - mode, there, A, rule)
        assert same_bits(here, there)
        assert step.violation == mirrored.violation
    straight, turned = problem.evaluate([case.W, case.H]), mirror.evaluate([case.H, case.W])
    np.testing.assert_allclose(straight, turned, rtol=1e-12)


# ---- what a converged fit is --------------------------------------------------------------------


def converged_fit(
    weights: Penalties = NO_PENALTIES, *, tol: float = 1e-9, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Counts with an empty row and column, and W and H fitted to them to a tight tolerance."""
    X = simulate_counts(30, 25, 3, counts_per_sample=80, random_state=seed).X.toarray() * 1.0
    X[4], X[:, 6] = 0, 0
    model = KLNMF(3, random_state=seed, max_iter=20000, tol=tol, n_threads=1, **vars(weights))
    W = model.fit_transform(X)
    assert model.converged_
    H = model.components_.T
    assert model.kkt_residual_ == pytest.approx(kkt_residual(X, W, H, weights), abs=1e-12)
    assert model.divergence_ == pytest.approx(kl_divergence(X, W, H), rel=1e-12)
    return X, W, H


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_the_fit_are_the_sums_of_the_data(seed: int) -> None:
    X, W, H = converged_fit(seed=seed)
    np.testing.assert_allclose((W @ H.T).sum(axis=1), X.sum(axis=1), rtol=1e-7)
    np.testing.assert_allclose((W @ H.T).sum(axis=0), X.sum(axis=0), rtol=1e-7)
    assert (W[4] == 0).all()
    assert (H[6] == 0).all()


@pytest.mark.parametrize("weights", BOTH_SIDES.values(), ids=BOTH_SIDES)
def test_no_change_of_an_entry_improves_a_converged_fit(weights: Penalties) -> None:
    X, W, H = converged_fit(weights, tol=1e-8)
    assert kkt_residual(X, W, H, weights) <= 1e-8
    best = penalised_objective(X, W, H, weights)
    for factor in (W, H):
        for index in np.ndindex(factor.shape):
            entry = factor[index]
            steps = (1e-3 * entry, -1e-3 * entry) if entry > 0 else (1e-3 * factor.max(),)
            for step in steps:
                factor[index] = entry + step
                assert penalised_objective(X, W, H, weights) >= best - 1e-10 * X.sum()
            factor[index] = entry


@pytest.mark.parametrize("weights", BOTH_SIDES.values(), ids=BOTH_SIDES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fit_transform_is_fit_and_transform(weights: Penalties, dtype: type) -> None:
    X = simulate_counts(40, 60, 3, counts_per_sample=300, random_state=1).X.astype(dtype)
    tol = 1e-4 if dtype == np.float32 else 1e-8
    model = KLNMF(3, random_state=0, max_iter=5000, tol=tol, n_threads=1, **vars(weights))
    W = model.fit_transform(X)
    again, H = model.transform(X), model.components_.T
    direct = penalised_objective(X, W, H, weights)
    assert penalised_objective(X, again, H, weights) == pytest.approx(direct, rel=tol**2 + 1e-7)
    # Strictly convex: under the nonzeros of each row, H has full rank.
    assert min(np.linalg.svd(H[row.nonzero()[0]])[1][-1] for row in X.toarray()) > 1e-3 * H.max()
    np.testing.assert_allclose(again, W, rtol=100 * tol, atol=100 * tol * W.max())
    single = np.vstack([model.transform(X[[i]]) for i in range(5)])
    assert same_bits(single, again[:5])


# ---- penalties ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_a_larger_penalty_gives_a_smaller_norm(kind: str) -> None:
    norms = []
    for weight in (0.0, 0.1, 1.0, 10.0, 100.0):
        _, W, H = converged_fit(Penalties(**{f"{kind}_W": weight, f"{kind}_H": weight}), tol=1e-6)
        norm = (lambda factor: factor.sum()) if kind == "l1" else (lambda factor: (factor**2).sum())
        norms.append(norm(W) + norm(H))
    assert (np.diff(norms) < -1e-3 * np.array(norms[1:])).all()


def test_l1_removes_components_and_keeps_every_nonzero_covered() -> None:
    _, W, H = converged_fit(tol=1e-6)
    assert (W.sum(axis=0) * H.sum(axis=0) > 0).all()
    X, W, H = converged_fit(Penalties(l1_W=300.0, l1_H=300.0), tol=1e-6)
    alive = W.any(axis=0) & H.any(axis=0)
    assert alive.sum() == 1
    assert (W[:, ~alive] == 0).all()
    assert (H[:, ~alive] == 0).all()
    assert ((W @ H.T)[X > 0] > 0).all()


@pytest.mark.parametrize("weights", [w for w in PENALTY_SETS.values() if w.is_one_sided], ids=str)
def test_a_penalty_on_one_factor_warns(weights: Penalties) -> None:
    X = simulate_counts(20, 15, 2, counts_per_sample=30, random_state=0).X
    with pytest.warns(UserWarning, match="Only one of the factors is penalised"):
        KLNMF(2, random_state=0, tol=0.5, n_threads=1, **vars(weights)).fit(X)


# ---- planted factors ----------------------------------------------------------------------------


def test_planted_factors_are_found_again() -> None:
    planted = simulate_counts(300, 120, 4, counts_per_sample=400, random_state=3)
    fits = [fit_quietly(planted.X, n_components=4, random_state=seed) for seed in range(4)]
    W, model = min(fits, key=lambda fit: fit[1].divergence_)
    H = model.components_.T
    correlations = np.corrcoef(planted.H, H, rowvar=False)[:4, 4:]
    rows, matched = linear_sum_assignment(-correlations)
    assert (correlations[rows, matched] > 0.95).all()
    of_W = np.corrcoef(planted.W, W, rowvar=False)[:4, 4:]
    assert (of_W[rows, matched] > 0.95).all()
    assert model.divergence_ <= kl_divergence(planted.X, planted.W, planted.H)
