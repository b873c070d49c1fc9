"""The heads of NumPy's ``.npy`` files, which say what array follows."""

from typing import IO, Any

import numpy as np
import numpy.lib.format as npy

# Bytes before the entries of a vector that klnmf writes.
VECTOR_HEADER = 128


def read_npy_header(stream: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Type, shape and whether the order is Fortran's, of the array whose entries follow.

    A ValueError if the stream does not begin so, or if the entries are Python objects. Whether the
    file is as long as the array is for the caller to check.

    >>> import io
    >>> stream = io.BytesIO()
    >>> np.save(stream, np.zeros((2, 3)))
    >>> read_npy_header(io.BytesIO(stream.getvalue()))
    (dtype('float64'), (2, 3), False)
    """
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(stream)
    except Exception as error:  # NumPy parses it as Python, and lets errors of any class through
        raise ValueError(f"it is not an array in NumPy's format: {error}") from error
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("it holds Python objects, or has a negative shape")
    return dtype, shape, is_fortran


def vector_header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return the head of a vector, which has the same length for any vector.

    >>> len(vector_header(np.dtype("<f4"), 10**15)) == VECTOR_HEADER
    True
    """
    described = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({length},), }}"
    text = described.ljust(VECTOR_HEADER - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("ascii")
