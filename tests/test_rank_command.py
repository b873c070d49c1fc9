"""``klnmf rank``, and what it leaves for pictures and reports."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import interrupted, outcome
from klnmf import RunOptions
from klnmf.cli.long_runs import ProgressLines
from klnmf.cli.options import some_ranks
from klnmf.cli.rank import line_of_search
from klnmf.model_selection import RankSelection, select_rank
from klnmf.readers import CountTable, write_counts
from klnmf.simulate import simulate_counts

X = simulate_counts(80, 50, 3, counts_per_sample=150, random_state=0).X


@pytest.fixture(name="counts")
def counts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """counts.npz in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    write_counts(CountTable(X), tmp_path / "counts.npz")
    return Path("counts.npz")


def test_command_prints_and_saves_what_the_function_finds(counts: Path, capsys: Any) -> None:
    words = ("rank", counts, "--ranks", "1-5", "--splits", "2", "--seed", "3")
    code, out, err = outcome(capsys, *words)
    assert code == 0
    expected = select_rank(X, range(1, 6), n_splits=2, random_state=3)
    assert out == f"{expected}\n"
    assert "\nseed: 3\n" in err
    assert "result: counts.rank.json" in err
    assert "at most about" not in out
    saved = RankSelection.load("counts.rank.json")
    np.testing.assert_array_equal(saved.deviance, expected.deviance)
    assert sorted(os.listdir()) == ["counts.npz", "counts.rank.json"]  # no checkpoint is left
    code, _, err = outcome(capsys, *words)
    assert code == 1
    assert "counts.rank.json exists already; add --force" in err
    assert outcome(capsys, *words, "--force", "-q")[2] == ""


def test_weights_exposures_and_penalties_are_those_of_the_function(
    counts: Path, capsys: Any
) -> None:
    w, v = np.linspace(0.5, 2, 80), np.linspace(1, 3, 50)
    for name, numbers in (("w.txt", w), ("v.txt", v)):
        np.savetxt(name, numbers)
    words = ("rank", counts, "--ranks", "1-3", "--splits", "2", "--l1-W", "1", "--l1-H", "2")
    known = ("--sample-weight", "w.txt", "--feature-weight", "v.txt", "--exposure", "w.txt")
    code, out, _ = outcome(capsys, *words, *known)
    assert code == 0
    expected = select_rank(
        X, [1, 2, 3], n_splits=2, random_state=0, l1_W=1, l1_H=2,
        sample_weight=w, feature_weight=v, exposure=w,
    )  # fmt: skip
    assert out == f"{expected}\n"
    Path("w.txt").write_text("one\n")
    for name, message in (("w.txt", "one number per line"), ("none.txt", "none.txt")):
        code, _, err = outcome(capsys, *words, "--force", "--sample-weight", name)
        assert code == 1
        assert message in err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--plot", "counts.npz"), "counts.npz"),
        (("-o", "r", "--plot", "r"), "r"),
        (("-o", "r.json", "--plot", "r.json.checkpoint"), "r.json.checkpoint"),
    ],
)
def test_no_file_takes_the_place_of_another(
    counts: Path, capsys: Any, words: tuple[str, ...], name: str
) -> None:
    code, _, err = outcome(capsys, "rank", counts, *words)
    assert code == 1
    assert f"{name} is read or written by this command already" in err
    assert os.listdir() == ["counts.npz"]


