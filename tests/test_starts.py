"""Where a fit starts: factors passed in, warm starts; and the messages for wrong parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF, RunOptions, objective
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.estimators.fitting import TRIAL_ITERATIONS
from klnmf.simulate import simulate_counts
from klnmf.solvers import SOLVERS
from klnmf.solvers.initialization import STARTS
from strategies import make_model

SIMULATED = simulate_counts(60, 40, 3, counts_per_sample=150, random_state=0)
COUNTS = SIMULATED.X
OTHER_COUNTS = simulate_counts(50, 40, 3, counts_per_sample=150, random_state=1).X


def model(**parameters: Any) -> KLNMF:
    """Return a small model that gives the same result every time."""
    return make_model(**{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


def first_objective(estimator: KLNMF) -> float:
    """Objective after the first iteration of the last fit."""
    return float(estimator.history_[0]["objective"])


# ---- several starts ------------------------------------------------------------------------------


def test_best_of_several_starts_goes_on() -> None:
    X = simulate_counts(80, 60, 8, counts_per_sample=100, random_state=3).X
    told: list[dict[str, Any]] = []
    settings: dict[str, Any] = {"n_components": 8, "tol": 1e-4, "max_iter": 2000}
    alone = model(**settings).fit(X)
    several = model(n_init=6, callback=told.append, **settings).fit(X)
    after_trials = TRIAL_ITERATIONS - 1
    assert several.history_[after_trials]["objective"] < alone.history_[after_trials]["objective"]
    assert [record["iteration"] for record in several.history_] == list(
        range(1, several.n_iter_ + 1)
    )
    assert told == several.history_  # all of the kept start, none of the others
    assert several.converged_
    seconds = [record["seconds"] for record in several.history_]
    assert seconds == sorted(seconds)
    # The time of the other starts was spent before the first record.
    assert seconds[0] > seconds[after_trials] - seconds[0]


def test_one_start_is_what_it_always_was() -> None:
    np.testing.assert_array_equal(
        model(n_init=1).fit(COUNTS).components_, model().fit(COUNTS).components_
    )


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_several_starts_give_the_same_bits_for_any_number_of_threads(solver: str) -> None:
    settings: dict[str, Any] = {"n_init": 3, "solver": solver, "max_iter": 25, "tol": 100.0}
    first, second = (model(n_threads=n, **settings).fit(COUNTS) for n in (1, 3))
    np.testing.assert_array_equal(first.components_, second.components_)


def test_trials_are_no_longer_than_a_fit() -> None:
    short = model(n_init=4, max_iter=2, tol=100.0).fit(COUNTS)
    assert short.n_iter_ == 2


def test_several_starts_do_not_change_a_start_of_ones_own() -> None:
    H = SIMULATED.H.T
    np.testing.assert_array_equal(
        model(n_init=5).fit(COUNTS, H=H).components_, model().fit(COUNTS, H=H).components_
    )


def test_fit_of_several_starts_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    X = simulate_counts(80, 60, 8, counts_per_sample=100, random_state=3).X
    path = tmp_path / "fit"
    settings: dict[str, Any] = {"n_components": 8, "n_init": 3, "tol": 1e-4, "max_iter": 2000}
    whole = model(**settings).fit(X)
    stopped = model(
        callback=lambda record: record["iteration"] == 25, checkpoint=path, **settings
    ).fit(X)
    assert stopped.n_iter_ == 25 < whole.n_iter_
    resumed = model(checkpoint=path, **settings).fit(X)
    assert resumed.n_iter_ == whole.n_iter_
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    with pytest.raises(ValueError, match="n_init"):
        model(**(settings | {"n_init": 1}), checkpoint=path).fit(X)


# ---- factors passed in ---------------------------------------------------------------------------


def test_start_from_both_factors() -> None:
    W, H = SIMULATED.W, SIMULATED.H.T
    kept = W.copy(), H.copy()
    once = {"solver": "mu", "max_iter": 1, "tol": 100.0, "dtype": np.float64}
    estimator = model(**once).fit(COUNTS, W=W, H=H)
    random = model(**once).fit(COUNTS)
    planted = objective.kl_divergence(COUNTS, SIMULATED.W, SIMULATED.H.T)
    assert first_objective(estimator) < planted < first_objective(random)
    np.testing.assert_array_equal(W, kept[0])
    np.testing.assert_array_equal(H, kept[1])


@pytest.mark.parametrize("given", ["H", "W"])
def test_start_from_one_factor_solves_for_the_other(given: str) -> None:
    start = {"H": SIMULATED.H.T} if given == "H" else {"W": SIMULATED.W}
    estimator = model(max_iter=1, tol=100.0).fit(COUNTS, **start)
    planted = objective.kl_divergence(COUNTS, SIMULATED.W, SIMULATED.H.T)
    assert first_objective(estimator) < 1.1 * planted


def test_start_at_a_solution_stays_there() -> None:
    first = model(tol=1e-5, max_iter=2000, dtype=np.float64)
    W = first.fit_transform(COUNTS)
    again = model(tol=1e-4, dtype=np.float64)
    W_again = again.fit_transform(COUNTS, W=W, H=first.components_)
    assert again.n_iter_ == 1
    np.testing.assert_allclose(W_again @ again.components_, W @ first.components_, atol=1e-2)


@pytest.mark.parametrize(
    "kind", [np.float16, np.float32, np.int64, bool, "sparse", "frame", "list"]
)
def test_start_in_any_container(kind: Any) -> None:
    H = np.array([[1, 1, 0, 1] * 10, [1, 0, 1, 0] * 10, [0, 1, 1, 1] * 10])
    if kind == "frame":
        pd = pytest.importorskip("pandas", reason="pandas is not installed")
        given = pd.DataFrame(H)
    elif isinstance(kind, str):
        given = {"sparse": sp.csc_matrix, "list": np.ndarray.tolist}[kind](H)
    else:
        given = H.astype(kind)
    expected = model().fit(COUNTS, H=H.astype(float)).components_
    np.testing.assert_array_equal(model().fit(COUNTS, H=given).components_, expected)


W_START, H_START = np.ones((60, 3)), np.ones((3, 40))


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        ({"W": np.ones((59, 3))}, ValueError, r"start W must have shape \(60, 3\), got \(59, 3\)"),
        ({"H": np.ones((40, 3))}, ValueError, r"start H must have shape \(3, 40\), got \(40, 3\)"),
        ({"H": np.ones(40)}, ValueError, r"start H must have shape \(3, 40\), got \(40,\)"),
        ({"W": W_START, "H": np.ones((2, 40))}, ValueError, "start H must have shape"),
        ({"W": -W_START}, ValueError, "start W must be finite and nonnegative"),
        ({"H": -H_START}, ValueError, "start H must be finite and nonnegative"),
        ({"W": W_START * np.nan}, ValueError, "start W must be finite and nonnegative"),
        ({"H": H_START * np.inf}, ValueError, "start H must be finite and nonnegative"),
        ({"W": W_START * 1j}, TypeError, "start W must hold real numbers, got dtype complex128"),
        ({"H": H_START.astype(str)}, TypeError, "start H must hold real numbers"),
        # Finite, but infinite in the float32 that these counts are fitted in.
        ({"H": H_START * 1e300}, ValueError, "start H"),
        ({"W": W_START * 1e300}, ValueError, "start W"),
    ],
)
def test_bad_starts(start: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        model().fit(COUNTS, **start)


@pytest.mark.parametrize("solver", ["srcd", "mu"])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scale_of_a_start_does_not_matter(solver: str, scale: float) -> None:
    plain, scaled = (
        model(solver=solver, max_iter=3, tol=1e3, dtype=np.float64).fit(
            COUNTS, W=SIMULATED.W / s, H=SIMULATED.H.T * s
        )
        for s in (1.0, scale)
    )
    assert scaled.divergence_ == pytest.approx(plain.divergence_, rel=1e-6)


# ---- warm start ----------------------------------------------------------------------------------


def numbers(estimator: KLNMF) -> list[dict[str, float]]:
    """History without the times."""
    return [{k: v for k, v in record.items() if k != "seconds"} for record in estimator.history_]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_warm_start_on_the_same_data_goes_on_as_if_it_had_not_stopped(solver: str) -> None:
    whole = model(solver=solver, max_iter=10, tol=0.0)
    W_whole = whole.fit_transform(COUNTS)
    parts = model(solver=solver, max_iter=5, tol=0.0, warm_start=True)
    parts.fit(COUNTS)
    first = numbers(parts)
    W_parts = parts.fit_transform(COUNTS.toarray())
    assert parts.n_iter_ == 5
    np.testing.assert_equal(first + numbers(parts), numbers(whole))
    np.testing.assert_array_equal(parts.components_, whole.components_)
    np.testing.assert_array_equal(W_parts, W_whole)
    assert parts.divergence_ == whole.divergence_


def test_warm_start_after_convergence_converges_at_once() -> None:
    estimator = model(warm_start=True).fit(COUNTS)
    n_iter = estimator.n_iter_
    estimator.fit(COUNTS)
    assert estimator.converged_
    assert estimator.n_iter_ <= 2 < n_iter


@pytest.mark.parametrize("sparse_output", [False, True])
def test_warm_start_on_other_data_uses_the_components(sparse_output: bool) -> None:
    estimator = model(warm_start=True, sparse_output=sparse_output).fit(COUNTS)
    components = estimator.components_
    passed = model().fit(OTHER_COUNTS, H=components).components_
    estimator.fit(OTHER_COUNTS)
    got = estimator.components_.toarray() if sparse_output else estimator.components_
    np.testing.assert_array_equal(got, passed)
    assert estimator.history_[0]["iteration"] == 1


def test_warm_start_on_other_data_covers_features_that_were_empty() -> None:
    X = COUNTS.toarray()
    X[:, :10] = 0
    estimator = model(warm_start=True).fit(X)
    assert (estimator.components_[:, :10] == 0).all()
    estimator.fit(COUNTS)
    assert np.isfinite(estimator.divergence_)
    assert (estimator.components_.sum(axis=0) > 0)[COUNTS.sum(axis=0).A1 > 0].all()


def test_warm_start_tells_shuffled_data_from_the_same_data() -> None:
    """Same shape, nonzeros and sum: still other data, so that only the components are kept."""
    rng = np.random.default_rng(0)
    X = (rng.random((60, 40)) < 0.3).astype(float)
    shuffled = X[rng.permutation(60)]
    estimator = model(warm_start=True, tol=1e-2, max_iter=1000).fit(X)
    passed = model(tol=1e-2, max_iter=1000).fit(shuffled, H=estimator.components_).components_
    estimator.fit(shuffled)
    assert estimator.history_[0]["iteration"] == 1
    np.testing.assert_array_equal(estimator.components_, passed)


@pytest.mark.parametrize("change", [{"n_components": 4}, {"warm_start": False}])
def test_no_warm_start_after_a_change_of_rank_or_without_it(change: dict[str, Any]) -> None:
    estimator = model(warm_start=True).fit(COUNTS)
    estimator.set_params(**change).fit(COUNTS)
    fresh = model(**{"warm_start": True, **change}).fit(COUNTS)
    np.testing.assert_array_equal(estimator.components_, fresh.components_)
    assert estimator.history_[0]["iteration"] == 1


def test_warm_start_with_another_width_starts_afresh() -> None:
    estimator = model(warm_start=True).fit(COUNTS)
    narrow = COUNTS[:, :30]
    np.testing.assert_array_equal(
        estimator.fit(narrow).components_, model().fit(narrow).components_
    )


def test_warm_start_with_other_penalties_or_solver_keeps_the_components() -> None:
    for change in ({"l1_W": 0.1, "l1_H": 0.1}, {"solver": "mu"}):
        estimator = model(warm_start=True, tol=1e-2, max_iter=1000).fit(COUNTS)
        H = estimator.components_
        expected = model(tol=1e-2, max_iter=1000, **change).fit(COUNTS, H=H).components_
        got = estimator.set_params(**change).fit(COUNTS).components_
        np.testing.assert_array_equal(got, expected)


# ---- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("n_components", 0, r"int in the range \[1, 2147483647\]. Got 0"),
        ("n_components", 2.5, "Got 2.5"),
        ("n_components", None, "Got None"),
        ("solver", "newton", r"'solver' parameter of KLNMF must be a str among .*'srcd'"),
        ("solver", 3, "klnmf.solvers.base.Solver"),
        ("init", "zeros", "str among .*'nndsvd'"),
        ("l1_W", -1.0, r"\[0.0, inf\)"),
        ("l2_W", float("nan"), "Got nan"),
        ("l1_H", float("inf"), "Got inf"),
        ("l2_H", "1", "Got '1'"),
        ("max_iter", 0, r"\[1, inf\)"),
        ("max_iter", 1.5, "Got 1.5"),
        ("tol", -1e-3, r"\[0.0, inf\)"),
        ("tol", float("nan"), "Got nan"),
        ("n_threads", 0, "n_threads must be None, from 1 to"),
        ("n_threads", 1.5, "Got 1.5"),
        ("n_threads", 2**40, "n_threads must"),
        ("random_state", "seed", "random_state"),
        ("dtype", int, "dtype must be None, float32 or float64, got the class int"),
        ("dtype", "float16", "dtype must be None, float32 or float64"),
        ("dtype", "no such type", "dtype must be None, float32 or float64"),
        ("sparse_output", "yes", "sparse_output"),
        ("warm_start", None, "warm_start"),
        ("backend", "abacus", "'backend' parameter of KLNMF must be a str among .*'auto'"),
        ("run", {"progress": True}, "must be None or an instance of .*RunOptions"),
        ("run", RunOptions(progress="yes"), "'progress' parameter of RunOptions"),
        ("run", RunOptions(callback=3), "callable"),
    ],
)
def test_bad_parameters(parameter: str, value: Any, message: str) -> None:
    estimator = KLNMF(**{parameter: value})  # nothing is checked before fit
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        estimator.fit(COUNTS)
    assert parameter in str(caught.value) or parameter == "run"


# ---- starts of our own --------------------------------------------------------------------------


@pytest.mark.parametrize("init", STARTS)
@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (3, 4), (300, 40)])
def test_every_start_is_positive_where_there_are_counts(init: str, shape: tuple[int, int]) -> None:
    X = np.random.default_rng(0).poisson(1.0, shape).astype(np.float32) + np.eye(*shape)
    X[:, 0] = 0
    data = InMemoryData(check_counts(X))
    W, H = map(np.asarray, STARTS[init](data, 5, np.random.default_rng(1)))
    assert W.shape == (shape[0], 5)
    assert H.shape == (shape[1], 5)
    assert (W[X.any(axis=1)] > 0).all()
    assert (H[X.any(axis=0)] > 0).all()
    assert W.dtype == H.dtype == data.dtype


def test_components_that_start_from_samples_differ() -> None:
    """Averages of samples lie apart from each other, and between the samples and the margins."""
    X = np.kron(np.eye(3), np.ones((50, 20)))  # three kinds of samples with nothing in common
    data = InMemoryData(check_counts(X))
    _, H = STARTS["samples"](data, 6, np.random.default_rng(0))
    np.testing.assert_allclose(H.sum(axis=0), 1, rtol=1e-6)
    by_kind = H.reshape(3, 20, 6).sum(axis=1)
    assert (by_kind > 0.05).all()  # a share of the margins everywhere
    assert np.ptp(by_kind, axis=1).min() > 0.1  # and more of some samples than of others


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_components", [3, 4])
def test_rows_of_a_drawn_start_can_be_drawn_alone(dtype: type, n_components: int) -> None:
    """Workers draw their own rows of W; the generator goes on as if all had been drawn here."""
    X = sp.csr_array(np.random.default_rng(0).poisson(1.0, (51, 7)).astype(dtype))
    generator = np.random.default_rng(5)
    W, H = STARTS["random"](InMemoryData(X), n_components, generator)
    by_hand = np.random.default_rng(5)
    drawn = [by_hand.random((size, n_components), dtype=dtype) for size in X.shape]
    scales = (X.sum(axis=1, dtype=np.float64) / (0.51 * n_components)).astype(dtype)
    expected = (drawn[0] + dtype(0.01)) * scales[:, None]
    np.testing.assert_array_equal(np.asarray(W), expected)
    for rows in (slice(0, 1), slice(3, 20), slice(20, 51)):
        np.testing.assert_array_equal(np.asarray(W.part(rows)), expected[rows])
    assert (generator.random(3, np.float32) == by_hand.random(3, np.float32)).all()
    np.testing.assert_allclose(H.sum(axis=0), 1, rtol=1e-5)
