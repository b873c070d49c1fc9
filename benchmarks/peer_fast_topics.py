"""Poisson NMF of R's fastTopics in the comparison with peers, where R has it.

The divergence of its factors is half of their deviance. Rows and columns of X without
counts are left out of what it gets; their factors are 0.
"""

from __future__ import annotations

import functools
import math
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.peer_clock import Meter
from benchmarks.peer_jobs import Job

Array = npt.NDArray[Any]
SCRIPT = Path(__file__).with_name("fast_topics.R")
QUESTION = """
if (requireNamespace("fastTopics", quietly = TRUE)) cat(format(packageVersion("fastTopics")))
"""


@functools.cache
def version() -> str | None:
    """The version that R has; None without it or without R."""
    program = shutil.which("Rscript")
    if program is None:
        return None
    answer = subprocess.run([program, "-e", QUESTION], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def run_fast_topics(
    job: Job,
    X: sp.csr_array,
    start: tuple[Array, Array] | None,
    meter: Meter,
    extrapolate: bool = False,
) -> None:
    """Run it in R, from the same start; there is a point for each of its calls of some iterations.

    The last divergence is also computed from the factors, and both must agree.
    """
    assert start is not None
    rows, columns = (np.flatnonzero(X.sum(axis=axis)) for axis in (1, 0))
    W, H = np.zeros_like(start[0]), np.zeros_like(start[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        by_columns = sp.csc_array(sp.csr_array(X[rows])[:, columns])
        by_columns.indptr.astype(np.int32).tofile(folder / "p.bin")
        by_columns.indices.astype(np.int32).tofile(folder / "i.bin")
        by_columns.data.astype(np.float64).tofile(folder / "x.bin")
        start[0][rows].T.astype(np.float64).tofile(folder / "L.bin")
        start[1][:, columns].astype(np.float64).tofile(folder / "F.bin")
        settings = {"n": len(rows), "m": len(columns), "r": job.rank, "nonzeros": X.nnz}
        settings |= {"threads": job.threads, "extrapolate": int(extrapolate)}
        names, values = [*settings, "seconds"], [*settings.values(), job.seconds]
        text = ",".join(names) + "\n" + ",".join(map(str, values)) + "\n"
        (folder / "settings.csv").write_text(text)
        _rscript(folder)
        points = np.loadtxt(folder / "points.csv", delimiter=",", skiprows=1, ndmin=2)
        before, peak = np.loadtxt(folder / "memory.csv", delimiter=",", skiprows=1)
        W[rows] = np.fromfile(folder / "L.bin").reshape(job.rank, -1).T
        H[:, columns] = np.fromfile(folder / "F.bin").reshape(job.rank, -1)
    meter.points = [(float(s), int(i), float(value)) for s, i, value in points]
    meter.seconds, meter.peak = float(points[-1, 0]), int(peak - before)
    meter.snapshot(int(points[-1, 1]), W, H)
    told, found = meter.points[-2][2], meter.points[-1][2]
    if not math.isclose(told, found, rel_tol=1e-5):
        raise RuntimeError(f"fastTopics says {told!r}, but its factors have {found!r}.")


def _rscript(folder: Path) -> None:
    command = [shutil.which("Rscript") or "Rscript", str(SCRIPT), str(folder)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode:
        raise RuntimeError(" ".join(child.stderr.strip().splitlines()[-2:]))
