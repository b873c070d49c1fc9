"""Other models with the same W Hᵀ."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from klnmf import KLNMF, TopicModel
from klnmf.model_selection import consensus
from klnmf.report import write_report
from klnmf.uncertainty import equal_fits


def dense_factors(seed: int, r: int = 3) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    H = generator.dirichlet(np.ones(12), size=r) + 0.05
    return generator.dirichlet(np.ones(r), size=30) + 0.05, H / H.sum(axis=1, keepdims=True)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_two_components_are_moved_as_far_as_the_ratios_allow(seed: int) -> None:
    W, H = dense_factors(seed, r=2)
    for k, other in ((0, 1), (1, 0)):
        most = np.min(W[:, other] / W[:, k])  # u with h ∝ h_k + u h_l
        least = -np.min(H[k] / H[other])
        gap = abs(H[0] - H[1]).sum() / 2
        expected = max(abs(u / (1 + u)) * gap for u in (most, least))
        assert equal_fits(W, H)[k] == pytest.approx(expected, rel=1e-6)


def test_the_other_model_fits_equally_well() -> None:
    W, H = dense_factors(0)
    # The corner in one direction, by the equations of the product rather than by the function.
    found = linprog(
        [0, -1, 0],
        A_ub=np.vstack([-H.T, [[-np.min(W[:, 1] / W[:, 0]), 1, 0]], [[0, 0, 1]], [[0, 0, -1]]]),
        b_ub=np.zeros(15),
        A_eq=[[1, 1, 1]],
        b_eq=[1],
        bounds=(None, None),
    )
    T = np.eye(3)
    T[0] = found.x
    other_W, other_H = W @ np.linalg.inv(T), T @ H
    np.testing.assert_allclose(other_W @ other_H, W @ H)
    assert other_W.min() > -1e-9
    assert other_H.min() > -1e-9
    assert equal_fits(W, H)[0] >= abs(other_H[0] - H[0]).sum() / 2 - 1e-9


def test_zeros_in_the_right_places_leave_no_room() -> None:
    W, H = dense_factors(0)
    W[:3] = H[:, :3] = np.eye(3)
    np.testing.assert_array_equal(equal_fits(W, H), 0.0)


def test_scales_and_empty_parts_do_not_matter() -> None:
    W, H = dense_factors(1)
    scale = np.array([2.0, 0.5, 30.0])
    np.testing.assert_allclose(equal_fits(W / scale, H * scale[:, np.newaxis]), equal_fits(W, H))
    more = np.column_stack([W, np.zeros(30)]), np.vstack([H, np.zeros(12)])
    np.testing.assert_allclose(equal_fits(*more), [*equal_fits(W, H), 0.0])


def test_the_report_says_so(tmp_path: Path) -> None:
    W, H = dense_factors(0)
    W *= np.linspace(1e3, 2e3, 30)[:, np.newaxis]
    model = KLNMF(3, tol=1e-6, random_state=0)
    W = model.fit_transform(W @ H, H=H)
    page = write_report(tmp_path / "r.html", model, W)
    text = page.read_text(encoding="utf-8")
    farthest = equal_fits(W, model.components_).max()
    assert f"Another model fits equally well, {farthest:.3f} away" in text
    W[:3] = 1000 * np.eye(3)
    H[:, :3] = np.eye(3)
    W = model.fit_transform(W @ H, H=H)
    write_report(page, model, W)
    assert "Another model" not in page.read_text(encoding="utf-8")


def test_the_report_does_not_judge_components_that_were_given(tmp_path: Path) -> None:
    """Means of a posterior are never 0, so that they could be moved whatever the data say."""
    W, H = dense_factors(0)
    page = write_report(tmp_path / "r.html", KLNMF.from_components(H, converged=True), W)
    assert "Another model" not in page.read_text(encoding="utf-8")


def test_summaries_and_consensus_say_so() -> None:
    W, H = dense_factors(0, r=2)
    said = f"Another model fits equally well, {equal_fits(W, H).max():.3f} away in "
    agreed = consensus(np.random.default_rng(0).poisson(2000 * W @ H), 2, n_runs=3, random_state=0)
    agreed = dataclasses.replace(agreed, W=W, components=H)
    assert f"{said}component" in str(agreed)
    assert "determine 2 of the 2 components exactly" in " ".join(str(agreed).split())
    W[:2] = H[:, :2] = np.eye(2)
    assert "Another model" not in str(dataclasses.replace(agreed, W=W, components=H))
    topics = TopicModel(2, min_df=1, max_df=1.0).fit(
        ["aa bb bb cc", "aa aa bb cc", "cc cc aa bb", "bb cc cc aa"]
    )
    distance = equal_fits(topics.W_, topics.nmf_.components_).max()
    assert ("Another model" in topics.summary()) == (distance >= 1e-3)
    topics.W_ = np.array([[1.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 2.0]])
    assert "fits equally well" in topics.summary()
