"""Small files that would be huge in memory, and files that claim what they do not have."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from klnmf.readers import ReadError, entries, prepare, read_counts, read_documents
from klnmf.support import input_files
from reader_checks import refused

# Reads a file with 3 GB of address space and in 40 seconds, and prints the error.
READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
from klnmf.readers import ReadError, read_counts
try:
    read_counts(sys.argv[1])
except ReadError as error:
    print(error)
"""


# ---- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a.csv", "a.mtx", "docword.a.txt", "a.jsonl", "a.rows.txt", "10x", "texts"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_lines_have_a_largest_length(
    name: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "LONGEST_LINE", 1000)
    monkeypatch.setattr(input_files, "_BLOCK", 64)
    monkeypatch.setattr(entries, "_TEXT", 64)
    mtx = b"%%MatrixMarket matrix coordinate integer general\n% a comment\n1 1 1\n1 1 "
    (tmp_path / "vocab.a.txt").write_text("a\n")
    starts = {"a.csv": b"a,b,c\nx,y,", "a.mtx": mtx, "docword.a.txt": b"1\n1\n1\n1 1 ", "10x": mtx}
    starts |= {
        "a.jsonl": b'{"text": "',
        "a.rows.txt": b"name\n",
        "texts": b"word ",
    }
    path = tmp_path / (name + ".gz" * (packed and name[0] in "ad" and name != "a.rows.txt"))
    read: Path = path
    if name in ("10x", "texts"):
        path.mkdir()
        path = path / ("matrix.mtx" if name == "10x" else "a.txt")
        for kind in ("barcodes", "features"):
            (path.parent / f"{kind}.tsv").write_text("a\n")
    elif name == "a.rows.txt":
        read = tmp_path / "a.mtx"
        read.write_bytes(mtx + b"1\n")
    content = starts[name] + b"1" * 5000 + b"\n"
    path.write_bytes(gzip.compress(content) if packed else content)
    is_in_bytes = name in ("a.mtx", "docword.a.txt", "10x")
    line = None if is_in_bytes else starts[name].count(b"\n") + 1
    refused(read, line, "a line has more than 1,000 (bytes|characters), the most that is read")


def test_documents_have_a_largest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "LONGEST_LINE", 1000)
    monkeypatch.setattr(input_files, "_BLOCK", 64)
    (tmp_path / "a.txt").write_text("word\n" * 300)
    refused(tmp_path, None, "more than 1,000 characters, .* Split it into several documents")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["1", "\n"])
