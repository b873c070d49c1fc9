"""Features that tell components apart: fold changes, errors and tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import false_discovery_control, kstest, norm

from klnmf import KLNMF, MiniBatchKLNMF
from klnmf.simulate import draw_counts
from klnmf.uncertainty import (
    DifferentialFeatures,
    differential,
    differential_features,
    row_blocks,
)
from klnmf.uncertainty.comparison import compared_shares, interval
from klnmf.uncertainty.feature_regressions import Regressions

# Three components with the same shares of 60 features, and ten features of each one's own.
GENERATOR = np.random.default_rng(0)
BASE = GENERATOR.dirichlet(np.full(60, 2.0)) * 0.6
OWN = np.kron(np.eye(3), GENERATOR.dirichlet(np.full(10, 2.0)) * 0.4)
COMPONENTS = np.hstack([np.tile(BASE, (3, 1)), OWN])
W = GENERATOR.dirichlet(np.full(3, 0.5), size=200) * 150.0
X = draw_counts(W, COMPONENTS, random_state=1)


@pytest.fixture(scope="module", name="model")
def model_of_the_truth() -> KLNMF:
    """The planted components, so that numbers and truth are in the same order."""
    return KLNMF.from_components(COMPONENTS.astype(np.float32))


@pytest.fixture(scope="module", name="found")
def nearest_others(model: KLNMF) -> DifferentialFeatures:
    return differential_features(model, X, W=W)


# ---- regressions ---------------------------------------------------------------------------------


def small_problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts by feature, parts in samples, and pseudo-counts."""
    generator = np.random.default_rng(3)
    L = generator.gamma(1.0, size=(12, 3)) * 4.0
    L[:4, 0] = L[4:8, 1] = 0.0
    x = generator.gamma(1.0, size=(5, 3))
    x[0, 2] = x[1, 0] = 0.0
    counts = generator.poisson(x @ L.T).astype(float)
    counts[4] = 0.0
    counts[4, 0] = 2.0  # a feature that is in one sample only
    return counts, L, np.array([0.3, 0.5, 0.7])


def cost(x: np.ndarray, v: np.ndarray, L: np.ndarray, pseudo: np.ndarray | float = 0.0) -> float:
    """Minus the log-likelihood of one feature over all samples, and the pseudo-counts' part."""
    rates = L @ x
    with np.errstate(divide="ignore"):
        fitted = np.where(v > 0, v * np.log(np.where(v > 0, rates, 1.0)), 0.0)
    return float(rates.sum() - fitted.sum() - np.sum(pseudo * np.log(x)))


def test_shares_have_the_greatest_likelihood() -> None:
    counts, L, _ = small_problem()
    x = Regressions(sp.csr_array(counts), L, 1).shares()
    for j in range(5):
        best = minimize(cost, np.ones(3), (counts[j], L), bounds=[(1e-12, None)] * 3, tol=1e-14)
        assert cost(np.maximum(x[j], 1e-300), counts[j], L) == pytest.approx(best.fun, rel=1e-9)


def test_moderated_shares_are_positive_and_maximise_the_penalised_likelihood() -> None:
    counts, L, pseudo = small_problem()
    regressions = Regressions(sp.csr_array(counts), L, 1)
    x = regressions.moderated_shares(pseudo)
    assert x.min() > 0.0
    for j in range(5):
        for k in range(3):
            step = np.zeros(3)
            step[k] = 1e-5 * x[j, k]
            slope = cost(x[j] + step, counts[j], L, pseudo) - cost(
                x[j] - step, counts[j], L, pseudo
            )
            assert abs(slope) / 2e-5 < 1e-4 * counts[j].sum()  # in log x_k


