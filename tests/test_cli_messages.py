"""What commands say when something is wrong: in one line, in words of the command line."""

from __future__ import annotations

import argparse
import ast
import errno
import json
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import klnmf
from cli_files import WORDS, counts_file, model_file, write_counts_file  # noqa: F401 (fixtures)
from commands import EVERY_WORD, outcome
from klnmf import load_model
from klnmf.cli.main import build_parser
from klnmf.cli.messages import one_line
from klnmf.cli.parser import spelling_of
from klnmf.readers import CountTable, write_counts
from klnmf.support.option_names import option, options_in_use, spelled_by


def failed(capsys: Any, *words: Any, code: int = 1) -> str:
    """The one line that a command fails with."""
    found, out, err = outcome(capsys, *words)
    assert found == code
    assert out == ""
    assert err.count("\n") == 1, err
    return str(err)


# ---- options in messages -------------------------------------------------------------------------


def commands() -> dict[str, argparse.ArgumentParser]:
    parser = build_parser("0")
    assert parser._subparsers is not None
    found: dict[str, argparse.ArgumentParser] = parser._subparsers._group_actions[0].choices  # type: ignore[assignment]
    return found


def sources(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    root = Path(klnmf.__file__).parent
    for folder in folders:
        for file in sorted((root / folder).rglob("*.py")):
            yield file, ast.parse(file.read_text(encoding="utf-8"))


def test_python_and_the_command_line_spell_options_in_their_own_way() -> None:
    assert option("layer", "counts") == "layer='counts'"

    def shouted(name: str, value: tuple[Any, ...]) -> str | None:
        return None if name == "missing" else f"/{name.upper()}{value}"

    with spelled_by(shouted):
        assert option("layer", "counts") == "/LAYER('counts',)"
        assert option("missing", 1) == "missing=1"  # which the command line does not have
        assert options_in_use(["missing", "layer"]) == ["/LAYER()"]
    assert option("layer") == "layer"
    assert options_in_use(["missing", "layer"]) == ["missing", "layer"]


def test_every_option_that_a_message_names_exists() -> None:
    named = {
        node.args[0].value
        for _, tree in sources(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "option"
        and isinstance(node.args[0], ast.Constant)
    }
    assert {"encoding", "delimiter", "format", "layer", "max_iter"} <= named
    parsers = commands().values()
    assert [name for name in named if not any(spelling_of(p)(str(name), ()) for p in parsers)] == []


def test_readers_never_write_an_argument_of_python_into_a_message() -> None:
    names = {action.dest for action in commands()["fit"]._actions if action.option_strings}
    for file, tree in sources("readers", "texts"):
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and isinstance(node.body[0], ast.Expr)
        }
        texts = [
            str(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ]
        found = [(text, name) for text in texts for name in names if f"{name}=" in text]
        assert not found, file


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit a.csv --min-df 0", "--min-df must be a number of samples (1, 2, ...) or a share of"),
        ("fit a.csv --encoding klingon", "--encoding must name an encoding of text, such as utf-8"),
        ("fit a.csv --columns a", "--columns must name the columns of row, column and count, or"),
        ("prepare a.csv out --memory foo", "--memory must be a number of bytes, or a size such as"),
    ],
)
def test_readers_refuse_wrong_values_of_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("row,column,count\na,sea,1\n")
    assert message in failed(capsys, *words.split())


def test_advice_of_readers_can_be_followed(counts: Path, capsys: Any) -> None:
    Path("latin.csv").write_bytes("row,column,count\na,märz,2\nb,sea,1\n".encode("latin-1"))
    assert "for example --encoding latin-1." in failed(capsys, "fit", "latin.csv")
    words = ["fit", "latin.csv", "--encoding", "latin-1", "-r", 1, "-q"]
    assert outcome(capsys, *words)[0] == 0
    assert list(load_model("latin.klnmf").feature_names) == ["märz", "sea"]

    Path("semi.csv").write_text("doc;sea;corn\na;1;2\nb;3;0\n")
    assert "for example --delimiter ';'." in failed(capsys, "fit", "semi.csv")
    assert outcome(capsys, "fit", "semi.csv", "--delimiter", ";", "-r", 1)[0] == 0

    Path("docs.jsonl").write_text('{"body": "sea ship"}\n{"body": "corn"}\n')
    assert "Did you mean --text-field body?" in failed(capsys, "fit", "docs.jsonl")

    Path("plain.txt").write_text("1,2\n3,4\n")
    assert "add for example --format csv;" in failed(capsys, "fit", "plain.txt")
    words = ["convert", "plain.txt", "plain.mtx", "--format", "csv", "--no-header", "--no-index"]
    code, _, err = outcome(capsys, *words)
    assert code == 0
    assert "2 samples × 2 features" in err

    line = failed(capsys, "fit", counts, "--text-field", "text")
    assert line.endswith(
        "--text-field cannot be used with the format 'npz'. Its options: --column-names, --max-df, "
        "--max-features, --min-df, --row-names, --stop-words.\n"
    )


