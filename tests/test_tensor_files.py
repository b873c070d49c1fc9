"""Files of tensors: what is written is read again, and what is broken is refused."""

from __future__ import annotations

import gzip
import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings

from event_files import write_table
from klnmf import SparseTensor
from klnmf.readers import ReadError, read_tensor, tensor_files, write_tensor
from klnmf.support import input_files
from tensor_cases import same_tensor, tensors

SMALL = SparseTensor([[0, 2, 2], [1, 0, 1], [0, 3, 0]], [5, 1, 70_000])
EVENTS = {"modes": ["who", "when"], "values": "n"}


def refused(path: Path, message: str, line: int | None = None, **options: Any) -> None:
    """Reading fails at that line, and the error names the file and says this."""
    with pytest.raises(ReadError, match=message) as caught:
        read_tensor(path, **options)
    assert caught.value.line == line
    assert str(caught.value).startswith(str(path))


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---- written and read ----------------------------------------------------------------------------


@given(tensors())
@settings(max_examples=60, derandomize=True)
def test_npz_holds_everything(tensor: SparseTensor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.npz")
        write_tensor(path, tensor)
        assert same_tensor(read_tensor(path), tensor)
        assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("name", ["a.tns", "a.tns.gz", "A.TNS"])
def test_tns_holds_places_and_values(name: str) -> None:
    @given(tensors(max_modes=8))
    @settings(max_examples=40, derandomize=True)
    def check(tensor: SparseTensor) -> None:
        assume(tensor.nnz)
        plain = SparseTensor(tensor.coords, tensor.values, tensor.shape)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            write_tensor(path, tensor)
            content = path.read_bytes()
            found = read_tensor(path, shape=tensor.shape)
        assert content.startswith(b"\x1f\x8b") == name.endswith(".gz")
        # Whole numbers have the narrowest type that is exact; all others that of the values.
        np.testing.assert_array_equal(found.toarray(), plain.toarray())
        is_whole = (plain.values == np.rint(plain.values)).all()
        assert is_whole or plain.dtype == np.float64 or found.dtype == np.float32

    check()


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.tsv.gz", "a.parquet"])
def test_tables_hold_counts_and_labels(name: str) -> None:
    @given(tensors())
    @settings(max_examples=40, derandomize=True)
    def check(tensor: SparseTensor) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            write_table(path, tensor)
            found = read_tensor(path, modes=tensor.mode_names, values="count")
        places = []
        for size, labels, sorted_ones in zip(
            tensor.shape, tensor.labels, found.labels, strict=True
        ):
            given = [str(i) for i in range(size)] if labels is None else labels.tolist()
            assert sorted(given) == sorted(sorted_ones)
            places.append([given.index(label) for label in sorted_ones])
        np.testing.assert_array_equal(found.toarray(), tensor.toarray()[np.ix_(*places)])
        assert found.mode_names == tensor.mode_names

    check()


def test_tns_is_counted_from_one(tmp_path: Path) -> None:
    write_tensor(tmp_path / "a.tns", SMALL)
    assert (tmp_path / "a.tns").read_text() == "1 2 1 5\n3 1 4 1\n3 2 1 70000\n"


def test_tns_of_others(tmp_path: Path) -> None:
    text = "# a tensor\n\n  3\t1 4   1 # the last\r\n1 2 1 5.0\n#\n3 2 1 7e4\n3 2 1 .5"
    found = read_tensor(put(tmp_path / "a.tns", text))
    assert found.toarray()[2].tolist() == [[0, 0, 0, 1], [70_000.5, 0, 0, 0]]
    assert found.shape == (3, 2, 4)
    assert read_tensor(tmp_path / "a.tns", shape=(3, 2, 9)).shape == (3, 2, 9)
    refused(tmp_path / "a.tns", "must be below 3, the size of mode 2", shape=(3, 2, 3))


def test_tns_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "_TEXT", 16)
    monkeypatch.setattr(tensor_files, "_WRITTEN", 2)
    tensor = SparseTensor(np.arange(60).reshape(2, 30) % 7, np.arange(1, 31))
    write_tensor(tmp_path / "a.tns", tensor)
    assert same_tensor(read_tensor(tmp_path / "a.tns"), tensor)
    content = b"# one\n# two\n# three\n" + (tmp_path / "a.tns").read_bytes() + b"1 x 1\n"
    lines = content.count(b"\n")
    refused(put(tmp_path / "b.tns", content), "'x' is no place", lines)


