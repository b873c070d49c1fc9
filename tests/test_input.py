"""What may be passed as X: every container and type means the same matrix, and none is changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.data.validation import check_counts
from klnmf.simulate import simulate_counts

COUNTS = simulate_counts(30, 20, 3, counts_per_sample=60, random_state=0).X.toarray()
DENSE = COUNTS.astype(np.float64)

FORMATS = ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def fit(X: Any, **parameters: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return W and components of a short fit that depends on X only."""
    settings = {"n_components": 3, "random_state": 0, "n_threads": 1, "tol": 1e-2, **parameters}
    model = KLNMF(**settings)
    W = model.fit_transform(X)
    return W, model.components_


@pytest.fixture(scope="module")
def expected() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {name: fit(sp.csr_array(DENSE.astype(name))) for name in ("float32", "float64")}


def assert_same(
    got: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray]
) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def contents(X: Any) -> dict[str, Any]:
    """Everything that a caller could notice a change of."""
    if sp.issparse(X):
        names = ("data", "indices", "indptr", "row", "col", "rows", "offsets")
        arrays = {n: copy.deepcopy(getattr(X, n)) for n in names if hasattr(X, n)}
        return arrays | {"dense": X.toarray()}
    return {"values": np.array(X, copy=True)}


# ---- containers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("name", FORMATS)
def test_sparse_formats(name: str, kind: str, expected: Any) -> None:
    X = getattr(sp, f"{name}_{kind}")(DENSE)
    before = contents(X)
    assert_same(fit(X), expected["float64"])
    np.testing.assert_equal(contents(X), before)


CONTAINERS: dict[str, Callable[[], Any]] = {
    "C order": lambda: DENSE.copy(order="C"),
    "Fortran order": lambda: DENSE.copy(order="F"),
    "strided": lambda: np.repeat(DENSE, 2, axis=1)[:, ::2],
    "reversed": lambda: DENSE[::-1].copy()[::-1],
    "list": DENSE.tolist,
    "DataFrame": lambda: pd.DataFrame(DENSE),
    "DataFrame with sparse columns": lambda: pd.DataFrame.sparse.from_spmatrix(sp.csr_array(DENSE)),
    "object": lambda: DENSE.astype(object),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_dense_containers(name: str, expected: Any) -> None:
    X = CONTAINERS[name]()
    before = contents(X)
    assert_same(fit(X), expected["float64"])
    np.testing.assert_equal(contents(X), before)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix, sp.csc_array])
def test_index_types(index_type: type, container: Any, expected: Any) -> None:
    X = container(DENSE)
    X.indices, X.indptr = X.indices.astype(index_type), X.indptr.astype(index_type)
    assert_same(fit(X), expected["float64"])
    assert X.indices.dtype == index_type


def test_read_only_arrays(expected: Any) -> None:
    X = sp.csr_array(DENSE)
    frozen = DENSE.copy()
    for array in (X.data, X.indices, X.indptr, frozen):
        array.flags.writeable = False
    assert_same(fit(X), expected["float64"])
    assert_same(fit(frozen), expected["float64"])


def test_read_only_arrays_that_are_not_canonical(expected: Any) -> None:
    X = mess(DENSE)
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    assert_same(fit(X), expected["float64"])


def memory_mapped(array: np.ndarray, path: Path) -> np.ndarray:
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def test_memory_mapped_arrays(tmp_path: Path, expected: Any) -> None:
    csr = sp.csr_array(DENSE)
    parts = [
        memory_mapped(getattr(csr, name), tmp_path / f"{name}.npy")
        for name in ("data", "indices", "indptr")
    ]
    assert all(isinstance(part, np.memmap) for part in parts)
    assert_same(fit(sp.csr_array(tuple(parts), shape=csr.shape)), expected["float64"])
    assert_same(fit(memory_mapped(DENSE, tmp_path / "dense.npy")), expected["float64"])
    estimator = KLNMF(3, random_state=0, tol=1e-2).fit(sp.csr_array(tuple(parts), shape=csr.shape))
    assert np.isfinite(estimator.score(memory_mapped(DENSE, tmp_path / "again.npy")))


# ---- entries ------------------------------------------------------------------------------------


def mess(dense: np.ndarray) -> sp.csr_array:
    """CSR array of the same matrix: each row backwards, entries split in two, explicit zeros."""
    clean = sp.csr_array(dense)
    data, indices, indptr = [], [], [0]
    for i in range(clean.shape[0]):
        row = slice(clean.indptr[i], clean.indptr[i + 1])
        columns, values = clean.indices[row][::-1], clean.data[row][::-1]
        empty = np.setdiff1d(np.arange(dense.shape[1]), columns)[:2]
        first = values // 2
        data.extend([first, values - first, np.zeros(len(empty), dense.dtype)])
        indices.extend([columns, columns, empty])
        indptr.append(indptr[-1] + 2 * len(columns) + len(empty))
    arrays = np.concatenate(data), np.concatenate(indices), np.array(indptr)
    return sp.csr_array(arrays, shape=dense.shape)


