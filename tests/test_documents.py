"""Texts with names and metadata, from folders, .jsonl, .csv, .tsv and .parquet."""

from __future__ import annotations

import csv
import gzip
import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from klnmf.readers import CountTable, Documents, ReadError, read_counts, read_documents

TEXTS = ["The sea, the ship", 'She said "corn"\nand left', "märz sea"]
RECORDS = [
    {"id": f"d{i}", "party": party, "year": 1990 + i, "body": text}
    for i, (text, party) in enumerate(zip(TEXTS, ("a", "b", "a"), strict=True))
]
NAMED = {"text_field": "body", "id_field": "id"}


def written(path: Path) -> Path:
    """Write the records in the format of the name."""
    frame = pd.DataFrame(RECORDS)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(record)}\n" for record in RECORDS))
    else:
        delimiter = "\t" if ".tsv" in path.name else ","
        frame.to_csv(path, index=False, sep=delimiter)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet", "a.jsonl"])
def test_all_formats_give_the_same_documents_and_counts(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / name)
    assert read_documents(path, **NAMED, label_field="party") == Documents(
        TEXTS,
        ["d0", "d1", "d2"],
        {"party": ["a", "b", "a"], "year": [1990, 1991, 1992]},
        ["a", "b", "a"],
    )
    table = read_counts(path, **NAMED, label_field="party", min_df=2)
    assert table.column_names.tolist() == ["sea"]
    assert table.X.toarray().tolist() == [[1], [0], [1]]
    assert table.row_names.tolist() == ["d0", "d1", "d2"]
    assert table.labels.tolist() == ["a", "b", "a"]
    assert table.metadata == {"party": ["a", "b", "a"], "year": [1990, 1991, 1992]}
    assert table.excerpts == ["The sea, the ship", 'She said "corn" and left', "märz sea"]
    assert table.open_features


