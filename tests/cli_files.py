"""Counts and a model in files, for the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from klnmf.cli import main
from klnmf.readers import CountTable, write_counts
from klnmf.simulate import simulate_counts

SAMPLES = [f"doc{i}" for i in range(60)]
WORDS = [f"word{j}" for j in range(40)]


def write_counts_file(folder: Path) -> Path:
    """counts.npz with names and labels."""
    X = simulate_counts(60, 40, 3, counts_per_sample=80, random_state=0).X
    labels = ["odd" if i % 2 else "even" for i in range(60)]
    write_counts(CountTable(X, SAMPLES, WORDS, labels), folder / "counts.npz")
    return Path("counts.npz")


@pytest.fixture(name="counts")
def counts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """counts.npz with names, in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    return write_counts_file(tmp_path)


@pytest.fixture(name="model")
def model_file(counts: Path) -> Path:
    assert main(["fit", str(counts), "-r", "3", "-o", "model.klnmf", "-q"]) == 0
    return Path("model.klnmf")
