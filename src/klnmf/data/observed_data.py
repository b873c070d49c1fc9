"""Data as a fit sees them that knows of weights, missing cells and the like: in memory, on disk."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.observed_cells import Observation
from klnmf.data.on_disk.matrix import MappedData
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import (
    NONZEROS_PER_PASS,
    Piece,
    RowView,
    SparseData,
    blocked_sum,
    constant_of,
    is_exact_in_float32,
)
from klnmf.data.validation import check_value_range
from klnmf.support.caching import cached_property
from klnmf.support.option_names import option

Array = npt.NDArray[Any]


def observed(
    data: SparseData,
    observations: tuple[Observation | None, Observation | None],
    terms: tuple[RowConstraints | None, RowConstraints | None],
    checksum: int,
) -> SparseData:
    """Return the data with weights, missing cells and the constraints on rows.

    Parameters
    ----------
    data : SparseData
        In memory or on disk.
    observations : pair of Observation or None
        How cells enter, by mode.
    terms : pair of RowConstraints or None
        Constraints on the rows of each mode.
    checksum : int
        Checksum of all of these.
    """
    if isinstance(data, MappedData):
        if observations[0] is None or observations[1] is None:
            return _with_terms(data, terms)
        return ObservedOnDisk(data, (observations[0], observations[1]), terms, checksum)
    X = data.view(0).as_csr()
    if observations[0] is not None:
        indptr, indices, values = observations[0].applied(X.indptr, X.indices, X.data)
        X = sp.csr_array((values, indices, indptr), shape=X.shape)
        if len(values):
            total = float(values.sum(dtype=np.float64))
            check_value_range(float(values.min()), float(values.max()), total, X.dtype)
    return SparseData(X, terms)


def _with_terms(
    data: MappedData, terms: tuple[RowConstraints | None, RowConstraints | None]
) -> MappedData:
    """Return data on disk with the same files and terms of its own."""
    result = copy.copy(data)
    views = []
    for mode in (0, 1):
        view = data.view(mode)
        with_terms = replace(view, terms=terms[mode])
        with_terms.__dict__["row_sums"] = view.row_sums  # where the cached property keeps it
        views.append(with_terms)
    result._by_rows, result._by_columns = views
    return result


@dataclass(frozen=True)
class ObservedView(RowView):
    """One mode of a matrix on disk, its pieces as the fit sees them.

    ``indptr`` counts what is left; ``indices`` and ``values`` are there in pieces alone.
    """

    base: RowView = field(kw_only=True)
    observation: Observation = field(kw_only=True)

    def pieces(self) -> Iterator[Piece]:
        """See :class:`RowView`."""
        for piece in self.base.pieces():
            own = self.observation.rows(piece.rows)
            terms = None if self.terms is None else self.terms.rows(piece.rows)
            arrays = own.applied(piece.indptr, piece.indices, piece.values)
            yield Piece(piece.rows, *arrays, terms)

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`RowView`."""
        return self.observation.rows(rows).applied(*self.base.take_rows(rows))

    def as_csr(self) -> sp.csr_array:
        """See :class:`RowView`."""
        raise ValueError(
            f"This needs all of X at once ({option('init', 'nndsvd')} does), but X is on disk, and "
            "with weights or missing cells it is there in pieces only. Choose another "
            f"{option('init')}."
        )


class ObservedOnDisk(SparseData):
    """A matrix on disk whose cells have weights or are missing; takes a pass over it."""

    def __init__(
        self,
        base: MappedData,
        observations: tuple[Observation, Observation],
        terms: tuple[RowConstraints | None, RowConstraints | None],
        checksum: int,
    ) -> None:
        self.base, self.observations, self._terms = base, observations, terms
        self.shape, self.dtype = base.shape, base.dtype
        constants = _Constants()
        self._by_rows = _observed_view(base.view(0), observations[0], terms[0], constants)
        self.total = blocked_sum(self._by_rows.row_sums)
        self.is_exact_in_float32 = self.dtype == np.float64 and constants.is_exact
        self.divergence_constant = constants.finished()
        largest, least = constants.largest, constants.least
        check_value_range(least, largest, self.total, self.dtype)
        own = zlib.crc32(f"{base.fingerprint} {checksum}".encode())
        self.fingerprint = (self.shape, self.nnz, self.dtype.str, own)

    @cached_property
    def _by_columns(self) -> RowView:
        return _observed_view(self.base.view(1), self.observations[1], self._terms[1])


def _observed_view(
    base: RowView,
    observation: Observation,
    terms: RowConstraints | None,
    constants: _Constants | None = None,
) -> ObservedView:
    """View of one mode; its values also go to the constants, if these are wanted."""
    none = np.zeros(0)
    probe = ObservedView(none, none, none, base.n_columns, base=base, observation=observation)
    lengths, sums = np.zeros(base.n_rows, dtype=np.int64), np.zeros(base.n_rows)
    for piece in probe.pieces():
        lengths[piece.rows] = np.diff(piece.indptr)
        part = RowView(piece.indptr, piece.indices, piece.values, base.n_columns)
        sums[piece.rows] = part.row_sums
        if constants is not None:
            constants.add(piece.values)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    view = replace(probe, indptr=indptr, terms=terms)
    view.__dict__["row_sums"] = sums
    return view


class _Constants:
    """Facts about values that come in pieces, to the bits of all of them at once."""

    def __init__(self) -> None:
        self.is_exact, self.least, self.largest = True, np.inf, 0.0
        self._constant, self._waiting = 0.0, np.zeros(0)

    def add(self, values: Array) -> None:
        if len(values) == 0:
            return
        self.is_exact = self.is_exact and is_exact_in_float32(values)
        self.least = min(self.least, float(values.min()))
        self.largest = max(self.largest, float(values.max()))
        waiting = np.concatenate([self._waiting, values])
        whole = len(waiting) // NONZEROS_PER_PASS * NONZEROS_PER_PASS
        for start in range(0, whole, NONZEROS_PER_PASS):
            self._constant += constant_of(waiting[start : start + NONZEROS_PER_PASS])
        self._waiting = waiting[whole:]

    def finished(self) -> float:
        if len(self._waiting):
            self._constant += constant_of(self._waiting)
        return self._constant
