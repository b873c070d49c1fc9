"""Compressed rows: their one canonical form, and some of their entries or rows."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.passes import columns_rise, value_summary
from klnmf.support.array_types import Array


class Entries(NamedTuple):
    """Some entries of a matrix, in any order; rows and columns are numbered from 0."""

    rows: Array
    columns: Array
    values: Array


def canonical(X: sp.csr_array, n_threads: int = 1) -> sp.csr_array:
    """Sort each row, sum entries of the same place, and remove zeros, in a copy if need be.

    Sums are taken in `type_of_sums`, so that none of them wraps. X must have valid index arrays,
    see :func:`klnmf.data.matrix_checks.checked_matrix`.

    >>> parts = (np.array([200, 100, 0], np.uint8), np.array([1, 1, 0]), np.array([0, 3]))
    >>> canonical(sp.csr_array(parts, shape=(1, 2))).data
    array([300])
    """
    if columns_rise(X, n_threads) and not _has_zeros(X.data, n_threads):
        return X
    parts = (X.data.astype(type_of_sums(X.data)), X.indices.copy(), X.indptr.copy())
    X = sp.csr_array(parts, shape=X.shape)
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _has_zeros(values: Array, n_threads: int) -> bool:
    if values.dtype in (np.float32, np.float64):
        facts = value_summary(values, n_threads)
        if facts.are_finite and facts.smallest > 0:
            return False
    return not values.all()


def selected(X: sp.csr_array, kept: Array) -> sp.csr_array:
    """Return some of the stored entries: those where ``kept``, one bool per entry, is True."""
    parts = (X.data[kept], X.indices[kept], selected_ends(X.indptr, kept))
    return sp.csr_array(parts, shape=X.shape)


def selected_ends(indptr: Array, kept: Array) -> Array:
    """Return ``indptr`` of some of the stored entries."""
    ends: Array = np.concatenate([[0], np.cumsum(kept)])[indptr].astype(indptr.dtype)
    return ends


def row_numbers(indptr: Array, first: int = 0) -> Array:
    """Return the row of every stored entry."""
    return np.repeat(np.arange(first, first + len(indptr) - 1), np.diff(indptr))


def taken_rows(indptr: Array, rows: Array) -> tuple[Array, Array]:
    """Return ``indptr`` of some rows, by their numbers, and where their entries are."""
    lengths = np.diff(indptr)[rows]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends, np.repeat(indptr[rows] - ends[:-1], lengths) + np.arange(ends[-1])


def type_of_sums(values: Array) -> np.dtype[Any]:
    """Type in which no sum of these values wraps: int64 for whole numbers, else float64."""
    is_whole = values.dtype.kind != "f" and values.sum(dtype=np.float64) < 2.0**63
    return np.dtype(np.int64 if is_whole else np.float64)
