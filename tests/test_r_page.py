"""The page for users of R: its blocks are run by R."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "r.md"
NEEDED = """
library(Matrix); library(Seurat); library(reticulate)
invisible(r_to_py(matrix(1.5)))
"""


def r(code: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "RETICULATE_PYTHON": sys.executable}
    command = ["Rscript", "--vanilla", "-"]
    return subprocess.run(
        command, input=code, capture_output=True, text=True, env=settings, check=False
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_every_block_runs() -> None:
    if (found := r(NEEDED)).returncode:
        why = found.stderr.strip().splitlines()[-2:]
        pytest.skip(f"R lacks a package, or its reticulate cannot use this NumPy: {why}")
    blocks = re.findall(r"^```r\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 5
    done = r("\n".join(blocks))
    assert done.returncode == 0, done.stderr
    assert "changing only W, or only H, cannot lower the objective by more than" in done.stdout
