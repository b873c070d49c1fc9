"""Passes of the core over X: facts, sums and the transpose, the same for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import _core
from klnmf.data.canonical import canonical
from klnmf.data.passes import (
    constant_of,
    is_exact_in_float32,
    products_of_roots,
    rows_of_mode,
    sorted_by_mode,
    value_summary,
)
from klnmf.data.sparse_data import InMemoryData, view_of
from klnmf.data.validation import check_counts
from strategies import DTYPES, same_bits

Array = np.ndarray
THREADS = (1, 2, 5, 16)
BOTH_DTYPES = pytest.mark.parametrize("dtype", DTYPES)


def counts(shape: tuple[int, int], density: float, dtype: type, seed: int = 0) -> sp.csr_array:
    """Uneven fractions, so that a sum in another order has other bits; some rows are empty."""
    generator = np.random.default_rng(seed)
    X = sp.csr_array(sp.random(*shape, density, random_state=generator))
    X.data = np.exp(generator.normal(0, 3, X.nnz))
    X = sp.csr_array(X.multiply(generator.random(shape[0])[:, np.newaxis] > 0.1))
    X.eliminate_zeros()
    X.sort_indices()
    return sp.csr_array(X.astype(dtype))


# Few and many columns, more of them than nonzeros, and nothing at all.
SHAPES = {"tall": (9000, 70), "wide": (70, 9000), "sparse": (40, 300_000), "empty": (5, 0)}


@BOTH_DTYPES
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_transpose_is_that_of_scipy_for_any_threads(
    shape: tuple[int, int], dtype: type
) -> None:
    X = counts(shape, 0.3 if shape[1] < 10_000 else 1e-4, dtype)
    expected = sp.csr_array(X.T)
    for n_threads in THREADS:
        found = InMemoryData(X, n_threads=n_threads).view(1)
        np.testing.assert_array_equal(found.indptr, expected.indptr)
        np.testing.assert_array_equal(found.indices, expected.indices)
        assert same_bits(found.values, expected.data)
        assert found.n_columns == shape[0]


@BOTH_DTYPES
def test_threads_change_no_bit_of_sums(dtype: type) -> None:
    X = counts((3000, 400), 0.3, dtype)
    all_data = [InMemoryData(X, n_threads=n_threads) for n_threads in THREADS]
    wide = X.astype(np.float64)
    for mode, expected in enumerate((wide.sum(axis=1), wide.sum(axis=0))):
        sums = [data.view(mode).row_sums for data in all_data]
        assert same_bits(*sums)
        np.testing.assert_allclose(sums[0], expected, rtol=1e-13)
    assert len({data.total for data in all_data}) == 1
    assert len({data.divergence_constant for data in all_data}) == 1
    v = wide.data
    expected_constant = np.sum(v * np.log(v) - v)
    assert all_data[0].divergence_constant == pytest.approx(expected_constant, rel=1e-12)


@BOTH_DTYPES
@pytest.mark.parametrize("size", [0, 1, 3, 7, 1000, 100_001])
def test_facts_are_those_of_numpy(size: int, dtype: type) -> None:
    values = np.exp(np.random.default_rng(size).normal(0, 5, size)).astype(dtype)
    for n_threads in THREADS:
        facts = value_summary(values, n_threads)
        assert facts.are_finite
        assert facts.smallest == values.min(initial=np.inf)
        assert facts.largest == values.max(initial=-np.inf)
        assert facts.total == pytest.approx(values.sum(dtype=np.float64), rel=1e-13)


@BOTH_DTYPES
@pytest.mark.parametrize("place", [0, 5, 99_999])
def test_one_bad_value_is_seen_wherever_it_is(place: int, dtype: type) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        values = np.ones(100_000, dtype)
        values[place] = bad
        assert not value_summary(values, 2).are_finite
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            check_counts(sp.csr_array(values[None]), n_threads=2)
    values = np.ones(100_000, dtype)
    values[place] = -1
    with pytest.raises(ValueError, match=rf"Negative .*X\[0, {place}\] = -1"):
        check_counts(sp.csr_array(values[None]), n_threads=2)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_rows_that_are_not_canonical_are_recognised(index_type: type) -> None:
    X = counts((3000, 300), 0.3, np.float64)
    arrays = (X.indptr.astype(index_type), X.indices.astype(index_type))
    assert all(_core.columns_rise(*arrays, n_threads) for n_threads in THREADS)
    long_rows = np.flatnonzero(np.diff(X.indptr) > 1)
    for first in X.indptr[long_rows[[0, len(long_rows) // 2, -1]]]:
        for wrong in (arrays[1][first + 1], arrays[1][first + 1] + 1):  # twice, or falling
            indices = arrays[1].copy()
            indices[first] = wrong
            assert not any(_core.columns_rise(arrays[0], indices, t) for t in THREADS)
    # A row may begin below the end of the one before it.
    assert _core.columns_rise(np.array([0, 1, 2], index_type), np.array([5, 0], index_type), 1)


def test_canonical_data_are_not_copied() -> None:
    X = counts((100, 30), 0.2, np.float32)
    assert canonical(X, n_threads=2) is X
    checked = check_counts(X, n_threads=2)
    assert np.shares_memory(checked.data, X.data)


def test_zeros_and_whole_numbers_in_the_constant() -> None:
    values = np.array([0.0, 1.0, 2.0, 3.0, 7.0])
    expected = -1 + 2 * np.log(2) - 2 + 3 * np.log(3) - 3 + 7 * np.log(7) - 7
    assert constant_of(values) == pytest.approx(expected, rel=1e-15)
    assert constant_of(values.astype(np.int64)) == pytest.approx(expected, rel=1e-15)


def test_values_that_float32_holds() -> None:
    values = np.arange(100_000.0)
    assert all(is_exact_in_float32(values, n_threads) for n_threads in THREADS)
    values[99_999] += 2.0**-30
    assert not any(is_exact_in_float32(values, n_threads) for n_threads in THREADS)
    assert not is_exact_in_float32(np.array([1e300]))
    assert is_exact_in_float32(np.array([0.1], dtype=np.float32))


def test_the_core_refuses_arrays_that_do_not_fit_together() -> None:
    values, sums = np.ones(3), np.zeros(2)
    with pytest.raises(ValueError, match="end within values"):
        _core.row_sums(np.array([0, 2, 4]), values, 1, sums)
    with pytest.raises(ValueError, match="must not decrease"):
        _core.row_sums(np.array([0, 900, 3]), values, 1, sums)
    X = view_of(counts((10, 5), 0.5, np.float64))
    out = (np.empty(6, np.int64), np.empty(X.nnz - 1, np.int32), np.empty(X.nnz))
    with pytest.raises(ValueError, match="end before indptr"):
        _core.transpose_rows(X.indptr, X.indices, X.values, 1, *out)


# ---- tensors ------------------------------------------------------------------------------------

TENSORS = {
    "empty": ((3, 4, 2), 0),
    "one entry": ((3, 4, 2), 1),
    "sizes of one": ((1, 1, 5, 1), 40),
    "three modes": ((70, 9000, 13), 60_000),
    "more rows than entries": ((300_000, 3, 4), 500),
    "eight modes": ((3, 2, 4, 2, 3, 2, 2, 9), 30_000),
    "two modes": ((400, 300), 50_000),
}


def entries(shape: tuple[int, ...], nnz: int, dtype: type) -> tuple[Array, Array]:
    """Also cells that are there twice: nothing is summed."""
    generator = np.random.default_rng(0)
    coords = np.array([generator.integers(0, size, nnz) for size in shape], dtype=np.int32)
    return coords, generator.random(nnz).astype(dtype)


@BOTH_DTYPES
@pytest.mark.parametrize(("shape", "nnz"), TENSORS.values(), ids=TENSORS)
def test_entries_are_sorted_by_any_mode(shape: tuple[int, ...], nnz: int, dtype: type) -> None:
    coords, values = entries(shape, nnz, dtype)
    for mode, n_threads in zip(range(len(shape)), np.resize(THREADS, len(shape)), strict=True):
        order = np.argsort(coords[mode], kind="stable")
        found = sorted_by_mode(coords, values, mode, shape[mode], int(n_threads))
        assert same_bits(found[0], coords[:, order].copy())
        assert same_bits(found[1], values[order])
        for threads in THREADS:
            indptr, indices, of_rows = rows_of_mode(coords, values, mode, shape, threads)
            others = [other for other in range(len(shape)) if other != mode]
            offsets = np.cumsum([0, *(shape[other] for other in others[:-1])])
            counts = np.bincount(coords[mode], minlength=shape[mode])
            np.testing.assert_array_equal(np.diff(indptr), counts)
            assert indptr.dtype == np.int64
            assert indptr[0] == 0
            expected = coords[others][:, order] + offsets[:, np.newaxis].astype(np.int32)
            assert same_bits(indices, np.ascontiguousarray(expected))
            assert same_bits(of_rows, values[order])


@pytest.mark.parametrize(("shape", "nnz"), TENSORS.values(), ids=TENSORS)
def test_sorting_by_one_mode_after_the_other_is_the_order_of_all(
    shape: tuple[int, ...], nnz: int
) -> None:
    coords, values = entries(shape, nnz, np.float64)
    order = np.lexsort(coords[::-1])
    moved = (coords, values)
    for mode in reversed(range(len(shape))):
        moved = sorted_by_mode(*moved, mode, shape[mode], 2)
    np.testing.assert_array_equal(moved[0], coords[:, order])
    np.testing.assert_array_equal(moved[1], values[order])


def test_the_core_refuses_modes_and_sizes_that_are_not_there() -> None:
    coords, values = entries((2, 2), 3, np.float64)
    modes, out = np.arange(2, dtype=np.int32), (np.zeros(3, np.int64), coords.copy(), values.copy())
    with pytest.raises(ValueError, match="no such mode"):
        _core.sort_by_mode(coords, values, 2, modes, modes, 1, *out)
    with pytest.raises(ValueError, match="no such mode"):
        _core.sort_by_mode(coords, values, 0, modes + 1, modes, 1, *out)
    with pytest.raises(ValueError, match="the same entries"):
        _core.sort_by_mode(coords, values[:2].copy(), 0, modes, modes, 1, *out)
    with pytest.raises(ValueError, match="a row for each of the modes"):
        _core.sort_by_mode(coords, values, 0, modes[:1].copy(), modes, 1, *out)


def test_products_of_roots() -> None:
    """Many rows, so that threads are worth it; in the order of the rows, as einsum has it."""
    F = np.random.default_rng(0).random((20_000, 20))
    F[:, 3] = 0.0
    roots = np.sqrt(F / np.maximum(F.sum(axis=0), np.finfo(float).tiny))
    expected = np.einsum("ij,ik->jk", roots, roots)
    np.testing.assert_allclose(products_of_roots(F), expected, rtol=1e-12)
    assert same_bits(*(products_of_roots(F, n_threads) for n_threads in THREADS))


def test_zeros_are_found_beside_values_that_are_not_finite() -> None:
    X = sp.csr_array(np.ones((1, 3)))
    X.data[:] = np.nan, 1.0, 0.0
    assert canonical(X).nnz == 2
    X.data[:] = 2.0, 1.0, -1.0
    assert canonical(X) is X
