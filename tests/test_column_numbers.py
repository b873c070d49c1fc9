"""Column numbers are int32 wherever a back-end meets them, and more than these are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.backends.base import Fixed
from klnmf.backends.cpu import CpuBackend
from klnmf.backends.reference import ReferenceBackend
from klnmf.data import sparse_data
from klnmf.data.sparse_data import MOST_COLUMNS, InMemoryData, column_numbers, view_of
from klnmf.readers import prepare
from strategies import random_case, with_int64_indices

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

TOO_WIDE = r"A matrix with 2,147,483,648 rows or columns is too large: at most 2,147,483,647"


def counts() -> sp.csr_array:
    return sp.csr_array(np.random.default_rng(0).poisson(0.7, (60, 45)).astype(np.float32))


def one_row(n_columns: int) -> sp.csr_array:
    """A matrix with a 1 in its last column."""
    return sp.csr_array((np.ones(1), np.array([n_columns - 1]), np.array([0, 1])), (1, n_columns))


def fitted(X: Any, **parameters: Any) -> KLNMF:
    return KLNMF(3, random_state=0, max_iter=5, **parameters).fit(X)


# ---- in memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [CpuBackend, ReferenceBackend])
@pytest.mark.parametrize("mode", [0, 1])
def test_wide_indices_are_narrowed(mode: int, backend: Any) -> None:
    case = random_case((20, 33), 5, seed=6)
    wide = with_int64_indices(case.X)
    narrow, widened = InMemoryData(case.X), InMemoryData(wide)
    assert wide.indices.dtype == np.int64
    for view in (widened.view(0), widened.view(1), view_of(wide)):
        assert view.indices.dtype == np.int32
        assert view.indptr.dtype == np.int64
    np.testing.assert_array_equal(widened.view(mode).indices, narrow.view(mode).indices)
    x, A = (case.W, case.H) if mode == 0 else (case.H, case.W)
    judged = [
        backend(data).evaluate(x, Fixed(mode, (A,), l2=0.1, slopes=A.sum(axis=0)))
        for data in (narrow, widened)
    ]
    assert judged[0] == judged[1]


def test_narrow_indices_are_not_copied() -> None:
    X = counts()
    assert np.shares_memory(view_of(X).indices, X.indices)


def test_the_largest_number_of_columns() -> None:
    view = view_of(one_row(MOST_COLUMNS))
    assert view.indices.dtype == np.int32
    assert view.indices.tolist() == [MOST_COLUMNS - 1]


def test_too_many_columns_are_refused() -> None:
    X = one_row(MOST_COLUMNS + 1)
    for refuse in (view_of, InMemoryData, lambda X: column_numbers(X.indices, X.shape[1])):
        with pytest.raises(ValueError, match=TOO_WIDE):
            refuse(X)


@pytest.mark.parametrize(("limit", "given"), [(44, 45), (59, 60)])
def test_a_fit_refuses_too_many(limit: int, given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of features, and of samples, which are the columns of the transpose."""
    X = counts()
    model = fitted(X)
    expected = model.transform(X)
    monkeypatch.setattr(sparse_data, "MOST_COLUMNS", limit)
    wrong = f"with {given} rows or columns is too large: at most {limit} of each are supported. Rem"
    with pytest.raises(ValueError, match=wrong):
        fitted(X)
    if given == X.shape[0]:
        np.testing.assert_array_equal(model.transform(X), expected)


# ---- on disk -------------------------------------------------------------------------------------


def test_too_many_columns_are_not_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_data, "MOST_COLUMNS", 44)
    with pytest.raises(ValueError, match="with 45 rows or columns is too large: at most 44"):
        prepare(counts(), tmp_path / "X")
    assert not (tmp_path / "X").exists()


# ---- parts for Dask ------------------------------------------------------------------------------


def test_blocks_of_dask_arrays_with_wide_indices_are_narrowed() -> None:
    pytest.importorskip("distributed", reason="needs the extra [dask]")
    from klnmf.backends.dask.array_blocks import joined_columns, stacked_rows

    X = with_int64_indices(counts())
    pieces = [(X, 0, 20), (X, 20, 60)]
    rows = stacked_rows(pieces, np.dtype(np.float32), X.shape[1], None)
    columns = joined_columns([with_int64_indices(sp.csr_array(X.T))], None)
    for mode, part in enumerate((rows, columns)):
        expected = InMemoryData(counts()).view(mode)
        assert part.indices.dtype == np.int32
        np.testing.assert_array_equal(part.indices, expected.indices)
        np.testing.assert_array_equal(part.indptr, expected.indptr)
