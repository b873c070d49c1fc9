"""Tensors drawn by hypothesis, and how two of them are compared."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from klnmf import SparseTensor
from strategies import same_bits

NAMES = ("who", "märz, april", 'a "b"', "=1+1", "when", "x", "y", "z")
# Texts that no file holds as they are: surrogates and control characters.
LABELS = st.text(st.characters(exclude_categories=("C",)), min_size=1, max_size=5).filter(str.strip)


@st.composite
def tensors(draw: st.DrawFn, max_modes: int = 4) -> SparseTensor:
    """Small tensors, also without nonzeros, with and without labels and names."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=max_modes)))
    counts = st.sampled_from([0.0, 0.0, 1.0, 2.0, 0.3, 1e-9, 2.0**24 + 1, 1e9])
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    dense = draw(hnp.arrays(np.float64, shape, elements=counts)).astype(dtype)
    coords = np.array(np.nonzero(dense))
    labels = [
        draw(st.none() | st.lists(LABELS, min_size=size, max_size=size, unique=True))
        for size in shape
    ]
    names = draw(st.sampled_from([None, NAMES[: len(shape)]]))
    return SparseTensor(coords, dense[tuple(coords)], shape, mode_names=names, labels=labels)


def same_tensor(found: SparseTensor, expected: SparseTensor, exact: bool = True) -> bool:
    """Whether two tensors have the same entries, sizes, names and labels (and type)."""
    values = found.values if exact else found.values.astype(expected.dtype)
    labels = [
        [None if each is None else each.tolist() for each in tensor.labels]
        for tensor in (found, expected)
    ]
    return (
        same_bits(found.coords, expected.coords)
        and same_bits(values, expected.values)
        and labels[0] == labels[1]
        and (found.shape, found.mode_names) == (expected.shape, expected.mode_names)
        and found.ordered == expected.ordered
    )
