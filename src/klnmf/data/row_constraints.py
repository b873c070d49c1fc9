"""Constraints on single row problems: missing cells, zeros, shares of penalties, frozen components.

Without constraints, all row problems of a mode share the slopes c (column sums of the fixed factor,
plus L1) and the L2 penalty. With them, row i has

    c_i = Σ_{j not missing in row i} A_j + l1 a_i,        l2_i = l2 b_i,

with shares a_i and b_i of the penalties from weights and exposures, entries that stay 0, and
components that a half-step of this mode does not change.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import taken_rows
from klnmf.support.array_types import Array


@dataclass(frozen=True)
class Pattern:
    """Cells of a matrix: row i has ``columns[starts[i]:starts[i + 1]]``, in rising order.

    Those of a tensor have a column in each of the other modes, numbered as in a `Piece`.
    """

    starts: Array  # int64
    columns: Array  # of all cells, or (d − 1) × cells

    @classmethod
    def of(cls, cells: sp.csr_array, dtype: Any = np.int64) -> Pattern:
        """Return the stored entries of a canonical CSR array."""
        return cls(cells.indptr.astype(np.int64), cells.indices.astype(dtype))

    def row(self, i: int) -> Array:
        """Columns of one row."""
        return self.columns[..., self.starts[i] : self.starts[i + 1]]

    def rows(self, rows: slice) -> Pattern:
        """Return consecutive rows."""
        starts = self.starts[rows.start : rows.stop + 1]
        return Pattern(starts - starts[0], self.columns[..., starts[0] : starts[-1]])

    def take(self, rows: Array) -> Pattern:
        """Return rows by their numbers."""
        starts, places = taken_rows(self.starts, rows)
        return Pattern(starts, self.columns[..., places])


@dataclass(frozen=True)
class RowConstraints:
    """Constraints on some rows of one mode; None: no such constraint."""

    missing: Pattern | None = None  # cells of the data that count neither as zero nor as data
    barred: Pattern | None = None  # entries of x (int32 components) that are 0
    penalty_shares: Array | None = None  # n × 2: what l1 and l2 are multiplied by in a row
    l1: float = 0.0  # L1 penalty, before that
    frozen: Array | None = None  # uint8, by component: 1 where x does not change, in all rows

    @property
    def is_empty(self) -> bool:
        """Whether there are no constraints."""
        parts = (self.missing, self.barred, self.penalty_shares, self.frozen)
        return all(part is None for part in parts)

    @property
    def without_penalties(self) -> RowConstraints:
        """The same constraints, but for what they say about penalties."""
        return replace(self, penalty_shares=None, l1=0.0)

    def rows(self, rows: slice) -> RowConstraints:
        """Return the constraints on consecutive rows."""
        return replace(
            self,
            missing=None if self.missing is None else self.missing.rows(rows),
            barred=None if self.barred is None else self.barred.rows(rows),
            penalty_shares=None if self.penalty_shares is None else self.penalty_shares[rows],
        )

    def is_frozen(self, n_components: int) -> Array:
        """By component, whether it does not change."""
        if self.frozen is None:
            return np.zeros(n_components, dtype=bool)
        return self.frozen.astype(bool)


def checksum_of(*arrays: Array | None) -> int:
    """CRC-32 of several arrays, of which some may be None."""
    checksum = 0
    for number, array in enumerate(arrays):
        if array is not None:
            header = f"{number} {array.dtype.str} {array.shape}".encode()
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            checksum = zlib.crc32(content, zlib.crc32(header, checksum))
    return checksum
