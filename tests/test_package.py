"""The package itself: its names are there, and nothing is imported before it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import klnmf


@pytest.mark.parametrize("imported", ["klnmf", "klnmf.cli.main"])
def test_an_import_does_not_wait_for_large_libraries(imported: str) -> None:
    code = (
        f"import sys, {imported}; print(sorted({{'numpy', 'scipy', 'sklearn'}} & {{*sys.modules}}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_names_are_found_when_asked_for() -> None:
    for name in klnmf.__all__:
        assert getattr(klnmf, name) is not None
    assert klnmf.KLNMF is klnmf.KLNMF
    assert klnmf.KLNMF.__module__ == "klnmf.estimators"
    assert set(klnmf.__all__) <= set(dir(klnmf))


def test_modules_are_found_when_asked_for() -> None:
    code = "import klnmf; print(klnmf.simulate.simulate_counts(3, 4, 2, random_state=0).X.shape)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "(3, 4)\n"
    for name in ("datasets", "model_selection", "plots", "topics", "uncertainty"):
        assert getattr(klnmf, name).__name__ == f"klnmf.{name}"


def test_other_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NMF'"):
        klnmf.NMF  # noqa: B018
