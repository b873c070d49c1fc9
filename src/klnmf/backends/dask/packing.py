"""Rows of a factor as they are sent to another worker: dense, or without zeros if smaller."""

from typing import NamedTuple

import numpy as np

from klnmf.support.array_types import Array

# Packed rows are sent if they are smaller than this share of the dense ones.
PACKED_SHARE = 0.9
# Entries at a time, a multiple of 8, few enough for the cache.
ENTRIES = 1 << 15


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
    flat = rows.reshape(-1)
    bits, nonzeros = [], []
    for start in range(0, flat.size, ENTRIES):
        entries = flat[start : start + ENTRIES]
        is_nonzero = entries != 0
        bits.append(np.packbits(is_nonzero))
        nonzeros.append(entries[np.flatnonzero(is_nonzero)])
    return Packed(rows.shape, np.concatenate(bits), np.concatenate(nonzeros))


def unpack(rows: Array | Packed, target: Array) -> None:
    """Write the rows into ``target``."""
    if not isinstance(rows, Packed):
        np.copyto(target, rows)
        return
    flat, taken = target.reshape(-1), 0
    for start in range(0, flat.size, ENTRIES):
        entries = flat[start : start + ENTRIES]
        bits = rows.bits[start // 8 : (start + ENTRIES) // 8]
        places = np.flatnonzero(np.unpackbits(bits, count=len(entries)).view(bool))
        entries[:] = 0
        entries[places] = rows.nonzeros[taken : taken + len(places)]
        taken += len(places)
