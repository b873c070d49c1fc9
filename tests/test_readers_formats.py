"""Files of others, in the layout that others write: matrices, single cells, texts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from klnmf.readers import CountTable, read_counts
from reader_checks import COLUMNS, COUNTS, ROWS, assert_same, write_lines

# ---- matrices with names beside them -------------------------------------------------------------


def test_prepared_data_sets_are_read(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "set.npz", sp.csc_matrix(COUNTS.astype(np.uint32)))
    write_lines(tmp_path / "set.vocab.txt", COLUMNS)
    write_lines(tmp_path / "set.labels.txt", ["1", "2", "1"])
    found = read_counts(tmp_path / "set.npz")
    assert_same(found, CountTable(COUNTS, None, COLUMNS))
    assert found.labels.tolist() == ["1", "2", "1"]


def test_names_in_files_elsewhere(tmp_path: Path) -> None:
    scipy.io.mmwrite(tmp_path / "m.mtx", sp.coo_array(COUNTS))
    write_lines(tmp_path / "r.lst", ROWS)
    write_lines(tmp_path / "c.lst", COLUMNS)
    found = read_counts(
        tmp_path / "m.mtx", row_names=tmp_path / "r.lst", column_names=str(tmp_path / "c.lst")
    )
    assert_same(found)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("coordinate pattern general\n2 3 2\n1 1\n2 3\n", [[1, 0, 0], [0, 0, 1]]),
        ("coordinate integer symmetric\n2 2 2\n1 1 3\n2 1 4\n", [[3, 4], [4, 0]]),
        ("coordinate real general\n2 2 3\n1 1 3\n1 1 4\n2 1 0\n", [[7, 0], [0, 0]]),
    ],
)
def test_kinds_of_matrix_market(kind: str, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix {kind}")
    assert_same(read_counts(path), CountTable(expected))
    # Packed, under a name that does not say so.
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert_same(read_counts(path), CountTable(expected))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_uci(ending: str, tmp_path: Path) -> None:
    matrix = sp.coo_array(COUNTS)
    entries = zip(matrix.row + 1, matrix.col + 1, matrix.data, strict=True)
    lines = "".join(f"{i} {j} {v}\n" for i, j, v in entries)
    text = f"3\n4\n{matrix.nnz}\n{lines}".encode()
    path = tmp_path / f"docword.x.txt{ending}"
    path.write_bytes(gzip.compress(text) if ending else text)
    write_lines(tmp_path / "vocab.x.txt", COLUMNS)
    assert_same(read_counts(path), CountTable(COUNTS, None, COLUMNS))


# ---- single cells --------------------------------------------------------------------------------


def adata(X: Any) -> anndata.AnnData:
    obs = pd.DataFrame({"kind": pd.Categorical(["B", "T", "B"])}, index=ROWS)
    return anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=COLUMNS))


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, np.array])
def test_annotated_data(form: Any, tmp_path: Path) -> None:
    data = adata(form(np.log1p(COUNTS)))
    data.layers["counts"] = form(COUNTS.astype(np.float32))
    data.raw = adata(form(COUNTS * 2.0))
    data = data[:, :3].copy()  # raw keeps all columns
    path = tmp_path / "cells.h5ad"
    data.write_h5ad(path)
    np.testing.assert_allclose(read_counts(path).X.toarray(), np.log1p(COUNTS[:, :3]))
    found = read_counts(path, layer="counts", labels="kind")
    assert_same(found, CountTable(COUNTS[:, :3], ROWS, COLUMNS[:3]))
    assert found.labels.tolist() == ["B", "T", "B"]
    assert_same(read_counts(path, layer="raw"), CountTable(COUNTS * 2, ROWS, COLUMNS))


def test_loom(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "cells.loom", "w") as file:
        file["matrix"] = COUNTS.T.astype(np.float32)
        file["layers/spliced"] = COUNTS.T // 2
        file["row_attrs/Gene"] = np.array(COLUMNS, dtype=h5py.string_dtype())
        file["col_attrs/CellID"] = np.array(ROWS, dtype=h5py.string_dtype())
    assert_same(read_counts(tmp_path / "cells.loom"))
    found = read_counts(tmp_path / "cells.loom", layer="spliced")
    assert_same(found, CountTable(COUNTS // 2, ROWS, COLUMNS))


# ---- texts ---------------------------------------------------------------------------------------

TEXTS = ["The sea and the ship.", "The corn.", "Ship, ship and Corn!"]
OPTIONS: dict[str, Any] = {"stop_words": ["the"], "ngram_range": (1, 2), "min_df": 2}


def counted(row_names: list[str] | None = None, **options: Any) -> CountTable:
    vectorizer = CountVectorizer(**options)
    X = vectorizer.fit_transform(TEXTS)
    return CountTable(X, row_names, vectorizer.get_feature_names_out())


@pytest.mark.parametrize("options", [{}, OPTIONS, {"lowercase": False, "max_features": 2}])
def test_a_folder_of_texts(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    files = ["a.txt", "b/1.txt", "b/2.txt"]
    for name, text in zip(files, TEXTS, strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "notes.md").write_text("not a document")
    found = read_counts(tmp_path, **options)
    assert_same(found, counted(files, **options))
    assert found.labels is None


def test_subfolders_are_labels(tmp_path: Path) -> None:
    for name in ("farm/1.txt", "farm/old/2.txt", "sea/1.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("some words")
    assert read_counts(tmp_path).labels.tolist() == ["farm", "farm", "sea"]


@pytest.mark.parametrize("options", [{}, OPTIONS])
def test_documents_in_json_lines(options: dict[str, Any], tmp_path: Path) -> None:
    records = [{"n": i, "body": text, "kind": "x"} for i, text in enumerate(TEXTS)]
    text = "\n\n".join(json.dumps(record) for record in records)
    path = tmp_path / "texts.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))
    found = read_counts(path, text_field="body", id_field="n", label_field="kind", **options)
    assert_same(found, counted(["0", "1", "2"], **options))
    assert found.labels.tolist() == ["x"] * 3
    assert_same(read_counts(path, text_field="body", **options), counted(**options))
