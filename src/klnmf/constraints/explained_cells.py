"""Whether every nonzero of X has a component that can explain it, with fixed entries and zeros.

A nonzero at which W Hᵀ is 0 has an infinite divergence.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from klnmf.constraints.constraints import Constraints
from klnmf.data.canonical import row_numbers
from klnmf.data.sparse_data import CountData, Piece
from klnmf.support.array_types import Array


def check_explained(constraints: Constraints, data: CountData) -> None:
    """Refuse zeros and fixed entries that leave a nonzero of X without any component."""
    if not constraints.has_known_entries:
        return
    allowed = [constraints.allowed(mode) for mode in range(len(constraints.shape))]
    for rows, columns in unexplained_cells(allowed[0], stacked(allowed[1:], constraints), data):
        names = [name for name in constraints.names if name.startswith(("fixed", "zero"))]
        offsets = np.cumsum([0, *constraints.shape[1:-1]])
        cell = [int(rows[0]), *(np.atleast_2d(columns)[:, 0] - offsets).tolist()]
        raise ValueError(
            f"X has a positive value in cell {cell}, but {' and '.join(names)} "
            "leave no component that could be positive there, so that the divergence would be "
            "infinite. Allow a component there, increase n_components, or mark the cell as missing."
        )


def stacked(allowed: Sequence[Array | None], constraints: Constraints) -> Array | None:
    """Return what is allowed in the factors of all modes but the first, one below the other."""
    if all(part is None for part in allowed):
        return None
    sizes, r = constraints.shape[1:], constraints.n_components
    parts = zip(allowed, sizes, strict=True)
    return np.concatenate([np.ones((n, r), bool) if part is None else part for part, n in parts])


def unexplained_cells(
    of_W: Array | None, of_H: Array | None, data: CountData
) -> Iterator[tuple[Array, Array]]:
    """Rows and columns of nonzeros without a component for which both are True; None: all are.

    ``of_H`` has a row for each column of the data's first view.
    """
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
                found = bits[numbers, byte]
                common &= found if found.ndim == 1 else np.bitwise_and.reduce(found)
        covered |= common != 0
    return rows[~covered], np.asarray(piece.indices[..., ~covered])
