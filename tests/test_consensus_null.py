"""What noise gives in a consensus, and constraints on its runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from constraint_cases import divergence
from klnmf import KLNMF
from klnmf.constraints.checks import check_constraints
from klnmf.model_selection import Consensus, consensus
from klnmf.model_selection.consensus_null import null_counts
from klnmf.objective import kl_divergence
from klnmf.simulate import simulate_counts
from klnmf.topics import match_components

N, M = 200, 100
GENERATOR = np.random.default_rng(0)
H = GENERATOR.dirichlet(np.full(M, 0.1), 4)
W = 300 * GENERATOR.dirichlet(np.full(4, 0.3), N)


def negative_binomial(means: np.ndarray, size: float) -> np.ndarray:
    return GENERATOR.poisson(means * GENERATOR.gamma(size, 1 / size, means.shape))


PLANTED = negative_binomial(W @ H, 3.0)
NOISE = negative_binomial(np.outer(np.full(N, 300.0), GENERATOR.dirichlet(np.full(M, 0.3))), 1.0)
WEIGHTS = GENERATOR.integers(0, 3, N).astype(float)
KNOWN = {
    "sample_weight": WEIGHTS,
    "feature_weight": np.where(np.arange(M) % 9 == 0, 0, 0.5 + GENERATOR.random(M)),
    "exposure": 0.5 + GENERATOR.random(N),
    "missing": sp.csr_array(GENERATOR.random((N, M)) < 0.1),
}


def test_starts_agree_on_noise_and_the_null_says_so() -> None:
    found = consensus(NOISE, 4, n_runs=10, random_state=0)
    assert found.null is not None
    assert found.null.dispersion == pytest.approx(1.0, abs=0.15)
    assert found.silhouette.max() > 0.8  # it looks as if something had been found
    assert found.stability.max() > 0.99
    assert found.null.silhouette.max() > 0.8
    assert found.null.stability.max() > 0.99
    assert "and variance y + " in str(found)


def test_an_empty_null_is_said_to_be_empty(tmp_path: Path) -> None:
    found = consensus(PLANTED, 4, n_runs=6, density_threshold=0.05, random_state=0)
    assert found.null is not None
    assert found.null.is_empty
    assert found.null.n_left_out > 20
    table = found.table()
    for name in ("run_share", "silhouette", "stability"):
        assert np.isnan(table[f"null_{name}"]).all()
        assert not np.isnan(table[name]).any()
    shown = str(found)
    assert "(null)" not in shown
    assert "above all of the null" not in shown
    assert "The null is empty: 6 runs on one draw of counts of mean y" in shown
    assert "With density_threshold=0.05, fewer than 4 of their 24 components are close" in shown
    found.save(tmp_path / "found")
    assert str(Consensus.load(tmp_path / "found")) == shown
    # Version 0.2.0 wrote zeros.
    zeros = dict.fromkeys(("run_share", "silhouette", "stability"), np.zeros(4))
    replace(found, null=replace(found.null, **zeros)).save(tmp_path / "older")
    assert str(Consensus.load(tmp_path / "older")) == shown


def test_planted_components_agree_better_than_the_null() -> None:
    found = consensus(PLANTED, 4, n_runs=10, n_null_runs=6, random_state=0)
    assert found.null is not None
    assert found.null.n_runs == 6
    assert f"no structure; {found.null.n_left_out} of their 24 components were left out" in str(
        found
    )
    assert found.null.dispersion == pytest.approx(1 / 3, abs=0.08)
    assert found.silhouette.min() > 0.99 > 0.95 > found.null.silhouette.max()
    assert (np.diff(found.null.silhouette) <= 0).all()
    table = found.table()
    best = int(np.argmax(found.silhouette))
    assert table["null_silhouette"][best] == found.null.silhouette[0]
    assert list(table)[:3] == ["component", "run_share", "null_run_share"]


@pytest.mark.parametrize("known", [{}, KNOWN], ids=["plain", "known"])
def test_the_null_has_the_margins_and_the_dispersion_of_x(known: dict[str, Any]) -> None:
    X = sp.csr_array(PLANTED.astype(np.float32))
    constraints = check_constraints(known, X.shape, 4, X.dtype)
    if known:
        X = sp.csr_array(X * ~known["missing"].toarray()).astype(np.float32)
    X.eliminate_zeros()
    null = null_counts(X, 4, constraints, 0, 1)
    assert null.dispersion == pytest.approx(1 / 3, abs=0.1)
    observed = np.ones((N, M))
    if known:
        observed = ~known["missing"].toarray() * (known["feature_weight"] > 0)
    for axis in (0, 1):
        of_x, of_null = ((A.toarray() * observed).sum(axis=axis) for A in (X, null.X))
        noise = 5 * np.sqrt(of_x + 1 + 0.4 * (of_x**2) / 20)
        assert (abs(of_x - of_null) < noise).all()
    assert not (null.X.toarray() * ~(observed > 0)).any() or not known


@pytest.mark.parametrize("names", [["sample_weight"], ["exposure"], ["missing"], [*KNOWN]], ids=str)
@pytest.mark.parametrize("refit", ["W", "both"])
def test_constraints_hold_in_all_runs(names: list[str], refit: str) -> None:
    known = {name: KNOWN[name] for name in names}
    settings: dict[str, Any] = {"n_runs": 4, "n_null_runs": 2, "random_state": 0}
    found = consensus(PLANTED, 4, refit=refit, dtype=np.float64, **settings, **known)
    assert found.divergence == pytest.approx(
        divergence(PLANTED, found.W, found.components, known), rel=1e-6
    )
    weighted = KLNMF(4, feature_weight=known.get("feature_weight"), random_state=0)
    of_samples = {name: value for name, value in known.items() if name != "feature_weight"}
    best = weighted.fit(PLANTED, **of_samples).divergence_
    assert found.divergence == pytest.approx(best, rel=0.02 if refit == "W" else 2e-3)
    model = found.to_model()
    assert set(model.constraint_names_) == set(names)
    of_new = {name: value for name, value in of_samples.items() if name != "sample_weight"}
    np.testing.assert_allclose(model.transform(PLANTED, **of_new), found.W, atol=0.1)
    margins = model.components_.T @ model.W_sums_
    w, e = (known.get(name, np.ones(N)) for name in ("sample_weight", "exposure"))
    np.testing.assert_allclose(margins, (w * e) @ found.W @ found.components, rtol=1e-6)
    kept = np.asarray(known.get("feature_weight", np.ones(M))) > 0
    assert match_components(found.components[:, kept], H[:, kept]).similarity.min() > 0.9


def test_a_missing_cell_may_hold_anything() -> None:
    settings: dict[str, Any] = {"n_runs": 3, "random_state": 0, "missing": KNOWN["missing"]}
    filled = np.where(KNOWN["missing"].toarray(), np.nan, PLANTED)
    one, other = (consensus(X, 3, **settings) for X in (PLANTED, filled))
    np.testing.assert_array_equal(one.components, other.components)
    assert one.null is not None
    assert other.null is not None
    np.testing.assert_array_equal(one.null.silhouette, other.null.silhouette)


def test_components_of_given_columns_are_in_every_run(tmp_path: Path) -> None:
    """They are not grouped, keep their scale, and stand last."""
    generator = np.random.default_rng(0)
    X, W, H = simulate_counts(120, 40, 3, counts_per_sample=300, random_state=0)
    batch, profile = generator.integers(2, size=120), generator.dirichlet(np.full(40, 0.2), 2)
    columns = np.eye(2)[batch] * W.sum(axis=1, keepdims=True)
    X = generator.poisson(W @ H.T + 0.4 * columns @ profile)
    found = consensus(X, 5, n_runs=4, n_jobs=1, random_state=0, fixed_W=columns)
    found.save(tmp_path / "found.klnmf")
    loaded = Consensus.load(tmp_path / "found.klnmf")
    for one in (found, loaded):
        assert one.n_fixed_W == 2
        np.testing.assert_allclose(one.W[:, 3:], columns, rtol=1e-6)
        np.testing.assert_allclose(one.components[:3].sum(axis=1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(one.components[3:].sum(axis=1), 0.4, rtol=0.25)
        # What all profiles share cannot be told from a part that all components share.
        between = one.components[4] - one.components[3]
        np.testing.assert_allclose(between, 0.4 * (profile[1] - profile[0]), atol=0.02)
        for name in ("run_share", "silhouette", "stability"):
            assert np.isnan(getattr(one, name)).tolist() == [False] * 3 + [True] * 2
            assert np.isnan(getattr(one.null, name)).tolist() == [False] * 3 + [True] * 2
        assert "of 3; above all of the null" in str(one)
    model = loaded.to_model()
    assert model.n_fixed_W_ == 2
    again = model.transform(X, fixed_W=columns)
    np.testing.assert_allclose(again, found.W, atol=0.01 * found.W.max())
    with pytest.raises(ValueError, match="All 2 components have fixed columns"):
        consensus(X, 2, n_runs=2, fixed_W=columns)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fixed_components", "would be in every run"),
        ("zero_components", "by their numbers"),
        ("zero_W", "by their numbers"),
        ("l1_W", "depends on the scale"),
        ("l2_H", "depends on the scale"),
    ],
)
def test_what_has_no_meaning_across_runs_is_refused_by_name(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"consensus does not take {name}: it {reason}|{reason}"):
        consensus(PLANTED, 3, n_runs=2, **{name: np.ones((3, M))})
    with pytest.raises(TypeError, match="consensus does not take the argument 'weights'"):
        consensus(PLANTED, 3, n_runs=2, weights=np.ones(N))


def test_values_that_are_not_whole_have_no_null() -> None:
    scaled = PLANTED * (0.5 + GENERATOR.random(M))
    found = consensus(scaled, 3, n_runs=3, random_state=0)
    assert found.null is None
    with pytest.raises(ValueError, match=r"not whole numbers.*n_null_runs=5.*n_null_runs=0"):
        consensus(scaled, 3, n_runs=3, n_null_runs=5)
    assert kl_divergence(scaled, found.W, found.components) == pytest.approx(
        found.divergence, rel=1e-4
    )


def test_leading_features_are_printed_where_there_are_names() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"gene {j}" for j in range(M)]
    frame = pandas.DataFrame(PLANTED, columns=names)
    found = consensus(frame, 3, n_runs=3, random_state=0)
    leading = found.leading_features(3)
    assert [len(features) for features in leading] == [3, 3, 3]
    lines = str(found).splitlines()
    assert lines[0].endswith("leading features")
    for line, features in zip(lines[1:4], found.leading_features(), strict=True):
        assert line.endswith(", ".join(features))
    assert list(found.to_model().feature_names_in_) == names
    bare = consensus(PLANTED, 3, n_runs=3, random_state=0)
    assert bare.leading_features() == [[], [], []]
    assert "leading" not in str(bare)
