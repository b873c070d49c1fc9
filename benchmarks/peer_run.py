"""One run of the comparison with peers, in a separate process.

    python -m benchmarks.peer_run JOB FOLDER RESULT

JOB is a :class:`benchmarks.peer_jobs.Job` as JSON, FOLDER holds its matrix ("" for the embedded
one), and RESULT is the file to write. ``benchmarks.peers`` starts this script with the number of
threads set.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.common import start_pair
from benchmarks.memory import settle
from benchmarks.peer_clock import Meter
from benchmarks.peer_jobs import Job
from benchmarks.peer_sets import load_set
from benchmarks.peer_solvers import SOLVERS, quiet
from benchmarks.peer_tables import OURS
from benchmarks.whole_call_worker import whole_call
from klnmf.data.validation import check_counts
from klnmf.simulate import simulate_counts

Array = npt.NDArray[Any]


def balanced_start(X: sp.csr_array, rank: int, seed: int) -> tuple[Array, Array]:
    """The random start of this seed, each component scaled so that W and H have the same mean.

    This does not change the product, and klnmf does not depend on the scale. Others do:
    scikit-learn sets entries of H below 2e-16 to 0 for good, and the steps of poismf depend on it.
    Both draw balanced starts by default.
    """
    W, H = start_pair(X, rank, seed, "random")
    scale = np.sqrt(H.mean(axis=1, dtype=np.float64) / W.mean(axis=0, dtype=np.float64))
    W *= scale.astype(W.dtype)
    H /= scale.astype(H.dtype)[:, None]
    return W, H


def warm_up(job: Job) -> None:
    """Run the solver on tiny data, for imports, compilation and first allocations."""
    tiny = dataclasses.replace(job, rank=3, seconds=0.05)
    X = check_counts(simulate_counts(60, 40, 3, random_state=0).X, dtype=job.dtype)
    solver = SOLVERS[job.solver]
    start = None if solver.own_start else balanced_start(X, tiny.rank, job.seed)
    solver.run(tiny, X, start, Meter(X, before=0))


def run(job: Job, folder: Path | None) -> dict[str, Any]:
    """Measure one run and return its record."""
    warm_up(job)
    solver = SOLVERS[job.solver]
    X = load_set(job.set, folder, job.dtype)
    start = None if solver.own_start else balanced_start(X, job.rank, job.seed)
    load = os.getloadavg()[0]
    # The start is the solver's memory, wherever it was made.
    meter = Meter(X, before=settle() - sum(factor.nbytes for factor in start or ()))
    solver.run(job, X, start, meter)
    ours = {"whole_call": whole_call(X, dataclasses.asdict(job))} if job.solver == OURS else {}
    return (
        dataclasses.asdict(job)
        | ours
        | {
            "shape": list(X.shape),
            "nonzeros": int(X.nnz),
            "points": [
                [round(seconds, 6), iterations, value if math.isfinite(value) else None]
                for seconds, iterations, value in meter.points
            ],
            "peak_bytes": meter.peak,
            "version": solver.version,
            "load_before": load,
        }
    )


def environment() -> dict[str, str]:
    """Versions of common packages, and the processor."""
    packages = ("numpy", "scipy", "scikit-learn", "klnmf")
    versions = {package: importlib.metadata.version(package) for package in packages}
    return versions | {"python": platform.python_version(), "processor": _processor()}


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_json(path: Path, content: Any) -> None:
    """Write a file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, allow_nan=False, indent=1) + "\n")
    os.replace(unfinished, path)


def main() -> int:
    """Read a job, run it, write its result."""
    given, folder, result = sys.argv[1:]
    quiet()
    np.seterr(all="ignore")  # a peer that divides by 0 shows in its divergence
    job = Job(**json.loads(given))
    outcome = run(job, Path(folder) if folder else None)
    write_json(Path(result), outcome | {"environment": environment()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
