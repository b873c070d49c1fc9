"""What README.md shows is what happens: its blocks of code are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest

import klnmf
from event_files import write_sales
from klnmf.cli import main
from klnmf.datasets import load_bible
from klnmf.simulate import simulate_counts
from klnmf.topics import plsi_probabilities

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)

# Set-up of a checkout, which has been done where tests run.
NOT_RUN = ["make demo"]
# A line of each block that is run, by which its test finds it.
THREE_LINES = "W = model.fit_transform(X)"
OF_TEXTS = "TopicModel(n_topics=20"
IN_PYTHON = "bible = load_bible()"
OF_EVENTS = "klnmf fit sales.csv --modes"
AT_THE_COMMAND_LINE = "klnmf topics letters.klnmf"
WITH_SCANPY = "klnmf.tl.nmf(cells"


def block_with(line: str, language: str) -> str:
    (text,) = (text for of, text in BLOCKS if of == language and line in text)
    return text


@pytest.fixture(name="folder")
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_block_is_run_or_left_out_on_purpose() -> None:
    known = [*NOT_RUN, THREE_LINES, OF_TEXTS, OF_EVENTS, IN_PYTHON]
    known += [AT_THE_COMMAND_LINE, WITH_SCANPY]
    for _, text in BLOCKS:
        assert sum(line in text for line in known) == 1, text
    assert len(BLOCKS) == len(known)


def test_begins_with_what_it_is_and_two_commands() -> None:
    title, description, invitation, *_ = README.split("\n\n")
    assert title == "# klnmf"
    assert len(description.splitlines()) == 3
    assert invitation.endswith("two commands set everything up:")
    language, commands = BLOCKS[0]
    assert language == "sh"
    assert [line.split("#")[0].strip() for line in commands.splitlines()] == [
        "make demo",
        "make test",
    ]


def test_events(folder: Path) -> None:
    write_sales(folder / "sales.csv", crowd=20)
    assert main(shlex.split(block_with(OF_EVENTS, "sh"))[1:]) == 0
    assert klnmf.load_model("sales.klnmf").model.mode_names_ == ("customer", "product", "date")
    assert "<html" in (folder / "sales.html").read_text(encoding="utf-8")


def test_local_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


# ---- the blocks ----------------------------------------------------------------------------------


def test_three_lines_fit() -> None:
    names: dict[str, Any] = {"X": simulate_counts(60, 40, 3, random_state=0).X}
    exec(block_with(THREE_LINES, "python"), names)
    assert names["W"].shape == (60, 20)
    assert names["model"].converged_


def test_topics_of_texts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    bible = load_bible()
    rows = [bible.data[[i]] for i in range(0, 1180, 8)]
    texts = [" ".join(np.repeat(bible.feature_names[row.indices], row.data)) for row in rows]
    dates = [f"{1600 + i % 5}-03-01" for i in range(len(texts))]
    pd.DataFrame({"body": texts, "date": dates}).to_csv("letters.csv", index=False)
    names: dict[str, Any] = {}
    exec(block_with(OF_TEXTS, "python"), names)
    assert "coherence" in capsys.readouterr().out
    assert names["model"].shares_.shape == (148, 20)


def test_fit_in_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(block_with(IN_PYTHON, "python"), names)
    topics, numbers = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "disciples" in topics
    shares = re.findall(r"^ +\d+ +([\d.]+)%", topics, flags=re.MULTILINE)
    assert len(shares) == 20
    assert sum(map(float, shares)) == pytest.approx(100, abs=1)
    divergence, gap, converged = numbers.split()
    assert float(divergence) == pytest.approx(466_500, rel=0.01)
    assert 0 < float(gap) <= names["model"].tol
    assert converged == "True"
    saved = klnmf.load_model(folder / "bible.klnmf")
    np.testing.assert_array_equal(saved.W, names["W"])
    assert list(saved.feature_names) == list(load_bible().feature_names)
    assert "jesus" in (folder / "bible.html").read_text(encoding="utf-8")


def write_letters(folder: Path, chapters: range) -> None:
    """Chapters of the Bible as letters: the order of the words does not matter."""
    bible = load_bible()
    folder.mkdir()
    for i in chapters:
        row = bible.data[[i]]
        words = np.repeat(bible.feature_names[row.indices], row.data)
        (folder / f"{i:04}.txt").write_text(" ".join(words), encoding="utf-8")


def test_fit_from_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_letters(folder / "letters", range(0, 1180, 8))
    for line in block_with(AT_THE_COMMAND_LINE, "sh").splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "klnmf"
        assert main(words) == 0
    assert "wicked" in capsys.readouterr().out
    assert "<html" in (folder / "letters.html").read_text(encoding="utf-8")
    shares = pd.read_csv(folder / "shares.csv", index_col=0)
    assert list(shares.index[:2]) == ["0000.txt", "0008.txt"]
    saved = klnmf.load_model(folder / "letters.klnmf")
    expected = plsi_probabilities(saved.W, saved.model.components_).component_given_sample
    assert expected.shape == (148, 10)
    np.testing.assert_allclose(shares, expected.toarray(), atol=1e-4)


def test_fit_with_scanpy(folder: Path) -> None:
    planted = simulate_counts(300, 200, 15, counts_per_sample=300, random_state=0)
    adata = anndata.AnnData(np.zeros(planted.X.shape), layers={"counts": planted.X})
    adata[:250].write_h5ad(folder / "cells.h5ad")
    adata[250:, :150].write_h5ad(folder / "new_cells.h5ad")
    names: dict[str, Any] = {}
    exec(block_with(WITH_SCANPY, "python"), names)
    cells, new_cells = names["cells"], names["new_cells"]
    assert cells.obsm["X_nmf"].shape == (250, 15)
    assert cells.varm["nmf"].shape == (200, 15)
    assert cells.uns["nmf"]["converged"]
    assert new_cells.obsm["X_nmf"].shape == (50, 15)
    assert new_cells.uns["nmf"]["overlap"]["missing"] == 50
