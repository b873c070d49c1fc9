"""A file that cannot be read says where, what stands there and what was expected."""

from __future__ import annotations

import gzip
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from klnmf.readers import (
    CountTable,
    ReadError,
    parquet,
    read_counts,
    write_counts,
)
from klnmf.support import input_files
from reader_checks import refused

MTX = "%%MatrixMarket matrix coordinate"
SIZES = f"{MTX} integer general\n2 3 2\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        # triplets
        ("d,w,n\nx,sea,2\nx,corn,many\n", 3, "the count holds 'many'; a count was expected"),
        ("d,w,n\nx,sea,2\nx,corn,\n", 3, "the count is empty"),
        ("d,w,n\nx,sea,2\nx,corn,-1\n", 3, "holds '-1'; counts are finite numbers of 0 or more"),
        ("d,w,n\nx,sea,2\nx,corn,NaN\n", 3, "holds 'NaN'; counts are finite"),
        ("d,w,n\nx,sea,2\nx,corn,inf\n", 3, "holds 'inf'; counts are finite"),
        (
            "d,w,n\nx,sea,2\n\nx,corn\n",
            4,
            r"expected 3 fields \(row, column, count\), found 2: 'x \| ",
        ),
        ('d,w,n\nx,sea,2\nx,"co\nrn",y\n', 4, "holds 'y'"),
        # tables
        ("name,a,b\nx,1,2\ny,?,2\n", 3, r"column 'a' holds '\?'; a count was expected"),
        ("name,a,b,c\nx,1,2,0\ny,0,-3,0\n", 3, "column 'b' holds '-3'"),
        ("name,a,b,c\nx,1,2,nan\n", 2, "column 'c' holds 'nan'"),
        ("name,a,b,c\nx,1,,3\n", 2, "column 'b' is empty"),
        ("name,a,b,c\nx,1,2,3\ny,1,2\n", 3, "expected 4 fields.*, found 3"),
        ("name,a,b,c\nx,1\n", 2, "expected 4 fields.*, found 2"),
        ("name;a;b\nx;1;2\n", 2, r"no ',' in 'x;1;2'.*delimiter=';'"),
        ("name,a,b,c\n", None, "a header and nothing below it"),
        ("\n\n", None, "no counts"),
        ("", None, "the file is empty"),
        ('name,a,b\nx,1,2\n"y,' + "1" * 200_000, None, "quotation mark is not closed"),
    ],
)
def test_delimited_text(text: str, line: int | None, message: str, tmp_path: Path) -> None:
    for packed in (False, True):
        path = tmp_path / f"counts.csv{'.gz' * packed}"
        path.write_bytes(gzip.compress(text.encode()) if packed and text else text.encode())
        if "quotation" in message:
            line = 3
        refused(path, line, message)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("user,film,stars,time\n1,2,3,4\n1,2,3\n")
    refused(path, None, "no column 'movie'; the columns are: user, film", columns=["user", "movie"])
    refused(path, 3, "expected 4 fields.*, found 3", columns=["user", "film"])
    with pytest.raises(ValueError, match=r"columns must name .* got 'user'"):
        read_counts(path, columns="user")
    with pytest.raises(ValueError, match="layout must be None, 'table' or 'triplets'; got 'wide'"):
        read_counts(path, layout="wide")
    with pytest.raises(ValueError, match="columns names the columns of triplets"):
        read_counts(path, layout="table", columns=["user", "film"])


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.rows.txt", "folder/a.txt"])
def test_text_that_is_not_utf8(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_BLOCK", 8)  # the lines are counted over several blocks
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"a,b,c\nx,sea,2\nx,m\xe4rz,2\n")
    read = path
    if name == "a.rows.txt":
        read = tmp_path / "a.mtx"
        read.write_text(f"{MTX} integer general\n3 1 0\n")
    if name == "folder/a.txt":
        read = path.parent
    line = 1 if name == "a.jsonl" else 3
    if name == "a.jsonl":
        path.write_bytes(b'{"text": "m\xe4rz"}\n')
    # Only formats that have the option advise it.
    advice = "must be UTF-8" if name == "a.rows.txt" else "encoding='latin-1'"
    refused(read, line, rf"b'\\xe4rz.*' is not utf-8 text.*{advice}")
    if name == "a.csv":
        assert read_counts(path, encoding="latin-1").column_names.tolist() == ["sea", "märz"]
        with pytest.raises(ValueError, match=r"encoding must name an encoding of text.*'klingon'"):
            read_counts(path, encoding="klingon")


