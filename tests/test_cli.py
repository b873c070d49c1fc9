"""The command line, as a person or a script uses it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cli_files import SAMPLES, WORDS, counts_file, model_file, write_counts_file  # noqa: F401 (fixtures)
from commands import outcome
from klnmf import KLNMF, load_model
from klnmf.cli.files import stem_of
from klnmf.cli.fit import line_of_iteration
from klnmf.cli.long_runs import ProgressLines
from klnmf.simulate import simulate_counts
from klnmf.support.descriptions import percentage
from strategies import make_model

# ---- fit -----------------------------------------------------------------------------------------


def test_fit_saves_what_the_estimator_finds(counts: Path, capsys: Any) -> None:
    code, out, err = outcome(capsys, "fit", counts, "-k", "3", "--seed", "5", "--tol", "0.01")
    assert code == 0
    assert out == ""
    assert "60 samples × 40 features" in err
    assert "\nseed: 5\n" in err
    assert "model: counts.klnmf" in err
    assert "converged after" in err
    saved = load_model("counts.klnmf")
    X = sp.load_npz(counts)
    reference = KLNMF(3, random_state=5, tol=0.01)
    W = reference.fit_transform(X)
    assert np.array_equal(saved.model.components_.toarray(), reference.components_)
    assert np.array_equal(saved.W.toarray(), W)
    assert list(saved.sample_names) == SAMPLES
    assert list(saved.feature_names) == WORDS
    assert saved.metadata["label_column"] == "label"
    assert saved.sample_metadata["label"][:2] == ["even", "odd"]
    assert saved.metadata["input"] == "counts.npz"
    bound = percentage(reference.optimality_gap_)
    assert f"changing only W, or only H, cannot lower the objective by more than {bound}\n" in err
    assert not [name for name in os.listdir() if "checkpoint" in name]


def test_a_fit_that_is_exact_but_for_rounding_says_so(counts: Path, capsys: Any) -> None:
    sp.save_npz("exact.npz", sp.csr_array(np.outer([2.0, 3, 5, 7], [1.0, 4, 6])))
    err = outcome(capsys, "fit", "exact.npz", "-r", 1, "--dtype", "float32")[2]
    assert re.search(r"\nconverged .* by more than (rounding|0 %)\n", err)


def test_penalties_and_all_other_settings_reach_the_model(counts: Path, capsys: Any) -> None:
    options = "--l1-W 0.5 --l2-w 0.25 --l1-h 0.75 --l2-H 1.5 --max-iter 7 --solver mu --init random"
    code, _, err = outcome(capsys, "fit", counts, "-r", 2, *options.split(), "--dtype", "float64")
    assert code == 0
    assert "klnmf: warning: The fit stopped at --max-iter 7 with an optimality gap of" in err
    assert "not converged after 7 iterations" in err
    model = load_model("counts.klnmf").model
    wanted = {"l1_W": 0.5, "l2_W": 0.25, "l1_H": 0.75, "l2_H": 1.5, "max_iter": 7, "solver": "mu"}
    assert wanted.items() <= model.get_params().items()
    assert model.init == "random"
    assert model.components_.dtype == np.float64


def test_a_model_is_not_overwritten_unasked(model: Path, counts: Path, capsys: Any) -> None:
    before = model.read_bytes()
    code, _, err = outcome(capsys, "fit", counts, "-r", 2, "-o", model)
    assert code == 1
    assert err == "klnmf: error: model.klnmf exists already; add --force to overwrite it.\n"
    assert model.read_bytes() == before
    assert outcome(capsys, "fit", counts, "-r", 2, "-o", model, "--force")[0] == 0
    assert load_model(model).model.n_components_ == 2


def test_fit_with_a_report(counts: Path, capsys: Any) -> None:
    code, _, err = outcome(
        capsys, "fit", counts, "-r", 3, "--report", "page.html", "--title", "Mine"
    )
    assert code == 0
    assert "report: page.html" in err
    text = Path("page.html").read_text(encoding="utf-8")
    assert "Mine" in text
    assert "word1" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "nowhere.npz"], "nowhere.npz"),
        (["fit", "counts.npz", "-o", "no/such/model.klnmf"], "there is no folder no/such"),
        (["fit", "counts.npz", "-o", "."], "is a folder; name a file"),
        (["fit", "counts.npz", "--text-field", "body"], "--text-field cannot be used"),
        (["topics", "counts.npz"], "MODEL must be a file written by `klnmf fit`"),
        (["transform", "nowhere.klnmf", "counts.npz", "-o", "W.csv"], "nowhere.klnmf"),
    ],
)
def test_errors_are_one_line_and_exit_with_1(
    counts: Path, capsys: Any, words: list[str], message: str
) -> None:
    before = sorted(os.listdir())
    code, out, err = outcome(capsys, *words)
    assert code == 1
    assert out == ""
    assert err.startswith("klnmf: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fit"],
        ["fit", "counts.npz", "-r", "0"],
        ["fit", "counts.npz", "-r", "three"],
        ["fit", "counts.npz", "--tol", "-1"],
        ["fit", "counts.npz", "--tol", "small"],
        ["fit", "counts.npz", "--threads", "0"],
        ["rank", "counts.npz", "--seed", "-1"],
        ["consensus", "counts.npz", "--jobs", "0"],
        ["fit", "counts.npz", "--ngram-range", "3,1"],
        ["nonsense"],
        ["topics", "m", "--csv", "--json"],
    ],
)
def test_wrong_command_lines_exit_with_2(counts: Path, capsys: Any, words: list[str]) -> None:
    code, out, err = outcome(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("usage: klnmf")


@pytest.mark.parametrize(
    "words",
    [
        "fit counts.npz -o counts.npz --force",
        "fit counts.npz -o new.klnmf --report counts.npz",
        "fit counts.npz -o new.klnmf --report new.klnmf",
        "fit counts.npz -o new.klnmf --checkpoint counts.npz",
        "transform model.klnmf counts.npz -o counts.npz",
        "report model.klnmf -o model.klnmf",
        "report model.klnmf counts.npz -o counts.npz",
        "topics model.klnmf -o model.klnmf",
        "convert counts.npz counts.npz --force",
    ],
)
def test_no_command_writes_over_what_it_reads_or_writes(
    model: Path, counts: Path, capsys: Any, words: str
) -> None:
    before = {name: Path(name).read_bytes() for name in os.listdir()}
    code, _, err = outcome(capsys, *words.split())
    assert code == 1
    assert "is read or written by this command already" in err
    assert {name: Path(name).read_bytes() for name in os.listdir()} == before


def test_other_files_are_not_taken_for_checkpoints_or_results(counts: Path, capsys: Any) -> None:
    Path("new.klnmf.checkpoint").write_text("mine")
    code, _, err = outcome(capsys, "fit", counts, "-o", "new.klnmf")
    assert code == 1
    assert err.endswith("Add --restart to start again.\n")
    assert Path("new.klnmf.checkpoint").read_text() == "mine"
    code, _, err = outcome(capsys, "fit", counts, "-o", "new.klnmf", "--checkpoint", "notes.txt")
    assert code == 2
    assert "a checkpoint is written as .checkpoint; choose such a name" in err
    os.mkfifo("pipe")
    code, _, err = outcome(capsys, "fit", counts, "-o", "pipe", "--force")
    assert code == 1
    assert "is not a regular file; choose another name" in err
    assert outcome(capsys, "fit", counts, "-o", "")[0] == 1


def test_an_interrupted_fit_continues(counts: Path, capsys: Any) -> None:
    checkpoint = Path("counts.klnmf.checkpoint")
    stopped = make_model(3, random_state=0, sparse_output=True, checkpoint=checkpoint, max_iter=4)
    with pytest.warns(UserWarning, match="max_iter=4"):
        stopped.fit(sp.load_npz(counts))
    before = checkpoint.read_bytes()
    code, _, err = outcome(capsys, "fit", counts, "-r", 4)
    assert code == 1
    assert "start again with --restart, which overwrites it" in err
    assert checkpoint.read_bytes() == before
    code, _, err = outcome(capsys, "fit", counts, "-r", 3)
    assert code == 0
    assert err.startswith(f"continuing from {checkpoint}; add --restart to start again instead\n")
    assert not checkpoint.exists()
    resumed = load_model("counts.klnmf").model
    whole = KLNMF(3, random_state=0).fit(sp.load_npz(counts))
    assert np.array_equal(resumed.components_.toarray(), whole.components_)
    assert resumed.n_iter_ == whole.n_iter_


# ---- a process of its own ------------------------------------------------------------------------


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "klnmf", *words]


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_go_on(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = simulate_counts(3000, 800, 10, counts_per_sample=100, random_state=0).X
    sp.save_npz(tmp_path / "big.npz", X)
    words = ["fit", "big.npz", "-r", "10", "--solver", "mu", "--tol", "0", "--max-iter", "100000"]
    with subprocess.Popen(
        command(*words), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        lines = [child.stderr.readline() for _ in range(4)]
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
        child.wait(timeout=60)
    assert "3,000 samples" in lines[0]
    assert lines[1] == "no feature names: give --column-names FILE\n"
    assert lines[2] == "seed: 0\n"
    assert lines[3].startswith("iteration 1, ")
    assert child.returncode == 130
    assert "Interrupted after" in rest
    assert "klnmf fit big.npz -r 10 --solver mu --tol 0 --max-iter 100000\n" in rest
    assert (tmp_path / "big.klnmf.checkpoint").exists()
    assert not (tmp_path / "big.klnmf").exists()
    n_done = int(rest.split("Interrupted after ")[1].split()[0])
    again = [*words, "--resume"]
    again[again.index("100000")] = str(n_done + 3)
    monkeypatch.chdir(tmp_path)
    code, _, err = outcome(capsys, *again)
    assert code == 0, err
    assert load_model(tmp_path / "big.klnmf").model.n_iter_ == n_done + 3
    assert not (tmp_path / "big.klnmf.checkpoint").exists()


def test_output_into_a_closed_pipe_is_no_traceback(model: Path) -> None:
    words = " ".join(command("topics", str(model), "--csv", "--top", "40"))
    done = subprocess.run(
        ["bash", "-c", f"{words} | head -1"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "component,share,rank,feature,lift\n"
    assert "Traceback" not in done.stderr


def test_a_terminal_shows_a_bar(counts: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    words = command("fit", str(counts), "-r", "3", "--solver", "mu", "--tol", "0")
    child = subprocess.Popen([*words, "--max-iter", "3000"], stderr=theirs, stdout=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # the terminal has gone with the process
        pass
    os.close(ours)
    assert child.wait(timeout=60) == 0
    assert b"objective" in shown
    assert b"gap" in shown
    assert b"iteration 1," not in shown


# ---- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("a/counts.npz", "a/counts"),
        ("~/x.csv", f"{Path.home()}/x"),
        ("x.mtx.gz", "x"),
        ("letters/", "letters"),
        ("no_ending", "no_ending"),
    ],
)
def test_results_are_named_after_the_data(path: str, stem: str) -> None:
    assert stem_of(path) == stem


def test_lines_come_at_first_and_then_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    clock = [0.0]
    monkeypatch.setattr("klnmf.cli.long_runs.time.monotonic", lambda: clock[0])
    lines = ProgressLines(line_of_iteration(1e-4, 100))
    for iteration in range(1, 31):
        record = {"iteration": iteration, "seconds": iteration, "objective": 1.0}
        lines(record | {"optimality_gap": 0.01 * 10 ** (-iteration / 40)})
        clock[0] += 1.0
    shown = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in shown] == ["iteration 1", "iteration 11", "iteration 21"]
    assert not any("left" in line for line in shown[:2])  # where the gap leads is not known yet
    assert "about 59 s left" in shown[2]  # as the gap falls
