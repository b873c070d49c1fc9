"""The C++ core against the slow NumPy oracle and the specification; also run under sanitizers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from kernel_checks import (
    RULES,
    SPARSE_RULES,
    UNGUARDED,
    assert_same_half_step,
    case_for,
    guarded,
    half_step,
)
from klnmf import _core
from klnmf.backends.base import Fixed, Improve, RowTotals
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.reference import ReferenceBackend
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.sums import ROWS_PER_SUM, blocked_sum
from klnmf.objective import (
    Penalties,
    kkt_residual,
    kl_divergence,
    optimality_gap,
    penalised_objective,
)
from klnmf.solvers.base import Problem
from strategies import DTYPES, PENALTY_SETS, Case, random_case, same_bits

Array = np.ndarray
THREADS = (1, 2, 5)
MODES = pytest.mark.parametrize("mode", [0, 1], ids=["samples", "features"])
BOTH_DTYPES = pytest.mark.parametrize("dtype", DTYPES)
EVERY_RULE = pytest.mark.parametrize("make_rule", RULES.values(), ids=RULES)
COVERING_RULES = [name for name in SPARSE_RULES if "paper" not in name]


# ---- one half-step ------------------------------------------------------------------------------


@EVERY_RULE
@BOTH_DTYPES
@pytest.mark.parametrize("penalties", PENALTY_SETS.values(), ids=PENALTY_SETS)
def test_a_half_step_is_that_of_the_reference(
    make_rule: Callable, dtype: type, penalties: Penalties
) -> None:
    for mode in (0, 1):
        case = case_for(make_rule, mode, (20, 33), 5, dtype=dtype, seed=5)
        x, totals = assert_same_half_step(case, mode, make_rule, penalties)
        start = (case.W, case.H)[mode]
        assert not np.allclose(x, start)
        rule = make_rule(x, (case.H, case.W)[mode], mode)
        assert np.isfinite(totals.value) == rule.gives_value
        assert np.isfinite(totals.kkt)


@EVERY_RULE
@MODES
def test_every_shape_and_rank(make_rule: Callable, mode: int) -> None:
    for n, m, rank in ((9, 14, 1), (3, 4, 11), (1, 7, 2), (7, 1, 2), (1, 1, 3), (2, 90, 17)):
        case = case_for(make_rule, mode, (n, m), rank, seed=7)
        assert_same_half_step(case, mode, make_rule, PENALTY_SETS["all"])


@MODES
@BOTH_DTYPES
@pytest.mark.parametrize("make_rule", SPARSE_RULES.values(), ids=SPARSE_RULES)
def test_empty_rows_become_zero(make_rule: Callable, mode: int, dtype: type) -> None:
    case = case_for(make_rule, mode, (12, 15), 3, dtype=dtype, seed=8)
    X = case.X.toarray()
    X[[0, 5, 11]] = 0
    X[:, [0, 7, 14]] = 0
    case = Case(sp.csr_array(X), case.W, case.H)
    x, totals = assert_same_half_step(case, mode, make_rule)
    empty = np.diff(InMemoryData(case.X).view(mode).indptr) == 0
    assert empty.any()
    assert (x[empty] == 0).all()
    assert x[~empty].any(axis=1).all()
    assert np.isfinite(totals.kkt)


@EVERY_RULE
@MODES
def test_a_matrix_without_nonzeros(make_rule: Callable, mode: int) -> None:
    case = random_case((4, 6), 2, density=0.0)
    _, totals = assert_same_half_step(case, mode, make_rule)
    assert totals.kkt == 0
    assert not totals.gap > 0  # NaN for rules that do not give it


@MODES
@BOTH_DTYPES
@pytest.mark.parametrize("name", COVERING_RULES)
def test_a_start_that_covers_nothing_is_replaced(name: str, mode: int, dtype: type) -> None:
    case = random_case((12, 15), 3, dtype=dtype, seed=9)
    x, A = (case.W, case.H)[mode], (case.H, case.W)[mode]
    x[:] = 0
    moved, totals = assert_same_half_step(case, mode, RULES[name], PENALTY_SETS["all"])
    assert totals.kkt == np.inf
    filled = np.diff(InMemoryData(case.X).view(mode).indptr) > 0
    assert ((moved @ A.T)[filled] > 0).any(axis=1).all()
    if name == "guarded":
        assert np.isfinite(totals.value)


@MODES
@BOTH_DTYPES
@pytest.mark.parametrize("name", COVERING_RULES)
def test_nonzeros_that_nothing_can_cover_cost_infinity(name: str, mode: int, dtype: type) -> None:
    """A row of A is zero: the row problems that need it are infinite, the others are solved."""
    case = random_case((12, 15), 3, dtype=dtype, seed=10)
    A = (case.H, case.W)[mode]
    A[4] = 0
    _, totals = assert_same_half_step(case, mode, RULES[name])
    assert totals.kkt == totals.gap == np.inf
    if "guarded" in name:
        assert totals.value == np.inf or "no value" in name
    for backend in (CpuBackend(InMemoryData(case.X)), ReferenceBackend(InMemoryData(case.X))):
        c = backend.column_sums(A)
        judged = backend.evaluate((case.W, case.H)[mode], Fixed(mode, (A,), slopes=c))
        assert judged == RowTotals(np.inf, np.inf, np.inf)
    assert kl_divergence(case.X, case.W, case.H.T) == np.inf


@MODES
@BOTH_DTYPES
@pytest.mark.parametrize("make_rule", SPARSE_RULES.values(), ids=SPARSE_RULES)
def test_dead_components_become_zero(make_rule: Callable, mode: int, dtype: type) -> None:
    for l1 in (0.0, 0.5):
        case = case_for(make_rule, mode, (12, 15), 4, dtype=dtype, seed=11)
        (case.H, case.W)[mode][:, 2] = 0
        x, totals = assert_same_half_step(
            case, mode, make_rule, Penalties.of_matrix(l1_W=l1, l1_H=l1)
        )
        if l1 == 0 or make_rule not in UNGUARDED:  # which need a curvature to divide by
            assert (x[:, 2] == 0).all()
        assert np.isfinite(totals.kkt)


@MODES
@BOTH_DTYPES
def test_starts_far_from_the_solution(mode: int, dtype: type) -> None:
    """Coordinates fall by orders of magnitude: products are computed anew, not by difference."""
    case = random_case((25, 40), 4, dtype=dtype, seed=12, spread=4.0)
    assert_same_half_step(case, mode, RULES["guarded"], PENALTY_SETS["l1_W"])


@BOTH_DTYPES
@pytest.mark.parametrize("rounds", [1, 20])
def test_a_row_does_not_depend_on_its_neighbours(rounds: int, dtype: type) -> None:
    """Short rows are solved side by side, those that overflow or lack cover alone."""
    generator = np.random.default_rng(3)
    lengths = np.r_[generator.integers(0, 70, 60), 63, 64, 65, 1, 90]
    X = np.zeros((len(lengths), 90))
    for row, length in enumerate(lengths):
        X[row, generator.choice(90, length, replace=False)] = generator.integers(1, 9, length)
    X[5] *= 1e30
    A = generator.random((90, 7)).astype(dtype) * (generator.random((90, 7)) < 0.5)
    A[~A.any(axis=1), 2] = 1
    x = generator.random((len(lengths), 7)).astype(dtype)
    x[7] = 0  # leaves its nonzeros without cover
    rule = Improve(np.arange(7, dtype=np.int32)[::-1].copy(), rounds=rounds, tolerance=1e-3)

    def solved(rows: Array) -> Array:
        backend = CpuBackend(InMemoryData(sp.csr_array(X[rows].astype(dtype))), 1)
        result = backend.upload(x[rows], 0)
        fixed = backend.upload(A, 1)
        backend.update_rows(result, Fixed(0, (fixed,), slopes=backend.column_sums(fixed)), rule)
        return result

    everything = np.arange(len(lengths))
    together = solved(everything)
    shuffled = generator.permutation(everything)
    assert same_bits(together[shuffled], solved(shuffled))
    assert same_bits(together, np.vstack([solved(everything[i : i + 1]) for i in everything]))


@BOTH_DTYPES
def test_no_row_gives_up_the_last_cover_of_a_nonzero(dtype: type) -> None:
    """Products fall by orders of magnitude in small steps: what is left of them must be true."""
    for seed in range(10):
        generator = np.random.default_rng(seed)
        X, A, x = (
            10.0 ** generator.uniform(*decades, shape) * (generator.random(shape) < share)
            for decades, shape, share in (
                ((-6, 9), (3000, 6), 0.7),
                ((0, 4), (6, 5), 0.5),
                ((-1, 4), (3000, 5), 1.0),
            )
        )
        A[~A.any(axis=1), 0] = 1
        backend = CpuBackend(InMemoryData(sp.csr_array(X.astype(dtype))), 2)
        A, x = backend.upload(A, 1), backend.upload(x, 0)
        c, order = backend.column_sums(A), np.arange(5, dtype=np.int32)
        totals = backend.update_rows(x, Fixed(0, (A,), l2=1.0, slopes=c), Improve(order))
        judged = backend.evaluate(x, Fixed(0, (A,), l2=1.0, slopes=c))
        assert np.isfinite(judged.value), f"seed {seed}"
        assert totals.value == pytest.approx(judged.value, rel=1e-12)


# ---- sums, extrapolation, evaluation ------------------------------------------------------------


@BOTH_DTYPES
@pytest.mark.parametrize("n_rows", [0, 1, 17, ROWS_PER_SUM, 2 * ROWS_PER_SUM + 5])
def test_sums_of_columns(dtype: type, n_rows: int) -> None:
    factor = np.random.default_rng(0).lognormal(0, 4, size=(n_rows, 3)).astype(dtype)
    exact = factor.astype(np.float64)
    for kind in (CpuBackend, ReferenceBackend):
        backend = kind(InMemoryData(sp.csr_array((1, 1), dtype=dtype)))
        sums, squares = backend.column_sums(factor), backend.column_squares(factor)
        assert sums.dtype == squares.dtype == np.float64
        np.testing.assert_allclose(sums, exact.sum(axis=0), rtol=1e-13)
        np.testing.assert_allclose(squares, (exact**2).sum(axis=0), rtol=1e-13)
    values = exact[:, 0].copy()
    assert _core.blocked_sum(values) == pytest.approx(values.sum(), rel=1e-13)
    assert blocked_sum(values) == pytest.approx(values.sum(), rel=1e-13)


def test_both_sides_sum_in_the_same_blocks() -> None:
    assert _core.ROWS_PER_SUM == ROWS_PER_SUM


@BOTH_DTYPES
def test_sums_of_the_data_are_in_double(dtype: type) -> None:
    case = random_case((30, 400), 1, dtype=dtype, seed=18)
    data, X = InMemoryData(case.X), case.X.toarray().astype(np.float64)
    for mode in (0, 1):
        np.testing.assert_allclose(data.view(mode).row_sums, X.sum(axis=1 - mode), rtol=1e-14)
    assert data.total == pytest.approx(X.sum(), rel=1e-14)
    constant = np.sum(X[X > 0] * np.log(X[X > 0]) - X[X > 0])
    assert data.divergence_constant == pytest.approx(constant, abs=1e-14 * X.sum())


@BOTH_DTYPES
def test_extrapolation_is_that_of_the_reference(dtype: type) -> None:
    case = random_case((40, 1), 3, dtype=dtype)
    newest, previous = case.W, random_case((40, 1), 3, dtype=dtype, seed=1).W
    for weight, keep in ((0.8, 0.01), (0.8, 1.0), (0.0, 0.01)):
        targets = [
            backend(InMemoryData(case.X)).extrapolated(newest, previous, weight, keep)
            for backend in (CpuBackend, ReferenceBackend)
        ]
        rounding = 4 * np.finfo(dtype).eps
        np.testing.assert_allclose(*targets, rtol=rounding, atol=rounding * newest.max())
        assert (targets[0] >= keep * newest).all()
        assert (targets[0][(newest > 0) & (keep > 0)] > 0).all()
    assert not np.array_equal(targets[0], previous)


@BOTH_DTYPES
@pytest.mark.parametrize("penalties", PENALTY_SETS.values(), ids=PENALTY_SETS)
@pytest.mark.parametrize("backend", [CpuBackend, ReferenceBackend])
def test_evaluation_is_the_specification(backend: type, dtype: type, penalties: Penalties) -> None:
    case = random_case((20, 33), 5, dtype=dtype, seed=14)
    case.H[:, 1] = 0  # a dead component
    problem = Problem(backend(InMemoryData(case.X)), penalties)
    found = problem.evaluate([case.W, case.H])
    expected = penalised_objective(case.X, case.W, case.H.T, penalties)
    scale = case.total + abs(expected)
    assert found.objective == pytest.approx(expected, abs=1e-14 * scale)
    assert problem.objective([case.W, case.H]) == found.objective
    divergence = kl_divergence(case.X, case.W, case.H.T)
    assert found.divergence == pytest.approx(divergence, abs=1e-14 * scale)
    residual = kkt_residual(case.X, case.W, case.H.T, penalties)
    assert found.kkt_residual == pytest.approx(residual, rel=1e-11)
    gap = optimality_gap(case.X, case.W, case.H.T, penalties)
    assert found.optimality_gap == pytest.approx(gap, rel=1e-11)


@BOTH_DTYPES
@pytest.mark.parametrize("rank", [1, 4, 8, 9, 16, 20, 25, 33, 48, 49, 67])
def test_evaluation_is_the_specification_at_every_rank(rank: int, dtype: type) -> None:
    # Rows of all lengths, so that groups of nonzeros end anywhere; factors of whole vectors or not.
    case = random_case((40, 60), rank, dtype=dtype, seed=rank, density=0.15)
    found = Problem(CpuBackend(InMemoryData(case.X)), Penalties()).evaluate([case.W, case.H])
    assert found.objective == pytest.approx(kl_divergence(case.X, case.W, case.H.T), rel=1e-12)
    residual = kkt_residual(case.X, case.W, case.H.T)
    assert found.kkt_residual == pytest.approx(residual, rel=1e-11)
    gap = optimality_gap(case.X, case.W, case.H.T)
    assert found.optimality_gap == pytest.approx(gap, rel=1e-11)


# ---- the value that a half-step computes on the way ---------------------------------------------


@MODES
@BOTH_DTYPES
@pytest.mark.parametrize("rank", [1, 5, 19])
def test_the_value_of_a_half_step_is_that_of_an_evaluation(
    mode: int, dtype: type, rank: int
) -> None:
    case = random_case((60, 300), rank, dtype=dtype, seed=15, spread=2.0)
    backend, l2 = CpuBackend(InMemoryData(case.X), 2), 0.3
    x, A = (case.W, case.H)[mode], (case.H, case.W)[mode]
    c = backend.column_sums(A)
    for settings in ({"passes": 1}, {"rounds": 3}, {"tolerance": np.inf}):
        totals = backend.update_rows(
            x, Fixed(mode, (A,), l2=l2, slopes=c), guarded(x, A, **settings)
        )
        judged = backend.evaluate(x, Fixed(mode, (A,), l2=l2, slopes=c))
        scale = case.total + abs(judged.value)
        assert totals.value == pytest.approx(judged.value, abs=1e-13 * scale)


@BOTH_DTYPES
def test_the_logarithm_is_accurate_over_the_whole_range(dtype: type) -> None:
    decades = 15 if dtype == np.float32 else 130
    # y = 1 and its neighbours, where log y is small against everything it is computed from.
    near_one = 1 + np.outer([-1, 1], np.finfo(dtype).eps * 2.0 ** np.arange(20)).ravel()
    y = np.concatenate([np.logspace(-decades, decades, 2001), near_one, np.sqrt([0.5, 2, 4])])
    y = y.astype(dtype)
    n = len(y)
    # One nonzero a row, v = 1, A = 1: the value of the row is c x − log x.
    c = 10.0 ** -(decades + 2)
    out, x = np.empty((3, n)), y[:, None].copy()
    problem = (np.arange(n + 1), np.zeros(n, np.int32), np.ones(n, dtype), np.ones((1, 1), dtype))
    settings = (np.zeros(1, np.int32), 1, 1, np.inf, True, 1)
    _core.guarded_rows(*problem, np.full(1, c), 0.0, *settings, x, *out)
    assert same_bits(x[:, 0], y)
    expected = -np.log(y.astype(np.float64)) + c * y.astype(np.float64)
    np.testing.assert_allclose(out[0], expected, rtol=3e-16, atol=1e-19)


# ---- threads ------------------------------------------------------------------------------------


@EVERY_RULE
@MODES
@BOTH_DTYPES
def test_threads_change_no_bit_of_a_half_step(make_rule: Callable, mode: int, dtype: type) -> None:
    case = random_case((150, 120), 6, dtype=dtype, seed=16, density=0.2)
    data, penalties = InMemoryData(case.X), PENALTY_SETS["all"]
    results = [half_step(CpuBackend(data, t), case, mode, make_rule, penalties) for t in THREADS]
    assert same_bits(*(x for x, _, _ in results))
    assert same_bits(
        *(np.array([totals.value, totals.kkt, totals.gap]) for _, totals, _ in results)
    )


@BOTH_DTYPES
def test_threads_change_no_bit_of_sums_and_evaluations(dtype: type) -> None:
    case = random_case((3 * ROWS_PER_SUM + 5, 12), 6, dtype=dtype, seed=17, density=0.2)
    backends = [CpuBackend(InMemoryData(case.X), t) for t in THREADS]
    c = backends[0].column_sums(case.H)
    assert same_bits(*(backend.column_sums(case.W) for backend in backends))
    assert same_bits(*(backend.column_squares(case.W) for backend in backends))
    case.W[::3] *= case.W[::3] > 0.5
    assert {backend.count_zeros(case.W) for backend in backends} == {int((case.W == 0).sum())}
    judged = [
        backend.evaluate(case.W, Fixed(0, (case.H,), l2=0.1, slopes=c)) for backend in backends
    ]
    assert same_bits(*(np.array([totals.value, totals.kkt, totals.gap]) for totals in judged))
    before = case.W[::-1].copy()
    assert same_bits(*(backend.extrapolated(case.W, before, 0.7, 0.01) for backend in backends))
