"""Solvers and the loop take a list of modes: with the views of a tensor they do Poisson CP."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from klnmf.backends.cpu import CpuBackend
from klnmf.backends.reference import ReferenceBackend
from klnmf.objective import Penalties
from klnmf.solvers import SOLVERS
from klnmf.solvers.base import Problem, State
from klnmf.solvers.loop import MaxIterations, Run, SmallGap, record_fields
from klnmf.solvers.row_solve import RowSolve, solved_rows
from strategies import same_bits
from tensor_checks import TensorData

SHAPE, RANK = (12, 9, 7), 3
MODES = range(3)


def planted_counts() -> np.ndarray:
    generator = np.random.default_rng(0)
    U, V, W = (generator.gamma(0.3, size=(size, RANK)) for size in SHAPE)
    return generator.poisson(8 * np.einsum("ik,jk,lk->ijl", U, V, W)).astype(np.float64)


COUNTS = planted_counts()


def tensor_problem(backend: type[CpuBackend | ReferenceBackend] = CpuBackend) -> Problem:
    coords = np.array(np.nonzero(COUNTS), dtype=np.int32)
    data = TensorData(coords, COUNTS[tuple(coords)], SHAPE)
    return Problem(backend(data, 1), Penalties((0.0,) * 3, (0.0,) * 3))


def divergence(factors: list[Any]) -> float:
    fitted = np.einsum("ik,jk,lk->ijl", *factors)
    seen = COUNTS > 0
    return float(
        np.sum(COUNTS[seen] * np.log(COUNTS[seen] / fitted[seen])) + (fitted - COUNTS).sum()
    )


def tensor_run(solver: str, problem: Problem | None = None) -> Run:
    generator = np.random.default_rng(1)
    factors = [0.5 + generator.random((size, RANK)) for size in SHAPE]
    return Run.started(problem or tensor_problem(), SOLVERS[solver](), State(factors, seed=0))


# The others are about matrices: their rules say so (tests/test_tensor_kernels.py).
TENSOR_SOLVERS = [
    name
    for name, solver in SOLVERS.items()
    if CpuBackend.lacks(replace(solver().needs(RANK), n_modes=3)) is None
]


@pytest.mark.parametrize("solver", TENSOR_SOLVERS)
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


def test_the_reference_takes_the_same_way() -> None:
    """Every iteration, in float64: the same objectives but for rounding."""
    runs = [tensor_run("srcd", tensor_problem(kind)) for kind in (CpuBackend, ReferenceBackend)]
    for run in runs:
        run.until(MaxIterations(6))
    found, expected = ([record["objective"] for record in run.history] for run in runs)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_records_in_float32_do_not_rise() -> None:
    """Products are in double where a value is computed: values of two modes agree."""
    coords = np.array(np.nonzero(COUNTS), dtype=np.int32)
    data = TensorData(coords, COUNTS[tuple(coords)].astype(np.float32), SHAPE)
    problem = Problem(CpuBackend(data, 1), Penalties((0.0,) * 3, (0.0,) * 3))
    generator = np.random.default_rng(1)
    factors = [0.5 + generator.random((size, RANK), dtype=np.float32) for size in SHAPE]
    run = Run.started(problem, SOLVERS["srcd"](), State(factors, seed=0))
    run.until(MaxIterations(300))
    objectives = np.array([record["objective"] for record in run.history])
    assert run.state.factors[0].dtype == np.float32
    assert np.diff(objectives).max() <= 1e-13 * COUNTS.sum()
