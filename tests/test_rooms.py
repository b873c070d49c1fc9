"""What a call loads, and what lies at the top level of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import klnmf

FIT = """
import sys
import numpy as np
import klnmf
X = np.random.default_rng(0).poisson(1.0, (30, 12))
model = klnmf.KLNMF(2, random_state=0, max_iter=20, tol=1.0).fit(X)
model.transform(X)
print(*sys.modules)
"""
NOT_FOR_A_FIT_IN_MEMORY = (
    "klnmf.cli",
    "klnmf.datasets",
    "klnmf.plots",
    "klnmf.readers",
    "klnmf.texts",
    "klnmf.backends.cuda",
    "klnmf.backends.dask",
    "cupy",
    "dask",
    "distributed",
    "h5py",
    "matplotlib",
)


def loaded_by(code: str) -> set[str]:
    """Modules that a fresh interpreter has loaded at the end."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_fit_in_memory_loads_no_reader_data_set_dask_or_writer() -> None:
    loaded = loaded_by(FIT)
    assert "klnmf.estimators.kl_nmf" in loaded
    assert loaded.isdisjoint(NOT_FOR_A_FIT_IN_MEMORY), loaded.intersection(NOT_FOR_A_FIT_IN_MEMORY)


def test_importing_the_package_loads_nothing_of_it() -> None:
    loaded = loaded_by("import sys, klnmf; print(*sys.modules)")
    assert {name for name in loaded if name.startswith("klnmf")} == {"klnmf"}
    assert "numpy" not in loaded


@pytest.mark.parametrize("name", dir(klnmf))
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(klnmf, name) is not None


def test_modules_at_the_top_level_are_those_that_users_import() -> None:
    top = Path(klnmf.__file__).parent
    files = {path.stem for path in top.glob("*.py")} - {"__init__", "__main__"}
    assert files <= set(dir(klnmf))
