"""Passes of the compiled core over X, on threads: the same results for any number of them."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf import _core
from klnmf.support.array_types import Array


class ValueSummary(NamedTuple):
    """What the checks ask about all values; where some are not finite, only that holds."""

    smallest: float
    largest: float
    total: float
    are_finite: bool


def value_summary(values: Array, n_threads: int = 1) -> ValueSummary:
    """Return the facts about values of type float32 or float64, in one pass.

    >>> value_summary(np.array([2.0, 1.0]))
    ValueSummary(smallest=1.0, largest=2.0, total=3.0, are_finite=True)
    """
    return ValueSummary(*_core.value_facts(np.ascontiguousarray(values), n_threads))


def is_exact_in_float32(values: Array, n_threads: int = 1) -> bool:
    """Whether values lose nothing in float32, as whole numbers do."""
    if values.dtype == np.float32:
        return True
    return bool(_core.are_floats(np.ascontiguousarray(values, dtype=np.float64), n_threads))


def columns_rise(X: sp.csr_array, n_threads: int = 1) -> bool:
    """Whether each row is sorted and has no place twice."""
    if X.indptr.dtype != X.indices.dtype:
        return bool(X.has_canonical_format)
    indptr, indices = np.ascontiguousarray(X.indptr), np.ascontiguousarray(X.indices)
    return bool(_core.columns_rise(indptr, indices, n_threads))


def row_sums(indptr: Array, values: Array, n_threads: int = 1) -> Array:
    """Sum of each row in float64."""
    sums = np.zeros(len(indptr) - 1)
    ends = np.ascontiguousarray(indptr, dtype=np.int64)
    _core.row_sums(ends, _floats(values), n_threads, sums)
    return sums


def constant_of(values: Array, n_threads: int = 1) -> float:
    """Σ (v log v − v) of nonnegative values."""
    return float(_core.divergence_constant(_floats(values), n_threads))


def transposed(
    indptr: Array, indices: Array, values: Array, n_columns: int, n_threads: int = 1
) -> tuple[Array, Array, Array]:
    """Return the columns of compressed rows as rows, the entries of each in the order of the rows.

    Values are of type float32 or float64, ``indptr`` of int64 and the others of int32.
    """
    arrays = (
        np.empty(n_columns + 1, dtype=np.int64),
        np.empty(len(indices), dtype=np.int32),
        np.empty(len(indices), dtype=values.dtype),
    )
    _core.transpose_rows(indptr, indices, values, n_threads, *arrays)
    return arrays


def sorted_by_mode(
    coords: Array, values: Array, mode: int, size: int, n_threads: int = 1
) -> tuple[Array, Array]:
    """Return the entries of a tensor in the order of their coordinates in one mode, of this size.

    Those with the same keep their order: sorted by the last mode, then by the one before it and so
    on, they are in the order of all modes. ``coords`` has a row for each mode, of type int32;
    values are of type float32 or float64.
    """
    offsets = dict.fromkeys(range(len(coords)), 0)
    return _sorted_entries(coords, values, mode, size, offsets, n_threads)[1:]


def rows_of_mode(
    coords: Array, values: Array, mode: int, shape: Sequence[int], n_threads: int = 1
) -> tuple[Array, Array, Array]:
    """Return the entries of a tensor by the rows of one mode: indptr, indices and values.

    ``indices`` has a row for each other mode, as those of a `Piece`. Entries of a row keep their
    order.
    """
    others = [other for other in range(len(shape)) if other != mode]
    starts = accumulate((shape[other] for other in others), initial=0)
    offsets = dict(zip(others, starts, strict=False))
    return _sorted_entries(coords, values, mode, shape[mode], offsets, n_threads)


def _sorted_entries(
    coords: Array, values: Array, mode: int, size: int, offsets: dict[int, int], n_threads: int
) -> tuple[Array, Array, Array]:
    """Return indptr, the coordinates of the modes in ``offsets``, with these added, and values."""
    arrays = (
        np.empty(size + 1, dtype=np.int64),
        np.empty((len(offsets), len(values)), dtype=np.int32),
        np.empty(len(values), dtype=values.dtype),
    )
    modes, added = (np.array([*each], dtype=np.int32) for each in (offsets, offsets.values()))
    _core.sort_by_mode(coords, values, mode, modes, added, n_threads, *arrays)
    return arrays


class SampledNonzeros:
    """Nonzeros v of some rows in float64, and the model y there, for trials of components.

    ``indptr`` and ``indices`` are those of a `Piece`. W and H are in float64, with the columns of
    all modes but the first in H. A component w hᵀ that is tried has entries for the rows of both.
    """

    def __init__(
        self, indptr: Array, indices: Array, values: Array, W: Array, H: Array, n_threads: int = 1
    ) -> None:
        self._n_threads = n_threads
        self._places = (indptr, np.ascontiguousarray(np.atleast_2d(indices)))
        self.v = values.astype(np.float64)
        self.y = np.empty(len(values))
        factors = (np.ascontiguousarray(W), np.ascontiguousarray(H))
        _core.products_at_nonzeros(*self._places, *factors, n_threads, self.y)

    def gain(self, w: Array, h: Array) -> float:
        """Σ v log(y' / y), where y' is y with some components added, one in a row of w and h."""
        terms = np.empty_like(self.v)
        # Rounding may take y' below 0 where nearly all of y was taken away.
        least = -1 + 1e-9
        _core.change_of_logarithms(
            *self._places, self.v, self.y, w, h, least, self._n_threads, terms
        )
        return float(np.sum(terms))

    def ratio_sums(self, u: Array, h: Array, mode: int = -1) -> Array:
        """Σ v / (y + u h) · ∂(u h) by the rows of each component u hᵀ, or by columns of a mode.

        An entry times its sum is its multiplicative update, where the others sum to 1.
        """
        sums = np.empty_like(u if mode < 0 else h)
        _core.ratio_sums(*self._places, self.v, self.y, u, h, mode, self._n_threads, sums)
        return sums


def products_of_roots(F: Array, n_threads: int = 1) -> Array:
    """Return Rᵀ R of the roots R of F in float64 with columns that sum to 1, over rows in order.

    Without BLAS: with threads its order of summation varies, and its locks do not survive a fork.

    >>> products_of_roots(np.array([[1.0, 4.0], [3.0, 0.0]]))
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    sums = np.maximum(F.sum(axis=0), np.finfo(np.float64).tiny)
    roots, products = np.empty(F.shape), np.empty((F.shape[1], F.shape[1]))
    _core.products_of_roots(np.ascontiguousarray(F), sums, n_threads, roots, products)
    return products


def _floats(values: Array) -> Array:
    """Return values as the core takes them."""
    is_float = values.dtype in (np.float32, np.float64)
    return np.ascontiguousarray(values, dtype=None if is_float else np.float64)
