"""examples/single_cells.py runs to its end, and finds what was planted."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp

EXAMPLE = Path(__file__).parents[1] / "examples" / "single_cells.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("single_cells_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example_runs_on_simulated_cells(
    example: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    figure = tmp_path / "figure.png"
    monkeypatch.setattr(sys, "argv", ["single_cells.py", "--output", str(figure)])
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "simulated cells: 800 cells x 3,000 genes"
    assert figure.stat().st_size > 20_000
    # Each planted type has a program of its own, which makes up most of its cells.
    table = np.array([line.split()[2:-1] for line in lines if line.startswith("type ")], dtype=int)
    assert table.shape == (6, 6)
    assert sorted(table.argmax(axis=1)) == list(range(6))
    assert table.max(axis=1).min() > 60


def test_filter_prefers_genes_that_vary_beyond_chance(example: ModuleType) -> None:
    generator = np.random.default_rng(0)
    rates = np.full((400, 50), 2.0)
    rates[:200, :5] *= 4  # five genes tell the cells apart
    X = sp.csr_matrix(generator.poisson(rates * generator.lognormal(0, 0.5, (400, 1))))
    everything = np.ones(50, dtype=bool)
    mask = example.informative_genes(X, everything, 5)
    np.testing.assert_array_equal(np.flatnonzero(mask), np.arange(5))
    mask = example.informative_genes(X, np.arange(50) != 2, 4)
    np.testing.assert_array_equal(np.flatnonzero(mask), [0, 1, 3, 4])
