"""Row problems solved to their end: at the minimum, never higher on the way, whoever is beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from klnmf.backends.base import Fixed, Solve
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.reference import ReferenceBackend
from klnmf.constraints.penalties import NO_PENALTIES
from klnmf.data.sparse_data import InMemoryData
from klnmf.solvers.row_solve import RowSolve
from strategies import DTYPES, PENALTY_SETS, Array, Case, random_case

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-9}
COLD = {"cold": True, "relaxed": 3}


def solve(backend: Any, case: Case, mode: int, penalties: Any = NO_PENALTIES, **how: Any) -> Array:
    factors = [backend.upload(case.W, 0), backend.upload(case.H, 1)]
    x, A = factors[mode], factors[1 - mode]
    c = backend.column_sums(A) + penalties.l1[mode]
    how = {"tolerance": TOLERANCE[case.X.dtype.type], **how}
    backend.update_rows(x, Fixed(mode, (A,), l2=penalties.l2[mode], slopes=c), Solve(**how))
    return x


def judge(backend: Any, case: Case, mode: int, x: Array, penalties: Any = NO_PENALTIES) -> Any:
    A = (case.H, case.W)[mode]
    c = backend.column_sums(A) + penalties.l1[mode]
    return backend.evaluate(x, Fixed(mode, (A,), l2=penalties.l2[mode], slopes=c))


@pytest.mark.parametrize("how", [{}, COLD], ids=["warm", "cold"])
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [1, 2, 7, 21])
def test_every_row_is_at_its_minimum(rank: int, dtype: Any, mode: int, how: Any) -> None:
    case = random_case((37, 53), rank, dtype=dtype, density=0.3, seed=rank)
    backend, reference = CpuBackend(InMemoryData(case.X), 1), ReferenceBackend(InMemoryData(case.X))
    found = judge(backend, case, mode, solve(backend, case, mode, **how))
    assert found.kkt <= 3 * TOLERANCE[dtype]  # met in the type of the factors, judged in double
    expected = judge(backend, case, mode, solve(reference, case, mode, **how))
    scale = 1e-6 if dtype == np.float32 else 1e-9
    assert found.value == pytest.approx(expected.value, abs=scale * case.total)


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_the_way_there_is_the_reference_s(spread: float, rounds: int) -> None:
    case = random_case((40, 60), 6, density=0.3, spread=spread, seed=rounds)
    for how in ({}, COLD):
        found, expected = (
            solve(backend(InMemoryData(case.X)), case, 0, tolerance=0.0, rounds=rounds, **how)
            for backend in (CpuBackend, ReferenceBackend)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * expected.max())


@pytest.mark.parametrize("penalties", PENALTY_SETS.values(), ids=PENALTY_SETS)
def test_penalties(penalties: Any) -> None:
    case = random_case((20, 30), 5, density=0.4)
    backend = CpuBackend(InMemoryData(case.X), 1)
    for mode in (0, 1):
        x = solve(backend, case, mode, penalties, **COLD)
        assert judge(backend, case, mode, x, penalties).kkt <= 1e-8


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_all_lengths(dtype: Any) -> None:
    generator = np.random.default_rng(0)
    lengths = np.array([0, 1, 2, 3, 4, 5, 31, 33, 64, 500, 2040, 2049, 2500, 5000])
    rows = [np.sort(generator.choice(5000, size, replace=False)) for size in lengths]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    values = generator.integers(1, 9, indptr[-1]).astype(dtype)
    X = sp.csr_array((values, np.concatenate(rows), indptr), shape=(len(lengths), 5000))
    case = Case(X, np.ones((len(lengths), 6), dtype), generator.random((5000, 6)).astype(dtype))
    backend = CpuBackend(InMemoryData(X), 1)
    x = solve(backend, case, 0, **COLD)
    assert judge(backend, case, 0, x).kkt <= 3 * TOLERANCE[dtype]
    assert not x[0].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_and_threads_change_no_bit(dtype: Any) -> None:
    case = random_case((60, 90), 9, dtype=dtype, density=0.3, seed=3)
    case.H[5] = 0  # a feature that nothing covers: some rows have it, some beside them do not
    together = solve(CpuBackend(InMemoryData(case.X), 1), case, 0, **COLD)
    on_threads = solve(CpuBackend(InMemoryData(case.X), 3), case, 0, **COLD)
    np.testing.assert_array_equal(together, on_threads)
    for i in range(case.X.shape[0]):
        alone = Case(sp.csr_array(case.X[i : i + 1]), case.W[i : i + 1], case.H)
        x = solve(CpuBackend(InMemoryData(alone.X), 1), alone, 0, **COLD)
        np.testing.assert_array_equal(x[0], together[i])


@given(
    seed=st.integers(0, 10_000),
    rank=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
    spread=st.sampled_from([0.3, 1.0, 3.0]),
    zeros=st.sampled_from([0.0, 0.4]),
)
def test_no_step_leads_up(seed: int, rank: int, dtype: Any, spread: float, zeros: float) -> None:
    case = random_case((9, 23), rank, seed=seed, dtype=dtype, spread=spread, zeros=zeros)
    backend = CpuBackend(InMemoryData(case.X), 1)
    rounding = (1e-5 if dtype == np.float32 else 1e-12) * case.total
    before = judge(backend, case, 0, case.W).value
    for rounds in range(1, 5):
        x = solve(backend, case, 0, tolerance=0.0, rounds=rounds)
        after = judge(backend, case, 0, x).value
        assert after <= before + rounding
        before = after


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_the_scale_of_the_fixed_factor_does_not_matter(scale: float, dtype: Any) -> None:
    case = random_case((16, 40), 6, dtype=dtype, seed=5)
    case = Case(case.X, case.W, (case.H * scale).astype(dtype))
    backend = CpuBackend(InMemoryData(case.X), 1)
    x = solve(backend, case, 0, **COLD)
    assert np.isfinite(x).all()
    assert judge(backend, case, 0, x).kkt <= 3 * TOLERANCE[dtype]


def test_components_and_features_without_mass() -> None:
    case = random_case((12, 30), 4, seed=2)
    case.H[:, 2] = 0  # a dead component
    case.H[7] = 0  # a feature that nothing covers
    backend = CpuBackend(InMemoryData(case.X), 1)
    x = solve(backend, case, 0, **COLD)
    assert np.isfinite(x).all()
    assert not x[:, 2].any()
    without = sp.csr_array(case.X.multiply(np.arange(30) != 7))
    without.eliminate_zeros()
    covered = Case(without, case.W, case.H)
    at_covered = CpuBackend(InMemoryData(without), 1)
    assert judge(at_covered, covered, 0, x).kkt <= 1e-6


@pytest.mark.parametrize("rounds", [0, 2, 50])
def test_features_that_nothing_covers_are_as_if_they_were_not_there(rounds: int) -> None:
    """What the core does is what the reference does, and near what it does without them."""
    case = random_case((12, 30), 4, seed=2)
    case.H[3:9] = 0
    dense = case.X.toarray()
    dense[0, :3], dense[0, 9:], dense[0, 5] = 0, 0, 2  # a row of nothing else
    with_them = sp.csr_array(dense)
    dense[:, 3:9] = 0
    without = sp.csr_array(dense)
    found, expected, alone = (
        solve(backend(InMemoryData(X)), Case(X, case.W, case.H), 0, rounds=rounds, **COLD)
        for backend, X in (
            (CpuBackend, with_them),
            (ReferenceBackend, with_them),
            (CpuBackend, without),
        )
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found, alone, rtol=1e-6, atol=1e-8)
    assert not found[0].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cold", [True, False])
def test_a_tolerance_asks_for_no_more_than_the_type_has(dtype: Any, cold: bool) -> None:
    rounding = 16 * np.finfo(dtype).eps
    assert RowSolve(0.0).rule(np.dtype(dtype), cold=cold).tolerance == rounding
    assert RowSolve(1e-3).rule(np.dtype(dtype), cold=cold).tolerance == 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_reach_the_tolerance_of_their_type(dtype: Any) -> None:
    case = random_case((200, 150), 8, dtype=dtype, density=0.3, seed=0)
    backend = CpuBackend(InMemoryData(case.X), 1)
    rule = RowSolve(0.0).rule(np.dtype(dtype), cold=True)
    found = judge(backend, case, 0, solve(backend, case, 0, **vars(rule)))
    assert found.kkt <= 2 * rule.tolerance  # met in the type of the factors, judged in double