def test_result_as_json_and_as_a_picture(counts: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    words = ("rank", counts, "--ranks", "2,3", "--splits", "2", "-o", "r.json")
    code, out, _ = outcome(capsys, *words, "--json", "--plot", "r.png")
    assert code == 0
    assert json.loads(out)["ranks"] == [2, 3]
    assert Path("r.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = outcome(capsys, *words, "--force", "--plot", "r.doc")
    assert code == 2
    assert "r.doc: a picture is written as .png, .pdf or .svg" in err


def test_killed_command_started_again_goes_on_to_the_same_result(counts: Path, capsys: Any) -> None:
    words = ["rank", str(counts), "--ranks", "1-12", "--splits", "3", "--no-early-stop", "--jobs=1"]
    said = interrupted(words, b"fits done")
    assert "To continue:\n  klnmf rank counts.npz" in said
    assert not Path("counts.rank.json").exists()
    # Other settings are not mixed with it.
    code, _, err = outcome(capsys, *words, "--splits", "4")
    assert code == 1
    assert "belongs to another search" in err
    code, out, err = outcome(capsys, *words)
    assert code == 0
    assert "continuing from counts.rank.json.checkpoint" in err
    expected = select_rank(X, range(1, 13), n_splits=3, early_stop=False, random_state=0)
    assert out == f"{expected}\n"


def test_restart_begins_anew(counts: Path, capsys: Any) -> None:
    words = ("rank", counts, "--ranks", "1,2", "--splits", "2")
    select_rank(X, [1], run=RunOptions(checkpoint="counts.rank.json.checkpoint"), random_state=5)
    assert outcome(capsys, *words)[0] == 1
    code, _, err = outcome(capsys, *words, "--restart")
    assert code == 0
    assert "continuing" not in err


@pytest.mark.parametrize("is_damaged", [False, True])
def test_checkpoint_that_will_not_do_has_a_way_out(
    counts: Path, capsys: Any, is_damaged: bool
) -> None:
    checkpoint = Path("counts.rank.json.checkpoint")
    select_rank(X, [2], n_splits=2, run=RunOptions(checkpoint=checkpoint), random_state=0)
    if is_damaged:
        checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    words = ("rank", counts, "--ranks", "2,3", "--splits", "2")
    code, _, err = outcome(capsys, *words)
    assert code == 1
    assert err.endswith(" Add --restart to start again.\n")
    assert outcome(capsys, *words, "--restart")[0] == 0


@pytest.mark.parametrize("text", ["", "0-3", "5-2", "a", "1,,2", "-3"])
def test_ranks_that_are_none_are_refused(text: str, counts: Path, capsys: Any) -> None:
    code, _, err = outcome(capsys, "rank", counts, f"--ranks={text}")
    assert code == 2
    assert "must be like 1-40 or 5,10,20" in err


def test_ranks_are_spans_and_numbers() -> None:
    assert some_ranks("5,1-3,2,40") == [1, 2, 3, 5, 40]


def test_lines_for_logs_come_now_and_then(capsys: Any) -> None:
    lines = ProgressLines(line_of_search)
    record = {
        "rank": 4, "split": 0, "deviance": 12.345678, "seconds": 1.0, "seconds_left": 130.0,
        "n_done": 7, "n_fits": 20,
    }  # fmt: skip
    lines(record)
    lines(record)
    assert capsys.readouterr().err == (
        "rank 4, 7 of 20 fits done: held-out deviance 12.346, at most about 2 min left\n"
    )


# ---- picture and report --------------------------------------------------------------------------


@pytest.fixture(scope="module", name="selection")
def selection_of_counts() -> RankSelection:
    return select_rank(X, range(1, 6), n_splits=2, random_state=0)


def test_picture_shows_deviance_errors_stability_and_choice(selection: RankSelection) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    ax = selection.plot()
    try:
        marked, curve = ax.get_lines()[:2]
        assert set(marked.get_xdata()) == {selection.best_rank} == {3}
        np.testing.assert_allclose(curve.get_ydata(), selection.difference)
        heights = [np.ptp(bar[:, 1]) for bar in ax.collections[0].get_segments()]
        np.testing.assert_allclose(heights, 2 * selection.standard_error, atol=1e-12)
        (right,) = (other for other in ax.figure.axes if other is not ax)
        np.testing.assert_allclose(right.get_lines()[0].get_ydata(), selection.stability)
        assert ax.get_title(loc="left") == "3 components chosen"
        _, own = plt.subplots()
        assert selection.plot(own) is own
    finally:
        plt.close("all")


def test_report_has_a_section_where_a_rank_was_selected(
    counts: Path, selection: RankSelection, capsys: Any
) -> None:
    pytest.importorskip("jinja2")
    selection.save("rank.json")
    for rank, verdict in (
        (3, "suggest 3 components"),
        (2, "suggest 3 components; this model has 2"),
    ):
        assert outcome(capsys, "fit", counts, "-r", rank, "--force", "-o", "m.klnmf")[0] == 0
        code, _, _ = outcome(
            capsys, "report", "m.klnmf", counts, "--rank", "rank.json", "-o", "r.html", "--force"
        )
        assert code == 0
        page = Path("r.html").read_text("utf-8")
        assert '<section id="rank"' in page
        assert verdict in page
        assert page.count('<th scope="row">') >= len(selection.ranks)
        data = json.loads(page.split('id="report-data">')[1].split("</script>")[0])
        assert data["rank"]["rank"] == selection.ranks.tolist()
        assert data["rank"]["is_best"] == [rank == 3 for rank in selection.ranks]
    assert outcome(capsys, "report", "m.klnmf", counts, "-o", "r.html", "--force")[0] == 0
    assert '<section id="rank"' not in Path("r.html").read_text("utf-8")
    code, _, err = outcome(capsys, "report", "m.klnmf", counts, "--rank", "m.klnmf")
    assert code == 1
    assert "not a rank selection" in err
    replace(selection, n_samples=7).save("other.json")
    code, _, err = outcome(capsys, "report", "m.klnmf", counts, "--rank", "other.json")
    assert code == 1
    assert "other.json is about 7 samples × " in err
    assert "Name the result of klnmf rank for the data of the model" in err
