"""PoissonCP beside pyttb: the same objective, and no worse than where pyttb ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from klnmf import PoissonCP, RunOptions, SparseTensor
from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import Penalties
from klnmf.data.tensor_data import TensorData
from klnmf.simulate import simulate_tensor
from klnmf.solvers.base import Problem

Array = np.ndarray
RANK = 3


@pytest.fixture(autouse=True)
def _peer() -> None:
    """Imported as its tests run, not as they are collected: it brings Numba, and takes seconds."""
    pytest.importorskip("pyttb", reason="pyttb is not installed: pip install pyttb")


def counts(shape: tuple[int, ...] = (25, 15, 10)) -> SparseTensor:
    return simulate_tensor(shape, RANK, n_counts=2000, random_state=0).X


def peer_fit(X: SparseTensor, max_iter: int, seed: int = 0) -> tuple[Array, list[Array]]:
    """Weights and factors of pyttb's multiplicative updates."""
    import pyttb

    np.random.seed(seed)  # noqa: NPY002 (pyttb draws its start from it)
    model, _, _ = pyttb.cp_apr(
        X.to_pyttb(), RANK, algorithm="mu", maxiters=max_iter, stoptol=1e-10, printitn=0
    )
    return model.weights, model.factor_matrices


def objectives(X: SparseTensor, start: list[Array], **parameters: Any) -> list[float]:
    """The objective of every iteration of a fit that begins there."""
    seen: list[float] = []
    run = RunOptions(callback=lambda record: seen.append(record["objective"]))
    options = {"random_state": 0, "n_threads": 1, "dtype": np.float64, "run": run, **parameters}
    PoissonCP(RANK, **options).fit(X, start=start)
    return seen


def constant(X: SparseTensor) -> float:
    """What the divergence has beside minus the log-likelihood: Σ x log x − x."""
    x = X.values.astype(np.float64)
    return float(np.sum(x * np.log(x) - x))


def likelihood(X: SparseTensor, weights: Array, factors: list[Array]) -> float:
    """Σ x log y − Σ y, as pyttb computes it."""
    import pyttb
    from pyttb.cp_apr import tt_loglikelihood

    ktensor = pyttb.ktensor([np.array(factor, np.float64) for factor in factors], weights.copy())
    return float(tt_loglikelihood(X.to_pyttb(), ktensor))


@pytest.mark.parametrize("shape", [(25, 15, 10), (14, 10, 6, 4)])
def test_the_objective_is_the_same(shape: tuple[int, ...]) -> None:
    """At our factors, and at theirs."""
    X = counts(shape)
    model = PoissonCP(RANK, random_state=0, dtype=np.float64, n_threads=1).fit(X)
    theirs = likelihood(X, model.weights_, model.factors_)
    assert model.divergence_ == pytest.approx(constant(X) - theirs, rel=1e-6)
    weights, factors = peer_fit(X, max_iter=5)
    problem = Problem(
        CpuBackend(TensorData(SparseTensor(X.coords, X.values.astype(np.float64), X.shape)), 1),
        Penalties((0.0,) * X.ndim, (0.0,) * X.ndim),
    )
    ours = problem.objective(problem.upload([factors[0] * weights, *factors[1:]]))
    assert ours == pytest.approx(constant(X) - likelihood(X, weights, factors), rel=1e-6)


@pytest.mark.parametrize("solver", ["srcd", "mu"])
@pytest.mark.parametrize("max_iter", [1, 16, 100])
def test_what_pyttb_found_is_a_start(solver: str, max_iter: int) -> None:
    X = counts()
    weights, (A, B, C) = peer_fit(X, max_iter)
    start = [A * weights, B, C]
    theirs = constant(X) - likelihood(X, weights, [A, B, C])
    seen = objectives(X, start, solver=solver, max_iter=300, tol=1e-5)
    assert seen[0] <= theirs * (1 + 1e-12)
    assert np.diff(seen).max(initial=0.0) <= 1e-12 * X.total
    if max_iter < 100:
        assert seen[-1] < theirs


def test_drawn_starts_end_no_worse() -> None:
    X = counts()
    theirs = [constant(X) - likelihood(X, *peer_fit(X, 60, seed)) for seed in range(3)]
    ours = [
        PoissonCP(RANK, random_state=seed, n_threads=1, tol=1e-5).fit(X).divergence_
        for seed in range(3)
    ]
    assert np.median(ours) <= np.median(theirs) * (1 + 1e-3)


def test_tensors_go_both_ways() -> None:
    X = counts()
    back = SparseTensor.from_pyttb(X.to_pyttb())
    np.testing.assert_array_equal(back.coords, X.coords)
    np.testing.assert_array_equal(back.values, X.values)
    fits = [
        PoissonCP(RANK, random_state=0, n_threads=1, dtype=np.float64).fit(each)
        for each in (X, X.to_pyttb())
    ]
    for found, expected in zip(*(fit.factors_ for fit in fits), strict=True):
        np.testing.assert_array_equal(found, expected)
