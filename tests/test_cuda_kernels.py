"""Half-steps on a GPU against the CPU: ``make test-cuda`` runs these, and fails without a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cuda_step import step
from gpu_checks import on_both
from klnmf.backends.base import Fixed, Improve, Multiply, Rule, Solve
from klnmf.backends.cuda import rows
from klnmf.backends.cuda.backend import CudaBackend
from klnmf.backends.cuda.modules import RankClass
from klnmf.constraints.penalties import Penalties
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import InMemoryData
from strategies import Case, random_case, same_bits
from test_constraints_kernels import KINDS, terms_of_mode, with_terms

pytestmark = pytest.mark.cuda
Array = np.ndarray
RANKS = (1, 7, 8, 20, 33, 50, 56, 57, 130, 512)


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of these tests are in pieces too."""
    monkeypatch.setattr(rows, "PIECE", 1024)


def counts_case(shape: tuple[int, int], rank: int, seed: int = 0, mean: float = 1.0) -> Case:
    generator = np.random.default_rng(seed)
    X = sp.csr_array(generator.poisson(mean, shape).astype(np.float32))
    W, H = (np.exp(generator.normal(size=(n, rank))).astype(np.float32) for n in shape)
    return Case(X, W, H)


def improve(rank: int, **settings: Any) -> Improve:
    return Improve(np.arange(rank, dtype=np.int32), **settings)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("rank", RANKS)
def test_evaluation_is_that_of_the_cpu(rank: int, mode: int) -> None:
    case = random_case((40, 31), rank, dtype=np.float32, seed=rank)
    data = InMemoryData(case.X)
    (found, _, _), (expected, _, _) = on_both(data, case, mode, None, l1=0.3, l2=0.2)
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert found.kkt == pytest.approx(expected.kkt, rel=1e-9)
    assert found.gap == pytest.approx(expected.gap, rel=1e-9)


