"""KLNMF as an estimator: what is set, what is returned, how it sits among other estimators."""

from __future__ import annotations

import math
import pickle
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from klnmf import KLNMF, MiniBatchKLNMF, objective
from klnmf.simulate import simulate_counts
from klnmf.solvers import SOLVERS, PaperCoordinateDescent, SparseCoordinateDescent

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=150, sparsity=0.3, random_state=0).X
NEW_COUNTS = simulate_counts(25, 40, 3, counts_per_sample=150, random_state=1).X

TEXTS = [
    "the ship left the harbour and sailed across the stormy sea",
    "sailors on a ship fear the storm at sea and love the harbour",
    "waves and wind struck the ship far from the harbour",
    "the captain of the ship watched the sea and the waves",
    "bread needs flour and water and an oven and patience",
    "knead the flour and the water into dough and bake the bread",
    "the baker put the dough into the oven before dawn",
    "fresh bread from the oven smells of flour and yeast",
]
IS_BAKING = [0, 0, 0, 0, 1, 1, 1, 1]


def model(**parameters: Any) -> KLNMF:
    """Return a small model that gives the same result every time."""
    return KLNMF(**{"n_components": 3, "random_state": 0, "n_threads": 1, **parameters})


def short(**parameters: Any) -> KLNMF:
    """Return a model that runs exactly ``max_iter`` iterations; used where it must not warn."""
    return model(**{"max_iter": 5, "tol": 0.0, **parameters})


@pytest.fixture(scope="module")
def fitted() -> tuple[KLNMF, np.ndarray]:
    estimator = model()
    return estimator, estimator.fit_transform(COUNTS)


# ---- fitted attributes ---------------------------------------------------------------------------


def test_attributes_of_a_fit(fitted: tuple[KLNMF, np.ndarray]) -> None:
    estimator, W = fitted
    H = estimator.components_
    assert W.shape == (60, 3)
    assert estimator.components_.shape == (3, 40)
    assert estimator.components_.flags.c_contiguous
    assert (estimator.n_components_, estimator.n_features_in_) == (3, 40)
    assert W.dtype == estimator.components_.dtype == np.float32
    assert W.min() >= 0
    assert H.min() >= 0
    assert estimator.divergence_ == pytest.approx(objective.kl_divergence(COUNTS, W, H), rel=1e-9)
    assert estimator.kkt_residual_ == pytest.approx(
        objective.kkt_residual(COUNTS, W, H), rel=1e-3, abs=1e-6
    )
    gap = objective.optimality_gap(COUNTS, W, H)
    assert estimator.optimality_gap_ == pytest.approx(gap, rel=1e-6)
    assert estimator.converged_ is True
    assert estimator.optimality_gap_ <= estimator.tol


