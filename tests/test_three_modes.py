"""Solvers and the loop take a list of modes: with three views of a tensor they do Poisson CP."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf.backends.base import Fixed
from klnmf.backends.cpu import CpuBackend
from klnmf.data.sparse_data import CountData, InMemoryView, view_of
from klnmf.objective import Penalties
from klnmf.solvers import SOLVERS
from klnmf.solvers.base import Problem, State
from klnmf.solvers.loop import MaxIterations, Run, SmallGap, record_fields
from klnmf.solvers.row_solve import RowSolve, solved_rows
from strategies import same_bits

SHAPE, RANK = (12, 9, 7), 3
MODES = range(3)


def planted_counts() -> np.ndarray:
    generator = np.random.default_rng(0)
    U, V, W = (generator.gamma(0.3, size=(size, RANK)) for size in SHAPE)
    return generator.poisson(8 * np.einsum("ik,jk,lk->ijl", U, V, W)).astype(np.float64)


COUNTS = planted_counts()


class TensorProblem(Problem):
    """The row problem of a mode: its unfolding, and the products of the other factors' rows."""

    def fixed(self, mode: int, factors: list[Any]) -> Fixed:
        first, second = super().fixed(mode, factors).factors
        A = np.einsum("ik,jk->ijk", first, second).reshape(-1, RANK)
        return Fixed(mode, (A,), slopes=first.sum(axis=0) * second.sum(axis=0))


class TensorData(CountData):
    """Its unfoldings are all that a kind of data must have; sums and totals follow from them."""

    is_exact_in_float32 = False  # keeps the factors in float64

    def __init__(self) -> None:
        unfolded = [np.moveaxis(COUNTS, mode, 0).reshape(SHAPE[mode], -1) for mode in MODES]
        self._views = [view_of(sp.csr_array(matrix)) for matrix in unfolded]
        self.shape, self.dtype = SHAPE, COUNTS.dtype  # type: ignore[assignment]

    def view(self, mode: int) -> InMemoryView:
        return self._views[mode]


def tensor_problem() -> TensorProblem:
    return TensorProblem(CpuBackend(TensorData(), 1), Penalties((0.0,) * 3, (0.0,) * 3))


def divergence(factors: list[Any]) -> float:
    fitted = np.einsum("ik,jk,lk->ijl", *factors)
    seen = COUNTS > 0
    return float(
        np.sum(COUNTS[seen] * np.log(COUNTS[seen] / fitted[seen])) + (fitted - COUNTS).sum()
    )


def tensor_run(solver: str) -> Run:
    generator = np.random.default_rng(1)
    factors = [0.5 + generator.random((size, RANK)) for size in SHAPE]
    return Run.started(tensor_problem(), SOLVERS[solver](), State(factors, seed=0))


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "ccd"])
def test_three_factors_are_fitted(solver: str) -> None:
    run = tensor_run(solver)
    run.until(MaxIterations(60))
    objectives = [record["objective"] for record in run.history]
    assert objectives[-1] == pytest.approx(divergence(run.state.factors), rel=1e-10)
    if run.solver.never_rises:
        assert (np.diff(objectives) <= 1e-12 * COUNTS.sum()).all()
    assert objectives[-1] < 0.9 * objectives[0]
    assert run.history[0].keys() == record_fields(3)
    assert run.history[-1]["zeros_factor_2"] == np.mean(run.state.factors[2] == 0)


def test_a_fit_of_three_factors_converges_and_keeps_every_margin() -> None:
    run, rule = tensor_run("srcd"), SmallGap(1e-9, RowSolve(1e-9))
    assert run.until(rule, MaxIterations(2000)) is rule
    factors = run.finish(rule.row_solve, rule.tol).factors
    fitted = np.einsum("ik,jk,lk->ijl", *factors)
    for mode in MODES:
        others = tuple(other for other in MODES if other != mode)
        np.testing.assert_allclose(fitted.sum(axis=others), COUNTS.sum(axis=others), rtol=1e-4)
    again = solved_rows(run.problem, 0, [None, *factors[1:]], rule.row_solve)
    np.testing.assert_allclose(again, factors[0], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("solver", ["srcd", "bmme"])
def test_the_memory_of_three_factors_can_be_stored(solver: str) -> None:
    run, whole = tensor_run(solver), tensor_run(solver)
    whole.until(MaxIterations(20))
    run.until(MaxIterations(9))
    stored = run.solver.stored_memory(run.state)
    assert {"previous_W", "previous_H", "previous_factor_2"} <= set(stored.arrays)
    run.solver.restore_memory(run.problem, run.state, stored)
    run.until(MaxIterations(20))
    for found, expected in zip(run.state.factors, whole.state.factors, strict=True):
        assert same_bits(found, expected)
    assert math.isfinite(run.state.objective)