@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_duplicates_disorder_and_explicit_zeros(container: Any, dtype: type, expected: Any) -> None:
    X = container(mess(COUNTS.astype(dtype)))
    assert not X.has_canonical_format
    before = contents(X)
    assert_same(fit(X), expected["float64" if dtype is np.float64 else "float32"])
    np.testing.assert_equal(contents(X), before)
    assert X.nnz == len(before["data"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_duplicates_whose_sum_does_not_fit_their_type(dtype: type) -> None:
    parts = np.array([120, 120, 100, 3], dtype=dtype), np.array([0, 0, 0, 1]), np.array([0, 3, 4])
    X = check_counts(sp.csr_array(parts, shape=(2, 2)))
    np.testing.assert_array_equal(X.toarray(), [[340.0, 0.0], [0.0, 3.0]])


def test_explicit_zeros_alone(expected: Any) -> None:
    X = sp.csr_array(DENSE + 1)  # stores every entry
    X.data -= 1
    assert X.nnz == DENSE.size
    assert_same(fit(X), expected["float64"])
    assert X.nnz == DENSE.size


def test_canonical_input_is_not_copied() -> None:
    X = sp.csr_array(DENSE)
    checked = check_counts(X)
    for name in ("data", "indices", "indptr"):
        assert np.shares_memory(getattr(checked, name), getattr(X, name))


# ---- types --------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.array, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_keep_their_type(dtype: type, container: Any, expected: Any) -> None:
    assert_same(fit(container(DENSE.astype(dtype))), expected[np.dtype(dtype).name])


def test_half_precision_is_computed_in_single(expected: Any) -> None:
    assert_same(fit(DENSE.astype(np.float16)), expected["float32"])


@pytest.mark.parametrize("container", [np.array, sp.csr_array])
def test_long_double_is_computed_in_double(container: Any, expected: Any) -> None:
    assert_same(fit(container(DENSE.astype(np.longdouble))), expected["float64"])


@pytest.mark.parametrize("container", [np.array, sp.csr_array])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_small_integers_are_computed_in_single(dtype: type, container: Any, expected: Any) -> None:
    assert_same(fit(container(COUNTS.astype(dtype))), expected["float32"])


@pytest.mark.parametrize("container", [np.array, sp.csr_array])
def test_booleans_are_zeros_and_ones(container: Any) -> None:
    X = COUNTS > 2
    assert_same(fit(container(X)), fit(X.astype(np.float32)))


@pytest.mark.parametrize("container", ["dense", "csr", "mess"])
@pytest.mark.parametrize("dtype", [">f4", ">f8", "<f4", "<f8", ">i2", ">i8", "<u4"])
def test_either_byte_order(dtype: str, container: str, expected: Any) -> None:
    native = {"dense": COUNTS, "csr": sp.csr_array(COUNTS), "mess": mess(COUNTS)}[container]
    if container == "dense":
        X: Any = native.astype(dtype)
    else:  # SciPy refuses to convert to the other byte order, but not to hold it
        parts = native.data.astype(dtype), native.indices, native.indptr
        X = sp.csr_array(parts, shape=native.shape)
    assert_same(fit(X), expected["float64" if "f8" in dtype else "float32"])


@pytest.mark.parametrize(
    ("largest", "name"), [(2**24 - 1, "float32"), (2**24, "float64"), (2**40, "float64")]
)
def test_integers_are_exact_in_the_type_that_is_chosen(largest: int, name: str) -> None:
    X = np.array([[largest, 1], [0, 3]], dtype=np.int64)
    checked = check_counts(X)
    assert checked.dtype == name
    np.testing.assert_array_equal(checked.toarray().astype(np.int64), X)
    W, components = fit(X, tol=1.0)
    assert W.dtype == components.dtype == name


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "float32", ">f4", ">f8"])
@pytest.mark.parametrize("given", [np.float32, np.float64, np.int32])
def test_dtype_overrides(dtype: Any, given: type, expected: Any) -> None:
    name = np.dtype(dtype).newbyteorder("=").name
    X = COUNTS.astype(given)
    assert_same(fit(X, dtype=dtype), expected[name])
    assert_same(fit(sp.csc_array(X), dtype=dtype), expected[name])


