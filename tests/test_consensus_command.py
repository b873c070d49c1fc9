"""``klnmf consensus``."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import interrupted, outcome
from klnmf import KLNMF, RunOptions, load_model
from klnmf.cli.consensus import line_of_run
from klnmf.cli.long_runs import ProgressLines
from klnmf.model_selection import Consensus, consensus
from klnmf.readers import CountTable, write_counts
from klnmf.simulate import simulate_counts
from klnmf.topics import top_features

X = simulate_counts(80, 50, 3, counts_per_sample=150, random_state=0).X
GENES = [f"gene {j}" for j in range(50)]


@pytest.fixture(name="counts")
def counts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """counts.npz in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    write_counts(CountTable(X, column_names=GENES), tmp_path / "counts.npz")
    return Path("counts.npz")


@pytest.fixture(scope="module", name="expected")
def consensus_of_counts() -> Consensus:
    return consensus(X, 3, n_runs=6, random_state=4, feature_names=GENES)


def refitted(medians: Consensus, **options: Any) -> Consensus:
    """The consensus that the command prints: with the components of the fit from the medians."""
    given = {name: options.pop(name) for name in ("sample_weight", "exposure") if name in options}
    model = KLNMF(len(medians.components), **options)
    W = model.fit_transform(X, H=medians.components, **given)
    unit = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
    similarity = np.sum(medians.spectra * unit[medians.labels], axis=1)
    stability = [similarity[medians.labels == k].mean() for k in range(len(unit))]
    return replace(medians, components=model.components_, W=W, stability=np.array(stability))


WORDS = ("-r", "3", "--runs", "6", "--seed", "4")


def test_command_prints_the_table_and_saves_a_model(
    counts: Path, expected: Consensus, capsys: Any
) -> None:
    files = set(os.listdir())
    code, out, err = outcome(capsys, "consensus", counts, *WORDS)
    assert code == 0
    shown = refitted(expected, random_state=4)
    assert out == f"{shown}\n"
    assert "model: counts.consensus.klnmf" in err
    assert set(os.listdir()) - files == {"counts.consensus.klnmf"}  # no checkpoint is left
    saved = load_model("counts.consensus.klnmf")
    assert saved.model.converged_
    assert saved.model.divergence_ < expected.divergence
    # The components are in the order of the table.
    similarity = np.sum(saved.model.components_ * expected.components, axis=1)
    norms = np.linalg.norm(saved.model.components_, axis=1)
    similarity /= norms * np.linalg.norm(expected.components, axis=1)
    assert similarity.min() > 0.98
    facts = saved.metadata["consensus"]
    assert facts["stability"] == pytest.approx(shown.stability)
    assert facts["divergence_of_medians"] == expected.divergence
    assert facts["run_share"] == [1.0, 1.0, 1.0]
    assert (facts["n_runs"], facts["n_left_out"]) == (6, 0)
    assert expected.null is not None
    assert sorted(facts["null_silhouette"], reverse=True) == expected.null.silhouette.tolist()
    assert facts["leading_features"] == shown.leading_features()
    assert saved.metadata["input"] == "counts.npz"
    assert list(saved.feature_names) == GENES
    assert saved.W.shape == (80, 3)
    code, _, err = outcome(capsys, "consensus", counts, *WORDS)
    assert code == 1
    assert "counts.consensus.klnmf exists already; add --force" in err
    assert outcome(capsys, "consensus", counts, *WORDS, "--force", "-q")[2] == ""


