"""The fit of a sample by which a fit of many rows leaves its local optimum."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import NO_PENALTIES
from klnmf.data.sparse_data import InMemoryData
from klnmf.readers import prepare
from klnmf.simulate import simulate_counts
from klnmf.solvers import SparseCoordinateDescent, coordinate_descent, sample_fit
from klnmf.solvers.base import Problem, State
from klnmf.solvers.sample_fit import drawn_rows
from strategies import NO_MOMENTUM, srcd

RANK = 12
PLANTED = simulate_counts(
    3000, 300, RANK, concentration_W=0.05, concentration_H=0.05, counts_per_sample=60,
    random_state=2,
)  # fmt: skip
# A feature that a sample hardly has, and one that it may not have at all.
COUNTS = sp.csr_array(
    sp.hstack([PLANTED.X, sp.csr_array(np.eye(3000, 2) + np.eye(3000, 2, -50))]), dtype=np.float64
)
ON_ALL = SparseCoordinateDescent(swap_on_sample=False)
EARLY = srcd(swap_gain=0.5)  # after the second iteration


@pytest.fixture(autouse=True)
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_fit, "LEAST_NONZEROS", 500)
    monkeypatch.setattr(sample_fit, "LEAST_ROWS", 16)


def model(**parameters: Any) -> KLNMF:
    return KLNMF(**{"n_components": RANK, "random_state": 0, "n_threads": 1, **parameters})


def problem_of(X: sp.csr_array) -> Problem:
    return Problem(CpuBackend(InMemoryData(X), 1), NO_PENALTIES)


def draw(X: sp.csr_array, n_components: int = RANK) -> Any:
    return drawn_rows(problem_of(X), n_components, np.random.default_rng(0))


# ---- the sample ----------------------------------------------------------------------------------


def test_a_sample_has_its_share_of_the_nonzeros() -> None:
    rows = draw(COUNTS)
    assert (np.diff(rows) > 0).all()
    assert COUNTS[rows].nnz == pytest.approx(sample_fit.SHARE * COUNTS.nnz, rel=0.01)


def test_a_sample_has_enough_for_every_component(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_fit, "LEAST_NONZEROS", 1)
    assert len(draw(COUNTS, 60)) == 60 * sample_fit.LEAST_ROWS
    monkeypatch.setattr(sample_fit, "LEAST_NONZEROS", 2000)
    assert COUNTS[draw(COUNTS)].nnz == pytest.approx(2000 * RANK, rel=0.01)


def test_a_sample_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_fit, "MOST_NONZEROS", 900)
    assert COUNTS[draw(COUNTS)].nnz == pytest.approx(900 * RANK, rel=0.01)


def test_rows_without_counts_are_not_drawn() -> None:
    X = sp.csr_array(sp.vstack([sp.csr_array((20_000, COUNTS.shape[1])), COUNTS]))
    assert (draw(X) >= 20_000).all()


def test_there_is_none_of_few_rows_or_with_constraints_on_rows() -> None:
    assert draw(sp.csr_array(COUNTS[:300])) is None
    assert draw(sp.csr_array((0, 5))) is None
    assert draw(sp.csr_array((5, 5))) is None
    missing = sp.csr_array(([1.0], ([0], [0])), shape=COUNTS.shape)
    ends = [
        model(max_iter=3, tol=0.9, solver=solver).fit(COUNTS, missing=missing)
        for solver in (replace(EARLY, swap_on_sample=False), EARLY)
    ]
    np.testing.assert_array_equal(ends[0].components_, ends[1].components_)


# ---- what a fit makes of it ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_a_fit_ends_as_low_with_a_sample(dtype: type, penalty: float) -> None:
    how = {"l1_W": penalty, "l1_H": penalty, "dtype": dtype}
    fit, on_all = (model(solver=s, **how).fit(COUNTS) for s in ("srcd", ON_ALL))
    objectives = [record["objective"] for record in fit.history_]
    allowed = (1e-8 if dtype == np.float32 else 1e-12) * COUNTS.sum()
    assert all(after <= before + allowed for before, after in pairwise(objectives))
    assert objectives[-1] <= 1.001 * on_all.history_[-1]["objective"]
    assert objectives != [record["objective"] for record in on_all.history_]


def test_features_may_all_be_too_rare_for_the_sample() -> None:
    """Every word in one document, or every purchase of another thing."""
    with_penalties = {"l1_W": 0.1, "l1_H": 0.1}
    for how in ({}, with_penalties):
        fit = model(n_components=2, solver=EARLY, max_iter=5, tol=0.9, **how)
        W = fit.fit_transform(sp.eye_array(5000, format="csr"))
        assert np.isfinite(W).all()
        assert fit.converged_


def test_what_the_sample_led_to_is_not_kept_if_it_is_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def even(problem: Problem, state: State, *rest: Any) -> list[Any]:
        tried.append(state.iteration)
        return [np.ones_like(factor) for factor in state.factors]

    monkeypatch.setattr(coordinate_descent, "fitted_on_rows", even)
    without = srcd(NO_MOMENTUM, swap_failures=0)
    early = srcd(NO_MOMENTUM, swap_gain=0.5, swap_descents=1)
    fits = [model(solver=solver).fit(COUNTS) for solver in (early, without)]
    assert tried == [2]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)


def test_swaps_are_tried_on_the_sample_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    try_swap = SparseCoordinateDescent._try_swap
    trials = []

    def noted(self: Any, problem: Problem, *rest: Any) -> bool:
        kept = try_swap(self, problem, *rest)
        trials.append((problem.backend.data.shape[0] < len(PLANTED.W), kept))
        return kept

    monkeypatch.setattr(SparseCoordinateDescent, "_try_swap", noted)
    for seed in range(5):
        model(random_state=seed).fit(COUNTS)
    assert (True, True) in trials  # some pay
    assert all(is_on_sample for is_on_sample, _ in trials)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_bits_do_not_depend_on_threads_nor_on_pieces() -> None:
    how = {"solver": EARLY, "tol": 0.0}
    fits = [model(n_threads=n, max_iter=4, **how).fit(COUNTS) for n in (1, 2, 5)]
    fits.append(model(warm_start=True, max_iter=2, **how).fit(COUNTS).fit(COUNTS))
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.components_, fits[0].components_)


def test_a_sample_of_data_on_disk_is_the_one_of_memory(tmp_path: Path) -> None:
    how = {"solver": EARLY, "max_iter": 3, "tol": 0.1}
    ends = [model(**how).fit(X) for X in (COUNTS, prepare(COUNTS, tmp_path / "X"))]
    np.testing.assert_array_equal(ends[0].components_, ends[1].components_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_interrupt_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    fit = model(solver=EARLY)
    monkeypatch.setattr(coordinate_descent, "fitted_on_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit.fit(COUNTS)
    before = model(solver=EARLY, max_iter=2, tol=0.0).fit(COUNTS)
    assert fit.history_[-1]["objective"] == before.history_[-1]["objective"]


def test_a_start_of_ones_own_is_not_left() -> None:
    H = np.ones((RANK, COUNTS.shape[1])) + np.eye(RANK, COUNTS.shape[1])
    ends = [
        model(solver=solver, max_iter=3, tol=0.9).fit(COUNTS, H=H) for solver in (EARLY, ON_ALL)
    ]
    np.testing.assert_array_equal(ends[0].components_, ends[1].components_)
