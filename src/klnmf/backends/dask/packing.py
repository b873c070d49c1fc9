"""Rows of a factor on their way to another worker: dense, or without their zeros if smaller."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Workers of one machine copy faster than they pack; between machines the wire decides.
PACKED_SHARE = 0.9


class Packed(NamedTuple):
    """A bit for every entry, and the entries that are not 0."""

    shape: tuple[int, int]
    bits: Array
    nonzeros: Array

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return int(self.bits.nbytes + self.nonzeros.nbytes)


def pack(rows: Array) -> Array | Packed:
    """Return what is smaller: the rows as they are, or packed.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.zeros((100, 8), dtype=np.float32)
    >>> rows[::7, 3] = 1.5
    >>> packed = pack(rows)
    >>> packed.nbytes, rows.nbytes
    (160, 3200)
    >>> target = np.empty_like(rows)
    >>> unpack(packed, target)
    >>> bool((target == rows).all())
    True
    """
    n_nonzeros = int(np.count_nonzero(rows))
    packed_bytes = rows.size // 8 + n_nonzeros * rows.itemsize
    if packed_bytes >= PACKED_SHARE * rows.nbytes:
        return rows
    is_nonzero = rows.reshape(-1) != 0
    return Packed(rows.shape, np.packbits(is_nonzero), rows.reshape(-1)[is_nonzero])


def unpack(rows: Array | Packed, target: Array) -> None:
    """Write the rows into ``target``."""
    if not isinstance(rows, Packed):
        np.copyto(target, rows)
        return
    flat = target.reshape(-1)
    flat[:] = 0
    flat[np.unpackbits(rows.bits, count=flat.size).view(bool)] = rows.nonzeros