@pytest.mark.parametrize("entries_at_once", [1 << 22, 10])
def test_information_is_the_curvature_of_the_likelihood(
    entries_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_blocks, "ENTRIES_AT_ONCE", entries_at_once)
    counts, L, pseudo = small_problem()
    regressions = Regressions(sp.csr_array(counts), L, 1)
    x = regressions.moderated_shares(pseudo)
    covariances = np.concatenate(
        [block for _, block in regressions.log_share_covariances(x, pseudo, np.zeros(5))]
    )
    h = 1e-4
    for j in range(5):

        def at(*steps: tuple[int, float], j: int = j) -> float:
            logs = np.log(x[j])
            for k, step in steps:
                logs[k] += step
            return cost(np.exp(logs), counts[j], L, pseudo)

        curvature = np.array(
            [
                [
                    (
                        at((k, h), (l, h))
                        - at((k, h), (l, -h))
                        - at((k, -h), (l, h))
                        + at((k, -h), (l, -h))
                    )
                    / (4 * h * h)
                    for l in range(3)  # noqa: E741
                ]
                for k in range(3)
            ]
        )
        # At the optimum the curvature in log x is that of the information: the slope is 0 there.
        np.testing.assert_allclose(np.linalg.inv(covariances[j]), curvature, rtol=1e-3, atol=1e-3)


# ---- comparisons ---------------------------------------------------------------------------------


def test_sides_and_references(model: KLNMF) -> None:
    options: dict[str, Any] = {"components": [0], "W": W}
    pair = differential_features(model, X, 2, alternative="two-sided", **options)
    assert pair.z.shape == (1, 90)
    np.testing.assert_allclose(pair.p_value, 2 * norm.sf(np.abs(pair.z)))
    assert np.all(pair.reference == 2)
    others = differential_features(model, X, "others", **options)
    np.testing.assert_allclose(others.p_value, norm.sf(others.z))
    assert np.all(others.reference == -1)


def test_p_values_are_uniform_where_shares_are_equal(model: KLNMF) -> None:
    p_values = []
    for seed in range(4):
        counts = draw_counts(W, COMPONENTS, random_state=100 + seed)
        pair = differential_features(model, counts, 1, alternative="two-sided", W=W)
        p_values.append(pair.p_value[0, :60])  # one pair: independent tests
    assert kstest(np.concatenate(p_values), "uniform").pvalue > 0.01
    assert 0.02 < np.mean(np.concatenate(p_values) < 0.05) < 0.09


def test_intervals_of_fold_changes_cover_no_change(model: KLNMF) -> None:
    pair = differential_features(model, X, 1, components=[0], alternative="two-sided", W=W)
    covered = (pair.lower <= 0.0) & (pair.upper >= 0.0)
    assert 0.88 < covered[0, :60].mean() <= 1.0
    wald = 2 * norm.ppf(0.975) * pair.standard_error
    assert 0.95 < np.median((pair.upper - pair.lower) / wald) < 1.05


@pytest.mark.parametrize("against", ["nearest", "others", 1])
def test_test_interval_and_shares_of_a_feature_agree(model: KLNMF, against: str | int) -> None:
    """Noise of a gamma variable, and a component that few samples have: rough data."""
    generator = np.random.default_rng(5)
    rough_W = W * [1.0, 0.3, 0.05]
    counts = generator.poisson(rough_W @ COMPONENTS * generator.gamma(0.5, 2.0, (200, 90)))
    found = differential_features(model, counts, against, W=rough_W)
    tested = np.isfinite(found.z)
    quantile = norm.ppf(0.975)
    np.testing.assert_array_equal(found.lower[tested] > 0, found.z[tested] > quantile)
    np.testing.assert_array_equal(found.upper[tested] < 0, found.z[tested] < -quantile)
    np.testing.assert_array_equal(found.p_value[tested], norm.sf(found.z[tested]))
    assert np.all(found.z[tested] * found.log2_fold_change[tested] >= 0.0)
    assert np.all(found.lower[tested] <= found.log2_fold_change[tested])
    assert np.all(found.upper[tested] >= found.log2_fold_change[tested])
    np.testing.assert_allclose(
        found.log2_fold_change[tested],
        np.log2(found.share[tested] / found.reference_share[tested]),
        atol=1e-9,
    )