@pytest.mark.parametrize("refit", ["W", "both"])
def test_weights_and_exposures_are_those_of_the_function(
    counts: Path, capsys: Any, refit: str
) -> None:
    w, v = np.linspace(0.5, 2, 80), np.linspace(1, 3, 50)
    for name, numbers in (("w.txt", w), ("v.txt", v)):
        np.savetxt(name, numbers)
    words = ("--sample-weight", "w.txt", "--feature-weight", "v.txt", "--exposure", "w.txt")
    given = {"sample_weight": w, "exposure": w}
    code, out, _ = outcome(capsys, "consensus", counts, *WORDS, *words, "--refit", refit)
    assert code == 0
    expected = consensus(
        X, 3, n_runs=6, random_state=4, feature_names=GENES, feature_weight=v, **given
    )
    if refit == "both":
        expected = refitted(expected, feature_weight=v, random_state=4, **given)
    assert out == f"{expected}\n"
    saved = load_model("counts.consensus.klnmf")
    np.testing.assert_array_equal(saved.model.components_, expected.components)


def test_what_is_printed_is_what_is_saved(counts: Path, expected: Consensus, capsys: Any) -> None:
    """The fit from the medians moves them: all files and figures are of the model."""
    code, out, _ = outcome(capsys, "consensus", counts, *WORDS, "--json", "--result", "all.klnmf")
    assert code == 0
    printed, saved = json.loads(out), load_model("counts.consensus.klnmf")
    masses = saved.W.sum(axis=0)
    assert printed["share"] == pytest.approx(masses / masses.sum())
    assert printed["share"] != pytest.approx(expected.table()["share"], rel=1e-4)
    top = top_features(saved.model.components_, GENES, 5)
    assert printed["leading_features"] == [[name for name, _ in features] for features in top]
    found = Consensus.load("all.klnmf")
    np.testing.assert_array_equal(found.components, saved.model.components_)
    np.testing.assert_array_equal(found.W, saved.W)
    assert found.divergence == saved.model.divergence_
    assert found.to_model().converged_
    np.testing.assert_array_equal(found.to_model().W_sums_, saved.model.W_sums_)


def test_medians_are_kept_if_asked_for_and_can_be_used(
    counts: Path, expected: Consensus, capsys: Any
) -> None:
    pytest.importorskip("jinja2")
    words = (*WORDS, "--refit", "W", "-o", "m.klnmf", "--result", "all.klnmf", "--json")
    code, out, _ = outcome(capsys, "consensus", counts, *words)
    assert code == 0
    assert json.loads(out)["silhouette"] == expected.silhouette.tolist()
    saved = load_model("m.klnmf")
    np.testing.assert_array_equal(saved.model.components_, expected.components)
    np.testing.assert_array_equal(saved.W, expected.W)
    np.testing.assert_array_equal(Consensus.load("all.klnmf").spectra, expected.spectra)
    code, out, _ = outcome(capsys, "topics", "m.klnmf")
    assert code == 0
    assert "gene " in out
    assert outcome(capsys, "report", "m.klnmf", counts, "-o", "r.html")[0] == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert "klnmf consensus counts.npz -r 3 --runs 6 " in page
    assert "klnmf fit" not in page
    assert outcome(capsys, "transform", "m.klnmf", counts, "-o", "W.csv")[0] == 0