def test_attributes_of_a_penalised_fit() -> None:
    weights = {"l1_W": 0.3, "l2_W": 0.02, "l1_H": 0.5, "l2_H": 0.1}
    estimator = model(**weights, max_iter=2000, dtype=np.float64)
    W = estimator.fit_transform(COUNTS)
    H = estimator.components_
    penalties = objective.Penalties.of_matrix(**weights)
    assert estimator.converged_
    assert estimator.divergence_ == pytest.approx(objective.kl_divergence(COUNTS, W, H), rel=1e-9)
    assert estimator.kkt_residual_ == pytest.approx(
        objective.kkt_residual(COUNTS, W, H, penalties), rel=1e-6, abs=1e-10
    )
    assert estimator.optimality_gap_ == pytest.approx(
        objective.optimality_gap(COUNTS, W, H, penalties), rel=1e-6, abs=1e-10
    )
    last = estimator.history_[-1]
    assert last["objective"] - last["divergence"] == pytest.approx(
        objective.penalty(W, H, penalties), rel=1e-2
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_history_has_one_full_record_an_iteration(solver: str) -> None:
    estimator = short(solver=solver, max_iter=7).fit(COUNTS)
    history = estimator.history_
    assert estimator.n_iter_ == len(history) == 7
    assert [record["iteration"] for record in history] == list(range(1, 8))
    names = {"iteration", "seconds", "divergence", "objective", "optimality_gap", "kkt_residual"}
    assert all(set(record) == names | {"zeros_W", "zeros_H"} for record in history)
    # The paper's unguarded steps may take the objective to infinity for a while.
    unknown = {name for record in history for name in names if np.isnan(record[name])}
    assert unknown == ({"optimality_gap"} if solver in ("srcd-paper", "ccd") else set())
    seconds = [record["seconds"] for record in history]
    assert seconds[0] > 0
    assert (np.diff(seconds) > 0).all()
    for record in history:
        assert record["divergence"] == pytest.approx(record["objective"])
        assert 0 <= record["zeros_W"] <= 1
        assert 0 <= record["zeros_H"] <= 1


def test_unfitted_model_says_so() -> None:
    for method in ("transform", "inverse_transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(model(), method)(COUNTS)


# ---- convergence ---------------------------------------------------------------------------------


def test_warning_without_convergence_says_what_to_do() -> None:
    with pytest.warns(ConvergenceWarning) as caught:
        estimator = model(max_iter=2).fit(COUNTS)
    assert not estimator.converged_
    assert estimator.optimality_gap_ > estimator.tol
    assert estimator.n_iter_ == 2
    (warning,) = caught
    text = str(warning.message)
    for part in ("max_iter=2", "tol=0.0003", f"{estimator.optimality_gap_:.2g}", "warm_start=True"):
        assert part in text
    assert "increase max_iter" in text
    assert "increase tol" in text
    assert "in the last iteration the objective fell by" in text


def test_a_warning_after_one_iteration_does_not_compare_it_with_itself() -> None:
    with pytest.warns(ConvergenceWarning) as caught:
        model(max_iter=1).fit(COUNTS)
    assert "above tol=0.0003. If that is not enough" in str(caught[0].message)


@pytest.mark.parametrize("estimator", [KLNMF, MiniBatchKLNMF])
@pytest.mark.parametrize("tol", [-1.0, math.nan, math.inf])
def test_a_tolerance_is_a_float_from_0_on(estimator: Any, tol: Any) -> None:
    with pytest.raises(ValueError, match=r"'tol' parameter .* must be a float in the range \[0"):
        estimator(2, tol=tol).fit(COUNTS)


def test_any_tolerance_that_is_a_float_will_do() -> None:
    for tol in (5e-324, np.float32(1e-3), 1, 1e308):
        assert model(tol=tol).fit(COUNTS).converged_


def test_no_warning_with_convergence() -> None:
    estimator = model().fit(COUNTS)  # warnings are errors in this test suite
    assert estimator.converged_
    assert estimator.n_iter_ < estimator.max_iter


def test_smaller_tol_takes_longer_and_is_reached() -> None:
    loose, tight = (
        model(tol=tol, max_iter=3000, dtype=np.float64).fit(COUNTS) for tol in (1e-2, 1e-6)
    )
    assert loose.n_iter_ < tight.n_iter_
    assert tight.optimality_gap_ <= 1e-6
    assert tight.divergence_ <= loose.divergence_


def test_penalty_on_one_factor_only_warns() -> None:
    with pytest.warns(UserWarning, match="Only one of the factors is penalised") as caught:
        model(l1_W=0.1, tol=10.0).fit(COUNTS)
    assert len(caught) == 1
    model(l1_W=0.1, l2_H=0.1, tol=10.0).fit(COUNTS)  # no warning


# ---- W -------------------------------------------------------------------------------------------


def test_fit_transform_is_fit_then_transform(fitted: tuple[KLNMF, np.ndarray]) -> None:
    estimator, W = fitted
    again = model().fit(COUNTS)
    np.testing.assert_array_equal(again.components_, estimator.components_)
    H = estimator.components_
    W_new = estimator.transform(COUNTS)
    np.testing.assert_allclose(W_new, W, rtol=2e-3, atol=2e-3 * W.max())
    scale = COUNTS.sum()
    values = [objective.kl_divergence(COUNTS, factor, H) for factor in (W, W_new)]
    assert abs(values[0] - values[1]) < 1e-6 * scale


def test_inverse_transform_is_the_product(fitted: tuple[KLNMF, np.ndarray]) -> None:
    estimator, W = fitted
    rates = estimator.inverse_transform(W)
    np.testing.assert_allclose(rates, W @ estimator.components_, rtol=1e-5)
    np.testing.assert_array_equal(estimator.inverse_transform(sp.csr_array(W)), rates)
    # At an optimum the margins of the rates are those of the data.
    np.testing.assert_allclose(rates.sum(axis=1), COUNTS.sum(axis=1).A1, rtol=1e-3)
    with pytest.raises(ValueError, match=r"shape \(n_samples, 3\)"):
        estimator.inverse_transform(W[:, :2])


def test_transform_solves_each_row_on_its_own(fitted: tuple[KLNMF, np.ndarray]) -> None:
    estimator, _ = fitted
    together = estimator.transform(NEW_COUNTS)
    alone = np.vstack([estimator.transform(NEW_COUNTS[[i]]) for i in range(NEW_COUNTS.shape[0])])
    np.testing.assert_array_equal(together, alone)


def test_transform_leaves_out_what_no_component_can_explain(
    fitted: tuple[KLNMF, np.ndarray],
) -> None:
    estimator, _ = fitted
    unknown = ~estimator.components_.any(axis=0)
    assert NEW_COUNTS[:, unknown].sum() > 0
    known_only = NEW_COUNTS.toarray()
    known_only[:, unknown] = 0
    W = estimator.transform(known_only)
    np.testing.assert_allclose(estimator.transform(NEW_COUNTS), W, rtol=1e-3, atol=1e-3)
    # With H fixed, W has converged: its row sums times those of H are the row sums of the data.
    rates = estimator.inverse_transform(W)
    np.testing.assert_allclose(rates.sum(axis=1), known_only.sum(axis=1), rtol=1e-3)


def test_transform_of_empty_rows_is_zero(fitted: tuple[KLNMF, np.ndarray]) -> None:
    W = fitted[0].transform(sp.csr_array((4, 40)))
    np.testing.assert_array_equal(W, np.zeros((4, 3)))


def test_transform_checks_the_number_of_features(fitted: tuple[KLNMF, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="X has 39 features, but KLNMF is expecting 40"):
        fitted[0].transform(COUNTS[:, :39])


def test_sparse_output_holds_the_same_numbers_without_explicit_zeros(
    fitted: tuple[KLNMF, np.ndarray],
) -> None:
    dense, W = fitted
    sparse = model(sparse_output=True)
    W_sparse = sparse.fit_transform(COUNTS)
    for result, expected in (
        (W_sparse, W),
        (sparse.components_, dense.components_),
        (sparse.transform(COUNTS), dense.transform(COUNTS)),
    ):
        assert isinstance(result, sp.csr_array)
        assert result.nnz == np.count_nonzero(expected) < expected.size
        assert (result.data > 0).all()
        np.testing.assert_array_equal(result.toarray(), expected)
    assert sparse.score(COUNTS) == dense.score(COUNTS)
    np.testing.assert_array_equal(sparse.inverse_transform(W_sparse), dense.inverse_transform(W))


# ---- score ---------------------------------------------------------------------------------------


def test_score_prefers_the_planted_rank() -> None:
    planted = simulate_counts(400, 80, 4, counts_per_sample=80, random_state=3)
    train, test = planted.X[:200], planted.X[200:]
    score = {
        r: model(n_components=r, max_iter=1000, tol=1e-2).fit(train).score(test) for r in (1, 4, 60)
    }
    assert score[4] > score[1] + 1
    assert score[4] > score[60] + 1


def test_score_is_deterministic_and_a_float(fitted: tuple[KLNMF, np.ndarray]) -> None:
    estimator, _ = fitted
    first = estimator.score(NEW_COUNTS)
    assert isinstance(first, float)
    assert estimator.score(NEW_COUNTS) == first
    assert estimator.score(NEW_COUNTS.toarray()) == first
    assert estimator.set_params(n_threads=2).score(NEW_COUNTS) == first
    estimator.set_params(n_threads=1)


def test_score_is_finite_for_features_that_the_model_never_saw() -> None:
    X = COUNTS.toarray()
    X[:, :5] = 0
    estimator = model().fit(X)
    assert (estimator.components_[:, :5] == 0).all()
    unseen = np.zeros_like(X)
    unseen[:, :5] = 7  # nothing but features without a rate
    assert np.isfinite(estimator.score(unseen))
    assert np.isfinite(estimator.score(np.zeros_like(X)))
    assert estimator.score(unseen) < estimator.score(X)


@pytest.mark.parametrize("scale", [0.3, 1e-6, 1e8, 1e30])
def test_score_is_finite_for_other_data_than_counts(scale: float) -> None:
    X = COUNTS.toarray() * scale
    estimator = model().fit(X)
    first = estimator.score(X)
    assert np.isfinite(first)
    assert estimator.score(X) == first


# ---- among other estimators ----------------------------------------------------------------------


def test_pipeline_from_text_to_classes() -> None:
    """Eight short texts have poor local optima: the best of ten starts is the one that counts."""
    pipelines = [
        make_pipeline(
            CountVectorizer(),
            model(n_components=2, random_state=seed),
            LogisticRegression(C=100.0),
        ).fit(TEXTS, IS_BAKING)
        for seed in range(10)
    ]
    pipeline = min(pipelines, key=lambda fitted: fitted["klnmf"].divergence_)
    assert pipeline.score(TEXTS, IS_BAKING) == 1.0
    new = ["a ship in the harbour and a stormy sea", "dough and flour in the oven, then bread"]
    np.testing.assert_array_equal(pipeline.predict(new), [0, 1])


def test_grid_search_finds_the_planted_rank_by_score() -> None:
    X = simulate_counts(300, 60, 3, counts_per_sample=100, random_state=5).X
    grid = {"n_components": [1, 3, 40]}
    search = GridSearchCV(model(tol=1e-2, max_iter=1000), grid, cv=3, error_score="raise").fit(X)
    assert search.best_params_ == {"n_components": 3}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_column_transformer_and_names() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame(COUNTS.toarray(), columns=[f"gene {j}" for j in range(40)])
    frame["age"] = np.arange(60.0)
    columns = ColumnTransformer(
        [("topics", model(), [f"gene {j}" for j in range(40)])], remainder="passthrough"
    )
    out = columns.fit_transform(frame)
    assert out.shape == (60, 4)
    np.testing.assert_array_equal(out[:, 3], frame["age"])
    assert list(columns.get_feature_names_out()) == [
        "topics__klnmf0",
        "topics__klnmf1",
        "topics__klnmf2",
        "remainder__age",
    ]


def test_pandas_output_and_feature_names() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    names = [f"word {j}" for j in range(40)]
    frame = pd.DataFrame(COUNTS.toarray(), columns=names, index=[f"doc {i}" for i in range(60)])
    estimator = model().set_output(transform="pandas")
    out = estimator.fit_transform(frame)
    assert isinstance(out, pd.DataFrame)
    assert list(out.columns) == ["klnmf0", "klnmf1", "klnmf2"]
    assert list(estimator.get_feature_names_out()) == list(out.columns)
    pd.testing.assert_index_equal(out.index, frame.index)
    assert list(estimator.feature_names_in_) == names
    np.testing.assert_array_equal(out.to_numpy(), model().fit_transform(COUNTS))
    with pytest.raises(ValueError, match="feature names"):
        estimator.transform(frame.rename(columns={"word 0": "other"}))


@pytest.mark.parametrize("solver", ["srcd", "mu", SparseCoordinateDescent(swap_failures=1)])
def test_clone_keeps_parameters_and_nothing_else(solver: Any) -> None:
    estimator = model(solver=solver, l1_W=0.1, l1_H=0.2, max_iter=3, tol=100.0).fit(COUNTS)
    twin = clone(estimator)
    assert twin.get_params() == estimator.get_params()
    assert not hasattr(twin, "components_")
    np.testing.assert_array_equal(twin.fit(COUNTS).components_, estimator.components_)


def test_solver_instance_is_used() -> None:
    by_name = model().fit(COUNTS)
    same = model(solver=SparseCoordinateDescent()).fit(COUNTS)
    other = model(solver=PaperCoordinateDescent("signed"), tol=0.1).fit(COUNTS)
    np.testing.assert_array_equal(by_name.components_, same.components_)
    assert not np.array_equal(by_name.components_, other.components_)
    assert "signed" in repr(other)


@pytest.mark.parametrize("sparse_output", [False, True])
def test_pickle_round_trip(sparse_output: bool) -> None:
    estimator = model(sparse_output=sparse_output, warm_start=True).fit(COUNTS)
    restored = pickle.loads(pickle.dumps(estimator))
    pairs = [(restored.components_, estimator.components_)]
    pairs.append((restored.transform(NEW_COUNTS), estimator.transform(NEW_COUNTS)))
    for got, expected in pairs:
        difference = got != expected
        assert difference.nnz == 0 if sparse_output else not difference.any()
    assert restored.history_ == estimator.history_
    assert restored.divergence_ == estimator.divergence_


def _components(seed: int, n_threads: int | None) -> np.ndarray:
    return np.asarray(model(random_state=seed, n_threads=n_threads).fit(COUNTS).components_)


def test_parallel_fits_in_processes_equal_serial_ones() -> None:
    serial = [_components(seed, 1) for seed in range(4)]
    parallel = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(_components)(seed, None) for seed in range(4)
    )
    for one, other in zip(serial, parallel, strict=True):
        np.testing.assert_array_equal(one, other)
