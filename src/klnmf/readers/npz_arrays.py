"""Arrays of NumPy's .npz archives, without trust in what the archive says of itself."""

import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from klnmf.support.array_types import Array
from klnmf.support.input_files import check_unpacked, parsed_by_others
from klnmf.support.npy_headers import read_npy_header


@contextmanager
def opened_npz(path: Path, what: str) -> Iterator[tuple[zipfile.ZipFile, set[str]]]:
    """Archive of NumPy's arrays, and their names; what goes wrong meanwhile is ``what`` it is."""
    with parsed_by_others(path, what), zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
        check_unpacked(path, path.stat().st_size, unpacked)
        yield archive, {name.removesuffix(".npy") for name in archive.namelist()}


def npz_array(archive: zipfile.ZipFile, name: str) -> Array:
    """One array, of the size of its member; another size than its head says is a ValueError."""
    with archive.open(f"{name}.npy") as member:
        dtype, shape, is_fortran = read_npy_header(member)
        content = member.read()
    if dtype.kind == "U":  # Python's strings must not hold numbers that are no characters
        numbers = np.dtype(np.uint32).newbyteorder(dtype.byteorder)
        if np.frombuffer(content, numbers).max(initial=0) > sys.maxunicode:
            raise ValueError(f"{name} has characters that do not exist")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")
