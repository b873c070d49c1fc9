"""What 10x Genomics' Cell Ranger writes: a folder of three files, or one HDF5 file.

Both hold features × cells; what is returned is cells × features.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from klnmf.matrix_checks import csr_from_parts
from klnmf.option_names import option
from klnmf.readers.files import ReadError, check_number_of_names, require, text_lines
from klnmf.readers.hdf5 import opened, strings
from klnmf.readers.matrix_files import read_matrix_market
from klnmf.readers.table import CountTable, table_of_file

FeatureNames = Literal["name", "id"]
MATRIX_NAMES = ("matrix.mtx", "matrix.mtx.gz")


def matrices_in(folder: Path) -> list[Path]:
    """Files of a folder that are named as 10x names its matrix, with or without a prefix."""
    return sorted(file for file in folder.iterdir() if file.name.endswith(MATRIX_NAMES))


def companion(matrix: Path, kinds: tuple[str, ...]) -> Path | None:
    """First of ``PREFIXkind.tsv`` and ``PREFIXkind.tsv.gz`` that lies beside the matrix."""
    prefix = matrix.name.removesuffix(".gz").removesuffix("matrix.mtx")
    files = [matrix.with_name(f"{prefix}{kind}.tsv{gz}") for kind in kinds for gz in ("", ".gz")]
    return next((file for file in files if file.is_file()), None)


def read_10x(
    path: Path, *, feature_names: FeatureNames = "name", feature_type: str | None = None
) -> CountTable:
    """Folder with matrix.mtx, barcodes.tsv and features.tsv (or genes.tsv), packed or not."""
    if path.is_dir():
        found = matrices_in(path)
        if len(found) != 1:
            problem = (
                "there is no matrix.mtx or matrix.mtx.gz in this folder."
                if not found
                else f"it has several matrices ({', '.join(f.name for f in found)}): pass the path "
                "of one of them."
            )
            raise ReadError(path, problem)
        path = found[0]
    barcode_file = _needed(path, "barcodes")
    feature_file = _needed(path, "features", "genes")
    counts = read_matrix_market(path)
    barcodes = [fields[0] for fields in _fields(barcode_file)]
    features = _fields(feature_file)
    for file, found_names, axis in ((barcode_file, barcodes, 1), (feature_file, features, 0)):
        of_what = f"{('rows', 'columns')[axis]} of {path.name} (features × cells)"
        check_number_of_names(file, len(found_names), counts.shape[axis], of_what)
    ids, names, types = (
        [fields[min(position, len(fields) - 1)] for fields in features] for position in range(3)
    )
    columns = {"id": ids, "name": names, "type": types if _have_types(features) else None}
    return _cells_by_features(path, counts.T, barcodes, columns, feature_names, feature_type)


def read_10x_h5(
    path: Path, *, feature_names: FeatureNames = "name", feature_type: str | None = None
) -> CountTable:
    """HDF5 file of Cell Ranger, of version 3 and later or of version 2 (one genome)."""
    h5py = require("h5py", "Reading 10x .h5 files")
    with opened(path) as file:
        groups = [k for k, v in file.items() if isinstance(v, h5py.Group) and "barcodes" in v]
        if len(groups) != 1:
            problem = (
                f"{len(groups)} genomes ({', '.join(groups)}); a file with one is expected."
                if groups
                else "no group has barcodes, as in the .h5 files of Cell Ranger. If this is an "
                f"AnnData or loom file, add {option('format', 'h5ad')} or "
                f"{option('format', 'loom')}."
            )
            raise ReadError(path, problem)
        group = file[groups[0]]
        try:
            if "features" in group:
                features = group["features"]
                kinds = (("id", "id"), ("name", "name"), ("type", "feature_type"))
                columns = {kind: strings(features[k]) for kind, k in kinds if k in features}
            else:
                columns = {"id": strings(group["genes"]), "name": strings(group["gene_names"])}
            barcodes = strings(group["barcodes"])
            n_features, n_cells = (int(size) for size in group["shape"][:2])
            # Compressed columns of features × cells are compressed rows of cells × features.
            parts = {key: group[key][:] for key in ("data", "indices", "indptr")}
            counts = csr_from_parts("csr", parts, (n_cells, n_features), "it")
        except (KeyError, TypeError, ValueError) as error:
            raise ReadError(path, f"group {groups[0]!r} is not a 10x matrix: {error}") from error
    return _cells_by_features(path, counts, barcodes, columns, feature_names, feature_type)


def _cells_by_features(
    path: Path,
    counts: Any,
    barcodes: list[str],
    columns: dict[str, Any],
    feature_names: str,
    feature_type: str | None,
) -> CountTable:
    if feature_names not in ("name", "id"):
        raise ValueError(f"feature_names must be 'name' or 'id'; got {feature_names!r}.")
    table = table_of_file(path, counts, barcodes, columns.get(feature_names) or columns["id"])
    if feature_type is None:
        return table
    types = np.array(columns.get("type") or [], dtype=object)
    kept = np.flatnonzero(types == feature_type)
    if not kept.size:
        there = ", ".join(sorted(set(types.tolist()))) or "none"
        raise ReadError(path, f"no feature is of the type {feature_type!r}; there are: {there}.")
    return CountTable(table.X[:, kept], table.row_names, table.column_names[kept])


def _needed(matrix: Path, *kinds: str) -> Path:
    file = companion(matrix, kinds)
    if file is None:
        names = " or ".join(f"{kind}.tsv(.gz)" for kind in kinds)
        raise ReadError(matrix, f"{names} should lie beside it and is not there.")
    return file


def _fields(path: Path) -> list[list[str]]:
    return [line.rstrip("\r\n").split("\t") for _, line in text_lines(path)]


def _have_types(features: list[list[str]]) -> bool:
    return bool(features) and all(len(fields) >= 3 for fields in features)