@pytest.mark.parametrize("l2", [0.0, 0.7])
@pytest.mark.parametrize("rank", RANKS)
def test_multiplicative_steps_are_those_of_the_cpu(rank: int, l2: float) -> None:
    case = random_case((40, 3000), rank, dtype=np.float32, seed=rank, density=0.7)
    data = InMemoryData(case.X)
    for mode in (0, 1):
        (step, x, after), (expected, y, there) = on_both(data, case, mode, Multiply(), l2=l2)
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-30)
        assert step.kkt == pytest.approx(expected.kkt, rel=1e-4)
        assert step.gap == pytest.approx(expected.gap, rel=1e-4)
        assert after.value == pytest.approx(there.value, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("name", ["evaluate", "multiply", "improve", "solve", "cold"])
def test_terms_of_rows(kind: str, mode: int, name: str) -> None:
    rank = 7
    case = random_case((23, 19), rank, dtype=np.float32, seed=3)
    terms = terms_of_mode(kind, case.X.shape if mode == 0 else case.X.shape[::-1], rank)
    case, data = with_terms(case, mode, terms)
    rules: dict[str, Rule | None] = {
        "evaluate": None,
        "multiply": Multiply(relaxed=1),
        "improve": improve(rank),
        "solve": Solve(1e-6),
        "cold": Solve(1e-6, relaxed=6, cold=True),
    }
    (step, x, after), (expected, _y, there) = on_both(data, case, mode, rules[name], l2=0.1)
    (before, *_), _ = on_both(data, case, mode, None, l2=0.1)
    held = terms.is_frozen(rank)
    start = case.W if mode == 0 else case.H
    assert same_bits(x[:, held], start[:, held])
    if terms.barred is not None and name != "evaluate":
        for i, row in enumerate(x):
            assert (row[terms.barred.row(i)][~held[terms.barred.row(i)]] == 0).all()
    if name != "cold":
        assert step.gap == pytest.approx(expected.gap, rel=1e-4)
        assert after.value <= before.value + 1e-6 * abs(before.value)
    if name in ("solve", "cold"):
        assert after.value == pytest.approx(there.value, rel=1e-5, abs=1e-5)
        assert after.gap <= 1e-4 * data.total
    if name == "evaluate":
        assert step.value == pytest.approx(expected.value, rel=1e-12)
        assert step.kkt == pytest.approx(expected.kkt, rel=1e-9)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_steps_descend_to_the_solution(rank: int, penalty: float) -> None:
    """Counts, also rows in pieces; the value never rises, and the last one is the CPU's."""
    case = counts_case((60, 2500), rank, seed=rank, mean=0.8)
    data = InMemoryData(case.X)
    for mode in (0, 1):
        backend = CudaBackend(data)
        x, A = (backend.upload(f, m) for m, f in enumerate((case.W, case.H)))
        x, A = (x, A) if mode == 0 else (A, x)
        fixed = Fixed(mode, (A,), l1=penalty, l2=penalty)
        value = backend.evaluate(x, fixed).value
        for _ in range(12):
            totals = backend.update_rows(x, fixed, improve(rank))
            assert totals.value <= value + 1e-7 * abs(value)
            value = totals.value
        assert totals.value == backend.evaluate(x, fixed).value
        (_, found, after), (_, _, there) = on_both(
            data, case, mode, Solve(1e-6, rounds=200), l1=penalty, l2=penalty
        )
        assert after.value == pytest.approx(there.value, rel=2e-6)
        assert after.value <= value + 1e-6 * abs(value)
        if rank >= 20:
            assert (found == 0).any()


@pytest.mark.parametrize("l2", [0.0, 0.4])
@pytest.mark.parametrize("rank", [6, 20, 32, 50])
def test_a_step_is_that_of_its_twin_in_numpy(rank: int, l2: float) -> None:
    """In bfloat16 on both; with more than 32 active components M is in half precision here."""
    case = counts_case((30, 400), rank, seed=rank)
    data = InMemoryData(case.X)
    backend = CudaBackend(data)
    x, A = (backend.upload(f, m) for m, f in enumerate((case.W, case.H)))
    backend.update_rows(x, Fixed(0, (A,), l2=l2), improve(rank))
    found, H = backend.download(x), case.H.astype(np.float64)
    for i in range(30):
        own = case.X[[i]]
        start = case.W[i].astype(np.float64)
        expected = step(own.data.astype(float), H[own.indices], start, H.sum(axis=0), l2)
        scale = expected.max()
        np.testing.assert_allclose(found[i], expected, rtol=0.02, atol=0.005 * scale)


@pytest.mark.parametrize("scale", [1e-3, 0.3])
def test_values_below_one(scale: float) -> None:
    case = counts_case((50, 40), 12, mean=2.0)
    case = Case(sp.csr_array(case.X * np.float32(scale)), case.W, case.H)
    data = InMemoryData(case.X)
    for mode in (0, 1):
        (_, _, after), (_, _, there) = on_both(data, case, mode, Solve(1e-6, rounds=200))
        assert after.value == pytest.approx(there.value, rel=1e-5)


@pytest.mark.parametrize("rule", [Multiply(relaxed=1), improve(3), Solve(1e-6)])
@pytest.mark.parametrize("length", [30, 3000])
def test_uncovered_nonzeros(rule: Rule, length: int) -> None:
    """A row whose x covers nothing starts evenly; what nothing covers makes the value infinite."""
    generator = np.random.default_rng(0)
    X = generator.poisson(3.0, (5, length)).astype(np.float32) + 1
    W, H = generator.random((5, 3)).astype(np.float32), generator.random((length, 3))
    H[: length // 2, 1:], H[length // 2 :, 0] = 0, 0
    W[2] = [1, 0, 0]
    case = Case(sp.csr_array(X), W, H.astype(np.float32))
    (step, x, after), (expected, _, there) = on_both(InMemoryData(case.X), case, 0, rule)
    assert math.isinf(step.kkt)
    assert math.isinf(step.gap)
    assert math.isinf(expected.kkt)
    assert math.isfinite(after.value)
    assert (x[2] > 0).any()
    if isinstance(rule, Solve):
        assert after.value == pytest.approx(there.value, rel=1e-5)
    case.H[0] = 0
    step, x, after = on_both(InMemoryData(case.X), case, 0, rule)[0]
    assert math.isinf(after.value)
    assert np.isfinite(x).all()
    assert (x.sum(axis=1) > 0).all()


def test_empty_rows_and_dead_components() -> None:
    case = counts_case((20, 30), 5)
    X = case.X.toarray()
    X[3], X[:, 4] = 0, 0
    case.H[:, 2] = 0
    data = InMemoryData(sp.csr_array(X))
    for rule in (Multiply(relaxed=1), improve(5), Solve(1e-6), Solve(1e-6, relaxed=6, cold=True)):
        (step, x, after), (_expected, _y, there) = on_both(data, case, 0, rule)
        assert (x[3] == 0).all()
        assert (x[:, 2] == 0).all()
        assert math.isfinite(step.gap)
        assert math.isfinite(after.value)
        if isinstance(rule, Solve):
            assert after.value == pytest.approx(there.value, rel=1e-5)


@pytest.mark.parametrize("rank", [8, 50, 100])
def test_every_run_has_the_same_bits(rank: int) -> None:
    case = counts_case((300, 4000), rank, mean=0.6)
    data = InMemoryData(case.X)
    for rule in (Multiply(relaxed=1), improve(rank), Solve(1e-6, relaxed=6, cold=True)):
        first, *others = (on_both_gpu(data, case, rule) for _ in range(3))
        for other in others:
            assert same_bits(first[1], other[1])
            assert first[0] == other[0]
            assert first[2] == other[2]


def on_both_gpu(data: InMemoryData, case: Case, rule: Rule) -> Any:
    backend = CudaBackend(data)
    x, A = (backend.upload(f, m) for m, f in enumerate((case.W, case.H)))
    totals = backend.update_rows(x, Fixed(0, (A,)), rule)
    after = backend.evaluate(x, Fixed(0, (A,)))
    return repr(totals), backend.download(x), repr(after)


def test_verbs_on_factors() -> None:
    case = random_case((5000, 30), 11, dtype=np.float32)
    terms = RowConstraints(penalty_shares=np.random.default_rng(0).random((5000, 2)), l1=0.1)
    data = InMemoryData(case.X, (terms, None))
    gpu = CudaBackend(data)
    W = gpu.upload(case.W, 0)
    assert same_bits(gpu.download(W), case.W)
    assert same_bits(gpu.download(W, np.array([7, 2])), case.W[[7, 2]])
    np.testing.assert_allclose(gpu.column_sums(W), case.W.sum(axis=0, dtype=float), rtol=1e-13)
    sums, squares = gpu.sums_and_squares(0, W)
    shares = terms.penalty_shares
    np.testing.assert_allclose(sums, (case.W * shares[:, :1]).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        squares, (case.W.astype(float) ** 2 * shares[:, 1:]).sum(0), rtol=1e-12
    )
    assert gpu.count_zeros(W) == (case.W == 0).sum()
    scales, order = np.linspace(1, 2, 11), np.arange(11)[::-1]
    expected = (case.W * scales.astype(np.float32))[:, order]
    assert same_bits(gpu.download(gpu.scaled(W, scales, order)), expected)
    moved = gpu.download(gpu.extrapolated(W, gpu.scaled(W, scales), 0.5, 0.01))
    previous = case.W * scales.astype(np.float32)
    np.testing.assert_allclose(
        moved, np.maximum(case.W + 0.5 * (case.W - previous), 0.01 * case.W), rtol=1e-5, atol=1e-6
    )
    column = np.arange(5000) / 7.0
    merged = gpu.download(gpu.merged(W, (1, 3), (0.25, 2.0), column))
    np.testing.assert_allclose(merged[:, 1], 0.25 * case.W[:, 1] + 2 * case.W[:, 3], rtol=1e-6)
    np.testing.assert_allclose(merged[:, 3], column, rtol=1e-6)
    assert (gpu.download(gpu.merged(W, (1, 3), (0.25, 2.0), None))[:, 3] == 0).all()


def test_factors_of_many_rows_have_wide_offsets() -> None:
    case = counts_case((30, 40), 9)
    data = InMemoryData(case.X)
    expected = on_both_gpu(data, case, improve(9))
    wide = RankClass(2, 1, wide_offsets=True)
    backend = CudaBackend(data)
    x, A = (backend.upload(f, m) for m, f in enumerate((case.W, case.H)))
    x.rank_class = A.rank_class = wide
    totals = backend.update_rows(x, Fixed(0, (A,)), improve(9))
    assert repr(totals) == expected[0]
    assert same_bits(backend.download(x), expected[1])


def test_penalties_of_both_factors_are_in_the_objective() -> None:
    weights = Penalties.of_matrix(l1_W=0.7, l2_W=0.3, l1_H=1.5, l2_H=0.9)
    from strategies import make_problem

    case = random_case((30, 25), 4, dtype=np.float32)
    results = []
    for name in ("cuda", "cpu"):
        problem = make_problem(case.X, weights, backend=name)
        results.append(problem.evaluate(problem.upload([case.W, case.H])))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-9)