def test_transform_takes_another_type_than_fit() -> None:
    model = KLNMF(3, random_state=0, tol=1e-2).fit(COUNTS)
    single, double = (model.transform(DENSE.astype(t)) for t in (np.float32, np.float64))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(single, double, rtol=1e-2, atol=1e-2)


# ---- refused ------------------------------------------------------------------------------------


def with_entry(value: Any) -> np.ndarray:
    X = DENSE.astype(np.result_type(DENSE, value))
    X[4, 7] = value
    return X


SAFE = r"float32 arithmetic is safe only from 1e-15 to 1e\+15.*dtype='float64'"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "negative": (lambda: with_entry(-2.0), r"Negative values.*X\[4, 7\] = -2"),
    "negative sparse": (lambda: sp.csc_array(with_entry(-2.0)), r"Negative values.*X\[4, 7\] = -2"),
    "negative integer": (lambda: with_entry(-2.0).astype(int), r"X\[4, 7\] = -2"),
    "NaN": (lambda: with_entry(np.nan), "contains NaN"),
    "NaN sparse": (lambda: sp.csr_array(with_entry(np.nan)), "contains NaN"),
    "inf": (lambda: with_entry(np.inf), "contains infinity"),
    "inf sparse": (lambda: sp.csr_matrix(with_entry(np.inf)), "contains infinity"),
    "complex": (lambda: with_entry(1j), "Complex data not supported"),
    "complex sparse": (lambda: sp.csr_array(with_entry(1j)), "Complex data not supported"),
    "strings": (lambda: DENSE.astype(str), "arrays of bytes/strings"),
    "words": (lambda: [["to", "be"], ["or", "not"]], "strings"),
    "1-D": (lambda: DENSE[0], "Expected 2D array, got 1D array"),
    "3-D": (lambda: DENSE[None], "dim 3"),
    "scalar": (lambda: 3.0, "must be an array, a sparse matrix or a DataFrame; got 3.0"),
    "no rows": (lambda: DENSE[:0], r"0 sample\(s\)"),
    "no rows sparse": (lambda: sp.csr_array((0, 5)), r"0 sample\(s\)"),
    "no columns": (lambda: DENSE[:, :0], r"0 feature\(s\)"),
    "no columns sparse": (lambda: sp.csr_array((5, 0)), r"0 feature\(s\)"),
    "denormal": (lambda: with_entry(1e-40).astype(np.float32), SAFE),
    "tiny": (lambda: with_entry(1e-20).astype(np.float32), SAFE),
    "large": (lambda: with_entry(1e20).astype(np.float32), SAFE),
    "huge": (lambda: with_entry(1e300), r"to 1e\+300, but float64 arithmetic.*multiply X"),
    "dates": (lambda: np.zeros((2, 2), "M8[s]"), "datetime64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    make, message = REFUSED[name]
    model = KLNMF(3, random_state=0)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(make())
    assert not hasattr(model, "components_")


@pytest.mark.parametrize("name", ["negative", "NaN", "inf", "complex", "strings", "1-D", "huge"])
@pytest.mark.parametrize("method", ["transform", "score"])
def test_refused_after_the_fit_too(name: str, method: str) -> None:
    make, message = REFUSED[name]
    model = KLNMF(3, random_state=0, tol=1e-2).fit(DENSE)
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(model, method)(make())


def test_double_that_single_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1e\+100.*float32 cannot represent.*dtype='float64'"):
        fit(with_entry(1e100), dtype=np.float32)


@pytest.mark.skipif(
    np.finfo(np.longdouble).max <= np.finfo(np.float64).max, reason="long double is double here"
)
def test_long_double_beyond_double_gets_advice_that_helps() -> None:
    with pytest.raises(ValueError, match="float64 cannot represent") as caught:
        fit(DENSE * np.longdouble("1e4000"))
    assert "dtype='float64'" not in str(caught.value)
    assert "inf" not in str(caught.value)


@pytest.mark.parametrize(
    ("indices", "indptr"),
    [([0, 1, 99], [0, 2, 3]), ([0, 1, -1], [0, 2, 3]), ([0, 1, 2], [0, 3, 2])],
)
def test_broken_index_arrays_are_refused(indices: list[int], indptr: list[int]) -> None:
    """SciPy does not look; an index out of bounds would reach memory that is not ours."""
    X = sp.csr_array(([1.0, 2.0, 3.0], [0, 1, 2], [0, 2, 3]), shape=(2, 5))
    X.indices[:], X.indptr[:] = indices, indptr
    with pytest.raises(ValueError, match=r"ind(ex|ices|ptr)"):
        check_counts(X)


def test_dtype_that_is_not_a_float() -> None:
    with pytest.raises(ValueError, match=r"dtype must be None, float32 or float64"):
        fit(DENSE, dtype=int)