def test_columns_of_triplets_by_name(counts: Path, capsys: Any) -> None:
    Path("log.csv").write_text("day,doc,word\n1,a,sea\n1,a,sea\n2,b,corn\n")
    code, _, err = outcome(capsys, "convert", "log.csv", "log.npz", "--columns", "doc,word")
    assert code == 0
    assert "2 samples × 2 features, 2 nonzeros" in err
    line = failed(capsys, "convert", "log.csv", "a.npz", "--columns", "a,b", "--layout", "table")
    assert "--columns names the columns of triplets, and cannot be used with --layout table" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit a.npz --rank=5", "no option --rank; did you mean -r or -k or --n-components?"),
        ("consensus a.npz --topics 5", "did you mean -r or -k or --n-components?"),
        ("rank a.npz --n-jobs 2", "there is no option --n-jobs; did you mean --jobs?"),
        ("fit a.csv --text-column body", "no option --text-column; did you mean --text-field?"),
        ("fit a.npz --tols 5", "there is no option --tols; did you mean --tol?"),
        ("ft a.npz", "klnmf: error: there is no command 'ft'. Did you mean fit?"),
        ("zzz", "there is no command 'zzz'. Choose one of: rank, fit, "),
        ("fit a.npz --solver srdc", "there is no 'srdc'. Did you mean srcd?"),
        ("fit a.csv --ngram-range 1-2", "must be like 1,2, which counts words and pairs of words"),
        ("fit a.csv --stop-words english german", "too many: 'german'. If an option has several"),
        ("topics m --zzz", "klnmf topics: error: there is no option --zzz\n"),
        ("fit a.csv --delimiter ab", "must be one character such as ';'"),
    ],
)
def test_wrong_options_are_told_what_was_meant(capsys: Any, words: str, message: str) -> None:
    code, out, err = outcome(capsys, *words.split())
    assert code == 2
    assert out == ""
    assert err.count("\n") == 2  # one of usage
    assert message in err


# ---- files ---------------------------------------------------------------------------------------


def test_a_model_for_data_and_data_for_a_model(model: Path, counts: Path, capsys: Any) -> None:
    assert "MODEL must be a file written by `klnmf fit` or" in failed(capsys, "topics", counts)
    for words in (
        ["fit", model], ["prepare", model, "out"], ["transform", counts, model, "-o", "W.csv"],
    ):  # fmt: skip
        assert "model.klnmf: this is a model written by klnmf, not data." in failed(capsys, *words)


@pytest.mark.parametrize(
    "words",
    [
        "fit nowhere.npz -o model.klnmf",
        "rank nowhere.npz -o model.klnmf",
        "consensus nowhere.npz -o model.klnmf",
        "convert nowhere.npz counts.npz",
        "prepare nowhere.npz model.klnmf",
        "transform model.klnmf nowhere.npz -o no/W.csv",
        "report nowhere.npz -o model.pdf",
        "report model.klnmf --rank nowhere.npz -o x.pdf",
        "fit counts.npz --column-names nowhere.npz -o model.klnmf",
    ],
)
def test_absent_inputs_are_reported_before_existing_outputs(
    model: Path, capsys: Any, words: str
) -> None:
    assert failed(capsys, *words.split()).startswith(
        "klnmf: error: There is no file 'nowhere.npz'."
    )


@pytest.mark.parametrize(
    ("words", "endings"),
    [
        ("fit counts.npz --report x.pdf", ".html or .htm"),
        ("fit counts.npz -o W.csv", ".klnmf"),
        ("consensus counts.npz -o W.csv", ".klnmf"),
        ("consensus counts.npz --result all.json", ".klnmf"),
        ("consensus counts.npz --plot c.html", ".png, .pdf or .svg"),
        ("rank counts.npz -o rank.csv", ".json"),
        ("rank counts.npz --plot r.html", ".png, .pdf or .svg"),
        ("report model.klnmf -o r.pdf", ".html or .htm"),
        ("topics model.klnmf -o t.xlsx", ".txt, .csv, .tsv or .json"),
        ("transform model.klnmf counts.npz -o W.xlsx", ".csv, .tsv, .npz or .npy"),
    ],
)
def test_names_that_say_something_else_are_refused_before_the_work(
    model: Path, capsys: Any, words: str, endings: str
) -> None:
    before = sorted(os.listdir())
    line = failed(capsys, *words.split(), code=2)
    assert line.endswith(f" as {endings}; choose such a name.\n")
    assert sorted(os.listdir()) == before
    line = failed(capsys, "convert", "counts.npz", "out.xlsx", code=2)
    assert "cannot be inferred from the name. Use one of the endings .npz, .mtx" in line