def test_the_null_can_be_left_out(counts: Path, capsys: Any) -> None:
    code, out, _ = outcome(capsys, "consensus", counts, *WORDS, "--null-runs", "0", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["n_null_runs"] == 0
    assert facts["null_silhouette"] is None
    code, _, err = outcome(capsys, "consensus", counts, *WORDS, "--null-runs", "1", "--force")
    assert code == 2
    assert "--null-runs: must be 0, or 2 or more, got 1" in err


def test_result_as_a_picture(counts: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    assert outcome(capsys, "consensus", counts, *WORDS, "--plot", "c.png")[0] == 0
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = outcome(capsys, "consensus", counts, *WORDS, "--force", "--plot", "c.doc")
    assert code == 2
    assert "c.doc: a picture is written as .png, .pdf or .svg" in err


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("--plot", "p.png"), ("--result", "p.png")),
        (("-o", "m.klnmf"), ("--result", "m.klnmf")),
        (("-o", "m.klnmf"), ("--result", "m.klnmf.checkpoint")),
        (("-o", "p"), ("--plot", "p")),
        ((), ("--result", "counts.npz", "--force")),
        (("--column-names", "names.txt"), ("--result", "names.txt", "--force")),
    ],
)
def test_no_file_takes_the_place_of_another(
    counts: Path, capsys: Any, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    pytest.importorskip("matplotlib")
    Path("names.txt").write_text("\n".join(GENES))
    files = set(os.listdir())
    code, _, err = outcome(capsys, "consensus", counts, *WORDS, *one, *other)
    assert code == 1
    assert f"{other[1]} is read or written by this command already" in err
    assert set(os.listdir()) == files


def test_result_that_is_there_is_overwritten_if_asked_to(counts: Path, capsys: Any) -> None:
    Path("all.klnmf").write_text("precious")
    words = ("consensus", counts, *WORDS, "--result", "all.klnmf")
    for more in ((), ("--restart",)):
        code, _, err = outcome(capsys, *words, *more)
        assert code == 1
        assert "all.klnmf exists already; add --force to overwrite it" in err
    assert Path("all.klnmf").read_text() == "precious"
    assert outcome(capsys, *words, "--force")[0] == 0
    assert len(Consensus.load("all.klnmf").run_objectives) == 6


def test_interrupted_command_started_again_goes_on_to_the_same_result(
    counts: Path, capsys: Any
) -> None:
    words = ["consensus", str(counts), "-r", "3", "--runs", "60", "--null-runs", "0", "--jobs=1"]
    said = interrupted(words, b"runs done")
    assert "To continue:\n  klnmf consensus counts.npz" in said
    assert not Path("counts.consensus.klnmf").exists()
    code, _, err = outcome(capsys, *words, "--init", "random")
    assert code == 1
    assert "belongs to another consensus" in err
    code, out, err = outcome(capsys, *words)
    assert code == 0
    assert "continuing from counts.consensus.klnmf.checkpoint" in err
    whole = consensus(X, 3, n_runs=60, n_null_runs=0, random_state=0, feature_names=GENES)
    assert out == f"{refitted(whole, random_state=0)}\n"


def test_restart_begins_anew(counts: Path, capsys: Any) -> None:
    consensus(
        X,
        2,
        n_runs=3,
        run=RunOptions(checkpoint="counts.consensus.klnmf.checkpoint"),
        random_state=5,
    )
    assert outcome(capsys, "consensus", counts, *WORDS)[0] == 1
    code, _, err = outcome(capsys, "consensus", counts, *WORDS, "--restart")
    assert code == 0
    assert "continuing" not in err


@pytest.mark.parametrize("is_damaged", [False, True])
def test_checkpoint_that_will_not_do_has_a_way_out(
    counts: Path, capsys: Any, is_damaged: bool
) -> None:
    checkpoint = Path("counts.consensus.klnmf.checkpoint")
    consensus(X, 3, n_runs=2, run=RunOptions(checkpoint=checkpoint), random_state=5)
    if is_damaged:
        checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    code, _, err = outcome(capsys, "consensus", counts, *WORDS)
    assert code == 1
    assert err.endswith(" Add --restart to start again.\n")
    assert outcome(capsys, "consensus", counts, *WORDS, "--restart")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--runs", "1"), "argument --runs: must be 2 or more, got 1"),
        (("--density-threshold", "0"), "--density-threshold: must be a positive number, got 0"),
    ],
)
def test_numbers_that_will_not_do_are_refused(
    counts: Path, capsys: Any, words: tuple[str, str], message: str
) -> None:
    code, _, err = outcome(capsys, "consensus", counts, *words)
    assert code == 2
    assert message in err


def test_lines_for_logs_come_now_and_then(capsys: Any) -> None:
    lines = ProgressLines(line_of_run)
    record = {"run": 4, "objective": 1234.5678, "n_done": 7, "n_runs": 20, "seconds_left": 130.0}
    lines(record)
    lines(record)
    assert capsys.readouterr().err == (
        "7 of 20 runs done, the last one with divergence 1234.568, about 2 min left\n"
    )
