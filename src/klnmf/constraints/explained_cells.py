"""Whether every nonzero of X has a component that can explain it, with fixed entries and zeros.

A nonzero at which W Hᵀ is 0 has an infinite divergence.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from klnmf.constraints.constraints import Constraints
from klnmf.data.canonical import row_numbers
from klnmf.data.sparse_data import CountData, Piece
from klnmf.support.array_types import Array


def check_explained(constraints: Constraints, data: CountData) -> None:
    """Refuse zeros and fixed entries that leave a nonzero of X without any component."""
    of_W, of_H = constraints.allowed(0), constraints.allowed(1)
    if of_W is None and of_H is None:
        return
    for rows, columns in unexplained_cells(of_W, of_H, data):
        names = [name for name in constraints.names if name.startswith(("fixed", "zero"))]
        raise ValueError(
            f"X has a positive value in cell [{rows[0]}, {columns[0]}], but {' and '.join(names)} "
            "leave no component that could be positive there, so that the divergence would be "
            "infinite. Allow a component there, increase n_components, or mark the cell as missing."
        )


def unexplained_cells(
    of_W: Array | None, of_H: Array | None, data: CountData
) -> Iterator[tuple[Array, Array]]:
    """Rows and columns of nonzeros without a component for which both are True; None: all are."""
    bits_of_W, bits_of_H = (
        None if part is None else np.packbits(part, axis=1) for part in (of_W, of_H)
    )
    for rows, columns in data.over_rows(partial(unexplained_in_piece, bits_of_W, bits_of_H)):
        if len(rows):
            yield rows, columns


def unexplained_in_piece(
    of_W: Array | None, of_H: Array | None, piece: Piece
) -> tuple[Array, Array]:
    """Nonzeros of a piece without a component whose bit is set both for the row and the column."""
    rows = row_numbers(piece.indptr, piece.rows.start)
    covered = np.zeros(len(rows), dtype=bool)
    for byte in range(max(bits.shape[1] for bits in (of_W, of_H) if bits is not None)):
        common = np.full(len(rows), 255, dtype=np.uint8)
        for bits, numbers in ((of_W, rows), (of_H, piece.indices)):
            if bits is not None:
                common &= bits[numbers, byte]
        covered |= common != 0
    return rows[~covered], np.asarray(piece.indices[~covered])
