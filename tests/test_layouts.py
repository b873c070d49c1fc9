"""Tables, triplets and texts in .csv and .parquet files are told apart, or the reader asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import outcome
from klnmf.readers import CountTable, read_counts
from reader_checks import assert_same, refused

FRAME = pd.DataFrame([[3, 0, 1], [3, 2, 0], [5, 0, 7], [1, 1, 1]], columns=["ape", "bee", "cat"])


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# ---- the first column ----------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 3])
def test_a_first_column_of_numbers_is_asked_about(width: int, tmp_path: Path) -> None:
    path, frame = tmp_path / "a.csv", FRAME[FRAME.columns[:width]]
    frame.to_csv(path, index=False)
    question = {2: "'ape' holds numbers, which may be names", 3: "has '3' more than once"}[width]
    refused(path, None, question)
    found = read_counts(path, index=False)
    assert_same(found, CountTable(frame.to_numpy(), None, list(frame.columns)))
    found = read_counts(path, index=True)
    assert_same(found, CountTable(frame.to_numpy()[:, 1:], list("3351"), list(frame.columns[1:])))
    frame.to_parquet(tmp_path / "a.parquet")
    if width == 2:
        assert read_counts(tmp_path / "a.parquet").shape == (4, 2)
    else:
        refused(tmp_path / "a.parquet", None, "the first of its three columns has '3' more than")
        assert read_counts(tmp_path / "a.parquet", layout="table").shape == (4, 3)


@pytest.mark.parametrize(
    "text",
    [
        ",a,b\n7,1,2\n9,3,4\n",  # pandas
        '"a","b"\n"7",1,2\n"9",3,4\n',  # R
        "doc_id,a,b\n7,1,2\n9,3,4\n",
        "sample,a,b\n7,1,2\n9,3,4\n",
        "x,a,b\n0,1,2\n1,3,4\n2,0,0\n",
        "x,a,b\n1,1,2\n2,3,4\n3,0,0\n",
    ],
)
def test_names_that_are_numbers(text: str, tmp_path: Path) -> None:
    found = read_counts(written(tmp_path / "a.csv", text))
    assert found.shape[1] == 2
    assert found.column_names.tolist() == ["a", "b"]
    assert found.row_names.tolist()[0] in ("0", "1", "7")


def test_ids_in_parquet_are_names(tmp_path: Path) -> None:
    frame = pd.DataFrame({"doc_id": [7, 9], "a": [1, 2], "b": [3, 4], "c": [5, 6]})
    frame.to_parquet(tmp_path / "a.parquet")
    found = read_counts(tmp_path / "a.parquet")
    assert_same(found, CountTable(frame.to_numpy()[:, 1:], ["7", "9"], ["a", "b", "c"]))


def test_names_that_are_missing_in_parquet_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": ["x", None], "a": [1, 2], "b": [3, 4], "c": [5, 6]})
    frame.to_parquet(tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", None, "row 1, column 'name' is empty")


def test_a_first_line_of_numbers_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    np.savetxt(path, FRAME.to_numpy(), fmt="%d", delimiter=",")
    path.write_text(path.read_text().replace("\n", ",4\n"))
    refused(path, None, "the first line holds numbers.* Add header=True .*, header=False if")
    assert read_counts(path, header=False, index=False).shape == (4, 4)
    pd.DataFrame(np.ones((3, 5), int)).to_csv(path, index=False)
    assert read_counts(path, index=False).column_names.tolist() == list("01234")


# ---- triplets ------------------------------------------------------------------------------------


def test_triplets_whose_rows_repeat_late_are_asked_about(tmp_path: Path) -> None:
    rows = [f"cell{i}" for i in range(1500)] * 2
    lines = [f"{row},{7 + i // 1500},1" for i, row in enumerate(rows)]
    path = written(tmp_path / "a.csv", "cell,gene,x\n" + "\n".join(lines))
    refused(path, None, "has 'cell0' more than once.*add layout='triplets'.*layout='table'")
    assert read_counts(path, layout="triplets").shape == (1500, 2)
    assert read_counts(path, layout="table").shape == (3000, 2)
    path.write_text(path.read_text().replace("cell,gene,x", "cell,gene,count"))
    assert read_counts(path).shape == (1500, 2)


def test_columns_of_ids_are_triplets(tmp_path: Path) -> None:
    text = "userId,movieId,stars\n1,7,4\n1,8,5\n2,7,1\n"
    path = written(tmp_path / "a.csv", text)
    assert_same(read_counts(path), CountTable([[4, 5], [1, 0]], ["1", "2"], ["7", "8"]))
    path.write_text("\n".join(f"{line},99" for line in text.split()).replace("stars,99", "stars,t"))
    refused(path, None, r"name those to read, for example columns=\['userId', 'movieId', 'stars'\]")
    assert read_counts(path, columns=["userId", "movieId", "stars"]).shape == (2, 2)
    pd.read_csv(path).to_parquet(tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", None, "look like the rows and columns of triplets")


def test_a_short_line_of_triplets(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "row,column,count\na,x\nb,y,2\n")
    refused(path, 2, r"expected 3 fields \(row, column, count\), found 2: 'a \| x'")


@pytest.mark.parametrize("number", ["1_000", "٣", "1e", "0x1"])
@pytest.mark.parametrize("line", ["x,sea,{}", "x,{},2"])
def test_numbers_of_python_alone_are_refused(number: str, line: str, tmp_path: Path) -> None:
    header = "d,w,n\ny,ship,2\n" if "sea" in line else "name,a,b\ny,1,2\n"
    path = written(tmp_path / "a.csv", header + line.format(number))
    refused(path, 3, f"holds '{number}'; a count was expected")


# ---- texts ---------------------------------------------------------------------------------------

LONG = "a sentence of some more words than names have"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("text,id\nthe sea,1\na ship,2\n", "text"),
        (f"id,said\n1,{LONG}\n2,{LONG}\n", "said"),
        (f"id,said,stars\n1,{LONG},5\n2,{LONG},3\n", "said"),  # not triplets
        (f"title,abstract,year\nthe sea,{LONG},1999\n", "abstract"),
        ("what,n\nwe like it,1\nnot so good,2\n", "what"),  # a single feature
    ],
)
def test_texts_are_not_fitted_as_counts(
    text: str, column: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "a.csv", text)
    refused(path, None, f"looks like texts .column '{column}'.*add text_field='{column}'")
    pd.read_csv(path).to_parquet(tmp_path / "a.parquet", index=False)
    refused(tmp_path / "a.parquet", None, f"add text_field='{column}'")
    code, _, err = outcome(capsys, "fit", "a.csv")
    assert code == 1
    assert f"add --text-field {column} to count their words" in err
    assert read_counts(path, text_field=column).shape[1] > 1


def test_long_names_can_be_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", f"gene,a,b\n{LONG},1,2\nx {LONG},3,4\n")
    refused(path, None, "If these are counts after all, add layout='table'")
    assert read_counts(path, layout="table").shape == (2, 2)


def test_a_table_with_words_in_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "name,a,b,c\nx,1,2,high\n")
    refused(path, 2, r"column 'c' holds 'high'; a count was expected.* add text_field='NAME'")
    path.write_text("name,a\n" + "x" * 200_000 + ",1\n")
    refused(path, 2, "or if this is a file of texts, add text_field='NAME'")
