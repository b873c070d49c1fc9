"""Matrices in text with an entry a line: every line is what it should be, or an error names it."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from klnmf.readers import ReadError, entries, prepare, read_counts
from klnmf.support import input_files
from reader_checks import refused

MTX = "%%MatrixMarket matrix coordinate"
SIZES = f"{MTX} integer general\n2 3 2\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1 2 3\n", 1, "expected the first line of a Matrix Market file.*found '1 2 3'"),
        (f"{MTX} complex general\n1 1 1\n1 1 1 0\n", 1, "'complex' is not one of integer, "),
        (f"{MTX} real skew-symmetric\n2 2 1\n2 1 1\n", 1, "'skew-symmetric' is not one of"),
        (f"{MTX} real symmetric\n2 3 1\n2 1 1\n", 2, "2 × 3 cannot be symmetric"),
        ("%%MatrixMarket matrix array real general\n2 1\n1\n1\n", 1, "'array' is not one of coord"),
        (
            f"{MTX} real general\n% note\n2 x 1\n",
            3,
            "expected 3 whole numbers.*found '2 x 1'",
        ),
        (f"{SIZES}1 1 4\n2 9 1\n", 4, "column 9 is not from 1 to 3"),
        (f"{SIZES}0 1 4\n2 1 1\n", 3, "row 0 is not from 1 to 2"),
        (f"{SIZES}1 1 x\n2 1 1\n", 3, "'x' is not a whole number; a count was expected"),
        (f"{SIZES}1 1 1.5\n2 1 1\n", 3, "'1.5' is not a whole number"),
        (f"{SIZES}1 1 1\n2 1 -1\n", 4, "'-1': counts are finite numbers of 0 or more"),
        (f"{SIZES}1 1\n2 1 1\n", 3, "expected 3 numbers, found '1 1'"),
        (f"{SIZES}1 1 1\n", 3, "ends here with 1 of 2 entries: it is cut off"),
        (f"{SIZES}1 1 1\n1 2 1\n1 3 1\n", 5, "announces 2 entries but has more"),
        (f"{MTX} real general\n2 3 1\n1 1 nan\n", 3, "'nan': counts are finite"),
        (f"{MTX} real general\n2 3 1\n1 1 inf\n", 3, "'inf': counts are finite"),
        (f"{MTX} real general\n2 3 999999999999999\n1 1 1\n", 3, "cut off"),
        (f"{MTX} real general\n2 3 1\n1 1 1,5\n", 3, "'1,5' is not a number; a count was"),
        (f"{MTX} real general\n2 3 1\n1 1 1ab\n", 3, "'1ab' is not a number"),
        (f"{MTX} real general\n2 3 1\n1 1 1.5.3\n", 3, "'1.5.3' is not a number"),
        (f"{MTX} real general\n2 3 1\n1 1 1-5\n", 3, "'1-5' is not a number"),
        (f"{MTX} real general\n2 3 1\n1 1 1_5\n", 3, "'1_5' is not a number"),
        (f"{MTX} real general\n2 3 1\n1 1 0x5\n", 3, "'0x5' is not a number"),
        (f"{MTX} real general\n2 3 1\n1 1 1e\n", 3, "'1e' is not a number"),
        (f"{MTX} real general\n2 3 1\n1 1 1 junk\n", 3, "expected 3 numbers, found '1 1 1 junk'"),
        (f"{MTX} real general\n2 3 1\n1 1 1 7\n", 3, "expected 3 numbers, found '1 1 1 7'"),
        (
            f"{MTX} real general\n2 3 1\n1.0 1 1\n",
            3,
            "expected 2 whole numbers.* '1.0 1'",
        ),
        (f"{MTX} real general\n2 3 1\n1 1 1\x00\n", 3, r"'1\\x00' is not a number"),
        (
            f"{MTX} real general\n2 3 1\n1\x00 1 1\n",
            3,
            r"expected 2 whole numbers.* '1\\x00 1'",
        ),
        (f"{SIZES}\n1 1 1\n2 1 1\x00\n", 5, r"'1\\x00' is not a whole number"),
        (f"{SIZES}1 1 1\n% note\n2 1 1\n", 4, "expected 3 numbers, found '% note'"),
        (f"{SIZES}1 1 1\n2 1\f1\n", 4, "expected 3 number"),
        (f"{SIZES}1 1 1\n{'9' * 5000} 1 1\n", 4, "expected 2 whole number"),
        (f"{MTX} pattern general\n2 3 1\n1 1 1\n", 3, "expected 2 numbers, found '1 1 1'"),
        (f"{MTX} pattern general\n2 3 1\n1 1\x00\n", 3, "expected 2 whole number"),
        (f"{MTX} real general\n{'9' * 400} 3 1\n1 1 1\n", 2, "expected 3 whole number"),
        (f"{MTX} real general\n1000000000000 3 1\n1 1 1\n", 2, "claims 1,000,000,000,000 rows"),
        (f"{MTX} real general\n3 2000000000 1\n1 1 1\n", 2, "nearly all of them would be empty"),
    ],
)
def test_matrix_market(text: str, line: int, message: str, tmp_path: Path) -> None:
    """The same whether it is read at once, or in pieces, or among the files of 10x."""
    for name, content in (("a.mtx", text.encode()), ("a.mtx.gz", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, line, message)
    with pytest.raises(ReadError, match=message) as caught:
        prepare(tmp_path / "a.mtx", tmp_path / "out")
    assert caught.value.line == line
    assert not (tmp_path / "out.partial").exists()
    folder = tmp_path / "10x"
    folder.mkdir()
    (tmp_path / "a.mtx").rename(folder / "matrix.mtx")
    for kind in ("barcodes", "features"):
        (folder / f"{kind}.tsv").write_text("a\nb\n")
    refused(folder, line, message)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("2\nx\n1\n", 2, r"expected a whole number: W \(words\); found 'x'"),
        ("2\n3\n2\n1 1 4\n1 4 1\n", 5, "column 4 is not from 1 to 3"),
        ("2\n3\n2\n1 1 4\n3 1 1\n", 5, "row 3 is not from 1 to 2"),
        ("2\n3\n2\n2 1 4\n1 1 1\n", 5, "document 1 comes after 2; documents must be in order"),
        ("2\n3\n2\n1 1 4\n1 2 many\n", 5, "'many' is not a whole number"),
        ("2\n3\n2\n1 1 4\n1 2 -2\n", 5, "'-2': counts are finite numbers of 0 or more"),
        ("2\n3\n2\n1 1 4\n1 2\n", 5, "expected 3 numbers, found '1 2'"),
        ("2\n3\n3\n1 1 4\n1 2 1\n", 5, "2 of 3 entries: it is cut off"),
        ("2\n3\n1\n1 1 4\n1 2 1\n", 5, "announces 1 entries but has more"),
        ("2\n3\n1\n1 1 4,5\n", 4, "'4,5' is not a whole number"),
        ("2\n3\n1\n1 1 4 5\n", 4, "expected 3 numbers, found '1 1 4 5'"),
        ("2\n3\n1\n1 1 4\x00\n", 4, r"'4\\x00' is not a whole number"),
        (f"{'9' * 400}\n3\n1\n1 1 4\n", 1, r"expected a whole number: D \(documents\)"),
        ("999999999999999999\n3\n1\n1 1 4\n", 3, "claims 999,999,999,999,999,999 rows"),
        ("2\n3\n999999999999999999\n1 1 4\n", 4, "1 of 999,999,999,999,999,999 entries"),
    ],
)
def test_uci(text: str, line: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "docword.x.txt"
    path.write_text(text)
    (tmp_path / "vocab.x.txt").write_text("a\nb\nc\n")
    refused(path, line, message)
    with pytest.raises(ReadError, match=message):
        prepare(path, tmp_path / "out")


def test_a_checksum_that_fails_after_the_last_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailsAtTheEnd(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            content = super().read(size)
            if not content:
                raise gzip.BadGzipFile("CRC check failed")
            return content

    path = tmp_path / "a.mtx"
    path.write_text(f"{SIZES}1 1 1\n2 1 1\n")
    monkeypatch.setattr(input_files, "open_binary", lambda p: FailsAtTheEnd(p.read_bytes()))
    refused(path, SIZES.count("\n") + 3, "CRC check failed")


# ---- what is right -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 1 << 22])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("field", ["integer", "real", "pattern", "unsigned-integer", "double"])
def test_what_scipy_reads_is_read(
    field: str, symmetry: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "_TEXT", size)
    X = np.random.default_rng(0).poisson(0.8, (6, 6)) * (1.5 if field in ("real", "double") else 1)
    X = X + X.T if symmetry == "symmetric" else X
    stored = sp.coo_array(np.tril(X) if symmetry == "symmetric" else X)
    counts = [""] * stored.nnz if field == "pattern" else [f" {value:g}" for value in stored.data]
    places = zip(stored.row + 1, stored.col + 1, counts, strict=True)
    lines = [f"  {i}\t{j}{count} \r\n" for i, j, count in places]
    path = tmp_path / "a.mtx"
    head = f"{MTX} {field} {symmetry}\n% a comment\n\n6 6 {stored.nnz}\n"
    path.write_text(head + "\n".join(lines).rstrip())  # blank lines between, and no last line end
    expected = (X > 0).astype(int) if field == "pattern" else X
    np.testing.assert_array_equal(read_counts(path).X.toarray(), expected)
    np.testing.assert_array_equal(prepare(path, tmp_path / "out").as_csr().toarray(), expected)
    with path.open("rb") as stream:
        np.testing.assert_array_equal(scipy.io.mmread(stream).toarray(), expected)


@pytest.mark.parametrize("count", ["3", "+3", "3.", "3.0", ".3e1", "3e0", "300E-2", "0.3e+1"])
def test_every_way_to_write_a_number(count: str, tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text(f"{MTX} real general\n1 2 2\n1 1 {count}\n1 2 3\n")
    assert read_counts(tmp_path / "a.mtx").X.toarray().tolist() == [[3, 3]]


def test_a_matrix_with_more_columns_than_32_bits_number(tmp_path: Path) -> None:
    lines = "".join(f"{i} {3_000_000_000 - i} 1\n" for i in range(1, 11))
    path = tmp_path / "a.mtx"
    path.write_text(f"{MTX} integer general\n10 3000000000 10\n{lines}")
    refused(path, 2, "claims 10 rows and 3,000,000,000 columns for 10 entries")
    found = entries.EntryFile(path, 2, (10, 3_000_000_000), 10, 3, True)
    (block,) = found.blocks()
    assert block.columns.tolist() == [3_000_000_000 - i for i in range(2, 12)]


def test_the_time_is_that_of_one_pass(tmp_path: Path) -> None:
    """Where a grammar goes back over what it has read, such lines take hours."""
    for text in ("1" * 2_000_000, " " * 2_000_000, "1 1 " + "." * 2_000_000, "1 1 1\n" * 300_000):
        (tmp_path / "a.mtx").write_text(f"{MTX} real general\n2 3 1\n{text}x\n")
        line = 4 if "\n" in text else 3
        refused(tmp_path / "a.mtx", line, "expected 3 number|is not a number|has more")
