"""What 10x Genomics' Cell Ranger writes: a folder of three files, or one HDF5 file.

Both hold features × cells; what is returned is cells × features.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from klnmf.readers.entries import read_matrix_market
from klnmf.readers.hdf5 import compressed
from klnmf.readers.hdf5_items import Group, opened
from klnmf.readers.table import LOGGER, CountTable, table_of_file
from klnmf.support.input_files import ReadError, check_number_of_names, text_lines
from klnmf.support.option_names import option

FeatureNames = Literal["name", "id"]
# What is read by default where a file has several types of features.
GENES = "Gene Expression"
ALL_TYPES = "all"
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
    columns = {"id": ids, "name": names} | ({"type": types} if _have_types(features) else {})
    return _cells_by_features(path, counts.T, barcodes, columns, feature_names, feature_type)


def read_10x_h5(
    path: Path, *, feature_names: FeatureNames = "name", feature_type: str | None = None
) -> CountTable:
    """HDF5 file of Cell Ranger, of version 3 and later or of version 2 (one genome)."""
    with opened(path) as file:
        items = {name: file.item(name) for name in file.names()}
        groups = {k: v for k, v in items.items() if isinstance(v, Group) and "barcodes" in v}
        if len(groups) != 1:
            problem = (
                f"{len(groups)} genomes ({', '.join(groups)}); a file with one is expected."
                if groups
                else "no group has barcodes, as in the .h5 files of Cell Ranger. If this is an "
                f"AnnData or loom file, add {option('format', 'h5ad')} or "
                f"{option('format', 'loom')}."
            )
            raise ReadError(path, problem)
        (group,) = groups.values()
        if "features" in group:
            holder, kinds = group.group("features"), ("id", "name", "feature_type")
        else:
            holder, kinds = group, ("genes", "gene_names", "")
        columns = {
            kind: holder.array(key).strings()
            for kind, key in zip(("id", "name", "type"), kinds, strict=True)
            if key in holder
        }
        barcodes = group.array("barcodes").strings()
        n_features, n_cells = (int(n) for n in group.array("shape", (2,)).numbers("iu"))
        for what, names, size in (
            ("barcodes", barcodes, n_cells),
            *((f"{kind}s of features", names, n_features) for kind, names in columns.items()),
        ):
            if len(names) != size:
                raise group.refuse(f"has {len(names):,} {what} where {size:,} are needed.")
        # Compressed columns of features × cells are compressed rows of cells × features.
        counts = compressed(group, "csr", (n_cells, n_features)).read()
    return _cells_by_features(path, counts, barcodes, columns, feature_names, feature_type)


def _cells_by_features(
    path: Path,
    counts: Any,
    barcodes: list[str],
    columns: dict[str, list[str]],
    feature_names: str,
    feature_type: str | None,
) -> CountTable:
    if feature_names not in ("name", "id"):
        raise ValueError(
            f"{option('feature_names')} must be 'name' or 'id'; got {feature_names!r}."
        )
    ids = columns.get("id")
    names = columns.get(feature_names, ids)
    table = table_of_file(path, counts, barcodes, names, column_ids=ids)
    kept = _features_of_type(path, np.array(columns.get("type", []), dtype=object), feature_type)
    if kept is None:
        return table
    names, ids = (None if n is None else n[kept] for n in (table.column_names, table.column_ids))
    return CountTable(table.X[:, kept], barcodes, names, column_ids=ids)


def _features_of_type(
    path: Path, types: npt.NDArray[Any], wanted: str | None
) -> npt.NDArray[np.intp] | None:
    """Positions of the features to keep, None being all; by default those of genes."""
    there = Counter(types.tolist())
    if wanted == ALL_TYPES or (wanted is None and len(there) < 2):
        return None
    if wanted is None and GENES not in there:
        LOGGER.warning(
            "%s: features of several types are read together: %s; choose one with %s",
            path,
            _listed(there),
            option("feature_type"),
        )
        return None
    kept = np.flatnonzero(types == (wanted or GENES))
    if not kept.size:
        known = ", ".join(sorted(there)) or "none"
        raise ReadError(path, f"no feature is of the type {wanted!r}; there are: {known}.")
    if wanted is None:
        del there[GENES]
        way_out = option("feature_type", ALL_TYPES)
        LOGGER.warning("%s: left out %s; to read them too, add %s", path, _listed(there), way_out)
    return kept


def _listed(types: Counter[str]) -> str:
    return ", ".join(
        f"{n:,} feature{'s' * (n != 1)} of type {name!r}" for name, n in sorted(types.items())
    )


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