@given(
    wald=st.floats(-30.0, 30.0),
    ratio=st.floats(0.0, 20.0),
    error=st.floats(1e-3, 50.0),
    q=st.floats(0.1, 5.0),
)
def test_intervals_exclude_no_change_if_the_test_does(
    wald: float, ratio: float, error: float, q: float
) -> None:
    change, z = np.array([wald * error]), np.array([wald * ratio])
    lower, upper = interval(change, np.array([error]), z, q)
    assert lower[0] <= change[0] <= upper[0]
    assert np.isfinite([lower[0], upper[0]]).all()
    if abs(abs(z[0]) - q) > 1e-9 * q and abs(wald) > 1e-6:
        assert (lower[0] > 0) == (z[0] > q)
        assert (upper[0] < 0) == (z[0] < -q)
    mirrored = interval(-change, np.array([error]), -z, q)
    np.testing.assert_allclose(mirrored, [-upper, -lower], rtol=1e-12)
    plain = interval(change, np.array([error]), change / error, q)
    np.testing.assert_allclose(
        plain[:, 0], change[0] + q * error * np.array([-1, 1]), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("against", ["others", 2])
def test_errors_of_fold_changes_come_from_the_information(model: KLNMF, against: str | int) -> None:
    found = differential_features(model, X, against, components=[0], W=W)
    regressions = Regressions(sp.csr_array(X.T), W, 1)
    sizes = regressions.sizes
    weights = np.eye(3)[2] if against == 2 else sizes * [0, 1, 1] / sizes[1:].sum()
    pseudo = 1.5 * sizes / sizes.sum()
    x = regressions.moderated_shares(pseudo)
    assert found.dispersion is not None
    alpha = found.dispersion.by_feature
    [(_, covariances)] = regressions.log_share_covariances(x, pseudo, alpha)

    def change(logs: np.ndarray) -> float:
        return float(np.log2(np.exp(logs[0]) / (weights @ np.exp(logs))))

    for j in (3, 61, 75):
        logs = np.log(x[j])
        slopes = [(change(logs + step) - change(logs - step)) / 2e-5 for step in 1e-5 * np.eye(3)]
        assert found.log2_fold_change[0, j] == pytest.approx(change(logs), abs=1e-6)
        expected = np.sqrt(slopes @ covariances[j] @ slopes)
        assert found.standard_error[0, j] == pytest.approx(expected, rel=1e-5)


def test_own_features_are_found_and_shared_ones_are_not(found: DifferentialFeatures) -> None:
    is_own = COMPONENTS > 0.0
    is_own[:, :60] = False
    hit = found.q_value <= 0.05
    assert hit[is_own].all()
    assert not hit[:, :60].any()
    assert np.all(found.log2_fold_change[is_own] > 2.0)
    assert np.all(np.isfinite(found.log2_fold_change))
    np.testing.assert_allclose(
        found.q_value.ravel(), false_discovery_control(found.p_value.ravel(), method="bh")
    )


def test_nearest_is_the_component_that_is_hardest_to_tell(model: KLNMF) -> None:
    components = COMPONENTS.copy()
    components[1, 60:70] = 0.5 * components[0, 60:70]  # component 1 has half of what 0 has
    counts = draw_counts(W, components, random_state=2)
    found = differential_features(model, counts, components=[0], W=W)
    assert np.all(found.reference[0, 60:70] == 1)
    pairs = [differential_features(model, counts, other, W=W).z[0] for other in (1, 2)]
    np.testing.assert_allclose(found.z[0, 60:70], pairs[0][60:70], atol=1e-6)
    assert np.all(pairs[0][60:70] < pairs[1][60:70])
    assert np.all(np.abs(found.log2_fold_change[0, 60:70] - 1.0) < 0.8)


def test_nearest_has_the_largest_p_value_of_all_pairs(model: KLNMF) -> None:
    """Wald ratios, which choose the pair that is tested first, do not always name it."""
    generator = np.random.default_rng(1)
    few = generator.dirichlet([1.0, 1.0, 0.05], size=200) * 60.0
    counts = generator.poisson(few @ COMPONENTS * generator.gamma(0.3, 1 / 0.3, (200, 90)))
    nearest = differential_features(model, counts, components=[0], W=few)
    pairs = [differential_features(model, counts, k, components=[0], W=few) for k in (1, 2)]
    largest = np.maximum(*(pair.p_value[0] for pair in pairs))
    small = largest < 0.2
    assert small.sum() > 5
    np.testing.assert_allclose(nearest.p_value[0, small], largest[small], rtol=1e-6)
    assert np.all(nearest.p_value[0, ~small & np.isfinite(largest)] > 0.19)


@pytest.mark.parametrize("against", ["nearest", "others"])
def test_components_of_fixed_columns_are_no_reference(against: str) -> None:
    """Columns of batches sum to all counts: no share can be told from that of a batch."""
    counts = draw_counts(W, COMPONENTS, random_state=3)
    totals = np.asarray(counts.sum(axis=1)).ravel()
    batch = np.random.default_rng(0).integers(2, size=200)
    columns = np.eye(2)[batch] * totals[:, np.newaxis]
    plain = KLNMF(3, random_state=0).fit(counts)
    model = KLNMF(5, random_state=0).fit(counts, fixed_W=columns)
    n_plain = (differential_features(plain, counts, against).q_value <= 0.05).sum()
    found = differential_features(model, counts, against, fixed_W=columns)
    assert found.components.tolist() == [0, 1, 2]
    assert found.reference.max() < 3
    assert n_plain >= 28
    assert (found.q_value <= 0.05).sum() > 0.9 * n_plain
    every = differential_features(model, counts, against, fixed_W=columns, nuisance=[])
    assert every.components.tolist() == [0, 1, 2, 3, 4]
    assert (every.q_value[:3] <= 0.05).sum() < 0.5 * n_plain
    again = differential_features(model, counts, against, fixed_W=columns, nuisance=[3, 4])
    np.testing.assert_array_equal(again.z, found.z)


def test_a_pair_is_antisymmetric(model: KLNMF) -> None:
    arguments: dict[str, Any] = {"alternative": "two-sided", "W": W}
    one = differential_features(model, X, 1, components=[0], **arguments)
    other = differential_features(model, X, 0, components=[1], **arguments)
    np.testing.assert_allclose(one.z, -other.z, atol=1e-6)
    np.testing.assert_allclose(one.log2_fold_change, -other.log2_fold_change, atol=1e-6)
    np.testing.assert_allclose(one.p_value, other.p_value, rtol=1e-5)


def test_scale_of_the_factors_and_threads_do_not_matter(model: KLNMF) -> None:
    scales = np.array([1.0, 100.0, 0.01])
    scaled = KLNMF(3).fit(X, H=COMPONENTS)
    scaled.components_ = (COMPONENTS * scales[:, np.newaxis]).astype(np.float32)
    one = differential_features(model, X, "others", W=W, n_threads=1)
    other = differential_features(scaled, X, "others", W=W / scales, n_threads=2)
    np.testing.assert_allclose(one.z, other.z, atol=1e-4)
    np.testing.assert_allclose(one.lower, other.lower, atol=1e-4)


def test_w_may_be_sparse(model: KLNMF) -> None:
    given = differential_features(model, X, W=model.transform(X))
    sparse = differential_features(model, X, W=sp.csr_array(model.transform(X)))
    np.testing.assert_allclose(given.z, sparse.z)


def test_what_is_empty_is_not_compared(model: KLNMF) -> None:
    counts = sp.lil_array(X)
    counts[:, 5] = 0
    empty_W = W.copy()
    empty_W[7] = 0.0
    found = differential_features(model, counts, W=empty_W)
    assert np.isnan(found.q_value[:, 5]).all()
    assert np.isfinite(np.delete(found.q_value, 5, axis=1)).all()
    empty_W[:, 2] = 0.0
    found = differential_features(model, counts, "others", W=empty_W)
    assert np.isnan(found.z[2]).all()
    assert np.isfinite(np.delete(found.z[:2], 5, axis=1)).all()
    without_first = W * [0.0, 1.0, 1.0]
    found = differential_features(model, X, W=without_first)
    assert np.all(found.reference[1] == 2)
    assert np.all(found.reference[2] == 1)
    with_empty = differential_features(model, counts, 2, W=empty_W)
    assert np.isnan(with_empty.p_value).all()
    assert "0 tests" in str(with_empty)


def test_mini_batch_models_are_compared_too() -> None:
    model = MiniBatchKLNMF(3, random_state=0).fit(X)
    assert (differential_features(model, X).q_value <= 0.05).sum() >= 25


# ---- result --------------------------------------------------------------------------------------


def test_table_is_ordered_by_the_sure_change(found: DifferentialFeatures) -> None:
    table = found.table(2, None)
    assert len(table["feature"]) == 10
    assert np.all(np.diff(table["lower"]) <= 0)
    assert {int(name.split()[1]) for name in table["feature"]} == set(range(80, 90))
    assert len(found.table(2, 4)["z"]) == 4
    assert len(found.table(2, None, max_q=1.0)["z"]) == 90
    with pytest.raises(ValueError, match="one of those tested: 0, 1, 2; got 3"):
        found.table(3)


@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
def test_a_smaller_share_is_never_called_larger(
    alternative: str, model: KLNMF, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"W": W, "against": "others", "alternative": alternative}
    before = differential_features(model, X, **options)
    j = int(np.nanargmin(before.q_value[1]))
    assert before.q_value[1, j] < 0.01

    def turned(*arguments: Any) -> Any:
        result = compared_shares(*arguments)
        result.log2_fold_change[1, j] *= -1.0
        return result

    monkeypatch.setattr(differential, "compared_shares", turned)
    after = differential_features(model, X, **options)
    assert after.p_value[1, j] >= 0.5
    assert after.q_value[1, j] > 0.05
    others = np.arange(X.shape[1]) != j
    np.testing.assert_array_equal(after.p_value[:, others], before.p_value[:, others])


def test_printed_and_as_a_frame(found: DifferentialFeatures, model: KLNMF) -> None:
    text = str(found)
    assert "than Poisson counts do. W is given, and taken as known" in text
    assert "uncertainty of the components" in str(differential_features(model, X))
    assert "are taken as Poisson counts" in str(replace(found, dispersion=None))
    assert "270 tests" in text
    assert [line.split()[:2] for line in text.splitlines()[2:5]] == [
        ["0", "10"],
        ["1", "10"],
        ["2", "10"],
    ]
    frame = found.to_frame()
    assert len(frame) == 270
    row = frame[(frame.component == 1) & (frame.feature == "feature 71")].iloc[0]
    assert row.q_value == found.q_value[1, 71]
    names = [f"gene{j}" for j in range(90)]
    named = differential_features(model, X, 0, components=[2, 1], feature_names=names)
    assert named.components.tolist() == [2, 1]
    assert set(named.table(1)["feature"]) <= {f"gene{j}" for j in range(70, 80)}
    assert "compared with component 0" in str(named)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"against": "rest"}, "against must be 'nearest', 'others' or a component from 0 to 2"),
        ({"against": 3}, "against must be 'nearest', 'others' or a component from 0 to 2; got 3"),
        ({"components": [3]}, "components must be a list of numbers from 0 to 2"),
        ({"nuisance": [3]}, "nuisance must be a list of numbers from 0 to 2"),
        ({"nuisance": [1, 2]}, "only one component to compare"),
        ({"components": []}, "components must be a list of numbers from 0 to 2"),
        ({"components": [1], "against": 1}, "cannot be compared with itself"),
        ({"alternative": "less"}, "alternative must be 'greater' or 'two-sided'; got 'less'"),
        ({"alternative": "two-sided"}, "requires alternative='greater'"),
        ({"level": 1.0}, "level must be between 0 and 1"),
        ({"W": W[:5]}, "W has 5 rows for the 200 samples"),
        ({"W": W[:, :2]}, "W must have one column per component"),
        ({"X": X * 0.5}, "not whole numbers"),
        ({"feature_names": ["a"]}, "feature_names has 1 names for 90 features"),
    ],
)
def test_wrong_arguments_are_named(model: KLNMF, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        differential_features(**{"model": model, "X": X, **arguments})


def test_one_component_has_nothing_to_be_compared_with() -> None:
    with pytest.raises(ValueError, match="one component"):
        differential_features(KLNMF(1, random_state=0).fit(X), X)