def test_files_of_a_folder_are_named_by_path_and_labelled_by_subfolder(tmp_path: Path) -> None:
    for name in ("b/two.txt", "a/one.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name[0] * 3)
    found = read_documents(tmp_path)
    assert found == Documents(
        ["aaa", "bbb"], ["a/one.txt", "b/two.txt"], {"folder": ["a", "b"]}, ["a", "b"]
    )
    assert repr(found) == "Documents(2 texts, with names, labels, metadata folder)"
    (tmp_path / "three.txt").write_text("ccc")
    found = read_documents(tmp_path)
    assert (len(found), found.labels, found.metadata) == (3, None, {})


def test_other_encodings_and_delimiters(tmp_path: Path) -> None:
    content = "text;ort\nmärz;Köln\nsee;Ulm\n" + "wald;Bonn\n" * 20_000
    for encoding in ("latin-1", "utf-16", "utf-8-sig", "utf-8"):
        path = tmp_path / f"{encoding}.csv"
        path.write_text(content, encoding=encoding)
        found = read_documents(path, text_field="text", delimiter=";", encoding=encoding)
        assert found.texts[:2] == ["märz", "see"]
        assert found.metadata["ort"][-1] == "Bonn"
        assert len(found) == 20_002
    (tmp_path / "bom.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "sea"}\n')
    assert read_documents(tmp_path / "bom.jsonl").texts == ["sea"]


def test_texts_are_normalised(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ﬁsh ca\u0301t \uff33\uff25\uff21")
    assert read_documents(tmp_path, normalize="NFKC").texts == ["fish cát SEA"]
    words = read_counts(tmp_path, normalize="NFKC").column_names.tolist()
    assert words == ["cát", "fish", "sea"]
    with pytest.raises(ValueError, match=r"normalize must be one of NFC, .*; got 'nfkc'"):
        read_documents(tmp_path, normalize="nfkc")


def test_documents_longer_than_the_limit_of_the_csv_module(tmp_path: Path) -> None:
    long = "sea " * 100_000
    (tmp_path / "a.csv").write_text(f"text,id\n{long},1\n")
    limit = csv.field_size_limit()
    assert read_documents(tmp_path / "a.csv", text_field="text").texts == [long]
    assert csv.field_size_limit() == limit


# ---- metadata ------------------------------------------------------------------------------------


def test_metadata_are_plain_values(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"text": "a", "list": [1], "kept": True, "x": 0.5, "mixed": 1, "zip": "0123", "n": "7"},
        {"text": "b", "kept": None, "mixed": [2], "zip": "456", "n": "8", "empty": ""},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    assert read_documents(path).metadata == {
        "kept": [True, None],
        "x": [0.5, None],
        "mixed": [1, None],
        "zip": ["0123", "456"],
        "n": [7, 8],
    }


def test_fields_of_few_documents_do_not_become_columns(tmp_path: Path) -> None:
    records = [{"text": "sea", f"field {i}": i} for i in range(100)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    assert read_documents(path).metadata == {}


def test_types_of_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "text": ["a", "b"],
            "day": pd.to_datetime(["2020-01-31", None]),
            "hour": [datetime(2020, 1, 31, 12), datetime(2020, 1, 31, 13, 30)],
            "kind": pd.Categorical(["x", "y"]),
            "nan": [np.nan, 1.5],
            "list": [[1], [2, 3]],
        },
        index=["one", "two"],
    )
    frame.to_parquet(tmp_path / "a.parquet")
    found = read_documents(tmp_path / "a.parquet", text_field="text")
    assert found.names == ["one", "two"]
    assert found.metadata == {
        "day": ["2020-01-31", None],
        "hour": ["2020-01-31T12:00:00", "2020-01-31T13:30:00"],
        "kind": ["x", "y"],
        "nan": [None, 1.5],
    }


def test_a_table_checks_its_metadata() -> None:
    table = CountTable([[1], [2]], metadata={"year": np.array([1, 2])}, excerpts=("a", "b"))
    assert (table.metadata, table.excerpts) == ({"year": [1, 2]}, ["a", "b"])
    assert repr(table) == "CountTable(2 × 1, 2 nonzeros, with metadata year)"
    assert CountTable([[1]]).metadata == {}
    for wrong in ({"metadata": {"year": [1]}}, {"excerpts": ["a"]}):
        with pytest.raises(ValueError, match=r"(year|excerpts) has 1 values for 2 rows"):
            CountTable([[1], [2]], **wrong)


# ---- what cannot be read -------------------------------------------------------------------------


def refused(path: Path, message: str, **options: Any) -> None:
    for read in (read_documents, read_counts):
        with pytest.raises(ReadError, match=message):
            read(path, **options)


def left_out(caplog: pytest.LogCaptureFixture, path: Path, **options: Any) -> tuple[list[str], str]:
    """Texts that are read, and the one warning."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "klnmf.readers"):
        texts = read_documents(path, skip_unreadable=True, **options).texts
    [record] = caplog.records
    return texts, record.getMessage()


def test_unreadable_files_are_left_out_if_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, content in {
        "a.txt": b"sea",
        "b.txt": b"m\xe4rz",
        "c.txt": gzip.compress(b"x" * 999)[:-9],
    }.items():
        (tmp_path / name).write_bytes(content)
    refused(tmp_path, r"b.txt, line 1: b'\\xe4rz' is not utf-8.*add skip_unreadable=True")
    texts, warning = left_out(caplog, tmp_path)
    assert texts == ["sea"]
    assert r"read: b.txt, line 1: b'\xe4rz' is not utf-8 text; c.txt, line 1: the comp" in warning
    assert "c.txt, line 1: the compressed data are damaged" in warning
    (tmp_path / "a.txt").unlink()
    refused(tmp_path, "no documents that can be read; left out 2 documents", skip_unreadable=True)


def test_unreadable_records_are_left_out_if_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [b"[1]", b"{", b'{"text": 1}', b'{"body": "x"}', b'{"text": "\xff"}', b"\x00"]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "sea"}\n' + b"\n".join(bad) + b'\n{"text": "corn"}\n')
    refused(path, r"line 2: '\[1\]' is not an object.*add skip_unreadable=True")
    texts, warning = left_out(caplog, path)
    assert texts == ["sea", "corn"]
    assert "left out 6 documents that cannot be read: line 2: '[1]' is not" in warning
    assert all(f"; line {line}: " in warning for line in range(3, 8))  # every one is named

    path = tmp_path / "a.csv"
    path.write_bytes(b'text,id\nsea,1\n"a"b,2\nx,y,z\nm\xe4rz,4\n"two\nlines",5\nq\n')
    refused(path, "line 3: the record cannot be parsed: ',' expected", text_field="text")
    texts, warning = left_out(caplog, path, text_field="text")
    assert texts == ["sea", "two\nlines"]
    assert "left out 4 documents" in warning
    assert r"line 5: b'\xe4rz,4' is not utf-8 text" in warning

    path = tmp_path / "a.parquet"
    pd.DataFrame({"text": [1, 2]}).to_parquet(path)
    refused(path, "row 0: field 'text' holds '1', not a text", text_field="text")


def test_what_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for content, message in {
        b"text,id\n": "there are no documents",
        b"text,text\na,b\n": "line 1: two columns have the name 'text'",
        b"body,id\na,b\n": "no field 'text'; the fields are: 'body', 'id'. Choose one of them",
        b"text;id\na;b\n": "another character than ',' separates the fields.*delimiter=';'",
        b'text,id\na,1\nb,"2\nc,3\n': "line 3: a quotation mark is opened here and not closed",
        b"\xff\n": r"line 1: b'\\xff.*' is not utf-8 text",
        b"a\rb\n": "line 1: the record cannot be parsed",
    }.items():
        path.write_bytes(content)
        refused(path, message, text_field="text", skip_unreadable=True)
    path.write_text("id,bdy\na,b\n")
    question = r"no field 'body'; the fields are: 'id', 'bdy'. Did you mean text_field='bdy'\?"
    refused(path, question, text_field="body")
    with pytest.raises(ReadError, match=r"no field 'text'; .* Choose one of them with text_field"):
        read_documents(path)
    # As slow as the square of the number of fields, this would take hours.
    path.write_text(",".join([*map(str, range(200_000)), "x" * 1_000_000]) + "\n1\n")
    with pytest.raises(ReadError, match="no field 'text'"):
        read_documents(path)
    frame = pd.DataFrame({"text": [[1], [2]], "id": [1, 2]})
    frame.to_parquet(tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "'text' is of the type list<.*strings were", text_field="text")
    refused(tmp_path / "a.parquet", "row 0: field 'id' holds '1', not a text", text_field="id")
    refused(tmp_path / "a.parquet", "there is no field 'x'", text_field="x")


def test_advice_on_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for encoding in ("utf-16", "latin-1"):
        path.write_text("text,id\nmärz,1\n", encoding=encoding)
        refused(path, f"name it, for example encoding='{encoding}'", text_field="text")
        assert read_documents(path, text_field="text", encoding=encoding).texts == ["märz"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "utf-16"])
@pytest.mark.parametrize("content", [b"\x7fELF\2\1\1\0\0sea\n" * 9, b"%PDF-1.7\n%\xe2\xe3\xcf!\n"])
def test_binary_files_are_not_texts(content: bytes, encoding: str, tmp_path: Path) -> None:
    message = "line 1: it has NUL bytes, .*binary" if b"\0" in content else "this is a PDF file"
    message = "|".join([message, "is not utf-16 text"] if encoding == "utf-16" else [message])
    (tmp_path / "a.txt").write_bytes(content)
    refused(tmp_path, message, encoding=encoding)
    with pytest.raises(ReadError, match=message):
        read_counts(tmp_path / "a.txt", format="csv", encoding=encoding)
    (tmp_path / "a.csv").write_bytes(b"text\nsea\ncorn\0\n")
    if encoding != "utf-16":
        refused(tmp_path / "a.csv", "line 3: it has NUL", text_field="text", encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_wide_text_is_text(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("the sea\nthe corn\n".encode(encoding))
    assert read_documents(tmp_path, encoding=encoding).texts == ["the sea\nthe corn\n"]
    for other in ("utf-8", "latin-1"):
        refused(tmp_path, f"is not {other} text.*example encoding='{encoding}'", encoding=other)


def test_names_that_cannot_be_stored_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "sea \\ud800", "id": "\\udcff", "k\\ud800": "\\ud800"}\n')
    found = read_documents(path, id_field="id")
    assert found == Documents(["sea �"], ["�"], {"k�": ["�"]})
