"""Files of every format, written by whoever writes them, are read as counts with names."""

from __future__ import annotations

import gzip
import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import CountVectorizer

from klnmf import KLNMF
from klnmf.readers import CountTable, ReadError, hdf5, parquet, read_counts, triplets, write_counts

COUNTS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 70_000]])
ROWS = ["the letter", 'a "report"', "märz, april"]
COLUMNS = ["sea", "corn, ripe", "never", "ship"]
TABLE = CountTable(COUNTS, ROWS, COLUMNS)
WRITABLE = ["a.npz", "a.mtx", "a.mtx.gz", "a.h5ad", "a.csv", "a.csv.gz", "a.tsv", "a.parquet"]


def assert_same(found: CountTable, expected: CountTable = TABLE) -> None:
    np.testing.assert_array_equal(found.X.toarray(), expected.X.toarray())
    for what in ("row_names", "column_names"):
        names, wanted = getattr(found, what), getattr(expected, what)
        assert (None if names is None else list(names)) == (
            None if wanted is None else list(wanted)
        )
    assert isinstance(found.X, sp.csr_array)
    assert found.X.has_canonical_format
    assert found.X.data.all()


def write_lines(path: Path, names: list[str]) -> None:
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


# ---- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITABLE)
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    write_counts(TABLE, tmp_path / name)
    found = read_counts(tmp_path / name)
    assert_same(found)
    assert found.X.dtype == np.int32
    assert not [file for file in tmp_path.iterdir() if "tmp" in file.name]


@pytest.mark.parametrize("name", WRITABLE)
def test_fractions_are_kept_to_the_last_bit(name: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).exponential(size=(3, 4)) * (COUNTS > 0)
    write_counts(CountTable(values, ROWS, COLUMNS), tmp_path / name)
    np.testing.assert_array_equal(read_counts(tmp_path / name).X.toarray(), values)


@pytest.mark.parametrize("name", ["a.npz", "a.mtx", "a.csv", "a.parquet", "a.h5ad"])
def test_a_table_without_names(name: str, tmp_path: Path) -> None:
    write_counts(CountTable(COUNTS), tmp_path / name)
    found = read_counts(tmp_path / name)
    numbered = None if name in ("a.npz", "a.mtx") else CountTable(COUNTS, list("012"), list("0123"))
    assert_same(found, numbered or CountTable(COUNTS))


@pytest.mark.parametrize(("name", "options"), [("a.npz", {}), ("a.h5ad", {"labels": "label"})])
def test_labels_are_kept(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    write_counts(CountTable(COUNTS, ROWS, COLUMNS, ["x", "y", "x"]), tmp_path / name)
    found = read_counts(tmp_path / name, **options)
    assert_same(found)
    assert found.labels.tolist() == ["x", "y", "x"]


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=6)


@st.composite
def tables(draw: st.DrawFn) -> CountTable:
    rows = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    columns = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    size = len(rows) * len(columns)
    count = st.integers(0, 3) | st.integers(0, 2**40) | st.floats(0, 1e300)
    counts = draw(st.lists(count, min_size=size, max_size=size))
    return CountTable(np.reshape(counts, (len(rows), len(columns))), rows, columns)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.mtx", "a.npz", "a.parquet"])
@settings(max_examples=25)
@given(table=tables())
def test_any_table_comes_back(
    name: str, table: CountTable, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / name
    write_counts(table, path)
    triplet_options = {} if name in ("a.mtx", "a.npz") else {"layout": "triplets"}
    assert_same(read_counts(path, **triplet_options), table)


@settings(max_examples=25)
@given(st.lists(st.tuples(names, names, st.integers(0, 10)), min_size=1, max_size=30))
def test_triplets_of_the_same_place_add_up(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str, int]]
) -> None:
    path = tmp_path_factory.mktemp("triplets") / "a.parquet"
    rows, columns, counts = zip(*records, strict=True)
    pq.write_table(pa.table({"r": rows, "c": columns, "n": counts}), path)
    found = read_counts(path)
    wanted = pd.DataFrame(records).groupby([0, 1])[2].sum()
    for (row, column), count in wanted.items():
        i, j = list(found.row_names).index(row), list(found.column_names).index(column)
        assert found.X[i, j] == count
    assert found.X.sum() == sum(counts)
    assert list(found.row_names) == list(dict.fromkeys(rows))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_triplets_are_written_in_blocks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triplets, "WRITTEN_BLOCK", 2)
    table = CountTable(np.arange(60).reshape(12, 5) % 4)
    assert len(list(triplets.triplet_blocks(table))) > 6
    write_counts(table, tmp_path / name)
    np.testing.assert_array_equal(read_counts(tmp_path / name).X.toarray(), table.X.toarray())


