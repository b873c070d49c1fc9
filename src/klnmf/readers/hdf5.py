"""HDF5 files of single cells: AnnData (.h5ad) and loom, read without a dense copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.matrix_checks import csr_from_parts, native_numbers
from klnmf.readers.hdf5_items import Array, Group, check_nonzeros, opened
from klnmf.readers.table import CountTable, table_of_file
from klnmf.support.input_files import ReadError, require
from klnmf.support.option_names import option

# Entries of a dense array that are in memory at a time.
DENSE_BLOCK = 1 << 22
# Where the writers of loom files put names, in the order of preference.
_LOOM_CELLS = ("CellID", "obs_names", "cell_names", "barcode")
_LOOM_GENES = ("Gene", "var_names", "gene_names", "Accession")
# Column of ``var`` in which scanpy keeps the ids of genes.
GENE_IDS = "gene_ids"
_SPARSE = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}


# ---- matrices ------------------------------------------------------------------------------------


class Compressed(NamedTuple):
    """A sparse matrix in a file: sizes and types are checked, entries are not read."""

    group: Group
    form: str  # "csr" or "csc"
    shape: tuple[int, int]
    data: Array
    indices: Array
    indptr: Array

    def read(self) -> sp.csr_array:
        """All of it."""
        parts = {name: getattr(self, name)[:] for name in ("data", "indices", "indptr")}
        try:
            return csr_from_parts(self.form, parts, self.shape, self.group.place)
        except (TypeError, ValueError) as error:
            raise ReadError(self.group.path, str(error)) from error


def compressed(group: Group, form: str, shape: tuple[int, int]) -> Compressed:
    """Matrix of the arrays data, indices and indptr."""
    indices = group.array("indices")
    indices.check_numbers(1, "iu")
    data = group.array("data", indices.shape)
    data.check_numbers(1)
    check_nonzeros(len(indices), indices, data)
    indptr = group.array("indptr", (shape[0 if form == "csr" else 1] + 1,))
    indptr.check_numbers(1, "iu")
    return Compressed(group, form, shape, data, indices, indptr)


def sparse_rows(array: Array) -> sp.csr_array:
    """CSR form of a dense array; each stored piece of it is unpacked once."""
    n_rows, n_columns = array.shape
    if not n_rows or not n_columns:
        return sp.csr_array((n_rows, n_columns))
    height, width = _tile(n_columns, array.chunks)
    bands: list[Any] = []
    n_nonzeros = 0
    for top in range(0, n_rows, height):
        tiles = [
            sp.csr_array(native_numbers(array[top : top + height, left : left + width]))
            for left in range(0, n_columns, width)
        ]
        n_nonzeros += sum(tile.nnz for tile in tiles)
        check_nonzeros(n_nonzeros, array)
        bands.append(sp.hstack(tiles, format="csr") if len(tiles) > 1 else tiles[0])
    return sp.csr_array(sp.vstack(bands, format="csr"))


def _tile(n_columns: int, chunk: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of whole chunks, about DENSE_BLOCK entries; whole rows if possible."""
    height, width = chunk
    width = min(n_columns, width * max(1, DENSE_BLOCK // (height * width)))
    return height * max(1, DENSE_BLOCK // (height * width)), width


# ---- AnnData -------------------------------------------------------------------------------------


class H5adParts(NamedTuple):
    """A matrix of an open AnnData file, and what belongs to it."""

    matrix: Array | Compressed
    names: dict[str, Any]  # row_names, column_names, labels, column_ids
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
    with h5ad_parts(path, layer, labels) as parts:
        stored = parts.matrix
        matrix = sparse_rows(stored) if isinstance(stored, Array) else stored.read()
    return table_of_file(path, matrix, **parts.names, hint=parts.hint)


@contextmanager
def h5ad_parts(path: Path, layer: str | None, labels: str | None) -> Iterator[H5adParts]:
    """Open an AnnData file at ``X``, one of its layers, or ``raw``."""
    with opened(path) as file:
        if "obs" not in file or "var" not in file:
            raise ReadError(path, "this is not an AnnData file: it has no obs and var.")
        # A layer that has the name "X" or "raw" comes before what AnnData calls so.
        raw, layers = (file.group(k) if k in file else None for k in ("raw", "layers"))
        places = {"X": (file, "X")} if "X" in file else {}
        places |= {"raw": (raw, "X")} if raw is not None and "X" in raw else {}
        places |= {} if layers is None else {name: (layers, name) for name in layers.names()}
        asked = "X" if layer is None else layer
        holder, name = (file, "X") if layer is None else places.get(layer, (file, ""))
        if name not in holder:
            there = ", ".join(places) or "no matrix"
            raise ReadError(path, f"it has no {asked!r}. It has: {there}.")
        others = [name for name in places if name != asked]
        obs, var = file.item("obs"), (raw if holder is raw else file).item("var")
        rows, columns = _index(obs), _index(var)
        names = {
            "row_names": rows,
            "column_names": columns,
            "labels": None if labels is None else _column(obs, labels),
            "column_ids": _column(var, GENE_IDS) if GENE_IDS in _columns(var) else None,
        }
        yield H5adParts(_matrix(holder, name, (len(rows), len(columns))), names, others)


def _matrix(holder: Group, name: str, shape: tuple[int, int]) -> Array | Compressed:
    """Dense or sparse matrix, which has as many rows and columns as there are names."""
    group = holder.item(name)
    if isinstance(group, Array):
        dense = holder.array(name)
        dense.check_numbers(2)
        if dense.shape != shape:
            raise _other_shape(dense, dense.shape, shape)
        return dense
    kind = group.text("encoding-type") or group.text("h5sparse_format")
    if kind not in _SPARSE:
        raise group.refuse(f"has the type {kind!r}; expected was a dense or sparse matrix.")
    said = group.shape_in("shape") or group.shape_in("h5sparse_shape")
    if said != shape:
        raise _other_shape(group, said, shape)
    return compressed(group, _SPARSE[kind], shape)


def _other_shape(item: Array | Group, said: Any, shape: tuple[int, int]) -> ReadError:
    return item.refuse(f"has the shape {said}; there are names of {shape[0]:,} × {shape[1]:,}.")


def _columns(frame: Array | Group) -> list[str]:
    """Names of the columns that can be read, which those of old versions cannot."""
    if isinstance(frame, Array):  # one compound data set, before anndata 0.7
        return []
    return [n for n in frame.names() if n not in (frame.text("_index"), "__categories")]


def _index(frame: Array | Group) -> list[str]:
    """Names of the rows of a data frame."""
    if isinstance(frame, Array):
        frame.check_stored()
        return frame.strings()
    name = frame.text("_index")
    if name is None:
        raise frame.refuse("has no attribute '_index', which tells the column of names.")
    return _values(frame, name)


def _column(frame: Array | Group, name: str) -> list[str]:
    there = _columns(frame)
    if isinstance(frame, Array) or name not in there:
        raise frame.refuse(f"has no column {name!r}. It has: {', '.join(there) or 'none'}.")
    return _values(frame, name)


def _values(frame: Group, name: str) -> list[str]:
    """Column of a data frame as texts; what is missing is "nan"."""
    column = frame.item(name)
    if isinstance(column, Group):
        if "codes" in column:
            return _decoded(column.array("codes"), column.array("categories"))
        values = column.array("values").strings()
        if "mask" not in column:
            return values
        mask = column.array("mask", (len(values),)).numbers()
        return ["nan" if gone else value for value, gone in zip(values, mask, strict=True)]
    if "__categories" in frame and name in frame.group("__categories"):  # anndata 0.7
        return _decoded(frame.array(name), frame.group("__categories").array(name))
    return frame.array(name).strings()


def _decoded(codes: Array, categories: Array) -> list[str]:
    codes.check_list()
    numbers, texts = codes.numbers("iu").astype(np.int64), categories.strings()
    if len(numbers) and numbers.max() >= len(texts):
        raise codes.refuse(f"holds codes of more than {len(texts):,} categories.")
    return ["nan" if code < 0 else texts[code] for code in numbers]


def write_h5ad(table: CountTable, path: Path) -> None:
    """AnnData file with the counts as ``X``.

    Labels become the column ``label`` of ``obs``, the ids of features ``gene_ids`` of ``var``.
    """
    anndata = require("anndata", "Writing .h5ad files")
    pandas = require("pandas", "Writing .h5ad files")
    frames = []
    for names, size in zip((table.row_names, table.column_names), table.shape, strict=True):
        index = names if names is not None else [str(i) for i in range(size)]
        frames.append(pandas.DataFrame(index=pandas.Index(index, dtype=object)))
    if table.labels is not None:
        frames[0]["label"] = pandas.Categorical(table.labels)
    if table.column_ids is not None:
        frames[1][GENE_IDS] = table.column_ids
    data = anndata.AnnData(sp.csr_matrix(table.X), obs=frames[0], var=frames[1])
    h5py = require("h5py", "Writing .h5ad files")
    # In memory first: HDF5's library crashes where the disk is full.
    with h5py.File(path, "w", driver="core", backing_store=False) as file:
        anndata.io.write_elem(file, "/", data)
        if "raw" in file:
            del file["raw"]  # which holds nothing
        file.flush()
        image = file.id.get_file_image()
    path.write_bytes(image)


# ---- loom ----------------------------------------------------------------------------------------


def read_loom(path: Path, *, layer: str | None = None) -> CountTable:
    """Loom file, which holds genes × cells; what is returned is cells × genes."""
    with opened(path) as file:
        if any(name not in file for name in ("matrix", "row_attrs", "col_attrs")):
            raise ReadError(path, "this is not a loom file: it lacks matrix, row_attrs, col_attrs.")
        layers = file.group("layers") if "layers" in file else None
        there = [] if layers is None else layers.names()
        if layer is not None and layer not in there:
            raise ReadError(
                path, f"there is no layer {layer!r}. It has: {', '.join(there) or 'none'}."
            )
        dense = file.array("matrix") if layers is None or layer is None else layers.array(layer)
        dense.check_numbers(2)
        genes = _first_attribute(file.group("row_attrs"), _LOOM_GENES)
        cells = _first_attribute(file.group("col_attrs"), _LOOM_CELLS)
        matrix = sparse_rows(dense)
    return table_of_file(path, matrix.T, cells, genes)


def _first_attribute(group: Group, names: tuple[str, ...]) -> list[str] | None:
    return next((group.array(name).strings() for name in names if name in group), None)