@pytest.mark.parametrize("name", ["a.csv.gz", "a.mtx.gz", "a.jsonl.gz"])
def test_six_packed_gigabytes(name: str, line: str, tmp_path: Path) -> None:
    head = b"%%MatrixMarket matrix coordinate real general\n" if "mtx" in name else b""
    piece = gzip.compress(line.encode() * ((1 << 24) // len(line)))
    path = tmp_path / name
    path.write_bytes(gzip.compress(head) + piece * 360)  # members of a gzip file follow each other
    command = [sys.executable, "-c", READ, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert str(path) in found.stdout, found.stderr


def test_packed_files_out_of_all_proportion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "UNPACKED_LIMIT", 100_000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"\n" * 10_000_000))
    refused(tmp_path / "a.csv.gz", None, r"bytes of this file become [\d,]+, more than 500 times")
    rows = "row,column,count\n" + "".join(f"r{i},c{i % 7},{i % 3}\n" for i in range(20_000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(rows.encode()))
    assert read_counts(tmp_path / "a.csv.gz").shape == (20_000, 7)


# ---- .npz ----------------------------------------------------------------------------------------


def npy(array: Any, shape: tuple[int, ...] | None = None) -> bytes:
    """Array in NumPy's format, whose head claims another shape."""
    stream = io.BytesIO()
    np.save(stream, array)
    content = stream.getvalue()
    if shape is None:
        return content
    old, new = (f"'shape': {s}, }}" for s in (np.shape(array), shape))
    head = content[:128].decode("latin-1").replace(old, new)
    return head.rstrip(" \n").ljust(127).encode("latin-1") + b"\n" + content[128:]


def npz(path: Path, **changes: bytes) -> Path:
    """Archive of a matrix with other members."""
    X = sp.csr_array(np.eye(3))
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    members = {name: npy(np.asarray(array)) for name, array in arrays.items()}
    members |= {"format": npy(np.array(b"csr"))} | changes
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": npy(np.ones(3), (10**12,))}, "save_npz|indices have the shape"),
        ({"indices": npy(np.ones(3), (2,))}, "save_npz|indices have the shape"),
        ({"indptr": npy(np.ones(4, int), (10**12,))}, "cannot reshape array of size 4"),
        ({"data": b"no array"}, "not a matrix that scipy.sparse.save_npz wrote"),
        ({"data": npy(np.ones(3))[:40]}, "not a matrix that scipy.sparse.save_npz wrote"),
    ],
)
def test_archives_that_are_odd(changes: dict[str, bytes], message: str, tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", **changes)
    refused(path, None, message)
    with pytest.raises(ReadError, match=message):
        prepare(path, tmp_path / "out")


def test_what_scipy_does_not_read_of_an_archive_does_not_matter(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", notes=b"by hand")
    np.testing.assert_array_equal(read_counts(path).X.toarray(), np.eye(3))


def test_archives_of_nothing_but_repetitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "UNPACKED_LIMIT", 1000)
    X = sp.csr_array((np.ones(10**6), np.zeros(10**6, np.int32), np.array([0, 10**6])), (1, 1))
    sp.save_npz(tmp_path / "a.npz", X)
    refused(tmp_path / "a.npz", None, r"become 16,\d+,\d+, more than 500 times")


def test_archives_that_claim_a_matrix_of_nothing(tmp_path: Path) -> None:
    X = sp.coo_array(([1.0], ([0], [0])), shape=(10**12, 3))
    sp.save_npz(tmp_path / "a.npz", X)
    refused(tmp_path / "a.npz", None, "claims 1,000,000,000,000 rows and 3 columns for 1 entries")
    sp.save_npz(tmp_path / "b.npz", sp.csc_array((np.ones(1), [0], [0, 1, 1]), (10**12, 2)))
    refused(tmp_path / "b.npz", None, "claims 1,000,000,000,000 rows")
    with pytest.raises(ReadError, match="claims 1,000,000,000,000 rows"):
        prepare(tmp_path / "b.npz", tmp_path / "out")


# ---- .parquet ------------------------------------------------------------------------------------


def test_parquet_with_odd_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({}), path)
    refused(path, None, "there are no columns in this file")
    pq.write_table(pa.table([[1], [2]], names=["x", "x"]), path)
    refused(path, None, "two columns have the name 'x'; rename one of them")
    refused(path, None, "two columns have the name 'x'", columns=["x", "x"])


@pytest.mark.parametrize(
    "metadata", ["5", "{", "[" * 200_000, '{"index_columns": 5}', '{"index_columns": [["x"], "z"]}']
)
def test_parquet_with_metadata_that_pandas_does_not_write(metadata: str, tmp_path: Path) -> None:
    table = pa.table({"name": ["a", "b"], "x": [1, 2], "y": [0, 3]})
    pq.write_table(table.replace_schema_metadata({"pandas": metadata}), tmp_path / "a.parquet")
    assert read_counts(tmp_path / "a.parquet", layout="table").row_names.tolist() == ["a", "b"]


def test_parquet_of_nothing_but_repetitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "UNPACKED_LIMIT", 1000)
    table = pa.table({"x": pa.array(np.ones(10_000_000, np.int8))})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    refused(tmp_path / "a.parquet", None, r"become 80,000,000, more than 2000 times")


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_parquet_with_strings_of_any_encoding(encoding: str, tmp_path: Path) -> None:
    table = pa.table({"row": ["a", "a", "b"], "word.s": ["x", "y", "x"], "count": [1, 2, 3]})
    encodings = {"row": encoding, "word.s": encoding}
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_dictionary=False, column_encoding=encodings)
    read = read_counts(path)
    assert read.X.toarray().tolist() == [[1, 2], [3, 0]]
    assert read.column_names.tolist() == ["x", "y"]
    assert read_documents(path, text_field="word.s").texts == ["x", "y", "x"]


def test_parquet_with_numbered_strings_and_nested_columns(tmp_path: Path) -> None:
    path, n = tmp_path / "a.parquet", 300
    nested = pa.array([["x"]] * n, pa.list_(pa.string()))
    words = pa.array(["b", "a", "b"] * (n // 3), pa.dictionary(pa.int8(), pa.string()))
    table = pa.table({"row": ["x"] * n, "word": words, "count": [1] * n, "nested": nested})
    pq.write_table(table, path)
    refused(path, None, "'nested' is of the type list.*; strings were", text_field="nested")
    read = read_counts(path, columns=["row", "word", "count"])
    assert read.X.toarray().tolist() == [[200, 100]]
    assert read.column_names.tolist() == ["b", "a"]
    pq.write_table(table.select(["count", "nested"]), path)
    refused(path, None, "'nested' is of the type list.*; counts were expected", layout="table")
