"""Passes of the core over X: facts, sums and the transpose, the same for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import _core
from klnmf.data.canonical import canonical
from klnmf.data.passes import constant_of, is_exact_in_float32, value_summary
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
