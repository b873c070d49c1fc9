"""Data on disk whose cells have weights or are missing: weighted as they are read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from klnmf.data.cell_weights import CellWeights
from klnmf.data.passes import is_exact_in_float32
from klnmf.data.row_constraints import RowConstraints
from klnmf.data.sparse_data import CountData, DataConstraints, InMemoryView, Piece, RowView
from klnmf.data.sums import DivergenceConstant, sums_of_rows
from klnmf.data.validation import check_value_range
from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property
from klnmf.support.option_names import option


class ObservedView(RowView):
    """One mode of data, weighted as it is read; making one takes a pass, which ``facts`` sees."""

    def __init__(
        self,
        base: RowView,
        weights: CellWeights,
        row_constraints: RowConstraints | None,
        facts: ValueFacts | None = None,
    ) -> None:
        self._base, self._weights, self.row_constraints = base, weights, row_constraints
        self.n_columns = base.n_columns
        lengths, self.row_sums = np.zeros(base.n_rows, dtype=np.int64), np.zeros(base.n_rows)
        for piece in self.pieces():
            lengths[piece.rows] = np.diff(piece.indptr)
            self.row_sums[piece.rows] = sums_of_rows(piece.indptr, piece.values.__getitem__)
            if facts is not None:
                facts.add(piece.values)
        self.indptr = np.concatenate([[0], np.cumsum(lengths)])

    def pieces(self) -> Iterator[Piece]:
        """See :class:`RowView`."""
        for piece in self._base.pieces():
            arrays = self._weights.rows(piece.rows).applied(*piece[1:4])
            constraints = self.row_constraints
            yield Piece(
                piece.rows, *arrays, None if constraints is None else constraints.rows(piece.rows)
            )

    def take_rows(self, rows: Array) -> tuple[Array, Array, Array]:
        """See :class:`RowView`."""
        return self._weights.rows(rows).applied(*self._base.take_rows(rows))

    def whole(self) -> InMemoryView:
        """See :class:`RowView`."""
        pieces = [(piece.indices, piece.values) for piece in self.pieces()]
        indices, values = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        return InMemoryView(self.indptr, indices, values, self.n_columns, self.row_constraints)

    def as_csr(self) -> Any:
        """See :class:`RowView`."""
        raise ValueError(
            f"{option('init', 'nndsvd')} needs all of X at once. X is on disk, and with weights or "
            f"missing cells it is read in pieces only. Choose another {option('init')}."
        )


class ObservedData(CountData):
    """Data on disk whose cells have weights or are missing; takes a pass over it."""

    def __init__(self, base: CountData, constraints: DataConstraints) -> None:
        self.base, self.constraints = base, constraints
        self.shape, self.dtype = base.shape, base.dtype
        weights = (constraints.cell_weights(0), constraints.cell_weights(1))
        self.cell_weights = [part or CellWeights() for part in weights]
        facts = ValueFacts()
        self._by_rows = self._view(0, facts)
        self.is_exact_in_float32 = self.dtype == np.float64 and facts.is_exact
        self.divergence_constant = facts.constant.total
        check_value_range(facts.least, facts.largest, self.total, self.dtype)
        checksum = zlib.crc32(f"{base.fingerprint} {constraints.checksum}".encode())
        self.fingerprint = (self.shape, self.nnz, self.dtype.str, checksum)

    def _view(self, mode: int, facts: ValueFacts | None = None) -> ObservedView:
        assert self.constraints is not None
        row_constraints = self.constraints.row_constraints(mode)
        return ObservedView(self.base.view(mode), self.cell_weights[mode], row_constraints, facts)

    @cached_property
    def _by_columns(self) -> ObservedView:
        return self._view(1)

    def view(self, mode: int) -> ObservedView:
        """See :class:`CountData`."""
        return self._by_columns if mode else self._by_rows


class ValueFacts:
    """Facts about values that come in pieces, exactly as of all of them at once."""

    def __init__(self) -> None:
        self.constant, self.is_exact = DivergenceConstant(), True
        self.least, self.largest = np.inf, 0.0

    def add(self, values: Array) -> None:
        """Take in the next values."""
        if len(values):
            self.constant.add(values)
            self.is_exact = self.is_exact and is_exact_in_float32(values)
            self.least = min(self.least, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
