"""Counts that are split in two."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.support.array_types import Array


class Split(NamedTuple):
    """Two parts of the same samples, which sum to the samples."""

    estimate: sp.csr_array
    held_out: sp.csr_array


def is_integer_valued(X: sp.csr_array) -> bool:
    """Whether every value is a whole number that a 64-bit integer holds exactly."""
    return bool(np.all(X.data == np.floor(X.data)) and X.data.max(initial=0) < 2**53)


def split_by_values(X: sp.csr_array, first: Array) -> Split:
    """Split a matrix into a part with these values and the rest, both without stored zeros."""
    first = first.astype(X.dtype)
    parts = [
        sp.csr_array((data, X.indices.copy(), X.indptr.copy()), shape=X.shape)
        for data in (first, X.data - first)
    ]
    for part in parts:
        part.eliminate_zeros()
    return Split(*parts)