def test_npz_of_others(tmp_path: Path) -> None:
    """One row per entry; NumPy writes the transpose of an array in the order of Fortran."""
    for coords in (SMALL.coords.T, np.ascontiguousarray(SMALL.coords.T)):
        np.savez(tmp_path / "a.npz", coords=coords, vals=SMALL.values, shape=SMALL.shape)
        assert same_tensor(read_tensor(tmp_path / "a.npz"), SMALL)
        np.savez(tmp_path / "a.npz", coords=coords.T, values=SMALL.values)
        assert same_tensor(read_tensor(tmp_path / "a.npz"), SMALL)
    assert read_tensor(tmp_path / "a.npz", shape=(9, 9, 9)).shape == (9, 9, 9)


def test_events_of_others(tmp_path: Path) -> None:
    text = "n,who,when,note\n2,b,2024-01-09,x\n\n0.5,'=a,2024-01-01T10:00,\n1,b,2024-01-10,\n"
    path = put(tmp_path / "a.csv", text)
    found = read_tensor(path, **EVENTS, bins={"when": "week"})
    assert [labels.tolist() for labels in found.labels] == [
        ["=a", "b"],
        ["2024-01-01", "2024-01-08"],
    ]
    assert found.toarray().tolist() == [[0.5, 0], [0, 3]]
    assert read_tensor(path, modes=["who", "when"]).total == 3
    table = pa.table(
        {"who": ["b", "a"], "when": np.array(["2024-01-09"] * 2, "M8[ns]"), "n": [2, 1]}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    found = read_tensor(tmp_path / "a.parquet", **EVENTS, bins={"when": "year"})
    assert found.labels[1].tolist() == ["2024-01-01"]
    assert found.values.tolist() == [1, 2]


# ---- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("a.tns", SparseTensor(np.zeros((2, 0)), shape=(2, 2)), "without nonzeros cannot be"),
        ("a.npz", SparseTensor([[0], [0]], labels=[["a\0"], None]), "labels_0 end in NUL"),
        ("a.csv", SMALL, r"written as \.npz, \.tns or \.tns\.gz"),
        ("a.npy", SMALL, r"ending of the name: \.tns, \.npz, .*followed by \.gz"),
        ("a.npz.gz", SMALL, "the format of a tensor is known by the ending"),
    ],
)
def test_what_cannot_be_written(name: str, tensor: Any, message: str, tmp_path: Path) -> None:
    put(tmp_path / name, "old")
    with pytest.raises(ValueError, match=message):
        write_tensor(tmp_path / name, tensor)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_what_is_no_tensor_or_has_no_place(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be a SparseTensor; got an array"):
        write_tensor(tmp_path / "a.npz", np.ones((2, 2)))  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        write_tensor(tmp_path / "b" / "a.npz", SMALL)


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(values: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr(tensor_files, "whole", fails)
    with pytest.raises(OSError, match="the disk is full"):
        write_tensor(tmp_path / "a.tns", SMALL)
    assert not list(tmp_path.iterdir())


# ---- options -------------------------------------------------------------------------------------


def test_options_that_a_format_does_not_have(tmp_path: Path) -> None:
    write_tensor(tmp_path / "a.npz", SMALL)
    write_table(tmp_path / "a.csv", SMALL)
    with pytest.raises(TypeError, match=r"values.* cannot be used with \.npz files"):
        read_tensor(tmp_path / "a.npz", values="a")
    assert read_tensor(tmp_path / "a.npz", modes=["a", "b", "c"]).mode_names == ("a", "b", "c")
    with pytest.raises(TypeError, match=r"shape.* cannot be used with \.csv files"):
        read_tensor(tmp_path / "a.csv", modes=["a", "b"], shape=(2, 2))
    for modes in (None, "mode_0"):
        with pytest.raises(TypeError, match=r"must name the columns of a \.csv file, such as mod"):
            read_tensor(tmp_path / "a.csv", modes=modes)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_commas_semicolons_and_tabs(name: str, sign: str, tmp_path: Path) -> None:
    text = '"who","the day","n"\nAnn,1,2\nBo,2,3\n'.replace(",", sign)
    found = read_tensor(put(tmp_path / name, text), modes=["who", "the day"], values="n")
    assert (found.labels[0].tolist(), found.values.tolist()) == (["Ann", "Bo"], [2.0, 3.0])
    one = put(tmp_path / name, f"a;b{sign}c\nx;y{sign}z\n" if sign != ";" else "a;b;c\nx;y;z\n")
    modes = ["a;b", "c"] if sign != ";" else ["a", "b"]
    assert read_tensor(one, modes=modes).mode_names == tuple(modes)


def test_float_ids_have_the_same_labels_however_they_come(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"id": [12.0, 3.0, 2.5], "place": ["007", "1.10", "7.0"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    modes = ["id", "place"]
    found = [SparseTensor.from_events(frame, modes)]
    found += [read_tensor(tmp_path / name, modes=modes) for name in ("a.csv", "a.parquet")]
    for tensor in found:
        labels = [each.tolist() for each in tensor.labels]
        assert labels == [["2.5", "3", "12"], ["1.10", "007", "7"]]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    write_tensor(tmp_path / "visits.npz", SMALL)
    with pytest.raises(FileNotFoundError, match=r"no file .*visit\.npz'\. Did you mean"):
        read_tensor(tmp_path / "visit.npz")
    refused(put(tmp_path / "a.tns", ""), "the file is empty")
    (tmp_path / "b.tns").mkdir()
    refused(tmp_path / "b.tns", "this is a folder")


# ---- broken files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("# nothing\n\n", None, "no nonzeros in this file"),
        ("1 2\n", 1, r"expected 2 to 8 places and a value, found '1 2'"),
        ("\n" + "1 " * 10, 2, "expected 2 to 8 places and a value"),
        ("1 1 1 2\n1 1 2\n", 2, "expected 3 places and a value, found '1 1 2'"),
        ("1 1 1 2\n1 0 1 2\n", 2, r"'0' is no place; in \.tns files .* from 1 to 2,147,483,647"),
        ("1 1 1 2\n1 -1 1 2\n", 2, "'-1' is no place"),
        ("1 1.5 1 2\n", 1, "'1.5' is no place"),
        ("1 1 3000000000 2\n", 1, "'3000000000' is no place"),
        (f"1 1 {'9' * 30} 2\n", 1, "is no place"),
        ("1 1 1 -2\n", 1, "'-2' is no count; counts are finite numbers of 0 or more"),
        ("1 1 1 nan\n", 1, "'nan' is no count"),
        ("1 1 1 1e999\n", 1, "'1e999' is no count"),
        ("1 1 1 x\n", 1, "'x' is no count"),
        ("1 1 1 1_0\n", 1, "'1_0' is no count"),
        ("1 1 1\0 1\n", 1, "is no place"),
        ("1 1\x0b1 1\n", 1, "characters that do not occur"),
        ("1 1 2000000000 1\n", None, "2,000,000,000 slices for 1 nonzeros: nearly all would be"),
    ],
)
def test_broken_tns(text: str, line: int | None, message: str, tmp_path: Path) -> None:
    refused(put(tmp_path / "a.tns", text), message, line)
    refused(put(tmp_path / "a.tns.gz", gzip.compress(text.encode())), message, line)


def test_packed_files_that_are_cut_off(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b"%d %d %d\n" % (i, i * i, i) for i in range(1, 5000)))
    refused(put(tmp_path / "a.tns.gz", packed[:-9]), "compressed data are damaged or cut off", 1)


def test_packed_files_out_of_all_proportion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "UNPACKED_LIMIT", 100_000)
    path = put(tmp_path / "a.tns.gz", gzip.compress(b"\n" * 10_000_000))
    refused(path, r"bytes of this file become [\d,]+, more than 500 times")
    np.savez_compressed(tmp_path / "a.npz", coords=np.zeros((2, 10**6)), values=np.zeros(10**6))
    refused(tmp_path / "a.npz", r"bytes of this file become [\d,]+, more than 500 times")


