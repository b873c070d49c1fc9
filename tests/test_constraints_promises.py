"""The promises of a fit, with everything that may be known of it: it never rises, same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import xlogy

from constraint_cases import RANK, X, cases_with_known, everything_known, fit, start_run
from klnmf.objective import Penalties, kl_divergence
from klnmf.solvers import SOLVERS, MultiplicativeUpdates, SparseCoordinateDescent
from klnmf.solvers.loop import Run
from strategies import (
    PENALTY_SETS,
    Case,
    efforts,
    every_long_run,
    for_all,
    penalties,
    random_case,
    rounding_of,
    same_bits,
    srcd,
)

Array = np.ndarray

NEVER_RISES = {
    "srcd": SparseCoordinateDescent(),
    "srcd, no opening": srcd(opening=0),
    "mu": MultiplicativeUpdates(),
}


def objective(run: Run) -> float:
    """Penalised objective of the pair in the units of the fit, dense, in double precision."""
    known, weights = run.problem.constraints, run.problem.penalties
    W, H = (f.astype(np.float64) for f in run.problem.download(run.state.factors))
    X = run.problem.backend.data.view(0).as_csr().toarray().astype(np.float64)
    rates = W @ H.T
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = xlogy(X, X) - xlogy(X, rates) - X + rates
    if known.missing is not None:
        terms = np.where(known.missing.toarray(), 0.0, terms)
    total = float(terms.sum())
    for mode, factor in enumerate((W, H)):
        of_rows: Any = 1.0
        if known.scales(mode) is not None:
            scales = known.scales(mode)
            with np.errstate(divide="ignore"):
                factor = factor * np.where(scales > 0, 1 / scales, 0)[:, None]
            of_rows = (known.sample_weight, known.feature_weight)[mode]
            of_rows = 1.0 if of_rows is None else of_rows
        paid = weights.l1[mode] * factor.sum(axis=1)
        if weights.l2[mode] > 0:  # a factor that nothing is paid for may be beyond its square
            paid += 0.5 * weights.l2[mode] * (factor**2).sum(axis=1)
        total += float((of_rows * paid).sum())
    return total


def check_never_rises(
    case: Case, given: dict[str, Any], weights: Penalties, solver: Any, n_iterations: int = 5
) -> None:
    run = start_run(case, given, weights, solver)
    if run is None:
        return
    state, rounding = run.state, rounding_of(run.problem)
    total = run.problem.backend.data.total
    frozen = [run.problem.constraints.is_frozen(mode) for mode in (0, 1)]
    first = [factor.copy() for factor in run.problem.download(state.factors)]
    before = objective(run)
    for iteration in range(n_iterations):
        run.solver.iterate(run.problem, state)
        state.iteration += 1
        found = objective(run)
        slack = rounding * (total + abs(found))
        assert math.isfinite(found), f"after iteration {iteration + 1}"
        assert found <= before + slack, f"rose in iteration {iteration + 1}"
        if not math.isnan(state.objective):
            assert state.objective == pytest.approx(found, abs=1e-12 * (total + abs(found)))
        before = found
    last = run.problem.download(state.factors)
    for factor, at_first, held in zip(last, first, frozen, strict=True):
        assert same_bits(factor[:, held].copy(), at_first[:, held].copy())


@efforts(quick=150, thorough=4000)
@pytest.mark.parametrize("solver", NEVER_RISES.values(), ids=NEVER_RISES)
def test_the_objective_never_rises(solver: Any, n_examples: int) -> None:
    for_all(
        lambda known, weights: check_never_rises(*known, weights, solver),
        n_examples,
        known=cases_with_known(),
        weights=penalties(),
    )


@every_long_run
def test_the_objective_never_rises_in_a_long_run(
    solver: Any, dtype: type, weights: Penalties
) -> None:
    case = random_case((30, 25), 5, seed=1, dtype=dtype, density=0.3, spread=2.0)
    known = everything_known(case.X, 5, seed=2)
    check_never_rises(case, known, weights, solver, n_iterations=40)


@pytest.mark.parametrize(
    "weights", [PENALTY_SETS["none"], PENALTY_SETS["all"]], ids=["none", "all"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["srcd", "mu"])
def test_threads_change_no_bit(solver: str, dtype: type, weights: Penalties) -> None:
    case = random_case((300, 120), 6, seed=4, dtype=dtype, density=0.2)
    known = everything_known(case.X, 6, seed=4)
    results = []
    for n_threads in (1, 2, 7):
        run = start_run(case, known, weights, SOLVERS[solver](), n_threads)
        assert run is not None
        for _ in range(4):
            run.solver.iterate(run.problem, run.state)
            run.state.iteration += 1
        factors = run.problem.download(run.state.factors)
        results.append((*factors, np.array([run.state.objective, *run.state.met])))
    for arrays in zip(*results, strict=True):
        assert same_bits(*arrays)


@pytest.mark.parametrize("weights", [{}, {"l1_W": 0.1, "l1_H": 0.2, "l2_H": 0.1}], ids=str)
def test_whole_fits_have_the_same_bits_on_any_number_of_threads(weights: dict[str, float]) -> None:
    one, many = (fit(n_threads=k, **weights, **everything_known()) for k in (1, 5))
    assert same_bits(one[0], many[0])
    assert same_bits(one[1].components_, many[1].components_)
    assert one[1].divergence_ == many[1].divergence_


def test_the_certificate_is_that_of_the_free_entries() -> None:
    """At the end no free entry gains by a move; of those that are known nothing is said."""
    known = everything_known()
    W, model = fit(max_iter=2000, tol=1e-6, **known)
    H = model.components_
    assert model.converged_
    weights = known["sample_weight"][:, None] * known["feature_weight"]
    weights = weights * ~known["missing"].toarray() * known["exposure"][:, None]
    counts = X.toarray()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(counts > 0, counts / (known["exposure"][:, None] * (W @ H)), 0)
    ratios = np.where(weights > 0, ratios, 0)
    is_fixed = np.zeros((2, RANK), dtype=bool)
    is_fixed[0, -1] = is_fixed[1, 0] = True
    zeros = known["zero_W"].toarray(), known["zero_components"].toarray().T
    for mode, (x, A, by_rows) in enumerate(((W, H.T, weights), (H.T, W, weights.T))):
        c = by_rows @ A
        gradient = c - (by_rows * (ratios if mode == 0 else ratios.T)) @ A
        free = ~zeros[mode] & ~is_fixed[mode] & (by_rows.sum(axis=1) > 0)[:, None] & (c > 0)
        relative = gradient[free] / c[free]
        used = x[free] > 1e-6
        assert np.abs(relative[used]).max() < 1e-4
        assert relative.min() > -1e-4
        held = np.zeros_like(free) | is_fixed[mode]
        assert np.abs((gradient / np.where(c > 0, c, 1))[held]).max() > 0.01


@pytest.mark.parametrize("name", ["fixed_components", "fixed_W", "zero_W", "missing"])
def test_known_entries_have_all_their_digits_from_the_start(name: str) -> None:
    """Counts are fitted in single precision at first, but not where entries are known in double."""
    known = everything_known()
    case = Case(X.astype(np.float64), np.ones((30, RANK)), np.ones((20, RANK)))
    run = start_run(case, {name: known[name]}, PENALTY_SETS["none"], SparseCoordinateDescent())
    assert run is not None
    run.state.was_drawn = True
    run.solver.prepare(run.problem, run.state)
    assert run.state.factors[0].dtype == (np.float32 if name == "missing" else np.float64)
    assert run.state.memory["swap_failures_left"] == (3 if name == "missing" else 0)


@pytest.mark.filterwarnings("ignore:Only one of the factors is penalised")
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@settings(max_examples=50, derandomize=True)
@given(
    unit=st.integers(-12, 12),
    weights=st.lists(st.sampled_from([0.0, 1e-6, 1.0, 1e9]), min_size=4, max_size=4),
    is_weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_divergence_keeps_its_digits_beside_any_penalties(
    backend: str, unit: int, weights: list[float], is_weighted: bool, seed: int
) -> None:
    case = random_case((9, 7), 3, seed=seed)
    counts = 10.0**unit * case.X
    # The penalties of fixed components stay as large as they are.
    fixed = case.H.T[:1] / case.H[:, 0].sum()
    of_cells: dict[str, Any] = {}
    if is_weighted:
        known = everything_known(counts, 3, seed)
        of_cells = {name: known[name] for name in ("sample_weight", "exposure", "missing")}
    options: dict[str, Any] = dict(zip(("l1_W", "l2_W", "l1_H", "l2_H"), weights, strict=True))
    options |= {"fixed_components": fixed, "max_iter": 2, "backend": backend}
    W, model = fit(counts, 3, **options, **of_cells)
    expected = kl_divergence(counts, W, model.components_, **of_cells)
    scale = abs(expected) + float(counts.sum()) * (1 + abs(unit))
    assert model.divergence_ == pytest.approx(expected, rel=0, abs=1e-12 * scale)