def test_topics_are_written_by_the_ending(model: Path, capsys: Any) -> None:
    for name in ("t.csv", "t.tsv", "t.json", "t.txt"):
        assert outcome(capsys, "topics", model, "-o", name)[0] == 0
    assert Path("t.csv").read_text().startswith("component,share,")
    assert Path("t.tsv").read_text().startswith("component\tshare\t")
    assert json.loads(Path("t.json").read_text())[0]["component"] == 0
    assert Path("t.txt").read_text().startswith("component  share  top")
    assert outcome(capsys, "topics", model, "--csv", "-o", "u.json")[0] == 0
    assert Path("u.json").read_text() == Path("t.json").read_text()  # the name decides


def test_folders_and_pipes_in_the_place_of_files(counts: Path, capsys: Any) -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe.csv")
    assert "pipe.csv is not a regular file." in failed(capsys, "fit", "pipe.csv")
    assert "folder is not a file." in failed(capsys, "topics", "folder")
    assert "this is a folder, but the format 'npz' is a file." in failed(
        capsys, "fit", "folder", "--format", "npz"
    )
    assert "this is a file, but the format 'texts' is a folder." in failed(
        capsys, "fit", counts, "--format", "texts"
    )
    assert "the name of an input file is empty" in failed(capsys, "fit", "")
    Path("loop.klnmf").symlink_to("loop.klnmf")
    line = failed(capsys, "fit", counts, "-o", "loop.klnmf")
    assert "loop.klnmf is a link that leads back to itself. Choose another path." in line


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyError("a"), RecursionError(), AttributeError("x\ny")])
def test_unexpected_errors_are_one_line_and_a_traceback_on_request(
    counts: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("klnmf.cli.data.read_counts", broken)
    line = failed(capsys, "fit", counts)
    assert line.startswith(f"klnmf: internal error: {type(error).__name__}: ")
    assert "please report it with what KLNMF_DEBUG=1 klnmf ... prints" in line
    monkeypatch.setenv("KLNMF_DEBUG", "1")
    code, _, err = outcome(capsys, "fit", counts)
    assert code == 1
    assert err.startswith("Traceback")
    assert "in broken" in err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a.npz"), "a.npz: No space left"),
        (MemoryError(), "not enough memory."),
        (ImportError("install x"), "install x"),
        (ValueError("\x1b[2Jgone\nand more"), r"\x1b[2Jgone and more"),
    ],
)
def test_expected_errors_in_one_line(error: Exception, line: str) -> None:
    assert one_line(error).startswith(line)


