"""Names in .csv and .tsv files: no spreadsheet runs them, and they come back as they were."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from commands import outcome
from klnmf import KLNMF, load_model
from klnmf.readers import CountTable, prepare, read_counts, write_counts
from klnmf.support.spreadsheet_cells import as_cell, from_cell
from reader_checks import assert_same

FORMULAS = ["=cmd|' /C calc'!A0", "+1-1", "-sea", "@SUM(1)", "\t=1", "\r=1", "'=x", "''@", "－1a"]
HARMLESS = ["sea", "a=b", "'tis", "'", "-5", "+1.5e-3", "", "1-2"]


def looks_like_formula(cell: str) -> bool:
    """As a spreadsheet judges it: by the first character, unless it is a number."""
    try:
        float(cell)
    except ValueError:
        return cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")
    return False


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_are_written_as_text(name: str) -> None:
    assert as_cell(name) == f"'{name}"
    assert from_cell(as_cell(name)) == name


@pytest.mark.parametrize("value", [*HARMLESS, -1.5, 3, None])
def test_all_else_is_written_as_it_is(value: Any) -> None:
    assert as_cell(value) == value


@given(st.one_of(st.text(), st.text("'=+-@\t1", max_size=5)))
def test_any_name_comes_back(name: str) -> None:
    cell = as_cell(name)
    assert from_cell(cell) == name
    assert not looks_like_formula(cell)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz"])
def test_counts_come_back_with_their_names(tmp_path: Path, ending: str) -> None:
    names = [*FORMULAS, *(name for name in HARMLESS if name)]
    n = len(names)
    table = CountTable(np.arange(1, n * n + 1).reshape(n, n), names, names[::-1])
    path = tmp_path / f"counts{ending}"
    write_counts(table, path)
    assert_same(read_counts(path), table)
    content = path.read_bytes()
    text = (gzip.decompress(content) if ending.endswith(".gz") else content).decode()
    cells = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if "tsv" in ending else ",")
    assert not [cell for row in cells for cell in row if looks_like_formula(cell)]


def test_a_prepared_matrix_has_the_names_too(tmp_path: Path) -> None:
    names = ["=1+1", "'-a", "sea"]
    write_counts(CountTable(np.eye(3), names, names), tmp_path / "counts.csv")
    matrix = prepare(tmp_path / "counts.csv", tmp_path / "disk")
    assert matrix.row_names.tolist() == matrix.column_names.tolist() == names


def test_names_of_a_table_come_back_too(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("doc,'=1,'@x\n'-a,1,0\nb,2,3\n")
    assert_same(read_counts(path), CountTable([[1, 0], [2, 3]], ["-a", "b"], ["=1", "@x"]))


def test_one_name_escaped_and_not_is_one_name(tmp_path: Path) -> None:
    path = tmp_path / "triplets.csv"
    path.write_text("row,column,count\na,'=1,2\na,=1,3\nb,sea,1\n")
    assert_same(read_counts(path), CountTable([[5, 0], [0, 1]], ["a", "b"], ["=1", "sea"]))


def test_tables_of_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    X = sp.csr_array(np.random.default_rng(0).poisson(2.0, (len(FORMULAS), len(FORMULAS))))
    write_counts(CountTable(X, FORMULAS, FORMULAS), "counts.parquet")
    model = KLNMF(2, random_state=0)
    W = model.fit_transform(X)
    model.save("m.klnmf", W=W, sample_names=FORMULAS, feature_names=FORMULAS)
    for words in (
        ["transform", "m.klnmf", "counts.parquet", "-o", "-"],
        ["topics", "m.klnmf", "--csv", "--by", "relevance"],
    ):
        code, out, _ = outcome(capsys, *words)
        assert code == 0
        rows = list(csv.reader(io.StringIO(out, newline="")))
        assert not [cell for row in rows for cell in row if looks_like_formula(cell)]
        assert {from_cell(cell) for row in rows for cell in row} >= set(FORMULAS)
    assert any(float(row[-1]) < 0 for row in rows[1:])  # relevances, which stay numbers
    assert list(load_model("m.klnmf").feature_names) == FORMULAS
