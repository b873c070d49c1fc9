"""HDF5 files of single cells: AnnData (.h5ad) and loom, read without a dense copy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.data.canonical import Entries
from klnmf.data.matrix_checks import native_numbers
from klnmf.data.streams import CountStream, Outline, compressed_blocks, compressed_stream
from klnmf.readers.feature_types import FEATURE_TYPES, of_type
from klnmf.readers.format import Format
from klnmf.readers.hdf5_items import Group, StoredArray, opened
from klnmf.readers.table import CountTable
from klnmf.support.input_files import ReadError
from klnmf.support.option_names import option
from klnmf.support.optional_packages import require

# Entries of a dense array that are in memory at a time.
DENSE_BLOCK = 1 << 22
# Where the writers of loom files put names, in the order of preference.
_LOOM_CELLS = ("CellID", "obs_names", "cell_names", "barcode")
_LOOM_GENES = ("Gene", "var_names", "gene_names", "Accession")
# Column of ``var`` in which scanpy keeps the ids of genes.
GENE_IDS = "gene_ids"
_SPARSE = {"csr_matrix": "csr", "csc_matrix": "csc"}


# ---- matrices ------------------------------------------------------------------------------------


class Compressed(NamedTuple):
    """A sparse matrix in a file: sizes and types are checked, entries are not read."""

    group: Group
    form: str  # "csr" or "csc"
    shape: tuple[int, int]
    data: StoredArray
    indices: StoredArray
    indptr: StoredArray

    def blocks(self, limit: int) -> Iterator[Entries]:
        """Entries by rows; those of a CSC matrix are by rows of its transpose."""
        shape = self.shape if self.form == "csr" else self.shape[::-1]
        path, place, ends = self.group.path, self.group.place, self.indptr[:]

        def take(first: int, last: int) -> tuple[Any, Any]:
            return self.indices[first:last], self.data[first:last]

        yield from compressed_blocks(path, shape, ends, take, limit, place, self.form)


def compressed(group: Group, form: str, shape: tuple[int, int]) -> Compressed:
    """Matrix of the arrays data, indices and indptr."""
    indices = group.array("indices")
    indices.check_numbers(1, "iu")
    data = group.array("data", indices.shape)
    data.check_numbers(1)
    indptr = group.array("indptr", (shape[0 if form == "csr" else 1] + 1,))
    indptr.check_numbers(1, "iu")
    return Compressed(group, form, shape, data, indices, indptr)


def stored_stream(
    stored: StoredArray | Compressed, about: dict[str, Any], hint: str = ""
) -> CountStream:
    """Stream of a matrix that was looked up in a file, which is opened again for the entries."""
    is_dense = isinstance(stored, StoredArray)
    item, form = (
        (stored, "dense") if isinstance(stored, StoredArray) else (stored.group, stored.form)
    )
    shape, path, place = (stored.shape[0], stored.shape[1]), item.path, item.place

    def blocks(limit: int) -> Iterator[Entries]:
        with opened(path) as file:
            if is_dense:
                yield from _dense_blocks(file.array(place, shape))
            else:
                yield from compressed(file.group(place), form, shape).blocks(limit)

    dtype = stored.dtype if isinstance(stored, StoredArray) else stored.data.dtype
    return compressed_stream(blocks, Outline(shape, about, dtype), form, hint)


def _dense_blocks(array: StoredArray) -> Iterator[Entries]:
    """Nonzeros of a dense array, row after row; each stored piece of it is unpacked once."""
    n_rows, n_columns = array.shape
    if not n_rows or not n_columns:
        return
    height, width = _tile(n_columns, array.chunks)
    for top in range(0, n_rows, height):
        tiles = [_nonzeros(array, top, left, height, width) for left in range(0, n_columns, width)]
        block = Entries(*map(np.concatenate, zip(*tiles, strict=True)))
        if len(tiles) > 1:
            order = np.argsort(block.rows, kind="stable")
            block = Entries(*(part[order] for part in block))
        yield block


def _nonzeros(array: StoredArray, top: int, left: int, height: int, width: int) -> Entries:
    tile = native_numbers(array[top : top + height, left : left + width])
    rows, columns = np.nonzero(tile)
    return Entries(rows + top, columns + left, tile[rows, columns])


def _tile(n_columns: int, chunk: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of whole chunks, about DENSE_BLOCK entries; whole rows if possible."""
    height, width = chunk
    width = min(n_columns, width * max(1, DENSE_BLOCK // (height * width)))
    return height * max(1, DENSE_BLOCK // (height * width)), width


# ---- AnnData -------------------------------------------------------------------------------------


class H5adParts(NamedTuple):
    """A matrix of an open AnnData file, and what belongs to it."""

    matrix: StoredArray | Compressed
    names: dict[str, Any]  # row_names, column_names, labels, column_ids
    types: list[str] | None  # of the features
    others: list[str]  # the other matrices of the file, by the layers that read them

    @property
    def hint(self) -> str:
        """Advice for when this matrix does not hold counts."""
        if not self.others:
            return ""
        example = option("layer", self.others[-1])
        return f" Other matrices of this file: {', '.join(self.others)}; for example {example}."


class H5ad(Format):
    """AnnData file: ``X``, one of its layers, or ``raw``."""

    name = "h5ad"
    endings = (".h5ad",)

    def stream(
        self,
        path: Path,
        *,
        layer: str | None = None,
        labels: str | None = None,
        feature_type: str | None = None,
    ) -> CountStream:
        """Read some rows at a time, and nothing that was not asked for."""
        with h5ad_parts(path, layer, labels) as parts:
            cells = stored_stream(parts.matrix, parts.names, parts.hint)
            return of_type(path, cells, parts.types, feature_type)

    def write(self, table: CountTable, path: Path) -> None:
        """Write ``X``, labels as ``label`` of ``obs``, and ids as ``gene_ids`` of ``var``."""
        anndata = require("anndata", "Writing .h5ad files")
        pandas = require("pandas", "Writing .h5ad files")
        h5py = require("h5py", "Writing .h5ad files")
        frames = []
        for names, size in zip((table.row_names, table.column_names), table.shape, strict=True):
            index = names if names is not None else [str(i) for i in range(size)]
            frames.append(pandas.DataFrame(index=pandas.Index(index, dtype=object)))
        if table.labels is not None:
            frames[0]["label"] = pandas.Categorical(table.labels)
        if table.column_ids is not None:
            frames[1][GENE_IDS] = table.column_ids
        data = anndata.AnnData(sp.csr_matrix(table.X), obs=frames[0], var=frames[1])
        # In memory first: HDF5's library crashes if the disk is full.
        with h5py.File(path, "w", driver="core", backing_store=False) as file:
            anndata.io.write_elem(file, "/", data)
            if "raw" in file:
                del file["raw"]  # which holds nothing
            file.flush()
            image = file.id.get_file_image()
        path.write_bytes(image)


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
        obs, var = _frame(file, "obs"), _frame(raw if holder is raw else file, "var")
        rows, columns = _index(obs), _index(var)
        names = {
            "row_names": rows,
            "column_names": columns,
            "labels": None if labels is None else _column(obs, labels),
            "column_ids": _column(var, GENE_IDS) if GENE_IDS in _columns(var) else None,
        }
        types = _column(var, FEATURE_TYPES) if FEATURE_TYPES in _columns(var) else None
        if types is not None and len(types) != len(columns):
            there = f"{len(types):,} {FEATURE_TYPES} for {len(columns):,} features."
            raise ReadError(path, f"var has {there}")
        yield H5adParts(_matrix(holder, name, (len(rows), len(columns))), names, types, others)


def _matrix(holder: Group, name: str, shape: tuple[int, int]) -> StoredArray | Compressed:
    """Dense or sparse matrix, which has as many rows and columns as there are names."""
    group = holder.item(name)
    if isinstance(group, StoredArray):
        dense = holder.array(name)
        dense.check_numbers(2)
        if dense.shape != shape:
            raise _other_shape(dense, dense.shape, shape)
        return dense
    kind = group.text("encoding-type")
    if kind not in _SPARSE:
        raise group.refuse(f"has the type {kind!r}; expected a dense or sparse matrix.")
    said = group.shape_in("shape")
    if said != shape:
        raise _other_shape(group, said, shape)
    return compressed(group, _SPARSE[kind], shape)


def _other_shape(item: StoredArray | Group, said: Any, shape: tuple[int, int]) -> ReadError:
    return item.refuse(f"has the shape {said}; there are names of {shape[0]:,} × {shape[1]:,}.")


def _frame(holder: Any, name: str) -> Group:
    """Fetch a data frame: a group with an array for each column."""
    frame: Group | StoredArray = holder.item(name)
    if isinstance(frame, StoredArray):
        problem = "is not a data frame as anndata writes it since version 0.7 (2020). Read the "
        raise frame.refuse(f"{problem}file with anndata, and write it again.")
    return frame


def _columns(frame: Group) -> list[str]:
    """Names of the columns."""
    return [n for n in frame.names() if n not in (frame.text("_index"), "__categories")]


def _index(frame: Group) -> list[str]:
    """Names of the rows of a data frame."""
    name = frame.text("_index")
    if name is None:
        raise frame.refuse("has no attribute '_index', which says where the names are.")
    return _values(frame, name)


def _column(frame: Group, name: str) -> list[str]:
    there = _columns(frame)
    if name not in there:
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


def _decoded(codes: StoredArray, categories: StoredArray) -> list[str]:
    numbers, texts = codes.numbers("iu").astype(np.int64), categories.strings()
    if len(numbers) and numbers.max() >= len(texts):
        raise codes.refuse(f"holds codes of more than {len(texts):,} categories.")
    return ["nan" if code < 0 else texts[code] for code in numbers]


# ---- loom ----------------------------------------------------------------------------------------


class Loom(Format):
    """Loom file, which holds genes × cells; what is returned is cells × genes."""

    name = "loom"
    endings = (".loom",)

    def stream(self, path: Path, *, layer: str | None = None) -> CountStream:
        """Read some genes at a time."""
        with opened(path) as file:
            if any(name not in file for name in ("matrix", "row_attrs", "col_attrs")):
                problem = "this is not a loom file: it lacks matrix, row_attrs, col_attrs."
                raise ReadError(path, problem)
            places = {"matrix": file}
            if "layers" in file:  # one that has the name "matrix" comes before the main matrix
                layers = file.group("layers")
                places |= dict.fromkeys(layers.names(), layers)
            holder = file if layer is None else places.get(layer)
            if holder is None:
                raise ReadError(path, f"it has no {layer!r}. It has: {', '.join(places)}.")
            dense = holder.array("matrix" if layer is None else layer)
            dense.check_numbers(2)
            names = {
                "row_names": _first_attribute(file.group("row_attrs"), _LOOM_GENES),
                "column_names": _first_attribute(file.group("col_attrs"), _LOOM_CELLS),
            }
            return stored_stream(dense, names).transposed()


def _first_attribute(group: Group, names: tuple[str, ...]) -> list[str] | None:
    return next((group.array(name).strings() for name in names if name in group), None)
