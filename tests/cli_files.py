"""Counts and a model in files, for the tests of commands."""

from __future__ import annotations

from pathlib import Path

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
