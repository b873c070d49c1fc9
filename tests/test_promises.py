"""What the design promises, each as a property that must hold for any data, start and penalties."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from klnmf import KLNMF
from klnmf.backends.base import Improve, Multiply
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.objective import kkt_residual, kl_divergence, penalised_objective
from klnmf.simulate import simulate_counts
from klnmf.solvers import SOLVERS
from strategies import (
    NEVER_RISES,
    PENALTY_SETS,
    Case,
    fit_quietly,
    make_problem,
    random_case,
    same_bits,
    solution_after,
    start_run,
)

Array = np.ndarray


BOTH_SIDES = {name: weights for name, weights in PENALTY_SETS.items() if not weights.is_one_sided}


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
    expected = solution_after(whole, 20)
    solution_after(parts, 10)
    parts.state = pickle.loads(pickle.dumps(parts.state))  # as from a file
    found = solution_after(parts, 20)
    for pair in zip(*map(whole.problem.download, (found.factors, expected.factors)), strict=True):
        assert same_bits(*pair)
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


def test_a_warm_start_from_a_converged_fit_does_one_iteration_at_least() -> None:
    X = simulate_counts(50, 40, 3, counts_per_sample=30, random_state=0).X
    model = KLNMF(3, random_state=0, warm_start=True, tol=0.02, n_threads=1).fit(X)
    assert model.converged_
    assert model.fit(X).n_iter_ == len(model.history_) == 1


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_model_loaded_as_a_memory_map_starts_from_its_components(
    solver: str, tmp_path: Path
) -> None:
    """The state of its last fit cannot be written to."""
    X = simulate_counts(50, 40, 3, counts_per_sample=30, random_state=0).X
    settings = {"solver": solver, "random_state": 0, "max_iter": 5, "warm_start": True, "tol": 0.0}
    _, model = fit_quietly(X, n_components=3, **settings)
    joblib.dump(model, tmp_path / "model")
    loaded = joblib.load(tmp_path / "model", mmap_mode="r")
    W = loaded._saved_state[1].factors[0]
    assert not isinstance(W, np.ndarray) or not W.flags.writeable  # one on a GPU is no map
    fit_quietly(X, model=loaded)
    assert loaded.divergence_ < model.divergence_


# ---- symmetries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", NEVER_RISES.values(), ids=NEVER_RISES)
def test_permuting_the_samples_permutes_their_factor(solver: Any) -> None:
    case = random_case((40, 30), 4, seed=3, density=0.4, zeros=0.0, spread=0.5)
    order = np.random.default_rng(0).permutation(40)
    permuted = Case(case.X[order], case.W[order], case.H)
    runs = [start_run(each, solver) for each in (case, permuted)]
    solutions = [solution_after(run, 6) for run in runs]
    (W, H), found = (
        run.problem.download(solution.factors)
        for run, solution in zip(runs, solutions, strict=True)
    )
    np.testing.assert_allclose(found[0], W[order], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found[1], H, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("make_rule", [Improve, lambda order: Multiply()])
def test_transposing_exchanges_the_factors(make_rule: Any) -> None:
    case, rule = random_case((20, 30), 4, seed=4), make_rule(np.arange(4, dtype=np.int32))
    weights = PENALTY_SETS["all"]
    swapped = Penalties(weights.l1[::-1], weights.l2[::-1])
    problem, mirror = make_problem(case.X, weights), make_problem(sp.csr_array(case.X.T), swapped)
    for mode in (0, 1):
        here, there = [case.W.copy(), case.H.copy()], [case.H.copy(), case.W.copy()]
        step = problem.update(mode, here, rule)
        mirrored = mirror.update(1 - mode, there, rule)
        assert same_bits(here[mode], there[1 - mode])
        assert step.met == mirrored.met
    straight, turned = problem.evaluate([case.W, case.H]), mirror.evaluate([case.H, case.W])
    np.testing.assert_allclose(straight, turned, rtol=1e-12)


# ---- what a converged fit is --------------------------------------------------------------------


def converged_fit(
    weights: Penalties = NO_PENALTIES, *, tol: float = 1e-9, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Counts with an empty row and column, and W and H fitted to them to a tight tolerance."""
    X = simulate_counts(30, 25, 3, counts_per_sample=80, random_state=seed).X.toarray() * 1.0
    X[4], X[:, 6] = 0, 0
    model = KLNMF(3, random_state=seed, max_iter=20000, tol=tol, n_threads=1, **weights.by_name)
    W = model.fit_transform(X)
    assert model.converged_
    H = model.components_.T
    assert model.kkt_residual_ == pytest.approx(kkt_residual(X, W, H.T, weights), abs=1e-12)
    assert model.divergence_ == pytest.approx(kl_divergence(X, W, H.T), rel=1e-12)
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
    X, W, H = converged_fit(weights, tol=1e-11)
    assert kkt_residual(X, W, H.T, weights) <= 1e-8
    best = penalised_objective(X, W, H.T, weights)
    for factor in (W, H):
        for index in np.ndindex(factor.shape):
            entry = factor[index]
            steps = (1e-3 * entry, -1e-3 * entry) if entry > 0 else (1e-3 * factor.max(),)
            for step in steps:
                factor[index] = entry + step
                assert penalised_objective(X, W, H.T, weights) >= best - 1e-10 * X.sum()
            factor[index] = entry


@pytest.mark.parametrize("weights", BOTH_SIDES.values(), ids=BOTH_SIDES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fit_transform_is_fit_and_transform(weights: Penalties, dtype: type) -> None:
    X = simulate_counts(40, 60, 3, counts_per_sample=300, random_state=1).X.astype(dtype)
    tol = 1e-4 if dtype == np.float32 else 1e-8
    model = KLNMF(3, random_state=0, max_iter=5000, tol=tol, n_threads=1, **weights.by_name)
    W = model.fit_transform(X)
    again, H = model.transform(X), model.components_.T
    direct = penalised_objective(X, W, H.T, weights)
    assert penalised_objective(X, again, H.T, weights) == pytest.approx(direct, rel=tol**2 + 1e-7)
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
        _, W, H = converged_fit(
            Penalties.of_matrix(**{f"{kind}_W": weight, f"{kind}_H": weight}), tol=1e-6
        )
        norm = (lambda factor: factor.sum()) if kind == "l1" else (lambda factor: (factor**2).sum())
        norms.append(norm(W) + norm(H))
    assert (np.diff(norms) < -1e-3 * np.array(norms[1:])).all()


def test_l1_removes_components_and_keeps_every_nonzero_covered() -> None:
    _, W, H = converged_fit(tol=1e-6)
    assert (W.sum(axis=0) * H.sum(axis=0) > 0).all()
    X, W, H = converged_fit(Penalties.of_matrix(l1_W=300.0, l1_H=300.0), tol=1e-6)
    alive = W.any(axis=0) & H.any(axis=0)
    assert alive.sum() == 1
    assert (W[:, ~alive] == 0).all()
    assert (H[:, ~alive] == 0).all()
    assert ((W @ H.T)[X > 0] > 0).all()


@pytest.mark.parametrize("weights", [w for w in PENALTY_SETS.values() if w.is_one_sided], ids=str)
def test_a_penalty_on_one_factor_warns(weights: Penalties) -> None:
    X = simulate_counts(20, 15, 2, counts_per_sample=30, random_state=0).X
    with pytest.warns(UserWarning, match="Only one of the factors is penalised"):
        KLNMF(2, random_state=0, tol=0.5, n_threads=1, **weights.by_name).fit(X)


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
    assert model.divergence_ <= kl_divergence(planted.X, planted.W, planted.H.T)