# ---- tables of text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("name,a,b,c\nx,1,0,2\ny,0,0,3\n", {}),
        ('"","a","b","c"\r\n"x",1,0.0,2.0\r\n"y",0,0,3\r\n', {}),  # R's write.csv, on Windows
        ("a,b,c\nx,1,0,2\ny,0,0,3", {}),  # R's write.table, and no line end
        ("\ufeffname;a;b;c\nx;1;0;2\n\ny;0;0;3\n", {"delimiter": ";"}),  # Excel
        ("name,x,y\na,1,0\nb,0,0\nc,2,3\n", {"transpose": True}),
    ],
)
def test_tables(text: str, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    assert_same(
        read_counts(path, **options),
        CountTable([[1, 0, 2], [0, 0, 3]], ["x", "y"], ["a", "b", "c"]),
    )


def test_a_table_without_names_of_rows_or_columns(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("1\t0\t2\n0\t0\t3\n")
    found = read_counts(path, header=False, index=False)
    assert_same(found, CountTable([[1, 0, 2], [0, 0, 3]]))


@pytest.mark.parametrize(
    ("text", "is_triplets"),
    [
        ("d,w,n\nx,sea,1\ny,corn,2\n", True),  # words where a table has numbers
        ("x,sea,1\n", True),
        ("d,w,n\n1,7,1\n1,8,2\n2,7,1\n", True),  # rows that come up again
        ("name,a,b\nx,1,2\ny,3,4\n", False),
        ("name,a,b\n1,1,2\n2,3,4\n", False),
        ("name,a,b,c\nx,1,2,3\nx,3,4,5\n", False),
    ],
)
def test_triplets_are_told_from_tables(text: str, is_triplets: bool, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(text)
    if is_triplets:
        assert_same(read_counts(path), read_counts(path, layout="triplets"))
    else:
        assert_same(read_counts(path), read_counts(path, layout="table"))
    pandas_path = tmp_path / "counts.parquet"
    if not text.startswith("x,"):
        pd.read_csv(path).to_parquet(pandas_path)
        # A first column of numbers is not taken for names, where columns have a type.
        assert_same(
            read_counts(pandas_path, index=None if is_triplets else True), read_counts(path)
        )


@pytest.mark.parametrize("name", ["ratings.csv", "ratings.parquet"])
def test_columns_of_a_longer_table_by_name(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"time": [9, 8, 7], "user": [5, 5, 6], "stars": [4.5, 1.0, 2.0], "film": ["a", "b", "a"]}
    )
    path = tmp_path / name
    frame.to_csv(path, index=False) if name.endswith("csv") else frame.to_parquet(path)
    found = read_counts(path, columns=["user", "film", "stars"])
    assert_same(found, CountTable([[4.5, 1.0], [2.0, 0.0]], ["5", "6"], ["a", "b"]))
    found = read_counts(path, columns=["film", "user"])
    assert_same(found, CountTable([[1, 1], [1, 0]], ["a", "b"], ["5", "6"]))


def test_a_wide_csv_needs_the_memory_of_its_nonzeros(tmp_path: Path) -> None:
    n, m = 200, 2000
    X = sp.random_array((n, m), density=0.002, rng=np.random.default_rng(0), format="csr")
    path = tmp_path / "wide.csv"
    pd.DataFrame(np.ceil(X.toarray()).astype(int)).to_csv(path)
    tracemalloc.start()
    try:
        found = read_counts(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.X.nnz == X.nnz
    assert peak < n * m  # bytes: an eighth of the dense table


def test_dense_hdf5_is_read_a_block_of_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    heights = []

    class Watched:
        shape = (10, 4)

        def __getitem__(self, rows: slice) -> Any:
            part = np.eye(10, 4)[rows]
            heights.append(len(part))
            return part

    monkeypatch.setattr(hdf5, "DENSE_BLOCK", 12)
    np.testing.assert_array_equal(hdf5.sparse_rows(Watched()).toarray(), np.eye(10, 4))
    assert heights == [3, 3, 3, 1]


@pytest.mark.parametrize("indexed", [True, False])
def test_wide_parquet_in_batches(
    indexed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BATCH", 8)  # two rows
    frame = pd.DataFrame(COUNTS, index=ROWS, columns=COLUMNS)
    frame = frame if indexed else frame.reset_index()
    frame.to_parquet(tmp_path / "wide.parquet")
    assert_same(read_counts(tmp_path / "wide.parquet"))


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
        ("array real general\n%\n2 3\n1\n0\n0\n0\n2.0\n3\n", [[1, 0, 2], [0, 0, 3]]),
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


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight(zero_based: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.svmlight"
    dump_svmlight_file(COUNTS[:, [0, 1, 3]], [1, -1, 1], str(path), zero_based=zero_based)
    write_lines(tmp_path / "a.columns.txt", ["sea", "corn", "ship", "seen in no sample"])
    found = read_counts(path, zero_based=zero_based)
    assert found.shape == (3, 4)
    np.testing.assert_array_equal(found.X.toarray()[:, :3], COUNTS[:, [0, 1, 3]])
    assert found.labels.tolist() == ["1", "-1", "1"]
    assert found.column_names[2] == "ship"


# ---- single cells --------------------------------------------------------------------------------


def write_10x(folder: Path, *, version: int, prefix: str = "") -> None:
    """The three files as Cell Ranger lays them out: features × cells, packed since version 3."""
    folder.mkdir(exist_ok=True)
    header = (
        '%%MatrixMarket matrix coordinate integer general\n%metadata_json: {"format_version": 2}\n'
    )
    matrix = sp.coo_array(COUNTS.T)
    entries = zip(matrix.row + 1, matrix.col + 1, matrix.data, strict=True)
    body = f"4 3 {matrix.nnz}\n" + "".join(f"{i} {j} {v}\n" for i, j, v in entries)
    genes = [f"ENSG{i}\t{name}" for i, name in enumerate(COLUMNS)]
    if version >= 3:
        kinds = ["Gene Expression"] * 3 + ["Antibody Capture"]
        genes = [f"{gene}\t{kind}" for gene, kind in zip(genes, kinds, strict=True)]
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


CELLS = CountTable(COUNTS, ["AAAC-1", "AAAG-1", "AAAT-1"], COLUMNS)


@pytest.mark.parametrize("version", [2, 3])
def test_10x_folders(version: int, tmp_path: Path) -> None:
    write_10x(tmp_path / "filtered_feature_bc_matrix", version=version)
    assert_same(read_counts(tmp_path / "filtered_feature_bc_matrix"), CELLS)
    matrix = next((tmp_path / "filtered_feature_bc_matrix").glob("matrix.mtx*"))
    assert_same(read_counts(matrix), CELLS)
    by_id = read_counts(matrix, feature_names="id")
    assert list(by_id.column_names) == ["ENSG0", "ENSG1", "ENSG2", "ENSG3"]


def test_one_of_several_10x_matrices_and_one_type_of_feature(tmp_path: Path) -> None:
    for prefix in ("GSM1_", "GSM2_"):
        write_10x(tmp_path, version=3, prefix=prefix)
    with pytest.raises(ReadError, match=r"several matrices \(GSM1_matrix.mtx.gz, GSM2"):
        read_counts(tmp_path)
    path = tmp_path / "GSM1_matrix.mtx.gz"
    found = read_counts(path, feature_type="Gene Expression")
    assert_same(found, CountTable(COUNTS[:, :3], CELLS.row_names, COLUMNS[:3]))
    with pytest.raises(ReadError, match="'Peaks'; there are: Antibody Capture, Gene Expression"):
        read_counts(path, feature_type="Peaks")


@pytest.mark.parametrize("version", [2, 3])
def test_10x_hdf5(version: int, tmp_path: Path) -> None:
    csc = sp.csc_array(COUNTS.T)
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        group = file.create_group("matrix" if version == 3 else "GRCh38")
        for key in ("data", "indices", "indptr"):
            group[key] = getattr(csc, key)
        group["shape"] = csc.shape
        group["barcodes"] = np.array(list(CELLS.row_names), dtype="S")
        keys = ("features/id", "features/name") if version == 3 else ("genes", "gene_names")
        group[keys[0]], group[keys[1]] = np.array(["a", "b", "c", "d"], "S"), np.array(COLUMNS, "S")
        if version == 3:
            group["features/feature_type"] = np.array(["Gene Expression"] * 4, "S")
    assert_same(read_counts(tmp_path / "raw.h5"), CELLS)
    assert list(read_counts(tmp_path / "raw.h5", feature_names="id").column_names) == list("abcd")


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


# ---- the table itself ----------------------------------------------------------------------------


def test_the_counts_go_into_a_fit() -> None:
    model = KLNMF(n_components=2, max_iter=50, random_state=0, tol=1e-1).fit(TABLE.X)
    assert model.components_.shape == (2, 4)


def test_a_table_leaves_the_given_matrix_as_it_is() -> None:
    X = sp.csr_array((np.array([1, 200, 100, 0], np.uint8), [1, 0, 0, 2], [0, 4]), shape=(1, 3))
    table = CountTable(X)
    assert table.X.toarray().tolist() == [[300, 1, 0]]  # which uint8 does not hold
    assert table.X.nnz == 2
    assert X.indices.tolist() == [1, 0, 0, 2]


@pytest.mark.parametrize(
    ("counts", "dtype"),
    [
        (np.array([[2**31]]), np.int64),
        (np.array([[2.0**31]]), np.float64),
        (np.array([[0.5]], np.float32), np.float32),
        (np.array([[True]]), np.int32),
        (np.array([[7.0]]), np.int32),
    ],
)
def test_types_of_counts(counts: Any, dtype: Any) -> None:
    assert CountTable(counts).X.dtype == dtype


def test_a_table_transposed_and_shown() -> None:
    assert_same(TABLE.transposed(), CountTable(COUNTS.T, COLUMNS, ROWS))
    assert repr(CountTable(np.ones((1000, 2)))) == "CountTable(1,000 × 2, 2,000 nonzeros)"


def test_read_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(ReadError(Path("a.csv"), "broken", 3)))
    assert (str(error), error.path, error.line) == ("a.csv, line 3: broken", Path("a.csv"), 3)
