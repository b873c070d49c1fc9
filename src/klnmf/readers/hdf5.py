"""HDF5 files of single cells: AnnData (.h5ad) and loom, read without a dense copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.option_names import option
from klnmf.readers.files import ReadError, require
from klnmf.readers.table import CountTable, table_of_file

# Entries of a dense data set that are in memory at a time.
DENSE_BLOCK = 1 << 22
# Where the writers of loom files put names, in the order of preference.
_LOOM_CELLS = ("CellID", "obs_names", "cell_names", "barcode")
_LOOM_GENES = ("Gene", "var_names", "gene_names", "Accession")


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """HDF5 file, for reading."""
    h5py = require("h5py", f"Reading {path.suffix} files")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ReadError(path, f"this is not an HDF5 file, or it is cut off: {error}") from error
    with file:
        try:
            yield file
        except OSError as error:  # pieces of it that are damaged
            raise ReadError(path, f"the HDF5 file is damaged: {error}") from error


def strings(dataset: Any) -> list[str]:
    """Names of a data set, which are bytes in HDF5."""
    values = dataset[:].tolist()
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]


class H5adParts(NamedTuple):
    """A matrix of an open AnnData file, and what belongs to it."""

    element: Any  # data set, or group of a sparse matrix
    names: dict[str, Any]  # row_names, column_names, labels
    others: list[str]  # the other matrices of the file, by the layers that read them

    @property
    def hint(self) -> str:
        """What to try if this matrix will not do."""
        if not self.others:
            return ""
        example = option("layer", self.others[-1])
        return f" Other matrices of this file: {', '.join(self.others)}; for example {example}."


def read_h5ad(path: Path, *, layer: str | None = None, labels: str | None = None) -> CountTable:
    """AnnData file: ``X``, one of its layers, or ``raw``.

    Only what is asked for is read, not the whole AnnData object.
    """
    read_element = require("anndata.io", "Reading .h5ad files").read_elem
    with h5ad_parts(path, layer, labels) as parts:
        element = parts.element
        matrix = sparse_rows(element) if hasattr(element, "shape") else read_element(element)
    return table_of_file(path, matrix, **parts.names, hint=parts.hint)


@contextmanager
def h5ad_parts(path: Path, layer: str | None, labels: str | None) -> Iterator[H5adParts]:
    """Open an AnnData file at ``X``, one of its layers, or ``raw``."""
    read_element = require("anndata.io", "Reading .h5ad files").read_elem
    with opened(path) as file:
        if not {"obs", "var"} <= set(file):
            raise ReadError(path, "this is not an AnnData file: it has no obs and var.")
        # A layer that has the name "X" or "raw" comes before what AnnData calls so.
        places = {"X": "X", "raw": "raw/X"} | {k: f"layers/{k}" for k in file.get("layers", ())}
        places = {name: place for name, place in places.items() if place in file}
        asked = "X" if layer is None else layer
        place = "X" if layer is None else places.get(layer)
        if place is None or place not in file:
            there = ", ".join(places) or "no matrix"
            raise ReadError(path, f"it has no {asked!r}. It has: {there}.")
        others = [name for name in places if name != asked]
        try:
            names = {
                "row_names": _index(file["obs"], read_element),
                "column_names": _index(
                    file["raw/var" if place == "raw/X" else "var"], read_element
                ),
                "labels": None
                if labels is None
                else _column(path, file["obs"], labels, read_element),
            }
            yield H5adParts(file[place], names, others)
        except (KeyError, TypeError) as error:
            raise ReadError(path, f"anndata cannot read {asked!r}: {error}") from error


def read_loom(path: Path, *, layer: str | None = None) -> CountTable:
    """Loom file, which holds genes × cells; what is returned is cells × genes."""
    with opened(path) as file:
        layers = list(file["layers"]) if "layers" in file else []
        if "matrix" not in file or "row_attrs" not in file or "col_attrs" not in file:
            raise ReadError(path, "this is not a loom file: it lacks matrix, row_attrs, col_attrs.")
        if layer is not None and layer not in layers:
            raise ReadError(
                path, f"there is no layer {layer!r}. It has: {', '.join(layers) or 'none'}."
            )
        matrix = sparse_rows(file["matrix"] if layer is None else file["layers"][layer])
        genes = _first_attribute(file["row_attrs"], _LOOM_GENES)
        cells = _first_attribute(file["col_attrs"], _LOOM_CELLS)
    return table_of_file(path, matrix.T, cells, genes)


def sparse_rows(dataset: Any) -> sp.csr_array:
    """CSR form of a dense data set, a block of rows at a time."""
    n_rows, n_columns = dataset.shape
    height = max(1, DENSE_BLOCK // max(1, n_columns))
    blocks = []
    for start in range(0, n_rows, height):
        block = dataset[start : start + height]
        if block.dtype == np.float16:
            block = block.astype(np.float32)
        blocks.append(sp.csr_array(block))
    return sp.vstack(blocks, format="csr") if blocks else sp.csr_array((n_rows, n_columns))


def write_h5ad(table: CountTable, path: Path) -> None:
    """AnnData file with the counts as ``X``; labels become the column ``label`` of ``obs``."""
    anndata = require("anndata", "Writing .h5ad files")
    pandas = require("pandas", "Writing .h5ad files")
    frames = []
    for names, size in zip((table.row_names, table.column_names), table.shape, strict=True):
        index = names if names is not None else [str(i) for i in range(size)]
        frames.append(pandas.DataFrame(index=pandas.Index(index, dtype=object)))
    if table.labels is not None:
        frames[0]["label"] = pandas.Categorical(table.labels)
    anndata.AnnData(sp.csr_matrix(table.X), obs=frames[0], var=frames[1]).write_h5ad(path)


def _index(frame: Any, read_element: Any) -> Any:
    """Names of the rows of a data frame, without its columns where the file allows it."""
    if hasattr(frame, "dtype"):  # one compound data set, before anndata 0.7
        return strings(frame[:][frame.dtype.names[0]])
    return read_element(frame[frame.attrs["_index"]])


def _column(path: Path, frame: Any, name: str, read_element: Any) -> Any:
    columns = read_element(frame) if not hasattr(frame, "dtype") else {}
    if name not in columns:
        there = ", ".join(columns) or "none"
        raise ReadError(path, f"obs has no column {name!r}. It has: {there}.")
    return columns[name].to_numpy()


def _first_attribute(group: Any, names: tuple[str, ...]) -> list[str] | None:
    return next((strings(group[name]) for name in names if name in group), None)
