"""Counts with names are written and read again; tables and triplets, told apart."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from klnmf import KLNMF
from klnmf.readers import (
    CountTable,
    ReadError,
    delimited,
    parquet,
    read_counts,
    triplets,
    write_counts,
)
from reader_checks import COLUMNS, COUNTS, ROWS, TABLE, assert_same

WRITABLE = ["a.npz", "a.mtx", "a.mtx.gz", "a.h5ad", "a.csv", "a.csv.gz", "a.tsv", "a.parquet"]


# ---- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITABLE)
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    write_counts(TABLE, tmp_path / name)
    found = read_counts(tmp_path / name)
    assert_same(found)
    assert found.X.dtype == np.int32
    assert not [file for file in tmp_path.iterdir() if "tmp" in file.name]


@pytest.mark.parametrize("format", ["npz", "mtx", "h5ad", "csv", "tsv", "parquet"])
def test_the_format_may_be_given(format: str, tmp_path: Path) -> None:
    write_counts(TABLE, tmp_path / "counts.dat", format=format)
    beside = (
        {"counts.dat.rows.txt", "counts.dat.columns.txt"} if format in ("npz", "mtx") else set()
    )
    assert {file.name for file in tmp_path.iterdir()} == {"counts.dat", *beside}
    assert_same(read_counts(tmp_path / "counts.dat", format=format))


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
        ("\ufeffa;b;c\nx;1;0;2\n\ny;0;0;3\n", {"delimiter": ";"}),  # Excel
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


def test_triplets_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 2)
    path = tmp_path / "counts.csv"
    path.write_text("\n\n\nd,w,n\n\n\nx,sea,1\ny,corn,2\n\nx,sea,3\ny,ship,4")
    expected = CountTable([[4, 0, 0], [0, 2, 4]], ["x", "y"], ["sea", "corn", "ship"])
    assert_same(read_counts(path), expected)


@pytest.mark.parametrize(
    ("text", "is_triplets"),
    [
        ("d,w,n\nx,sea,1\ny,corn,2\n", True),  # words where a table has numbers
        ("x,sea,1\n", True),
        ("d,w,count\n1,7,1\n1,8,2\n2,7,1\n", True),  # counts by name
        ("d,w,n\nx,7,1\nx,sea,2\n", True),
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


def test_three_columns_of_counts_with_an_index_are_a_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 1], "b": [0, 2], "c": [3, 4]}, index=["x", "y"])
    frame.to_parquet(tmp_path / "table.parquet")
    found = read_counts(tmp_path / "table.parquet")
    assert_same(found, CountTable(frame.to_numpy(), ["x", "y"], ["a", "b", "c"]))


def test_parquet_columns_with_dots(tmp_path: Path) -> None:
    frame = pd.DataFrame({"HLA": [1, 0], "HLA.A": [0, 2], "A": [3, 4]}, index=["x", "y"])
    frame.to_parquet(tmp_path / "genes.parquet")
    found = read_counts(tmp_path / "genes.parquet")
    assert_same(found, CountTable(frame.to_numpy(), ["x", "y"], ["HLA", "HLA.A", "A"]))


def test_a_wide_csv_needs_the_memory_of_its_nonzeros(tmp_path: Path) -> None:
    n, m = 1000, 1000
    X = sp.csr_array(sp.random(n, m, 0.002, random_state=0))
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


@pytest.mark.parametrize("indexed", [True, False])
def test_wide_parquet_in_batches(
    indexed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BATCH", 8)  # two rows
    frame = pd.DataFrame(COUNTS, index=ROWS, columns=COLUMNS)
    frame = frame if indexed else frame.reset_index()
    frame.to_parquet(tmp_path / "wide.parquet")
    assert_same(read_counts(tmp_path / "wide.parquet"))


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
        (np.array([[2.0**31]], np.float32), np.float32),
        (np.array([[2**64 - 1]], np.uint64), np.float64),
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


# ---- what cannot be written ---------------------------------------------------------------------


def test_names_that_cannot_be_written(tmp_path: Path) -> None:
    twice = CountTable(np.eye(2), ["a", "b"], ["gene", "gene"])
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(ValueError, match="column_names has 'gene' more than once"):
            write_counts(twice, tmp_path / name)
    with pytest.raises(ValueError, match=r"row_names has 'a\\nb'.*line end"):
        write_counts(CountTable(np.eye(1), ["a\nb"]), tmp_path / "a.npz")
    with pytest.raises(ValueError, match="0 × 2 has no triplets"):
        write_counts(CountTable(np.empty((0, 2))), tmp_path / "a.csv")
    with pytest.raises(
        ValueError, match=r"to write cannot be inferred.*\.npz, \.mtx, \.h5ad, \.csv"
    ):
        write_counts(twice, tmp_path / "a.loom")
    with pytest.raises(ValueError, match="format must be one of npz, mtx, h5ad, csv, tsv, parquet"):
        write_counts(twice, tmp_path / "a.npz", format="uci")
    with pytest.raises(FileNotFoundError, match="there is no such folder to write to"):
        write_counts(twice, tmp_path / "folder" / "a.npz")
    assert list(tmp_path.iterdir()) == []


def test_old_names_are_not_taken_for_those_of_a_new_matrix(tmp_path: Path) -> None:
    write_counts(CountTable(np.eye(2), ["a", "b"], ["x", "y"]), tmp_path / "a.mtx")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match=r"a.columns.txt would be read as column_names of a"):
        write_counts(CountTable(np.eye(2), ["c", "d"]), tmp_path / "a.mtx")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["a.npz", "a.mtx", "a.mtx.gz", "a.h5ad", "a.csv", "a.parquet"])
def test_a_write_that_fails_leaves_the_old_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    write_counts(CountTable(np.eye(2), ["a", "b"], ["x", "y"]), path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    def fail(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_counts(CountTable(np.ones((2, 2)), ["c", "d"], ["x", "y"]), path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2],), r"two dimensions, samples × features; got \(2,\)"),
        (([["a"]],), "Counts must be real numbers"),
        (([[1j]],), "Counts must be real numbers; got the type complex128"),
        (([[1, -2]], ["a"], ["x", "y"]), r"row 0 \('a'\), column 1 \('y'\) holds -2"),
        (([[1, np.nan]],), "row 0, column 1 holds nan"),
        (([[1]], ["a", "b"]), "row_names has 2 names for 1 rows"),
        (([[1]], None, "a"), "column_names must be a sequence .* got a str"),
        (([[1]], None, None, ["x", "y"]), "labels has 2 names for 1 rows"),
    ],
)
def test_tables_that_are_none(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CountTable(*arguments)


def test_it_is_known_whether_a_feature_that_is_not_there_is_a_zero(tmp_path: Path) -> None:
    (tmp_path / "triplets.csv").write_text("row,column,count\na,sea,1\na,ship,2\nb,sea,3\n")
    (tmp_path / "table.csv").write_text("name,sea,ship\na,1,2\nb,3,0\n")
    (tmp_path / "texts.jsonl").write_text('{"text": "sea ship"}\n')
    triplets, table, texts = (
        read_counts(tmp_path / name) for name in ("triplets.csv", "table.csv", "texts.jsonl")
    )
    assert triplets.open_features
    assert triplets.transposed().open_features
    assert texts.open_features
    assert not table.open_features
