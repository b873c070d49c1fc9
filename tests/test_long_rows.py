"""Rows longer than the core's tile, which are not gathered whole; also run under sanitizers."""

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
    from_the_left,
    half_step,
)
from klnmf import _core
from klnmf.backends.base import Fixed, Improve
from klnmf.backends.cpu import CpuBackend
from klnmf.data.sparse_data import InMemoryData
from klnmf.objective import Penalties
from strategies import DTYPES, PENALTY_SETS, Case, same_bits

THREADS = (1, 2, 5)
MODES = pytest.mark.parametrize("mode", [0, 1], ids=["samples", "features"])
BOTH_DTYPES = pytest.mark.parametrize("dtype", DTYPES)


def long_case(make_rule: Callable, mode: int, n_columns: int, rank: int, dtype: type) -> Case:
    """A long row, a short one and an empty one in this mode; only that mode is cheap to check."""
    case = case_for(make_rule, 0, (3, n_columns), rank, dtype=dtype, seed=13, density=1.1)
    X = case.X.toarray()
    X[1, 50:] = 0
    X[2] = 0
    case = Case(sp.csr_array(X), case.W, case.H)
    if make_rule in UNGUARDED:
        case = from_the_left(case, 0)
    return case if mode == 0 else Case(sp.csr_array(case.X.T), case.H, case.W)


@MODES
@BOTH_DTYPES
@pytest.mark.parametrize("name", ["guarded", "multiplicative", "paper"])
def test_rows_longer_than_the_tile(name: str, mode: int, dtype: type) -> None:
    # Long enough that even with padding the columns are gathered in three groups or more.
    # More than 64 active components are visited one after the other. Both modes are the same
    # kernels: samples have all ranks.
    for rank in (1, 18, 70) if mode == 0 else (18,):
        case = long_case(RULES[name], mode, 5 * _core.TILE + 77, rank, dtype)
        if name != "paper":
            (case.W, case.H)[mode][0, 0] = 2e3  # falls far: the product is computed anew
        assert_same_half_step(case, mode, RULES[name], PENALTY_SETS["all"])


@BOTH_DTYPES
@pytest.mark.parametrize("penalties", PENALTY_SETS.values(), ids=PENALTY_SETS)
def test_a_step_of_a_long_row_takes_half_of_what_is_left(dtype: type, penalties: Penalties) -> None:
    """Newton's step takes half of what is left, or more, every time."""
    case = long_case(RULES["guarded"], 0, _core.TILE + 300, 12, dtype)
    backend, x = CpuBackend(InMemoryData(sp.csr_array(case.X[:1])), 1), case.W[:1].copy()
    c, l2 = backend.column_sums(case.H) + penalties.l1[0], penalties.l2[0]
    order = np.arange(12, dtype=np.int32)
    least = x.copy()
    backend.update_rows(
        least, Fixed(0, (case.H,), l2=l2, slopes=c), Improve(order, rounds=60, passes=2)
    )
    least_value = backend.evaluate(least, Fixed(0, (case.H,), l2=l2, slopes=c)).value
    excess = backend.evaluate(x, Fixed(0, (case.H,), l2=l2, slopes=c)).value - least_value
    for _ in range(9):
        totals = backend.update_rows(x, Fixed(0, (case.H,), l2=l2, slopes=c), Improve(order))
        assert totals.value == pytest.approx(
            backend.evaluate(x, Fixed(0, (case.H,), l2=l2, slopes=c)).value, rel=1e-12
        )
        assert totals.value - least_value <= 0.5 * excess + 1e-7 * case.total
        excess = totals.value - least_value
    assert excess <= 1e-6 * case.total


@BOTH_DTYPES
def test_a_long_row_far_from_its_minimum_does_not_rise(dtype: type) -> None:
    """Starts from which the model leads too far: shares of the way, or sweeps in its place."""
    for seed in range(6):
        generator = np.random.default_rng(seed)
        case = long_case(RULES["guarded"], 0, _core.TILE + 300, 7, dtype)
        x = generator.lognormal(0, 6, case.W.shape).astype(dtype)
        x[:, 5:] = 0
        H = (
            generator.lognormal(0, 3, case.H.shape) * generator.integers(0, 2, case.H.shape)
        ).astype(dtype)
        H[:, 0] = 1e-3
        backend = CpuBackend(InMemoryData(case.X), 1)
        c = backend.column_sums(H)
        value = backend.evaluate(x, Fixed(0, (H,), slopes=c)).value
        for _ in range(4):
            rule = Improve(np.arange(7, dtype=np.int32))
            moved = backend.update_rows(x, Fixed(0, (H,), slopes=c), rule).value
            assert moved <= value + 1e-12 * case.total
            value = moved


@MODES
@BOTH_DTYPES
def test_a_long_row_with_few_active_components_is_gathered_whole(mode: int, dtype: type) -> None:
    case = long_case(RULES["guarded"], mode, 5 * _core.TILE + 77, 6, dtype)
    x = (case.W, case.H)[mode]
    x[:, 3:] = 0
    (case.H, case.W)[mode][:, 3:] *= 1e-3  # of no use beside the others, so they stay at 0
    (case.H, case.W)[mode][0, 3:] = 50.0
    moved, _ = assert_same_half_step(case, mode, RULES["guarded"])
    assert (moved[:, :3] > 0).any()


@BOTH_DTYPES
def test_threads_and_long_rows_do_not_interfere(dtype: type) -> None:
    for name in ("guarded", "multiplicative", "paper"):
        case = long_case(RULES[name], 0, 5 * _core.TILE + 77, 18, dtype)
        data = InMemoryData(case.X)
        moved = [half_step(CpuBackend(data, t), case, 0, RULES[name])[0] for t in THREADS]
        assert same_bits(*moved)


@pytest.mark.parametrize("make_rule", SPARSE_RULES.values(), ids=SPARSE_RULES)
def test_a_row_longer_than_the_tile_does_not_feel_a_longer_one(make_rule: Callable) -> None:
    """What is gathered at a time decides the order of sums: it may depend on the row alone."""
    rank, lengths = 8, (_core.TILE + 4000, 12 * _core.TILE)
    generator = np.random.default_rng(0)
    indices = [np.sort(generator.choice(lengths[1], size, replace=False)) for size in lengths]
    values = generator.integers(1, 5, sum(lengths)).astype(np.float32)
    X = sp.csr_array(
        (values, np.concatenate(indices), np.cumsum([0, *lengths])), shape=(2, lengths[1])
    )
    H = generator.random((lengths[1], rank), dtype=np.float32)
    W = generator.random((2, rank), dtype=np.float32)
    both, _, _ = half_step(CpuBackend(InMemoryData(X), 1), Case(X, W, H), 0, make_rule)
    first = sp.csr_array(X[:1])
    alone, _, _ = half_step(CpuBackend(InMemoryData(first), 1), Case(first, W[:1], H), 0, make_rule)
    np.testing.assert_array_equal(alone[0], both[0])
