"""HDF5 files of single cells, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp

from reader_checks import COLUMNS, COUNTS, ROWS

Change = Callable[[h5py.File], None]


def write_annotated(path: Path, form: str = "csr") -> None:
    """AnnData file, as anndata writes it."""
    with h5py.File(path, "w") as file:
        for name, index in (("obs", ROWS), ("var", COLUMNS)):
            file[f"{name}/_index"] = np.array(index, dtype=h5py.string_dtype())
            file[name].attrs["_index"] = "_index"
        if form == "dense":
            file["X"] = COUNTS
            return
        matrix = sp.csr_array(COUNTS) if form == "csr" else sp.csc_array(COUNTS)
        write_compressed(file.create_group("X"), matrix)
        file["X"].attrs["encoding-type"] = f"{form}_matrix"
        file["X"].attrs["shape"] = COUNTS.shape


def write_compressed(group: h5py.Group, matrix: Any) -> None:
    for key in ("data", "indices", "indptr"):
        group[key] = getattr(matrix, key)


def write_loom(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["matrix"] = COUNTS.T
        file["row_attrs/Gene"] = np.array(COLUMNS, dtype=h5py.string_dtype())
        file["col_attrs/CellID"] = np.array(ROWS, dtype=h5py.string_dtype())


def write_10x(path: Path) -> None:
    csc = sp.csc_array(COUNTS.T)
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix")
        write_compressed(group, csc)
        group["shape"] = csc.shape
        group["barcodes"] = np.array(["A", "B", "C"], "S")
        group["features/id"] = np.array(["a", "b", "c", "d"], "S")
        group["features/name"] = np.array(COLUMNS, "S")
        group["features/feature_type"] = np.array(["Gene Expression"] * 4, "S")


WRITERS = {"a.h5ad": write_annotated, "a.loom": write_loom, "a.h5": write_10x}


def replaced(place: str, value: Any) -> Change:
    """Change that puts a value, or what a function makes, where something else stood."""

    def change(file: h5py.File) -> None:
        if place in file:
            del file[place]
        if callable(value):
            value(file, place)
        elif value is not None:
            file[place] = value

    return change


def attribute(place: str, name: str, value: Any) -> Change:
    def change(file: h5py.File) -> None:
        if value is None:
            del file[place].attrs[name]
        else:
            file[place].attrs[name] = value

    return change


def unwritten(*shape: int, dtype: str = "f4", **how: Any) -> Callable[[h5py.File, str], None]:
    """Array that is declared, and of which nothing is stored."""
    return lambda file, place: file.create_dataset(place, shape, dtype, **how)


def elsewhere(file: h5py.File, place: str) -> None:
    """Array whose numbers are the bytes of another file."""
    file.create_dataset(place, (3, 4), "u1", external=[("/etc/passwd", 0, 12)])


def virtual(file: h5py.File, place: str) -> None:
    layout = h5py.VirtualLayout((3, 4), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "X", (3, 4))
    file.create_virtual_dataset(place, layout)


def with_unknown_filter(file: h5py.File, place: str) -> None:
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk((3, 4))
    creation.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple((3, 4))
    h5py.h5d.create(file.id, place.encode(), h5py.h5t.NATIVE_INT32, space, creation)
