"""What docs/guide/choosing.md shows is what happens: its code is run, its claims are checked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klnmf import load_model
from klnmf.cli.main import main
from klnmf.datasets import load_bible
from klnmf.model_selection import RankSelection
from klnmf.readers import CountTable, write_counts

PAGE = (Path(__file__).parents[1] / "docs" / "guide" / "choosing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\S*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def code_of(block: str) -> str:
    """Python of an executed block, without the options of the directive."""
    return re.sub(r"^(:\w+:.*\n)+", "", block)


def test_every_block_is_run() -> None:
    languages = [language for language, _ in BLOCKS]
    assert set(languages) == {"{executed}", "sh"}
    assert languages.count("sh") == 1
    for language, block in BLOCKS:
        if language == "{executed}":
            compile(code_of(block), "choosing.md", "exec")
            assert (".plot(" in block) == block.startswith(":alt: ")


@pytest.mark.slow
def test_code_does_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names: dict[str, Any] = {}
    try:
        for language, block in BLOCKS:
            if language == "{executed}":
                exec(code_of(block), names)
    finally:
        plt.close("all")
    known, selection, agreed = names["known"], names["selection"], names["agreed"]
    # "This is a clear answer."
    assert known.best_rank == 8
    assert not known.is_complete
    at_8 = list(known.ranks).index(8)
    assert known.stability[at_8] > 0.99
    assert known.stability[at_8 - 1] < 0.95
    assert known.stability[-1] < 0.95
    # "The deviance is lowest at 50"; "beyond 20 they depend more and more on which chapters happen
    # to be in the sample"; "Twenty components have nine tenths of the gain."
    assert selection.best_rank == selection.lowest_rank == 50
    assert selection.stable_rank == 20
    assert names["gain"][names["at"]] == pytest.approx(0.92, abs=0.02)
    assert np.all(np.diff(selection.stability[names["at"] :]) < 0)
    # Most components are trusted, a few are not; most of those that are trusted hardly change.
    doubtful = names["doubtful"]
    assert 1 <= doubtful.sum() <= 6
    trusted = names["moved"].similarity[~doubtful]
    assert trusted.min() > 0.9
    assert np.mean(trusted > 0.98) > 0.8
    assert names["model"].converged_
    assert names["model"].divergence_ < agreed.divergence
    assert names["scores"].perplexity < 0.7 * names["of_margins"]
    assert 0 < names["left"] < names["found"]  # split counts cost power
    _check_example(names)
    printed = capsys.readouterr().out
    assert f"{np.sum(~doubtful)} components" in " ".join(printed.split())


def _held(part: Any, truth: np.ndarray) -> float:
    held = (part.lower <= truth) & (truth <= part.upper)
    return float(held[part.is_interior].mean())


def _check_example(names: dict[str, Any]) -> None:
    # "three times closer to the truth, and its intervals hold"; "The bootstrap has noticed"
    shares = {
        name: (abs(part.estimate - names["truth"]).sum(), _held(part, names["truth"]))
        for name, part in (
            ("bootstrap", names["refitted"].components),
            ("posterior", names["integrated"].components),
        )
    }
    assert shares["bootstrap"][0] > 2.5 * shares["posterior"][0]
    assert shares["bootstrap"][1] < 0.75
    assert 0.91 <= shares["posterior"][1] <= 0.99
    assert names["refitted"].warning == str(names["caught"][-1].message)


def test_commands_do_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a part of the corpus, with fewer ranks and runs: the page's take a minute."""
    for package in ("matplotlib", "jinja2"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    bible = load_bible()
    words = np.asarray(bible.data.sum(axis=0)).ravel() > 200
    write_counts(
        CountTable(bible.data[::6, words], column_names=bible.feature_names[words]), "bible.npz"
    )
    (commands,) = (block for language, block in BLOCKS if language == "sh")
    for slow, quick in (
        (r"--ranks [\d,]+", "--ranks 1,2,3"),
        (r"--runs \d+", "--runs 4"),
        ("-r 20", "-r 3"),
    ):
        commands, n_changed = re.subn(slow, quick, commands)
        assert n_changed == 1
    for line in commands.replace("\\\n", " ").splitlines():
        name, *arguments = shlex.split(line, comments=True)
        assert name == "klnmf"
        assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "held-out deviance" in printed
    assert "4 runs;" in printed
    assert RankSelection.load("bible.rank.json").ranks.tolist() == [1, 2, 3]
    assert load_model("bible.klnmf").model.n_components_ == 3
    for picture in ("rank.png", "consensus.png"):
        assert Path(picture).stat().st_size > 10_000
    assert '<section id="rank"' in Path("bible.html").read_text("utf-8")
