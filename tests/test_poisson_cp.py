"""PoissonCP as users meet it: what it returns, takes, refuses, keeps and writes."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from checkpoint_checks import Killed, kill_at, timeless
from klnmf import KLNMF, ManyComponentsWarning, PoissonCP, RunOptions, SparseTensor, load_model
from klnmf.backends.base import Solve
from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import Penalties
from klnmf.data.tensor_data import TensorData
from klnmf.simulate import simulate_counts, simulate_tensor
from klnmf.solvers import SOLVERS
from klnmf.solvers.base import Problem
from strategies import same_bits

Array = np.ndarray
SHAPES = {3: (30, 20, 8), 4: (18, 12, 7, 5), 5: (12, 9, 6, 5, 4), 6: (8, 7, 5, 4, 3, 3)}
NO_PENALTIES = {d: Penalties((0.0,) * d, (0.0,) * d) for d in range(2, 9)}


def counts(d: int = 3, **options: Any) -> SparseTensor:
    given = {"n_counts": 3000, "random_state": d, **options}
    return simulate_tensor(SHAPES[d], 3, **given).X


X3 = counts()


def fitted(X: Any = X3, start: Any = None, given: Any = None, **parameters: Any) -> PoissonCP:
    """A fit of three components on one thread, whether it converged or not."""
    defaults = {"n_components": 3, "random_state": 0, "n_threads": 1}
    model = PoissonCP(**{**defaults, **parameters})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, start=start, **(given or {}))


def rates(factors: list[Array], weights: Array | float = 1.0) -> Array:
    first, *others = [np.asarray(factor, dtype=np.float64) for factor in factors]
    letters = "abcdefgh"[: len(factors)]
    terms = ",".join(f"{letter}k" for letter in letters)
    return np.einsum(f"{terms}->{letters}", first * weights, *others)


def divergence(X: Array, y: Array) -> float:
    seen = X > 0
    logs = X[seen] * np.log(X[seen] / y[seen])
    return float(logs.sum() - X.sum(dtype=np.float64) + y.sum())


def start_of(shape: tuple[int, ...], rank: int = 3, seed: int = 1) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [0.5 + generator.random((size, rank)) for size in shape]


def dense(matrix: Any) -> Array:
    return matrix.toarray() if sp.issparse(matrix) else matrix


# ---- what a fit returns --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [3, 4, 5])
def test_factors_sum_to_1_and_the_weights_to_the_counts(d: int, dtype: Any) -> None:
    X = counts(d)
    model = fitted(X, dtype=dtype)
    assert model.converged_
    assert [factor.shape for factor in model.factors_] == [(size, 3) for size in X.shape]
    assert {factor.dtype.type for factor in model.factors_} == {dtype}
    for factor in model.factors_:
        np.testing.assert_allclose(factor.sum(axis=0, dtype=np.float64), 1.0, rtol=1e-5)
    assert model.weights_.sum() == pytest.approx(X.total, rel=1e-4)
    assert (np.diff(model.weights_) <= 0).all(), "the largest component comes first"
    np.testing.assert_allclose(model.factor_sums_.prod(axis=0), model.weights_, rtol=1e-5)
    found = rates(model.factors_, model.weights_)
    assert model.divergence_ == pytest.approx(divergence(X.toarray(), found), rel=1e-5)
    for mode in range(d):
        others = tuple(other for other in range(d) if other != mode)
        close = 0.02 * X.margin(mode).max()
        np.testing.assert_allclose(found.sum(axis=others), X.margin(mode), atol=close)
    fields = {f"zeros_factor_{mode}" for mode in range(2, d)} | {"zeros_W", "zeros_H"}
    assert fields <= model.history_[-1].keys()
    assert (model.shape_, model.n_iter_) == (X.shape, len(model.history_))


def test_planted_components_are_found() -> None:
    truth = simulate_tensor((60, 40, 12), 3, n_counts=60_000, random_state=0)
    model = fitted(truth.X)
    for found, planted in zip(model.factors_, truth.factors, strict=True):
        alike = np.sqrt(found).T.astype(np.float64) @ np.sqrt(planted)
        assert sorted(alike.argmax(axis=1)) == [0, 1, 2]
        assert alike.max(axis=1).min() > 0.99
    assert model.divergence_ < divergence(truth.X.toarray(), rates(truth.factors, truth.weights))


def test_transform_gives_what_fit_transform_gave() -> None:
    model = PoissonCP(3, random_state=0, n_threads=1)
    W = model.fit_transform(X3)
    np.testing.assert_allclose(W.sum(axis=1), X3.margin(0), rtol=1e-4)
    np.testing.assert_allclose(W, model.factors_[0] * model.weights_, rtol=1e-4, atol=1e-6)
    again = model.transform(X3)
    np.testing.assert_allclose(again.sum(axis=1), X3.margin(0), rtol=1e-4)
    np.testing.assert_allclose(again, W, atol=0.05 * W.max())
    few = model.transform(X3.take(0, [3, 1]))
    assert same_bits(few, again[[3, 1]])


def test_proportions_and_rates() -> None:
    model = PoissonCP(3, random_state=0, n_threads=1, l1=0.01)
    W = model.fit_transform(X3)
    y = model.inverse_transform(W)
    assert y.shape == X3.shape
    np.testing.assert_allclose(y, rates(model.factors_, model.weights_), rtol=1e-4, atol=1e-9)
    shares = model.proportions(W)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    of_component = rates([f[:, :1] for f in model.factors_], model.weights_[0]).sum(axis=(1, 2))
    np.testing.assert_allclose(shares[:, 0], of_component / y.sum(axis=(1, 2)), rtol=1e-4)


def test_a_score_prefers_the_planted_rank() -> None:
    truth = simulate_tensor((120, 40, 12), 3, n_counts=40_000, random_state=2).X
    train, test = truth.take(0, np.arange(80)), truth.take(0, np.arange(80, 120))
    scores = [fitted(train, n_components=rank).score(test) for rank in (1, 2, 3, 12)]
    assert int(np.argmax(scores)) == 2, scores


def test_sparse_output_has_the_same_entries() -> None:
    model, as_csr = fitted(), fitted(sparse_output=True)
    for factor, expected in zip(as_csr.factors_, model.factors_, strict=True):
        assert isinstance(factor, sp.csr_array)
        assert same_bits(factor.toarray(), expected)
    assert same_bits(as_csr.transform(X3).toarray(), model.transform(X3))
    assert as_csr.score(X3) == model.score(X3)


@pytest.mark.parametrize("as_type", [np.float32, np.float64, np.int64])
def test_arrays_are_tensors_too(as_type: Any) -> None:
    model = fitted(X3.toarray().astype(as_type), dtype=np.float64)
    expected = fitted(dtype=np.float64)
    for found, factor in zip(model.factors_, expected.factors_, strict=True):
        assert same_bits(found, factor)


@pytest.mark.parametrize("solver", ["srcd", "mu", "bmme"])
def test_a_matrix_gives_the_bits_of_klnmf(solver: str) -> None:
    X = simulate_counts(60, 40, 3, counts_per_sample=60, random_state=0).X
    of_matrix = KLNMF(3, random_state=0, n_threads=1, solver=solver, tol=1e-3)
    model = PoissonCP(3, random_state=0, n_threads=1, solver=solver, tol=1e-3)
    W, of_tensor = of_matrix.fit_transform(X), model.fit_transform(X)
    assert same_bits(W, of_tensor)
    assert same_bits(np.ascontiguousarray(of_matrix.components_.T), model.factors_[1])
    assert timeless(model.history_) == timeless(of_matrix.history_)
    assert model.data_checksum_ == of_matrix.data_checksum_
    assert same_bits(model.transform(X), of_matrix.transform(X))
    assert model.score(X) == of_matrix.score(X)


@pytest.mark.parametrize("d", [3, 4])
@pytest.mark.parametrize("solver", ["srcd", "mu"])
def test_permuted_modes_give_permuted_factors(solver: str, d: int) -> None:
    """The first half-step is of another mode then: only the ends agree."""
    X, order = counts(d), [*range(1, d), 0]
    turned = SparseTensor(X.coords[order], X.values, [X.shape[mode] for mode in order])
    # Near enough to an optimum that both descend into the same one.
    near = fitted(X)
    start = [f * s for f, s in zip(near.factors_, near.factor_sums_, strict=True)]
    options = {"dtype": np.float64, "solver": solver, "tol": 1e-9, "max_iter": 3000}
    model = fitted(X, start=start, **options)
    other = fitted(turned, start=[start[mode] for mode in order], **options)
    assert other.divergence_ == pytest.approx(model.divergence_, rel=1e-8)
    np.testing.assert_allclose(other.weights_, model.weights_, rtol=1e-3)
    for place, mode in enumerate(order):
        np.testing.assert_allclose(other.factors_[place], model.factors_[mode], atol=1e-3)


def test_a_permuted_half_step_is_the_same_to_rounding() -> None:
    """Of every mode: the row problems do not know the order of the others."""
    X, start, order = counts(4), start_of(SHAPES[4]), [2, 0, 3, 1]
    turned = SparseTensor(X.coords[order], X.values, [X.shape[mode] for mode in order])
    for place, mode in enumerate(order):
        found = []
        for tensor, of_mode, factors in (
            (X, mode, start),
            (turned, place, [start[m] for m in order]),
        ):
            problem = Problem(CpuBackend(TensorData(tensor), 1), NO_PENALTIES[4])
            factors = problem.upload([np.array(f, np.float64) for f in factors])
            problem.update(of_mode, factors, Solve(tolerance=1e-10, rounds=50))
            found.append(factors[of_mode])
        np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("given", [{}, {"weights": True, "exposure": True, "missing": True}])
def test_threads_do_not_change_bits(given: dict[str, bool]) -> None:
    X, generator = counts(3, n_counts=20_000), np.random.default_rng(0)
    known: dict[str, Any] = {}
    if given:
        known = {
            "weights": [None, 0.5 + generator.random(X.shape[1]), None],
            "exposure": 0.5 + generator.random(X.shape[0]),
            "missing": SparseTensor(X.coords[:, ::7], shape=X.shape),
        }
    fits = [fitted(X, n_threads=n, max_iter=25, given=known) for n in (1, 2, 3)]
    for model in fits[1:]:
        for factor, expected in zip(model.factors_, fits[0].factors_, strict=True):
            assert same_bits(factor, expected)
        assert timeless(model.history_) == timeless(fits[0].history_)
        assert same_bits(
            model.transform(X, **_of_rows(known)), fits[0].transform(X, **_of_rows(known))
        )


def _of_rows(known: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in known.items() if name in ("exposure", "missing")}


@pytest.mark.parametrize("solver", ["srcd", "mu", "bmme"])
@pytest.mark.parametrize("d", [3, 4])
def test_the_reference_agrees(solver: str, d: int) -> None:
    X = simulate_tensor((8, 6, 5, 4)[:d], 2, n_counts=300, random_state=1).X
    options = {"n_components": 2, "solver": solver, "dtype": np.float64, "max_iter": 8, "tol": 0.0}
    start = start_of(X.shape, 2)
    cpu, reference = (fitted(X, start, backend=name, **options) for name in ("cpu", "reference"))
    for found, expected in zip(cpu.factors_, reference.factors_, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    for ours, theirs in zip(cpu.history_, reference.history_, strict=True):
        assert ours["objective"] == pytest.approx(theirs["objective"], rel=1e-9)


@pytest.mark.parametrize("solver", ["mu", "bmme"])
def test_other_solvers_get_near(solver: str) -> None:
    start = start_of(X3.shape)
    model = fitted(solver=solver, start=start, max_iter=400, tol=1e-4)
    assert model.divergence_ < 1.01 * fitted(start=start, tol=1e-4).divergence_


def test_products_that_float32_cannot_hold_are_fitted_in_float64() -> None:
    coords = np.arange(3) * np.ones((5, 1), dtype=np.int64)
    small, wide = (SparseTensor(coords, np.array(v, np.float32)) for v in ([1, 2, 3], [1, 2, 1e7]))
    assert {x.dtype.type for x in fitted(small, max_iter=5).factors_} == {np.float32}
    model = fitted(wide, max_iter=5)
    assert {x.dtype.type for x in model.factors_} == {np.float64}
    assert model.transform(small).dtype == np.float64
    with pytest.raises(ValueError, match=r"5 modes cannot be fitted in float32.*float64"):
        fitted(wide, dtype=np.float32)


# ---- constraints ---------------------------------------------------------------------------------


def test_weights_count_as_copies() -> None:
    """A customer of weight 2 is two equal customers; one of weight 0 is only transformed."""
    weights = np.ones(X3.shape[0])
    weights[[3, 5]], weights[7] = 2.0, 0.0
    rows = np.r_[np.flatnonzero(weights), 3, 5]
    number = {row: np.flatnonzero(rows == row) for row in range(X3.shape[0])}
    coords, values = [], []
    for cell, value in zip(X3.coords.T, X3.values, strict=True):
        for row in number[cell[0]]:
            coords.append([row, *cell[1:]])
            values.append(value)
    twice = SparseTensor(np.array(coords).T, values, (len(rows), *X3.shape[1:]))
    start = start_of(X3.shape)
    options = {"dtype": np.float64, "tol": 1e-8, "max_iter": 2000}
    model = fitted(start=start, given={"weights": [weights, None, None]}, **options)
    copies = fitted(twice, start=[start[0][rows], *start[1:]], **options)
    assert model.divergence_ == pytest.approx(copies.divergence_, rel=1e-6)
    for mode in (1, 2):
        np.testing.assert_allclose(model.factors_[mode], copies.factors_[mode], atol=1e-4)


def test_exposure_divides_the_first_factor() -> None:
    exposure = np.linspace(0.5, 3, X3.shape[0])
    plain, model = (PoissonCP(3, random_state=0, n_threads=1, dtype=np.float64) for _ in range(2))
    W, expected = model.fit_transform(X3, exposure=exposure), plain.fit_transform(X3)
    np.testing.assert_allclose(W * exposure[:, None], expected, rtol=1e-10)
    assert model.divergence_ == pytest.approx(plain.divergence_, rel=1e-12)
    again = model.transform(X3, exposure=exposure)
    np.testing.assert_allclose(again * exposure[:, None], plain.transform(X3), rtol=1e-10)


def test_fixed_columns_are_kept() -> None:
    generator = np.random.default_rng(0)
    A, B, C = (generator.random((size, 1)) for size in X3.shape)
    model = fitted(given={"fixed": [None, B, C]}, dtype=np.float64)
    for mode, fixed in ((1, B), (2, C)):
        found = model.factors_[mode][:, :1] * model.factor_sums_[mode, 0]
        np.testing.assert_allclose(found, fixed, rtol=1e-12)
    of_first = fitted(given={"fixed": [A, None, None]}, dtype=np.float64)
    found = of_first.factors_[0][:, -1:] * of_first.factor_sums_[0, -1]
    np.testing.assert_allclose(found, A, rtol=1e-12)
    assert (model.n_fixed_W_, of_first.n_fixed_W_) == (0, 1)
    again = of_first.transform(X3, fixed=A)
    np.testing.assert_allclose(again[:, -1:], A, rtol=1e-12)
    with pytest.raises(ValueError, match=r"fixed\[0\] had 1 columns in fit"):
        of_first.transform(X3)


def test_zeros_are_zero() -> None:
    generator = np.random.default_rng(1)
    zeros = [generator.random((size, 3)) < 0.3 for size in X3.shape]
    for part in zeros:
        part[:, 0] = False
    model = fitted(given={"zeros": zeros})
    for factor, part in zip(model.factors_, zeros, strict=True):
        assert not factor[part].any()
        assert factor[~part].any()


def test_values_of_missing_cells_do_not_matter() -> None:
    generator = np.random.default_rng(0)
    is_missing = generator.random(X3.shape) < 0.1
    is_missing[4] = True  # a slice of which nothing is known
    missing = SparseTensor(np.array(np.nonzero(is_missing)), shape=X3.shape)
    first = X3.toarray()
    second = np.where(is_missing, generator.poisson(50.0, X3.shape), first).astype(np.float32)
    models = [fitted(X, given={"missing": missing}) for X in (first, second)]
    for found, expected in zip(*(model.factors_ for model in models), strict=True):
        assert same_bits(found, expected)
    assert timeless(models[0].history_) == timeless(models[1].history_)
    model = models[0]
    y = rates(model.factors_, model.weights_)
    seen = ~is_missing
    assert model.divergence_ == pytest.approx(divergence(first[seen], y[seen]), rel=1e-4)
    assert not model.factors_[0][4].any()
    found = [model.transform(X, missing=missing) for X in (first, second)]
    assert same_bits(*found)
    assert not found[0][4].any()
    assert model.score(first, missing=missing) == model.score(second, missing=missing)
    with pytest.raises(ValueError, match="fitted with missing cells"):
        model.score(first)


def test_missing_cells_are_not_zeros() -> None:
    """With the rest given, they are predicted: a fit without them finds the planted rates."""
    truth = simulate_tensor((40, 30, 10), 2, n_counts=30_000, random_state=0)
    is_missing = np.random.default_rng(0).random(truth.X.shape) < 0.3
    missing = SparseTensor(np.array(np.nonzero(is_missing)), shape=truth.X.shape)
    as_zeros = np.where(is_missing, 0, truth.X.toarray())
    planted = rates(truth.factors, truth.weights)[is_missing].sum()
    totals = []
    for given in ({"missing": missing}, {}):
        model = fitted(as_zeros, given=given, n_components=2)
        totals.append(rates(model.factors_, model.weights_)[is_missing].sum())
    assert totals[0] == pytest.approx(planted, rel=0.05)
    assert totals[1] < 0.8 * planted


def test_penalties_are_by_mode() -> None:
    one, each = fitted(l1=0.2), fitted(l1=[0.2, 0.2, 0.2])
    for found, expected in zip(one.factors_, each.factors_, strict=True):
        assert same_bits(found, expected)
    model = fitted(l1=(0.2, 5.0, 0.1), l2=(0.1, 0.2, 0.3), dtype=np.float64)
    scaled = [f * s for f, s in zip(model.factors_, model.factor_sums_, strict=True)]
    penalty = sum(
        l1 * factor.sum() + 0.5 * l2 * (factor**2).sum()
        for factor, l1, l2 in zip(scaled, model.l1, model.l2, strict=True)
    )
    kl = divergence(X3.toarray(), rates(scaled))
    assert model.divergence_ == pytest.approx(kl, rel=1e-6)
    assert model.history_[-1]["objective"] == pytest.approx(kl + penalty, rel=1e-3)


@pytest.mark.parametrize("d", [3, 5])
def test_best_scales_minimise_the_penalty(d: int) -> None:
    """At the minimum l1 ‖x‖₁ s + l2 ‖x‖² s² is the same number for every mode."""
    generator = np.random.default_rng(d)
    l1, l2 = generator.choice([0.01, 1.0, 50.0], size=(2, d))
    l1[0], l2[-1] = 0.0, 0.0
    sums, squares = np.exp(2 * generator.normal(size=(2, d, 4)))
    squares[0, 0] = sums[0, 0] = 0.0  # an empty column keeps its scale
    scales = np.array(Penalties(tuple(l1), tuple(l2)).best_scales(list(sums), list(squares)))
    np.testing.assert_allclose(scales.prod(axis=0), 1.0, rtol=1e-9)
    levels = l1[:, None] * sums * scales + l2[:, None] * squares * scales**2
    np.testing.assert_allclose(levels[:, 1:], np.tile(levels[0, 1:], (d, 1)), rtol=1e-6)


def test_a_mode_of_one_slice_changes_nothing() -> None:
    """Whatever its factor is: the same W in other units, the same rates, the same score."""
    X = simulate_counts(60, 40, 3, counts_per_sample=60, random_state=0).X
    H = np.array(KLNMF(3, random_state=0, n_threads=1, dtype=np.float64).fit(X).components_.T)
    cells = X.tocoo()
    tensor = SparseTensor([cells.row, cells.col, np.zeros(X.nnz, int)], cells.data, (60, 40, 1))
    options = {"n_threads": 1, "random_state": 0, "dtype": np.float64}
    one = np.array([[7.0, 0.5, 2.0]])
    model = PoissonCP(3, **options)
    W = model.fit_transform(tensor, fixed=[None, H, one])
    matrix = KLNMF(3, fixed_components=H.T, **options)
    np.testing.assert_allclose(W * one, matrix.fit_transform(X), rtol=1e-6, atol=1e-9)
    assert model.score(tensor) == pytest.approx(matrix.score(X), rel=1e-6)
    np.testing.assert_allclose(
        model.proportions(model.transform(tensor)),
        matrix.proportions(matrix.transform(X)),
        atol=1e-6,
    )


# ---- going on, files -----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["srcd", "mu", "bmme"])
@pytest.mark.parametrize("killed_at", [1, 7])
def test_a_killed_fit_goes_on_to_the_same_bits(solver: str, killed_at: int, tmp_path: Path) -> None:
    path, X = tmp_path / "fit.checkpoint", counts(4)
    options = {"solver": solver, "tol": 0.0, "max_iter": 12, "dtype": np.float64}
    whole = fitted(X, **options)
    run = RunOptions(checkpoint=path, checkpoint_every=0.0, callback=kill_at(killed_at))
    with pytest.raises(Killed):
        fitted(X, run=run, **options)
    seen: list[int] = []
    run = RunOptions(
        checkpoint=path, resume=True, callback=lambda record: seen.append(record["iteration"])
    )
    model = fitted(X, run=run, **options)
    assert seen[0] == killed_at
    for factor, expected in zip(model.factors_, whole.factors_, strict=True):
        assert same_bits(factor, expected)
    assert timeless(model.history_) == timeless(whole.history_)
    assert model.optimality_gap_ == whole.optimality_gap_


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fit.checkpoint"
    fitted(max_iter=2, run=RunOptions(checkpoint=path, checkpoint_every=0.0))
    changed = np.array(X3.values)
    changed[[0, 1]] = changed[[0, 1]] + [1, 2]
    other = SparseTensor(X3.coords, changed, X3.shape)
    for X, parameters in ((other, {}), (X3, {"l1": (0.1, 0.1, 0.1)}), (X3, {"n_components": 2})):
        with pytest.raises(ValueError, match="checkpoint"):
            fitted(X, max_iter=2, run=RunOptions(checkpoint=path, resume=True), **parameters)


def test_a_callback_sees_all_and_stops() -> None:
    seen: list[dict[str, Any]] = []

    def callback(record: dict[str, Any]) -> bool:
        seen.append(record)
        return record["iteration"] == 4

    model = fitted(run=RunOptions(callback=callback), tol=0.0)
    assert model.n_iter_ == 4
    assert timeless(seen) == timeless(model.history_)


def test_warm_start_continues() -> None:
    whole = fitted(max_iter=20, tol=0.0)
    model = PoissonCP(3, random_state=0, n_threads=1, max_iter=10, tol=0.0, warm_start=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X3).fit(X3)
    for factor, expected in zip(model.factors_, whole.factors_, strict=True):
        assert same_bits(factor, expected)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert not hasattr(copied, "factors_")


def test_a_warm_start_on_other_data_begins_with_the_factors() -> None:
    first, second = (
        counts(3, n_counts=20_000, random_state=0).take(0, part)
        for part in (np.arange(15), np.arange(15, 30))
    )
    model = PoissonCP(3, random_state=0, n_threads=1, warm_start=True).fit(first)
    before = [factor.copy() for factor in model.factors_]
    model.max_iter = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(second)
    for mode in (1, 2):
        assert np.abs(model.factors_[mode] - before[mode]).max() < 0.2


def test_a_refit_that_fails_leaves_the_model_as_it_was() -> None:
    def stop(record: dict[str, Any]) -> bool:
        raise RuntimeError("stop")

    model = PoissonCP(3, random_state=0, n_threads=1).fit(X3)
    before = model.transform(X3)
    other = SparseTensor(np.ones((4, 1), dtype=int), labels=[["a", "b"]] * 4, shape=(2,) * 4)
    model.run = RunOptions(callback=stop)
    with pytest.raises(RuntimeError, match="stop"):
        model.fit(other)
    assert (model.shape_, model.mode_names_) == (X3.shape, X3.mode_names)
    assert model.labels_ == X3.labels
    assert same_bits(model.transform(X3), before)


def test_no_convergence_is_said() -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        PoissonCP(3, max_iter=2, tol=1e-9, random_state=0).fit(X3)


@pytest.mark.parametrize("sparse_output", [False, True])
def test_files_give_the_same_model(sparse_output: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.klnmf"
    labels = [None, [f"product {j}" for j in range(X3.shape[1])], [f"w{t}" for t in range(8)]]
    names = ["customer", "product", "week"]
    X = SparseTensor(X3.coords, X3.values, X3.shape, mode_names=names, labels=labels)
    weights = [None, np.linspace(1, 2, X.shape[1]), None]
    model = fitted(X, sparse_output=sparse_output, l1=(0.1, 0.2, 0.3), given={"weights": weights})
    model.save(path, metadata={"made by": "a test"})
    for loaded in (PoissonCP.load(path), load_model(path).model):
        assert isinstance(loaded, PoissonCP)
        assert loaded.get_params() == model.get_params()
        for found, expected in zip(loaded.factors_, model.factors_, strict=True):
            assert type(found) is type(expected)
            assert same_bits(dense(found), dense(expected))
        assert same_bits(loaded.weights_, model.weights_)
        assert same_bits(loaded.factor_sums_, model.factor_sums_)
        assert (loaded.shape_, loaded.mode_names_) == (model.shape_, tuple(names))
        assert [None if each is None else list(each) for each in loaded.labels_] == labels
        assert same_bits(loaded.mode_weights_[1], weights[1])
        assert timeless(loaded.history_) == timeless(model.history_)
        assert same_bits(dense(loaded.transform(X)), dense(model.transform(X)))
        assert loaded.score(X) == model.score(X)
        assert loaded.n_iter_ == model.n_iter_
    with pytest.raises((TypeError, ValueError), match="PoissonCP"):
        KLNMF.load(path)


def test_the_page_of_a_notebook_has_the_modes() -> None:
    page = fitted()._repr_html_()
    assert "mode_0 30 × mode_1 20 × mode_2 8" in page
    assert "modes" not in PoissonCP()._fitted_in_html()


# ---- labels --------------------------------------------------------------------------------------


def labelled(X: SparseTensor, order: Array | None = None, extra: bool = False) -> SparseTensor:
    """The products by name, in some order."""
    names = [f"p{j:02d}" for j in range(X.shape[1])]
    X = SparseTensor(X.coords, X.values, X.shape, labels=[None, names, None])
    X = X if order is None else X.take(1, order)
    if not extra:
        return X
    coords = np.concatenate([X.coords, [[0], [X.shape[1]], [0]]], axis=1)
    shape = (X.shape[0], X.shape[1] + 1, X.shape[2])
    values = np.r_[X.values, X.total / 9]
    return SparseTensor(coords, values, shape, labels=[None, [*X.labels[1], "new"], None])


def test_new_slices_are_matched_by_labels() -> None:
    model = fitted(labelled(X3))
    expected = model.transform(labelled(X3))
    order = np.random.default_rng(0).permutation(X3.shape[1])
    assert same_bits(model.transform(labelled(X3, order)), expected)
    assert same_bits(model.transform(X3), expected)  # without labels: by place
    with pytest.warns(UserWarning, match=r"10 ?% of the counts of X have labels that the model"):
        found = model.transform(labelled(X3, order, extra=True))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    fewer = labelled(X3, order[:12])
    whole = SparseTensor(
        X3.coords[:, np.isin(X3.coords[1], order[:12])],
        X3.values[np.isin(X3.coords[1], order[:12])],
        X3.shape,
    )
    assert same_bits(model.transform(fewer), model.transform(whole))
    with pytest.raises(ValueError, match=r"12 rows in the mode 'mode_1'.*fitted to 20.*labels"):
        model.transform(X3.take(1, np.sort(order[:12])))


# ---- refused -------------------------------------------------------------------------------------


WRONG_FITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "dask": ({"backend": "dask"}, {}, r"dask.*(matrices|modes|tensor)"),
    "ccd": ({"solver": "ccd"}, {}, r"solver.*ccd"),
    "the paper's": ({"solver": "srcd-paper"}, {}, r"solver.*srcd-paper"),
    "the paper's, as an object": ({"solver": SOLVERS["srcd-paper"]()}, {}, "srcd-paper"),
    "ccd, as an object": ({"solver": SOLVERS["ccd"]()}, {}, "ccd"),
    "nndsvd": ({"init": "nndsvd"}, {}, "init"),
    "two penalties": ({"l1": [0.1, 0.2]}, {}, r"l1 must be a number, or one for each of the 3"),
    "negative penalty": ({"l2": [0.1, -0.2, 0.3]}, {}, "l2"),
    "NaN penalty": ({"l2": [0.1, math.nan, 0.3]}, {}, "l2"),
    "start of two": (
        {},
        {"start": start_of((30, 20))},
        "start must be a list.*each of the 3 modes",
    ),
    "start of another rank": ({}, {"start": start_of(SHAPES[3], 4)}, r"start\[0\]"),
    "start of another size": ({}, {"start": start_of((30, 21, 8))}, r"start\[1\]"),
    "start with NaN": (
        {},
        {"start": [None, None, np.full((8, 3), math.nan)]},
        r"start\[2\]\[0, 0\] = nan",
    ),
    "negative start": ({}, {"start": [None, -np.ones((20, 3)), None]}, r"(?i)negative.*"),
    "start as an array": (
        {},
        {"start": np.ones((30, 3))},
        "start must be a list.*each of the 3 modes",
    ),
    "weights of two modes": ({}, {"weights": [None, None]}, "each of the 3 modes"),
    "weights as an array": ({}, {"weights": np.ones(30)}, "each of the 3 modes"),
    "weights of another size": ({}, {"weights": [None, np.ones(19), None]}, r"weights\[1\]"),
    "fixed of another size": ({}, {"fixed": [None, None, np.ones((9, 1))]}, r"fixed\[2\]"),
    "zeros of another rank": ({}, {"zeros": [np.zeros((30, 2)), None, None]}, r"zeros\[0\]"),
    "fixed beyond the rank": ({}, {"fixed": [None, np.ones((20, 4)), None]}, "n_components=3"),
    "missing as an array": ({}, {"missing": np.zeros(SHAPES[3])}, "missing must be a SparseTensor"),
    "missing of another shape": (
        {},
        {"missing": SparseTensor([[0], [0], [0]], shape=(30, 20, 9))},
        "missing must be a SparseTensor of shape",
    ),
    "no such argument": ({}, {"weight": [None] * 3}, "weights"),
    "sample_weight": ({}, {"sample_weight": np.ones(30)}, "sample_weight"),
}


@pytest.mark.parametrize("case", WRONG_FITS)
def test_what_is_wrong_is_said(case: str) -> None:
    parameters, given, message = WRONG_FITS[case]
    with pytest.raises((ValueError, TypeError), match=message):
        PoissonCP(3, random_state=0, **parameters).fit(X3, **given)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(4), "PoissonCP takes a klnmf.SparseTensor"),
        ("a text", "PoissonCP takes a klnmf.SparseTensor"),
        (np.full((3, 3, 3), math.nan), r"(?i)nan|finite"),
        (-np.ones((3, 3, 3)), r"-1"),
        (np.full((2, 2, 2), "a"), "PoissonCP takes a klnmf.SparseTensor"),
    ],
)
def test_what_is_no_tensor_of_counts_is_refused(X: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        PoissonCP(2, random_state=0).fit(X)


def test_nothing_works_before_a_fit(tmp_path: Path) -> None:
    model = PoissonCP(3)
    for call in (
        lambda: model.transform(X3),
        lambda: model.score(X3),
        lambda: model.proportions(np.ones((1, 3))),
        lambda: model.save(tmp_path / "x.klnmf"),
    ):
        with pytest.raises(NotFittedError):
            call()


def test_other_modes_than_in_the_fit_are_refused() -> None:
    model = fitted()
    with pytest.raises(ValueError, match="X has 4 modes, but the model was fitted to 3"):
        model.transform(counts(4))
    with pytest.raises(ValueError, match=r"rows in the mode 'mode_2'"):
        model.transform(X3.take(2, [0, 1]))
    with pytest.raises(TypeError, match="PoissonCP fits tensors"):
        KLNMF(3).fit(X3)


# ---- what users do -------------------------------------------------------------------------------


def test_new_slices_have_the_modes_of_the_fit() -> None:
    X = SparseTensor(X3.coords, X3.values, X3.shape, mode_names=["who", "from", "to"])
    model = fitted(X, max_iter=5)
    turned = SparseTensor(
        X.coords[[0, 2, 1]],
        X.values,
        [X.shape[m] for m in (0, 2, 1)],
        mode_names=["who", "to", "from"],
    )
    with pytest.raises(ValueError, match=r"modes 'who', 'to', 'from'.*same order"):
        model.transform(turned)
    assert same_bits(model.transform(X3), model.transform(X))  # without names


def test_labels_that_are_all_unknown_are_an_error() -> None:
    labels = [None, [f"{j}" for j in range(X3.shape[1])], None]
    model = fitted(SparseTensor(X3.coords, X3.values, X3.shape, labels=labels), max_iter=5)
    labels[1] = [f"00{j}" for j in range(X3.shape[1])]
    with pytest.raises(ValueError, match="none of the labels"):
        model.transform(SparseTensor(X3.coords, X3.values, X3.shape, labels=labels))


def test_one_factor_of_a_start_may_be_left_out() -> None:
    A, B, C = start_of(X3.shape)
    assert fitted(start=[None, B, C], max_iter=5).n_iter_ == 5
    with pytest.raises(ValueError, match="no factor for 2 modes"):
        fitted(start=[A, None, None])


def test_names_of_matrices_lead_to_lists_by_mode() -> None:
    with pytest.raises(TypeError, match=r"Use weights=\[\.\.\.\], with an entry for each mode"):
        PoissonCP(2).fit(X3, sample_weight=np.ones(X3.shape[0]))


def test_more_components_than_rows_are_no_matter_of_warnings(recwarn: Any) -> None:
    fitted(X3, n_components=max(X3.shape) + 1, max_iter=1)
    assert not [w for w in recwarn if issubclass(w.category, ManyComponentsWarning)]