def test_uci_without_its_words_or_with_too_few(tmp_path: Path) -> None:
    path = tmp_path / "docword.x.txt"
    path.write_text("1\n3\n1\n1 1 4\n")
    refused(path, None, "should be beside it in vocab.x.txt, which does not exist")
    path.rename(tmp_path / "bag.txt")
    refused(tmp_path / "bag.txt", None, "beside it in vocab.NAME.txt", format="uci")
    (tmp_path / "bag.txt").rename(path)
    (tmp_path / "vocab.x.txt").write_text("a\nb\n")
    refused(path, None, r"vocab.x.txt: expected 3 names for the columns of docword.x.txt, found 2")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"text": "a b"}\n{"text": \n', 2, r"""'\{"text": ' cannot be read as JSON: """),
        ('{"text": "a b"}\n["a"]\n', 2, r"""'\["a"\]' is not an object"""),
        ('{"text": "a b"}\n' + "[" * 200_000, 2, "are nested too deep"),
        (
            '{"text": "a b", "x": ' + "9" * 5000 + "}",
            1,
            "cannot be read as JSON: Exceeds the limit",
        ),
        ('{"text": "a b"}\n{"body": "a"}\n', 2, "no field 'text'; the fields are: 'body'.*text_fi"),
        ('{"text": "a b"}\n{"text": [1]}\n', 2, "field 'text' holds .*, not a text"),
        ('{"text": "a b"}\n', None, "there are no words: a word has two letters or more"),
        ('{"text": " "}\n', None, r"all 1 texts are empty or missing\."),
    ],
)
def test_json_lines(text: str, line: int | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(text)
    refused(path, line, message)


def test_json_lines_without_the_name_of_a_document(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "some words"}\n')
    refused(path, 1, "no field 'id'; the fields are: 'text'", id_field="id")


def test_a_folder_without_texts(tmp_path: Path) -> None:
    refused(tmp_path, None, r"no file in this folder has a name like \*.txt")


@pytest.mark.parametrize("name", ["a.csv.gz", "a.mtx.gz", "docword.a.txt.gz", "a.jsonl.gz"])
def test_packed_files_that_end_early(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    entries = [f"{i} {j} {v}" for i, j, v in rng.integers(1, 4, (2000, 3))]
    texts = {
        "a.csv.gz": "r,c,n\n" + "\n".join(entries).replace(" ", ","),
        "a.mtx.gz": f"{MTX} integer general\n3 3 2000\n" + "\n".join(entries),
        "docword.a.txt.gz": "3\n3\n2000\n" + "\n".join(sorted(entries)),
        "a.jsonl.gz": "\n".join(f'{{"text": "words {e}"}}' for e in entries),
    }
    path = tmp_path / name
    (tmp_path / "vocab.a.txt").write_text("a\nb\nc\n")
    packed = gzip.compress(texts[name].encode())
    # Cut in the middle, and just before the checksum, when all of the text is there.
    for length in (len(packed) // 2, len(packed) - 4):
        path.write_bytes(packed[:length])
        with pytest.raises(ReadError, match=r", line \d+: the compressed data are damaged or cut"):
            read_counts(path)


@pytest.mark.parametrize("kind", ["npz", "h5ad", "loom", "h5", "parquet"])
def test_binary_files_that_are_none_or_end_early(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"no such thing" * 10)
    refused(path, None, "not a|not an")
    if kind in ("npz", "h5ad", "parquet"):
        write_counts(CountTable(np.eye(50)), path)
        path.write_bytes(path.read_bytes()[:-100])
        refused(path, None, "cut off|damaged")


def test_names_that_do_not_fit(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(np.eye(3)))
    (tmp_path / "a.rows.txt").write_text("x\ny\n")
    refused(tmp_path / "a.npz", None, "a.rows.txt: expected 3 names for the rows of a.npz, found 2")
    other = tmp_path / "other.txt"
    refused(tmp_path / "a.npz", None, "other.txt: there is no such file", row_names=other)


def test_npz_with_values_that_are_no_counts(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(np.array([[0.0, 1.0], [0.0, -0.5]])))
    (tmp_path / "a.columns.txt").write_text("sea\ncorn\n")
    refused(tmp_path / "a.npz", None, r"row 1, column 1 \('corn'\) holds -0.5; counts are finite")


def test_10x_folders(tmp_path: Path) -> None:
    (tmp_path / "matrix.mtx").write_text(f"{SIZES}1 1 4\n2 3 1\n")
    refused(tmp_path, None, r"barcodes.tsv\(.gz\) should lie beside it and is not there")
    (tmp_path / "barcodes.tsv").write_text("A\nB\nC\n")
    refused(tmp_path, None, r"features.tsv\(.gz\) or genes.tsv\(.gz\) should lie beside")
    (tmp_path / "genes.tsv").write_text("1\tx\n2\ty\n3\tz\n")
    refused(
        tmp_path,
        None,
        r"genes.tsv: expected 2 names for the rows of matrix.mtx .*, found 3",
    )
    (tmp_path / "genes.tsv").write_text("1\tx\n2\ty\n")
    (tmp_path / "barcodes.tsv").write_text("A\nB\n")
    refused(tmp_path, None, "barcodes.tsv: expected 3 names for the columns .*, found 2")
    (tmp_path / "barcodes.tsv").write_text("A\nB\nC\n")
    with pytest.raises(ValueError, match="feature_names must be 'name' or 'id'; got 'symbol'"):
        read_counts(tmp_path, feature_names="symbol")
    refused(tmp_path, None, "no feature is of the type 'ADT'; there are: none", feature_type="ADT")


def test_annotated_data(tmp_path: Path) -> None:
    path = tmp_path / "cells.h5ad"
    names = {"obs": pd.DataFrame(index=["a", "b"]), "var": pd.DataFrame(index=["g", "h"])}
    data = anndata.AnnData(sp.csr_matrix([[1.0, -2.0], [0.0, np.nan]]), **names)
    data.layers["counts"] = np.array([[1.0, 2.0], [0.0, 1.0]])
    data.write_h5ad(path)
    refused(
        path,
        None,
        r"row 0 \('a'\), column 1 \('h'\) holds -2.0.*: counts; for example layer='counts'",
    )
    refused(path, None, "it has no 'spliced'. It has: X, counts", layer="spliced")
    refused(path, None, "obs has no column 'kind'. It has: none", layer="counts", labels="kind")
    assert read_counts(path, layer="counts").X.sum() == 4


@pytest.mark.parametrize(("name", "what"), [("a.h5ad", "obs and var"), ("a.loom", "row_attrs")])
def test_hdf5_of_something_else(name: str, what: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / name, "w") as file:
        file["other"] = np.eye(2)
    refused(tmp_path / name, None, what)
    refused(tmp_path / name, None, "no group has barcodes.*format='h5ad'", format="10x-h5")


def test_loom_without_the_layer(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.loom", "w") as file:
        file["matrix"] = np.eye(2)
        file.create_group("row_attrs")
        file.create_group("col_attrs")
    for layer in (None, "matrix"):
        assert read_counts(tmp_path / "a.loom", layer=layer).row_names is None
    refused(tmp_path / "a.loom", None, "it has no 'spliced'. It has: matrix.", layer="spliced")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"r": ["a", "b"], "c": ["x", "y"], "n": [1, -1]}, "row 1, column 'n' holds -1"),
        ({"r": ["a", "b"], "c": ["x", "y"], "n": [1.0, None]}, "row 1, column 'n' is empty"),
        ({"r": ["a", None], "c": ["x", "y"], "n": [1, 2]}, "row 1, column 'r' is empty"),
        ({"r": ["a"], "x": [1.0], "y": ["z"]}, "column 'y' is of the type string; counts were"),
        ({"r": ["a"], "x": [1.0], "y": [float("nan")], "z": [0]}, "row 0, column 'y' holds nan"),
        ({"r": pa.array([], pa.string()), "x": pa.array([], pa.int64())}, "no counts: 0 rows"),
        (
            {"r": ["a"], "x": [datetime(2026, 1, 1)]},
            r"column 'x' is of the type timestamp\[us\]; cou",
        ),
        ({"r": ["a"], "x": [timedelta(1)]}, "column 'x' is of the type duration"),
        ({"r": ["a"], "x": pa.array([None])}, "column 'x' is of the type null"),
        ({"r": ["a"], "x": [[1, 2]]}, "column 'x' is of the type list"),
    ],
)
def test_parquet(
    columns: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BATCH", 3)  # rows are counted over several batches
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", None, message)


def test_parquet_that_has_no_triplets(tmp_path: Path) -> None:
    pq.write_table(pa.table({"r": ["a"], "n": [1]}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", None, "have 3 columns; here are 2", layout="triplets")


# ---- what is asked for ---------------------------------------------------------------------------


def test_paths_formats_and_options_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*none.csv'"):
        read_counts(tmp_path / "none.csv")
    path = tmp_path / "counts.xlsx"
    path.write_text("1\n")
    with pytest.raises(
        ValueError, match=r"cannot be inferred from the name.*\.npz, \.mtx.*format="
    ):
        read_counts(path)
    with pytest.raises(ValueError, match=r"format must be one of .*npz, mtx.*; got 'xlsx'"):
        read_counts(path, format="xlsx")
    with pytest.raises(
        TypeError, match=r"pattern cannot be used with the format 'csv'\. Its options: columns"
    ):
        read_counts(path, format="csv", pattern="*")
    with pytest.raises(TypeError, match="layer cannot be used with the format 'csv'"):
        read_counts(path, format="csv", layer="counts")
    with pytest.raises(TypeError, match="input cannot be used with the format 'jsonl'"):
        read_counts(path, format="jsonl", input="file")


@pytest.mark.parametrize(
    ("name", "package"),
    [("a.parquet", "pyarrow"), ("a.h5ad", "h5py"), ("a.loom", "h5py"), ("a.h5", "h5py")],
)
def test_packages_that_are_not_installed(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == package] or [package]:
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_text("content")
    message = re.escape(
        f'package {package}, which is not installed. Install it with: pip install "k'
    )
    with pytest.raises(ImportError, match=message):
        read_counts(tmp_path / name)
