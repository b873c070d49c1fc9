"""Texts and names on the command line: what is found, what is kept, and where results lie."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import EVERY_WORD, outcome
from klnmf import TopicModel, load_model
from klnmf.readers import CountTable, open_matrix, read_counts, write_counts
from klnmf.texts.pruning import OF_TEXTS
from topic_texts import texts_of_themes

TEXTS = ["the sea and the ship", "a sail on the sea", "corn in the field", "field of corn, sun"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def letters(name: str = "letters.csv") -> str:
    frame = pd.DataFrame({"no": list("abcd"), "year": [1816, 1817, 1818, 1819], "body": TEXTS})
    frame["party"] = ["x", "y", "x", "y"]
    if name.endswith(".parquet"):
        frame.to_parquet(name, index=False)
    else:
        frame.to_csv(name, index=False)
    return name


WORDS = ("--text-field", "body", "--id-field", "no", "-r", "2", *EVERY_WORD)


@pytest.mark.parametrize("name", ["letters.csv", "letters.parquet"])
def test_a_table_of_texts_is_fitted_with_its_metadata(name: str, capsys: Any) -> None:
    code, _, err = outcome(capsys, "fit", letters(name), *WORDS, "--stop-words", "english")
    assert code == 0
    assert "4 samples × 6 features" in err
    assert "\nmetadata: year, party\n" in err
    assert err.endswith("model: letters.klnmf\n")
    saved = load_model("letters.klnmf")
    assert saved.sample_metadata["year"] == [1816, 1817, 1818, 1819]
    assert saved.sample_metadata["excerpt"] == TEXTS
    assert list(saved.sample_names) == list("abcd")

    # New texts are read in the same way, from a table or not.
    Path("new.csv").write_text("no,body\nq,The SEA\n")
    code, out, _ = outcome(capsys, "transform", "letters.klnmf", "new.csv", "-o", "-")
    assert code == 0
    from_table = out.splitlines()[1].removeprefix("q,")
    Path("new.jsonl").write_text('{"body": "sea", "no": 1}\n')
    _, out, _ = outcome(capsys, "transform", "letters.klnmf", "new.jsonl", "-o", "-")
    assert out.splitlines()[1] == f"1,{from_table}"
    Path("new").mkdir()
    Path("new/a.txt").write_text("sea")
    _, out, _ = outcome(capsys, "transform", "letters.klnmf", "new", "-o", "-")
    assert out.splitlines()[1] == f"a.txt,{from_table}"
    # And a table of counts is one of counts.
    Path("counts.csv").write_text("row,column,count\nz,sea,1\n")
    words = ("transform", "letters.klnmf", "counts.csv", "--layout", "triplets", "-o", "-")
    _, out, _ = outcome(capsys, *words)
    assert out.splitlines()[1] == f"z,{from_table}"


def test_words_are_left_out_as_in_python_unless_a_model_knows_its_words(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, _ = texts_of_themes(40)
    frame = pd.DataFrame({"body": [f"the {text} word{i}" for i, text in enumerate(texts)]})
    frame.to_csv("t.csv", index=False)
    expected = TopicModel(2).fit(frame["body"].tolist())
    reading = ("t.csv", "--text-field", "body")
    code, _, err = outcome(capsys, "fit", *reading, "-r", 2)
    assert code == 0
    assert "are left out (--min-df 2 --max-df 0.5); --min-df 1 and --max-df 1.0 keep them" in err
    saved = load_model("t.klnmf")
    assert list(saved.feature_names) == list(expected.words_)
    assert saved.metadata["reading"] == {"text_field": "body", **OF_TEXTS}
    assert outcome(capsys, "prepare", *reading, "-o", "t.disk")[0] == 0
    assert list(open_matrix("t.disk").column_names) == list(expected.words_)
    # The words of the model are those of its data: a report has the W of the fit.
    with monkeypatch.context() as patch:
        patch.setattr("klnmf.cli.models.represent", None)
        assert outcome(capsys, "report", "t.klnmf", "t.csv", "-q")[0] == 0
    # What is converted is complete, and so are new texts: a single one has all its words.
    assert outcome(capsys, "convert", *reading, "-o", "t.npz")[0] == 0
    assert len(read_counts("t.npz").column_names) > len(expected.words_) + 40
    Path("new.csv").write_text("body\nship sail ship\n")
    err = outcome(capsys, "transform", "t.klnmf", "new.csv", "-o", "-")[2]
    assert "1 samples × 2 features" in err
    assert "left out" not in err


def test_a_file_of_stop_words_need_not_be_there_later(capsys: Any) -> None:
    Path("stop.txt").write_text("the\nsea\n")
    code, *_ = outcome(capsys, "fit", letters(), *WORDS, "--stop-words", "stop.txt")
    assert code == 0
    assert "sea" not in load_model("letters.klnmf").feature_names
    os.remove("stop.txt")
    assert outcome(capsys, "transform", "letters.klnmf", "letters.csv", "-o", "W.csv")[0] == 0
    code, _, err = outcome(capsys, "fit", letters(), *WORDS, "--stop-words", "none.txt", "--force")
    assert code == 1
    assert "--stop-words: 'none.txt' is neither a language nor a file" in err


def test_what_cannot_be_read_is_left_out_if_asked(capsys: Any) -> None:
    Path("docs.jsonl").write_bytes(b'{"text": "sea ship"}\n{"text": "\xff"}\n{"text": "corn"}\n')
    code, _, err = outcome(capsys, "fit", "docs.jsonl", "-r", 1)
    assert code == 1
    assert "docs.jsonl, line 2: " in err
    assert "add --skip-unreadable." in err
    code, _, err = outcome(capsys, "fit", "docs.jsonl", "-r", 1, *EVERY_WORD, "--skip-unreadable")
    assert code == 0
    assert "left out 1 document that cannot be read: line 2: b'\\xff" in err
    assert "2 samples" in err


@pytest.mark.parametrize(
    ("beside", "line"),
    [
        ({}, "no feature names: give --column-names FILE"),
        ({"x.vocab.txt": "abc", "x.labels.txt": "uv"}, "feature names from x.vocab.txt; labels fr"),
        ({"x.rows.txt": "uv", "x.columns.txt": "abc"}, "from x.columns.txt; sample names from x.r"),
    ],
)
def test_what_was_found_is_said(beside: dict[str, str], line: str, capsys: Any) -> None:
    write_counts(CountTable(np.ones((2, 3))), "x.npz")
    for name, letters in beside.items():
        Path(name).write_text("".join(f"{letter}\n" for letter in letters))
    code, _, err = outcome(capsys, "convert", "x.npz", "y.h5ad")
    assert code == 0
    assert line in err.splitlines()[1]
    assert "labels" not in line or "labels from x.labels.txt" in err


def test_labels_of_folders_are_said(capsys: Any) -> None:
    for name in ("a/1.txt", "b/2.txt"):
        Path(name).parent.mkdir()
        Path(name).write_text("sea ship")
    _, _, err = outcome(capsys, "fit", ".", "-r", 1, *EVERY_WORD, "-o", "m.klnmf")
    assert "\nlabels from 'folder'; metadata: folder\n" in err
    assert load_model("m.klnmf").metadata["label_column"] == "folder"


def test_results_lie_beside_their_data(capsys: Any) -> None:
    Path("deep/er").mkdir(parents=True)
    write_counts(CountTable(np.eye(4) + 1, None, list("abcd")), "deep/er/x.npz")
    _, _, err = outcome(capsys, "fit", "deep/er/x.npz", "-r", 1)
    assert err.endswith(f"model: {Path('deep/er/x.klnmf')}\n")
    _, _, err = outcome(capsys, "report", "deep/er/x.klnmf")
    assert err.endswith(f"report: {Path('deep/er/x.html')}\n")
    assert sorted(os.listdir("deep/er")) == ["x.columns.txt", "x.html", "x.klnmf", "x.npz"]
    assert os.listdir() == ["deep"]


def test_many_labels_do_not_fill_the_header(capsys: Any) -> None:
    n = 50_000
    records = ({"text": "sea ship", "kind": f"{i % 7}" + "k" * 100} for i in range(n))
    Path("d.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    words = ("fit", "d.jsonl", "-r", 1, "--label-field", "kind", "--max-iter", 1, "-q", *EVERY_WORD)
    assert outcome(capsys, *words)[0] == 0
    assert load_model("d.klnmf").sample_metadata["kind"][1] == "1" + "k" * 100


def test_a_prepared_matrix_is_not_pruned(capsys: Any) -> None:
    write_counts(CountTable(np.eye(4) + 1, None, list("abcd")), "x.npz")
    assert outcome(capsys, "prepare", "x.npz", "x.disk")[0] == 0
    code, _, err = outcome(capsys, "fit", "x.disk", "--min-df", 2)
    assert code == 1
    assert "cannot be left out: use --min-df with `klnmf prepare` instead" in err


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "x.npz", "-o", "out.txt"),
        ("convert", "x.npz", "out.xyz"),
        ("fit", "x.npz", "--normalize", "nfkc"),
        ("rank", "x.npz", "--labels", "kind"),
    ],
)
def test_an_invalid_command_line_has_the_code_2(words: tuple[str, ...], capsys: Any) -> None:
    write_counts(CountTable(np.eye(2)), "x.npz")
    try:
        code = outcome(capsys, *words)[0]
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2


def test_advice_of_prepare_is_its_own(capsys: Any) -> None:
    Path("d.jsonl").write_text('{"text": "sea", "id": "a\\nb"}\n')
    code, _, err = outcome(capsys, "prepare", "d.jsonl", "out", *EVERY_WORD, "--id-field", "id")
    assert code == 1
    assert err.endswith("in a file of one name per line. Change the name.\n")
    code, _, err = outcome(capsys, "convert", "d.jsonl", "out.npz", "--id-field", "id")
    assert err.endswith("Change the name, or write .h5ad or .parquet.\n")


def test_texts_without_spaces_get_the_options_that_help(capsys: Any) -> None:
    Path("zh.jsonl").write_text('{"text": "今天下雨明天下雪"}\n{"text": "今天下雨股市上涨"}\n')
    words = "fit", "zh.jsonl", "-r", 1, *EVERY_WORD, "-o"
    said = outcome(capsys, *words, "clauses.klnmf")[2]
    assert "2 of 2 texts have no spaces between words" in said
    advised = "--token-pattern '\\w' with --ngram-range 2,2"
    assert advised in said
    again = outcome(capsys, *words, "zh.klnmf", *shlex.split(advised.replace(" with ", " ")))
    assert again[0] == 0
    assert "no spaces" not in again[2]
    assert "今 天" in load_model("zh.klnmf").feature_names
