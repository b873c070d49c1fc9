"""Dispersion and bootstrap of a `PoissonCP`; what is for matrices alone says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from klnmf import KLNMF, PoissonCP, SparseTensor
from klnmf.topics import match_components
from klnmf.uncertainty import (
    Bootstrap,
    bootstrap,
    differential_features,
    dispersion,
    sparse_assignment,
    split_counts,
)
from klnmf.uncertainty.residual_moments import FittedRates, residual_sums

RANK = 3


def planted(
    shape: tuple[int, ...], alpha: float, seed: int = 0, n_counts: float = 15_000
) -> tuple[SparseTensor, list[np.ndarray]]:
    """Counts drawn with NumPy from the dense rates."""
    generator = np.random.default_rng(seed)
    factors = [generator.dirichlet(np.full(size, 0.5), size=RANK).T for size in shape]
    letters = "abcdefgh"[: len(shape)]
    product = ",".join(f"{letter}k" for letter in letters) + f"->{letters}"
    rates = n_counts / RANK * np.einsum(product, *factors)
    if alpha:
        rates *= generator.gamma(1 / alpha, alpha, size=shape)
    counts = generator.poisson(rates)
    cells = np.nonzero(counts)
    return SparseTensor(np.array(cells), counts[cells], shape), factors


def fitted(X: Any, **given: Any) -> PoissonCP:
    return PoissonCP(RANK, random_state=0, n_threads=1).fit(X, **given)


X, FACTORS = planted((30, 20, 10), 0.3)


@pytest.fixture(scope="module", name="model")
def model_of_x() -> PoissonCP:
    return fitted(X)


@pytest.fixture(scope="module", name="result")
def bootstrapped(model: PoissonCP) -> Bootstrap:
    return bootstrap(model, X, 25, random_state=0, n_jobs=1)


# ---- dispersion ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(30, 20, 10), (16, 12, 9, 6)])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_dispersion_is_near_the_truth(shape: tuple[int, ...], alpha: float) -> None:
    found = []
    for seed in range(4):
        counts, _ = planted(shape, alpha, seed)
        found.append(dispersion(fitted(counts), counts))
    mean = np.mean([each.common for each in found])
    error = np.mean([each.standard_error for each in found]) / 2
    assert mean == pytest.approx(alpha, abs=max(3 * error, 0.01))
    assert found[0].by_feature.shape == (shape[1],)


@pytest.mark.parametrize("with_weights", [False, True])
def test_sums_over_the_nonzeros_are_those_over_all_cells(with_weights: bool) -> None:
    """The formulas of the module, cell by cell, for four modes."""
    generator = np.random.default_rng(0)
    shape, r = (5, 4, 3, 3), 2
    factors = [generator.gamma(1.0, 1.5, (n, r)) for n in shape]
    factors[0][0, 1] = 0.0
    y = np.einsum("ak,bk,ck,dk->abcd", *factors)
    x = generator.poisson(y)
    cells = np.nonzero(x)
    counts = SparseTensor(np.array(cells), x[cells], shape)
    a = [generator.random(n) + 0.2 for n in shape]
    a[1] = np.ones(shape[1])
    known = [generator.random(n) + 0.5 if with_weights else np.ones(n) for n in shape]
    weights = tuple(known) if with_weights else (None,) * 4
    H = np.concatenate(factors[1:])
    fit = FittedRates(counts, factors[0], H, weights, (None,) * 4)
    found = residual_sums(fit, a[0], rest=a[2:])
    expected = {"excess": (x - y) ** 2 - x, "squares": y**2}
    expected |= {name: np.zeros(shape) for name in ("lost", "crossed", "spread", "inflated")}
    for mode, factor in enumerate(factors):
        others = [factors[m] for m in range(4) if m != mode]
        A = np.einsum("ak,bk,dk->abdk", *others).reshape(-1, r)
        own = [known[m] for m in range(4) if m != mode]
        omega = np.einsum("a,b,c->abc", *own).ravel()
        moved = {name: np.moveaxis(cells, mode, 0) for name, cells in expected.items()}
        for i, row in enumerate(factor):
            D, rate = np.diag(row), A @ row
            v = np.moveaxis(x, mode, 0)[i].ravel()
            J = (A.T * (omega * v / rate**2)) @ A
            M = D @ np.linalg.inv(D @ J @ D + 0.1 * np.eye(r)) @ D
            between = (A.T * (omega**2 * v / rate**2)) @ A
            q = np.einsum("jk,kl,jl->j", A, M, A)
            u = np.einsum("jk,kl,jl->j", A, M @ between @ M, A)
            g = np.einsum("jk,kl,jl->j", A, M @ (A.T * omega**2) @ A @ M, A)
            size = moved["lost"][i].shape
            moved["lost"][i] += (2 * omega * q - u).reshape(size)
            moved["crossed"][i] += (2 * omega * rate * q).reshape(size)
            moved["spread"][i] += g.reshape(size)
            moved["inflated"][i] += u.reshape(size)
    for name, cells in expected.items():
        total = np.einsum("abcd,a,b,c,d->b", cells, *a)
        np.testing.assert_allclose(getattr(found, name), total, rtol=1e-9, err_msg=name)


def test_constraints_of_the_fit_must_be_passed_again() -> None:
    generator = np.random.default_rng(1)
    cells = np.stack([generator.integers(0, n, 200) for n in X.shape])
    for given in (
        {"weights": [generator.uniform(0.2, 2.0, 30), None, None]},
        {"exposure": generator.uniform(1, 5, 30)},
        {"missing": SparseTensor(cells, shape=X.shape)},
        {"fixed": [FACTORS[0][:, [1]], None, None]},
        {"zeros": [None, None, generator.random((10, RANK)) < 0.1]},
    ):
        constrained = fitted(X, **given)
        assert dispersion(constrained, X, **given).common == pytest.approx(0.3, rel=0.3), given
        with pytest.raises(ValueError, match="Pass the same again"):
            dispersion(constrained, X)
        found = bootstrap(constrained, X, 2, random_state=0, n_jobs=1, **given)
        if "fixed" in given:
            of_fixed = found.factors[0]
            assert (of_fixed.lower[:, 2] == of_fixed.upper[:, 2]).all()
    with pytest.raises(ValueError, match="fitted without exposure"):
        dispersion(fitted(X), X, exposure=np.full(30, 2.0))


# ---- bootstrap -----------------------------------------------------------------------------------


def test_intervals_have_the_form_of_the_factors(model: PoissonCP, result: Bootstrap) -> None:
    for intervals, factor in zip(result.factors, model.factors_, strict=True):
        np.testing.assert_allclose(intervals.estimate, factor, atol=2e-3)
        assert (intervals.lower <= intervals.estimate).all()
        assert (intervals.estimate <= intervals.upper).all()
    np.testing.assert_array_equal(result.components.lower, result.factors[1].lower.T)
    assert result.proportions.estimate.shape == (30, RANK)
    np.testing.assert_allclose(result.proportions.estimate.sum(axis=1), 1.0)
    assert result.sizes.estimate.shape == (1, RANK)
    assert result.similarity.min() > 0.95
    assert result.dispersion.common == pytest.approx(0.3, rel=0.3)


def test_most_intervals_contain_the_truth(model: PoissonCP, result: Bootstrap) -> None:
    order = match_components(model.factors_[1].T, FACTORS[1].T).second
    covered = []
    for intervals, factor in zip(result.factors, FACTORS, strict=True):
        truth = factor[:, order]
        inside = intervals.is_interior
        assert inside.mean() > 0.4
        covered += list(((intervals.lower <= truth) & (truth <= intervals.upper))[inside])
    assert np.mean(covered) > 0.9


def test_tables_are_by_mode(result: Bootstrap) -> None:
    table = result.table(0, 2, mode="mode_2")
    top = int(np.argmax(result.factors[2].estimate[:, 0]))
    assert table["feature"][0] == f"mode_2 {top}"
    assert table["upper"][0] == result.factors[2].upper[top, 0]
    assert "leading mode_2" in str(result)
    with pytest.raises(ValueError, match="mode must be a number or name"):
        result.table(0, mode="week")


def test_samples_are_selected_and_two_modes_work(model: PoissonCP) -> None:
    found = bootstrap(model, X, 2, samples=[3, 1], noise="poisson", random_state=0, n_jobs=1)
    assert found.proportions.estimate.shape == (2, RANK)
    assert found.dispersion.common == 0.0
    pair, _ = planted((30, 20), 0.0)
    two = bootstrap(fitted(pair), pair, 3, random_state=0, n_jobs=1)
    assert [part.estimate.shape for part in two.factors] == [(30, RANK), (20, RANK)]


# ---- what is for matrices alone ------------------------------------------------------------------


@pytest.mark.parametrize("function", [differential_features, sparse_assignment])
def test_models_of_tensors_are_refused_by_name(
    function: Callable[..., Any], model: PoissonCP
) -> None:
    matrix = X.flattened(0)[0]
    of_matrix = KLNMF(2, random_state=0).fit(matrix)
    for wrong, counts in ((model, X), (model, matrix), (of_matrix, X)):
        with pytest.raises(TypeError, match=rf"{function.__name__} is for matrices.*flattened"):
            function(wrong, counts)


def test_tensors_are_refused_where_matrices_are_meant(model: PoissonCP) -> None:
    of_matrix = KLNMF(2, random_state=0).fit(X.flattened(0)[0])
    with pytest.raises(TypeError, match="flattened"):
        split_counts(X, dispersion=0.0)
    with pytest.raises(TypeError, match="flattened"):
        bootstrap(of_matrix, X)
    with pytest.raises(TypeError, match="flattened"):
        dispersion(of_matrix, X)
    with pytest.raises(ValueError, match="labels"):
        bootstrap(model, X, 2, feature_names=["a"] * 20)
    other, _ = planted((30, 20, 10), 0.0, seed=5)
    with pytest.raises(ValueError, match="is not the data"):
        bootstrap(model, other, 2)
    halves = SparseTensor(X.coords, X.values / 2, X.shape)
    with pytest.raises(ValueError, match="not whole numbers"):
        dispersion(model, halves)