def test_a_full_disk_under_standard_output(model: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "klnmf", "topics", str(model)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == "klnmf: error: standard output: No space left on device\n"


@pytest.mark.parametrize("reading", ["x", 5, ["layer"], {"ngram_range": {"a": 1}, "zzz": None}])
def test_strange_metadata_of_a_model_do_not_matter(counts: Path, capsys: Any, reading: Any) -> None:
    Path("docs.jsonl").write_text('{"text": "sea ship sea"}\n{"text": "corn field"}\n')
    assert outcome(capsys, "fit", "docs.jsonl", *EVERY_WORD, "-r", 2, "-o", "m.klnmf")[0] == 0
    saved = load_model("m.klnmf")
    saved.model.save(
        "m.klnmf",
        W=saved.W,
        feature_names=saved.feature_names,
        metadata={"reading": reading, "labels": 7, "input": ["x"], "consensus": "y"},
    )
    code, _, err = outcome(capsys, "transform", "m.klnmf", "docs.jsonl", "-o", "W.csv")
    assert code == 0, err
    assert outcome(capsys, "report", "m.klnmf", "-o", "r.html")[0] == 0


# ---- warnings ------------------------------------------------------------------------------------


def test_warnings_are_one_line_and_come_once(
    counts: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned(*_: Any) -> int:
        for _ in range(2):
            warnings.warn("two\nlines", UserWarning, stacklevel=1)
        warnings.warn("two\nlines", RuntimeWarning, stacklevel=1)
        warnings.warn("for programmers", DeprecationWarning, stacklevel=1)
        warnings.warn("for programmers", FutureWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("klnmf.cli.fit.run", warned)
    assert outcome(capsys, "fit", counts) == (0, "", "klnmf: warning: two lines\n")


def test_empty_samples_are_named(counts: Path, capsys: Any) -> None:
    X = sp.load_npz(counts).toarray()
    X[[3, 50]] = 0
    names = [f"doc{i}" for i in range(60)]
    write_counts(CountTable(X, names, WORDS), "holes.csv")
    line = "klnmf: warning: 2 of 60 samples have no counts: rows 3 ('doc3'), 50 ('doc50'). They"
    for words in (
        ["fit", "holes.csv", "-r", 2],
        ["consensus", "holes.csv", "-r", 2, "--runs", 2],
        ["rank", "holes.csv", "--ranks", "1", "--splits", 2],
    ):
        err = outcome(capsys, *words)[2]
        assert line in err
        assert err.count("no counts") == 1
    assert outcome(capsys, "prepare", "holes.csv", "holes.disk")[0] == 0
    assert line in outcome(capsys, "fit", "holes.disk", "-r", 2, "--force")[2]
    assert "no counts" not in outcome(capsys, "convert", "holes.csv", "holes.npz")[2]
    assert "no counts" not in outcome(capsys, "fit", counts, "-r", 2)[2]


def test_warnings_name_options_of_the_command_line(counts: Path, capsys: Any) -> None:
    err = outcome(capsys, "fit", counts, "-r", 40, "--max-iter", 1)[2]
    assert "Use a smaller --n-components." in err
    assert "stopped at --max-iter 1 with an optimality gap of" in err
    for values, wrong in (
        (np.ones(3), "must have one number for each sample, shape (60,); got (3,)."),
        (-np.ones(60), "must be finite and nonnegative"),
    ):
        np.savetxt("weights.txt", values)
        err = outcome(capsys, "fit", counts, "--sample-weight", "weights.txt", "-o", "w.klnmf")[2]
        assert f"klnmf: error: --sample-weight {wrong}" in err


@pytest.mark.parametrize("is_dense", [False, True])
def test_other_layers_are_named_where_fractions_are_read(
    is_dense: bool, counts: Path, capsys: Any
) -> None:
    anndata = pytest.importorskip("anndata")
    X = sp.csr_matrix(sp.load_npz(counts))
    logs = X.astype(np.float64).log1p()
    layers = {"raw counts": X.toarray() if is_dense else X, "again": logs}
    anndata.AnnData(logs, layers=layers).write_h5ad("cells.h5ad")
    line = (
        f"klnmf: warning: X of cells.h5ad holds fractions (for instance {logs.data[0]:.4g}) and "
        "looks log-transformed: the values are log(1 + x) of counts or of normalised counts. The "
        "model is for raw counts. Other matrices of this file: "
        "again, raw counts; for example --layer 'raw counts'.\n"
    )
    err = outcome(capsys, "fit", "cells.h5ad", "-r", 2)[2]
    assert line in err
    assert err.count("looks log-transformed") == 1  # the fit does not say it again
    assert line in outcome(capsys, "rank", "cells.h5ad", "--ranks", "1-2", "--splits", 2)[2]
    words = ["fit", "cells.h5ad", "-r", 2, "--force", "--layer"]
    assert "Other matrices" not in outcome(capsys, *words, "raw counts")[2]
    assert "again of cells.h5ad holds fractions" in outcome(capsys, *words, "again")[2]


@pytest.mark.parametrize("closed", ["2>&-", ">&-"])
def test_closed_streams_cost_no_model(counts: Path, closed: str) -> None:
    words = [sys.executable, "-m", "klnmf", "fit", str(counts), "-r", "2", "-o", "m.klnmf"]
    code = subprocess.run(["sh", "-c", f"{shlex.join(words)} {closed}"], check=False).returncode
    assert code == 0
    assert Path("m.klnmf").exists()


def test_names_that_begin_with_a_tilde_are_files(counts: Path, capsys: Any) -> None:
    name = counts.rename("~nobody-has-this-name.npz")
    assert outcome(capsys, "fit", name, "-r", 2, "-o", "m.klnmf")[0] == 0


def test_a_pattern_from_the_root_is_refused(capsys: Any, tmp_path: Path) -> None:
    code, _, err = outcome(capsys, "convert", tmp_path, "o.npz", "--pattern", "/etc/*")
    assert code == 1
    assert "--pattern '/etc/*' is not a pattern of names in this folder" in err
