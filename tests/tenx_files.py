"""10x data in files, as Cell Ranger lays them out."""

from __future__ import annotations

import gzip
from pathlib import Path

import h5py
import numpy as np
import scipy.sparse as sp

from klnmf.readers import CountTable
from reader_checks import COLUMNS, COUNTS

CELLS = CountTable(COUNTS, ["AAAC-1", "AAAG-1", "AAAT-1"], COLUMNS)
GENES, ANTIBODIES = "Gene Expression", "Antibody Capture"
REPEATED = ["MATR3", "sea", "MATR3", "MATR3-1"]


def write_folder(
    folder: Path,
    *,
    version: int,
    prefix: str = "",
    names: list[str] = COLUMNS,
    types: tuple[str, ...] = (GENES,) * 4,
) -> Path:
    """The three files as Cell Ranger lays them out: features × cells, packed since version 3."""
    folder.mkdir(exist_ok=True)
    header = (
        '%%MatrixMarket matrix coordinate integer general\n%metadata_json: {"format_version": 2}\n'
    )
    matrix = sp.coo_array(COUNTS.T)
    entries = zip(matrix.row + 1, matrix.col + 1, matrix.data, strict=True)
    body = f"4 3 {matrix.nnz}\n" + "".join(f"{i} {j} {v}\n" for i, j, v in entries)
    genes = [f"ENSG{i}\t{name}" for i, name in enumerate(names)]
    if version >= 3:
        genes = [f"{gene}\t{kind}" for gene, kind in zip(genes, types, strict=True)]
    files = {
        "matrix.mtx": header + body,
        "barcodes.tsv": "AAAC-1\nAAAG-1\nAAAT-1\n",
        "features.tsv" if version >= 3 else "genes.tsv": "\n".join(genes) + "\n",
    }
    for name, content in files.items():
        if version >= 3:
            (folder / f"{prefix}{name}.gz").write_bytes(gzip.compress(content.encode()))
        else:
            (folder / f"{prefix}{name}").write_text(content)
    return folder


def write_h5(
    path: Path,
    *,
    version: int = 3,
    names: list[str] = COLUMNS,
    types: tuple[str, ...] = (GENES,) * 4,
) -> Path:
    csc = sp.csc_array(COUNTS.T)
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix" if version == 3 else "GRCh38")
        for key in ("data", "indices", "indptr"):
            group[key] = getattr(csc, key)
        group["shape"] = csc.shape
        group["barcodes"] = np.array(list(CELLS.row_names), dtype="S")
        keys = ("features/id", "features/name") if version == 3 else ("genes", "gene_names")
        group[keys[0]] = np.array([f"ENSG{i}" for i in range(4)], "S")
        group[keys[1]] = np.array(names, "S")
        if version == 3:
            group["features/feature_type"] = np.array(types, "S")
    return path
