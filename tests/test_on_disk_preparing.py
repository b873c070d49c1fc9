"""Preparing matrices on disk: every source, in any memory, and however it is interrupted."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings

from klnmf import KLNMF, open_matrix
from klnmf.data.on_disk.layout import parse_bytes
from klnmf.datasets import load_bible
from klnmf.readers import CountTable, ReadError, prepare, preparing, read_counts, write_counts
from klnmf.support.whole_files import locked_folder
from on_disk_checks import assert_is, random_counts


@pytest.fixture(scope="module")
def bible() -> sp.csr_array:
    return load_bible().data[:300]


@settings(max_examples=40)
@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.floats(0, 1),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_any_limit_gives_what_scipy_gives(tmp_path_factory, n, m, density, limit, seed, ordered):
    """Entries in any order with duplicates and zeros; or rows in order."""
    folder = tmp_path_factory.mktemp("limits")
    generator = np.random.default_rng(seed)
    size = int(density * n * m)
    places = generator.integers(n, size=size), generator.integers(m, size=size)
    entries = sp.coo_array((generator.integers(4, size=size), places), shape=(n, m))
    X = entries.tocsr()
    file = folder / "X.mtx"
    scipy.io.mmwrite(file, X if ordered else entries)
    data = X if ordered else file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "BYTES_PER_ENTRY", (1 << 20) // limit)
        assert_is(prepare(data, folder / "out", memory="1M"), X)
    assert sorted(p.name for p in folder.iterdir()) == ["X.mtx", "out"]
    assert not list((folder / "out").glob("*.bucket"))


def save(table: CountTable, folder: Path, kind: str) -> Path:
    path = folder / f"counts.{kind.replace('csc.', '')}"
    if kind == "csc.npz":
        write_counts(table, path)
        sp.save_npz(path, table.X.tocsc())
    elif kind == "docword":
        path = folder / "docword.counts.txt"
        rows = np.repeat(np.arange(table.shape[0]), np.diff(table.X.indptr))
        lines = [
            f"{i + 1} {j + 1} {v}\n"
            for i, j, v in zip(rows, table.X.indices, table.X.data, strict=True)
        ]
        path.write_text("".join([*(f"{x}\n" for x in (*table.shape, table.X.nnz)), *lines]))
        (folder / "vocab.counts.txt").write_text("".join(f"{c}\n" for c in table.column_names))
    else:
        write_counts(table, path)
    return path


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(
    "kind",
    ["npz", "csc.npz", "mtx", "mtx.gz", "docword", "csv", "tsv.gz", "parquet", "h5ad"],
)
def test_every_format_gives_what_its_reader_gives(tmp_path, kind, transpose, monkeypatch):
    X = random_counts(40, 25, 0.2).astype(np.int32)
    rows, columns = [f"row {i}" for i in range(40)], [f"word {j}" for j in range(25)]
    path = save(CountTable(X, rows, columns), tmp_path, kind)
    said: list[str] = []
    monkeypatch.setattr(preparing, "BYTES_PER_ENTRY", (1 << 20) // 30)
    matrix = prepare(path, tmp_path / "out", memory="1M", transpose=transpose, say=said.append)
    wanted = read_counts(path, transpose=transpose)
    assert_is(matrix, wanted.X)
    assert matrix.open_features == wanted.open_features
    assert read_counts(matrix.path).open_features == wanted.open_features
    for what in ("row_names", "column_names", "labels"):
        found, expected = getattr(matrix, what), getattr(wanted, what)
        assert (found is None) == (expected is None)
        assert expected is None or list(found) == list(expected)
    assert not any("as a whole" in line for line in said)


@pytest.mark.parametrize("scale", [1, 0.5, 2**22, 2.0**40])
@pytest.mark.parametrize("kind", [np.int64, np.float32, np.float64])
def test_types_are_those_of_a_fit_in_memory(tmp_path, kind, scale):
    X = (random_counts(20, 10, 0.3).astype(np.float64) * scale).astype(kind)
    X.eliminate_zeros()
    assert_is(prepare(X, tmp_path / "matrix"), X)
    sp.save_npz(tmp_path / "X.npz", X)
    assert_is(prepare(tmp_path / "X.npz", tmp_path / "file"), read_counts(tmp_path / "X.npz").X)
    wide = prepare(X, tmp_path / "wide", dtype=np.float64)
    assert_is(wide, X.astype(np.float64))


def test_a_table_with_names(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(",a,b\nx,1,0\ny,0,2\n")
    assert prepare(table, tmp_path / "table").column_names.tolist() == ["a", "b"]


def test_interrupted_leaves_nothing(tmp_path, monkeypatch, bible):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "write_columns", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(bible, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_complex_numbers_are_not_counts(tmp_path, kind):
    X = sp.csr_array(np.eye(3)).astype(np.complex64).asformat(kind)
    sp.save_npz(tmp_path / "X.npz", X)
    for read in (read_counts, lambda path: prepare(path, tmp_path / "out")):
        with pytest.raises(ReadError, match="Counts must be real numbers; got the type complex64"):
            read(tmp_path / "X.npz")


def test_leftovers_of_a_process_that_was_killed(tmp_path, bible):
    """They are cleared; another process at work is noticed."""
    partial = tmp_path / "out.partial"
    partial.mkdir()
    (partial / "rows.values.npy").write_bytes(b"half")
    (partial / "column.7.bucket").write_bytes(b"half")
    with pytest.raises(ReadError, match="was interrupted, run it again"):
        open_matrix(tmp_path / "out")
    with locked_folder(partial), pytest.raises(FileExistsError, match="another process"):
        prepare(bible, tmp_path / "out")
    assert_is(prepare(bible, tmp_path / "out"), bible)


def test_a_source_that_is_wrong_leaves_nothing(tmp_path):
    path = tmp_path / "X.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 3\n2 5 1\n")
    with pytest.raises(ReadError, match="line 4"):
        prepare(path, tmp_path / "out")
    sp.save_npz(tmp_path / "X.npz", sp.csr_array([[1.0, 0.0], [0.0, -2.0]]))
    with pytest.raises(ReadError, match=r"X.npz: row 1, column 1 holds -2.0"):
        prepare(tmp_path / "X.npz", tmp_path / "out")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "X.npz").read_bytes()[:-40])
    with pytest.raises(ReadError, match="cut off"):
        prepare(tmp_path / "cut.npz", tmp_path / "out")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ReadError, match="empty"):
        prepare(tmp_path / "empty.csv", tmp_path / "out")
    with pytest.raises(ValueError, match="row 0, column 1 holds nan"):
        prepare(np.array([[1.0, np.nan]]), tmp_path / "out")
    with pytest.raises(ValueError, match="safe only from"):
        prepare(np.array([[1.0, 1e-30]]), tmp_path / "out", dtype="float32")
    with pytest.raises(ValueError, match="it is empty"):
        prepare(np.zeros((0, 3)), tmp_path / "out")
    with pytest.raises(ValueError, match="two-dimensional"):
        prepare(np.zeros(3), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()


def test_wrong_calls(tmp_path, bible):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        prepare(tmp_path / "nowhere.npz", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        prepare(bible, tmp_path / "no" / "out")
    with pytest.raises(TypeError, match="in memory"):
        prepare(bible, tmp_path / "out", layer="raw")
    with pytest.raises(ValueError, match="dtype must be"):
        prepare(bible, tmp_path / "out", dtype="int32")
    for memory in ("much", True, 2.5, "10K"):
        with pytest.raises(ValueError, match="memory must be"):
            prepare(bible, tmp_path / "out", memory=memory)
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="not a prepared matrix"):
        prepare(bible, tmp_path / "mine", overwrite=True)
    prepare(bible, tmp_path / "out")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        prepare(bible, tmp_path / "out")
    assert_is(prepare(bible[:9], tmp_path / "out", overwrite=True), bible[:9])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "out"]
    assert parse_bytes("1.5g") == 3 << 29


def test_empty_matrix_and_empty_rows(tmp_path):
    X = sp.csr_array((3, 4), dtype=np.float32)
    assert_is(prepare(X, tmp_path / "empty"), X)
    Y = sp.csr_array([[0, 0, 0], [0, 2, 0], [0, 0, 0]], dtype=np.float32)
    matrix = prepare(Y, tmp_path / "nearly")
    assert_is(matrix, Y)
    model = KLNMF(1, random_state=0).fit(matrix)
    np.testing.assert_array_equal(model.components_, KLNMF(1, random_state=0).fit(Y).components_)
