"""What Cell Ranger writes: folders and .h5, types of features, names that occur more than once."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from klnmf.data.names import unique_features
from klnmf.readers import CountTable, ReadError, prepare, read_counts, write_counts
from reader_checks import COLUMNS, COUNTS, assert_same
from tenx_files import ANTIBODIES, CELLS, GENES, REPEATED, write_folder, write_h5


@pytest.mark.parametrize("version", [2, 3])
def test_folders(version: int, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "filtered_feature_bc_matrix", version=version)
    assert_same(read_counts(folder), CELLS)
    matrix = next(folder.glob("matrix.mtx*"))
    assert_same(read_counts(matrix), CELLS)
    by_id = read_counts(matrix, feature_names="id")
    assert list(by_id.column_names) == ["ENSG0", "ENSG1", "ENSG2", "ENSG3"]


@pytest.mark.parametrize("version", [2, 3])
def test_hdf5(version: int, tmp_path: Path) -> None:
    path = write_h5(tmp_path / "raw.h5", version=version)
    assert_same(read_counts(path), CELLS)
    by_id = read_counts(path, feature_names="id")
    assert list(by_id.column_names) == ["ENSG0", "ENSG1", "ENSG2", "ENSG3"]


def test_one_of_several_matrices(tmp_path: Path) -> None:
    for prefix in ("GSM1_", "GSM2_"):
        write_folder(tmp_path, version=3, prefix=prefix)
    with pytest.raises(ReadError, match=r"several matrices \(GSM1_matrix.mtx.gz, GSM2"):
        read_counts(tmp_path)
    assert_same(read_counts(tmp_path / "GSM1_matrix.mtx.gz"), CELLS)


@pytest.mark.parametrize("kind", ["folder", "h5", "h5ad"])
def test_genes_are_read_and_the_rest_is_said_to_be_left_out(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    types = (GENES, ANTIBODIES, GENES, ANTIBODIES)
    if kind == "h5":
        path = write_h5(tmp_path / "a.h5", types=types)
    elif kind == "h5ad":
        path, of_cells = tmp_path / "a.h5ad", pd.DataFrame(index=CELLS.row_names)
        ids = [f"ENSG{j}" for j in range(4)]
        of_genes = pd.DataFrame({"gene_ids": ids, "feature_types": types}, index=COLUMNS)
        anndata.AnnData(sp.csr_matrix(COUNTS), of_cells, of_genes).write_h5ad(path)
    else:
        path = write_folder(tmp_path / "folder", version=3, types=types)
    found = read_counts(path)
    assert_same(found, CountTable(COUNTS[:, ::2], CELLS.row_names, COLUMNS[::2]))
    assert found.column_ids.tolist() == ["ENSG0", "ENSG2"]
    assert "left out 2 features of type 'Antibody Capture'" in caplog.records[0].getMessage()
    assert caplog.records[0].levelname == "WARNING"
    caplog.clear()
    rest = read_counts(path, feature_type=ANTIBODIES)
    assert_same(rest, CountTable(COUNTS[:, 1::2], CELLS.row_names, COLUMNS[1::2]))
    assert_same(read_counts(path, feature_type="all"), CELLS)
    with pytest.raises(ReadError, match="'Peaks'; there are: Antibody Capture, Gene Expression"):
        read_counts(path, feature_type="Peaks")
    assert not caplog.records  # what was asked for need not be told


def test_several_types_without_genes_are_read_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_h5(tmp_path / "a.h5", types=("Peaks", "Peaks", "Peaks", "Custom"))
    assert_same(read_counts(path), CELLS)
    assert "1 feature of type 'Custom', 3 features of type 'Peaks'" in caplog.text
    caplog.clear()
    assert_same(read_counts(write_h5(path, types=("Peaks",) * 4)), CELLS)
    assert not caplog.records


# ---- names that occur more than once -------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Suffix used")  # anndata's, where a new name was taken
@pytest.mark.parametrize(
    "names",
    [REPEATED, ["a"] * 4, ["a", "a-1", "a", "a-1", "a"], ["a-1", "a-1", "a", "a"], ["b", "a"]],
)
def test_names_are_made_unique_as_anndata_does(names: list[str]) -> None:
    found = unique_features(names, "here")
    index = anndata.utils.make_index_unique(pd.Index(names))
    assert found.tolist() == index.tolist()


@pytest.mark.parametrize("kind", ["folder", "h5", "h5ad", "loom", "npz", "transposed"])
def test_repeated_names_are_made_unique_and_it_is_said(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, options = tmp_path / f"a.{kind}", {}
    table = CountTable(COUNTS, CELLS.row_names, REPEATED)
    if kind == "folder":
        write_folder(path, version=3, names=REPEATED)
    elif kind == "h5":
        write_h5(path, names=REPEATED)
    elif kind == "loom":
        with h5py.File(path, "w") as file:
            file["matrix"] = COUNTS.T
            file["row_attrs/Gene"] = np.array(REPEATED, "S")
            file["col_attrs/CellID"] = np.array(list(CELLS.row_names), "S")
    elif kind == "transposed":
        path, options = tmp_path / "t.npz", {"transpose": True}
        write_counts(table.transposed(), path)
    else:
        with pytest.warns(UserWarning, match="unique") if kind == "h5ad" else nullcontext():
            write_counts(table, path)
    found = read_counts(path, **options)
    unique = ["MATR3", "sea", "MATR3-2", "MATR3-1"]
    assert_same(found, CountTable(COUNTS, CELLS.row_names, unique))
    (line,) = [record.getMessage() for record in caplog.records]
    said = "1 repeated feature names were made unique (a second 'MATR3' is now 'MATR3-2')"
    assert line == f"{path}: {said}"
    if kind in ("folder", "h5"):
        assert found.column_ids.tolist() == ["ENSG0", "ENSG1", "ENSG2", "ENSG3"]
    caplog.clear()
    matrix = prepare(path, tmp_path / "prepared", **options)
    assert matrix.column_names.tolist() == unique
    assert len(caplog.records) == 1