def npz(path: Path, **arrays: Any) -> Path:
    good = {"coords": SMALL.coords, "values": SMALL.values, "shape": np.array(SMALL.shape)}
    kept = {name: array for name, array in (good | arrays).items() if array is not None}
    np.savez(path, **kept)
    return path


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"values": None}, "needs the arrays coords and values, and has coords, shape"),
        ({"coords": None}, "needs the arrays coords and values"),
        ({"values": np.array([1, 2, None])}, "it holds Python objects"),
        ({"values": np.array([1.0, -2, 3])}, r"values holds -2.0 in row 1"),
        ({"values": np.array(["a"] * 3)}, "values must hold counts"),
        ({"labels_1": np.array([2**32 - 1, 65], "u4").view("U1")}, "labels_1 has characters that"),
        ({"labels_1": np.array([0x110000, 65], ">u4").view(">U1")}, "labels_1 has characters that"),
        ({"values": np.ones(4)}, "one count for each of the 3 columns"),
        ({"coords": np.array(3)}, "coords must be whole numbers"),
        ({"coords": np.zeros((10**9, 0), np.int8), "labels_0": np.array(["a"])}, "2 to 8 modes"),
        ({"shape": np.array([3, 2])}, "shape has 2 sizes for the 3 modes"),
        ({"shape": np.array(3)}, "shape must be a tuple"),
        ({"shape": np.array([3, 2, 3])}, "must be below 3, the size of mode 2"),
        ({"shape": np.array([3, 2, 2 * 10**9])}, "2,000,000,000 slices for 3 nonzeros"),
        ({"mode_names": np.array(["a", "a", "b"])}, "that differ from each other"),
        ({"labels_1": np.array(["a", "a"])}, "have 'a' more than once"),
        ({"labels_1": np.array(["a"])}, "There are 1 labels of the mode 'mode_1'"),
        ({"labels_1": np.array([["a"], ["b"]])}, "must be a list of labels"),
    ],
)
def test_broken_npz(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    refused(npz(tmp_path / "a.npz", **arrays), message)


def test_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_tensor(path, SMALL)
    content = path.read_bytes()
    refused(
        put(path, content[:-30]), "not a tensor that klnmf.readers.write_tensor wrote, or it is"
    )
    refused(put(path, "1 2 3"), "not a tensor that klnmf.readers.write_tensor wrote, or it is")
    stream = io.BytesIO()
    np.save(stream, SMALL.values)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("coords.npy", stream.getvalue().replace(b"(3,)", b"(9,)"))
        archive.writestr("values.npy", stream.getvalue())
    refused(path, "cannot reshape array")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("who,wenn,n\na,b,1\n", None, "no column 'when'; the columns are: .*Did you mean 'wenn'"),
        ("who,when,n,n\na,b,1,1\n", None, "there is more than one column 'n'"),
        ("who,when,n\na,b,1\na,b\n", 3, "expected 3 fields, as in the header, found 2"),
        ("who,when,n\na,b,x\n", 2, "column 'n' holds 'x'; a count was expected"),
        ("who,when,n\na,b,-1\n", 2, "column 'n' holds '-1'; a count was expected"),
        ("who,when,n\na,b,\n", 2, "column 'n' holds nothing; a count was expected"),
        ("who,when,n\na,,1\na,b,1\n", None, "1 of 2 rows has no label in column 'when'"),
        ("who,when,n\n", None, "There are no events"),
        (f'who,when,n\na,"{"b" * 140_000}', 2, "perhaps a quotation mark is not closed"),
        ("who,when,n\na,\0,1\n", 2, "NUL bytes"),
    ],
)
def test_broken_lines(text: str, line: int | None, message: str, tmp_path: Path) -> None:
    refused(put(tmp_path / "a.csv", text), message, line, **EVENTS)


def test_dates_of_a_file(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "who,when,n\na,31/1/2024,1\n")
    refused(path, "'when' holds '31/1/2024', which is no ISO date", **EVENTS, bins={"when": "day"})


def test_broken_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    refused(put(path, "PAR1"), "this is not a Parquet file, or it is damaged", **EVENTS)
    good = {"who": ["a"], "when": ["b"], "n": [1]}
    for change, message in (
        ({"n": ["x"]}, "column 'n' is of the type string; counts were expected"),
        ({"who": [[1]]}, "column 'who' is of the type list.*; labels were expected"),
        ({"n": [-1]}, "'n' holds -1 in row 0"),
        ({"who": pa.array([None], pa.string())}, "1 of 1 rows has no label in column 'who'"),
    ):
        pq.write_table(pa.table(good | change), path)
        refused(path, message, **EVENTS)
    pq.write_table(pa.table({"who": ["a"]}), path)
    refused(path, "there is no column 'when'", **EVENTS)
