"""The kinds of measurement, each a function of its settings; run as separate processes.

    python -m benchmarks.paper.measurements JOB FOLDER RESULT

JOB is a :class:`benchmarks.paper.jobs.Job` as JSON, FOLDER holds the matrices, and RESULT is the
file to write.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from benchmarks.common import start_pair
from benchmarks.memory import resident, settle
from benchmarks.paper.methods import METHODS
from benchmarks.paper.sets import load_set
from benchmarks.peer_run import environment, write_json
from klnmf import KLNMF, NotCountsWarning, RunOptions
from klnmf.backends.base import Improve, PaperRule
from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import NO_PENALTIES
from klnmf.data.sparse_data import InMemoryData
from klnmf.simulate import simulate_counts
from klnmf.solvers import PaperCoordinateDescent, Solver
from klnmf.solvers.base import Problem

Settings = dict[str, Any]
Result = dict[str, Any]

# The first iterations take longest: no pace is measured on fewer than these, unless they take too
# many times the seconds of the run.
FEWEST_ITERATIONS = 10
LONGEST = 40

# Records kept of a fit, evenly spread over the logarithm of its iterations.
MOST_POINTS = 150


def fit(
    X: sp.csr_array, solver: str | Solver, rank: int, *, threads: int = 1, **more: Any
) -> tuple[KLNMF, list[dict[str, Any]]]:
    """Fit until the callback or max_iter stops it; returns the model and its history."""
    start = more.pop("start", (None, None))
    run = RunOptions(progress=False, callback=more.pop("callback", None))
    parameters = {"tol": 0.0, "max_iter": 100_000, "random_state": 0} | more
    model = KLNMF(rank, solver=solver, n_threads=threads, run=run, **parameters)
    with warnings.catch_warnings():
        # The results say whether a fit converged, and which penalties were on one factor alone.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="Only one of the factors is penalised")
        warnings.simplefilter("ignore", NotCountsWarning)  # the paper's texts have tf-idf weights
        model.fit(X, W=start[0], H=start[1])
    return model, model.history_


def warm_up(solver: str, threads: int) -> None:
    """Fit tiny data, for imports and first allocations."""
    fit(simulate_counts(60, 40, 3, random_state=0).X, solver, 3, threads=threads, max_iter=3)


def rises(history: list[dict[str, Any]]) -> tuple[int, float]:
    """Number of iterations in which the objective rose beyond rounding, and the largest rise."""
    values = np.array([record["objective"] for record in history])
    # After a value that is not finite every finite one is a descent.
    with np.errstate(invalid="ignore"):
        change = np.diff(values) / np.where(np.isfinite(values[:-1]), values[:-1], np.inf)
    risen = np.nan_to_num(change, nan=0.0, posinf=np.inf, neginf=0.0)
    return int((risen > 1e-12).sum()), float(max(risen.max(initial=0.0), 0.0))


def thinned(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """About MOST_POINTS records at most, including the first and the last."""
    last = len(history) - 1
    kept = np.unique(np.geomspace(1, last + 1, MOST_POINTS).round().astype(int) - 1)
    return [history[i] for i in np.union1d(kept, [0, last])]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# ---- Figures 1 and 2, Tables 1 to 3 --------------------------------------------------------------


def curve(settings: Settings, folder: Path | None) -> Result:
    """Divergence against solver seconds; zeros and peak memory at the end."""
    method, rank = METHODS[settings["method"]], settings["rank"]
    warm_up(method.solver, 1)
    X = load_set(settings["set"], folder)
    start = (None, None) if method.own_start else start_pair(X, rank, settings["seed"], "random")
    before = settle()
    model, history = fit(
        X,
        method.solver,
        rank,
        start=start,
        tol=method.tol,
        random_state=settings["seed"],
        callback=lambda record: record["seconds"] >= settings["seconds"],
    )
    peak = resident("VmHWM")
    n_rises, largest = rises(history)
    return {
        "shape": list(X.shape),
        "nonzeros": int(X.nnz),
        "points": [
            [round(r["seconds"], 6), r["iteration"], _finite(r["divergence"])]
            for r in thinned(history)
        ],
        "zeros": [history[-1]["zeros_H"], history[-1]["zeros_W"]],
        "end": _finite(history[-1]["divergence"]),
        "residual": _finite(history[-1]["kkt_residual"]),
        "converged": model.converged_,
        "iterations": len(history),
        "rises": n_rises,
        "largest_rise": _finite(largest),
        # The start is the solver's memory, wherever it was made.
        "peak_bytes": peak - before + sum(f.nbytes for f in start if f is not None),
        "process_bytes": peak,
    }


# ---- Figures 3 and 4 -----------------------------------------------------------------------------


def is_enough(record: dict[str, Any], seconds: float) -> bool:
    """Whether a run that was given these seconds ends with this record."""
    limit = seconds if record["iteration"] >= FEWEST_ITERATIONS else LONGEST * seconds
    return bool(record["seconds"] >= limit)


def growth(settings: Settings, folder: Path | None) -> Result:
    """Seconds of 100 iterations, or of as many as the time allows, but not of the first few alone.

    ``cpu_share`` is the share of the time in which the processor was at work. On a busy machine it
    is below 1, and one thread would have taken that share of the seconds on a quiet one.
    """
    method, rank, threads = METHODS[settings["method"]], settings["rank"], settings["threads"]
    warm_up(method.solver, threads)
    X = load_set(settings["set"], folder)
    start = start_pair(X, rank, 0, "random")
    wall, cpu = time.perf_counter(), time.process_time()
    _, history = fit(
        X,
        method.solver,
        rank,
        start=start,
        threads=threads,
        max_iter=settings["iterations"],
        callback=lambda record: is_enough(record, settings["seconds"]),
    )
    share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    times = [round(record["seconds"], 6) for record in history]
    result = {"iterations": len(history), "seconds": times[-1], "times": times}
    return result | ({"cpu_share": min(1.0, share)} if threads == 1 else {})


def size(settings: Settings, folder: Path | None) -> Result:
    """Seconds of an iteration on random counts of a given shape and number of nonzeros."""
    rows, columns, nonzeros = settings["rows"], settings["columns"], settings["nonzeros"]
    generator = np.random.default_rng(0)
    places = np.unique(generator.integers(rows * columns, size=nonzeros, dtype=np.int64))
    values = generator.geometric(0.6, size=len(places)).astype(np.float64)
    X = sp.csr_array((values, divmod(places, columns)), shape=(rows, columns))
    method = METHODS[settings["method"]]
    warm_up(method.solver, 1)
    _, history = fit(
        X,
        method.solver,
        settings["rank"],
        start=start_pair(X, settings["rank"], 0, "random"),
        max_iter=settings["iterations"],
    )
    seconds = np.diff([record["seconds"] for record in history])
    return {"nonzeros": int(X.nnz), "seconds": float(np.median(seconds))}


# ---- the paper's claims about its algorithm ------------------------------------------------------


def break_test(settings: Settings, folder: Path | None) -> Result:
    """How often the paper's algorithm raises the objective, by the reading of its break test."""
    X, rank = load_set(settings["set"], folder), settings["rank"]
    solver = PaperCoordinateDescent(break_test=settings["reading"])
    _, history = fit(
        X,
        solver,
        rank,
        start=start_pair(X, rank, settings["seed"], "random"),
        max_iter=settings["iterations"],
    )
    n_rises, largest = rises(history)
    return {
        "iterations": len(history),
        "rises": n_rises,
        "largest_rise": _finite(largest),
        "end": _finite(history[-1]["divergence"]),
    }


def subproblem(settings: Settings, folder: Path | None) -> Result:
    """Repeated calls of Algorithm 2 with H fixed: how close it comes to the minimum of f."""
    X, rank = load_set(settings["set"], folder), settings["rank"]
    problem = Problem(CpuBackend(InMemoryData(X), 1), NO_PENALTIES)
    model, _ = fit(X, "srcd", rank, max_iter=30)
    H = np.ascontiguousarray(model.components_.T)
    start = np.ascontiguousarray(start_pair(X, rank, 1, "random")[0])
    order = np.arange(rank, dtype=np.int32)
    best = start.copy()
    problem.update(0, [best, H], Improve(order, rounds=500, passes=8, tolerance=1e-12))
    least = problem.objective([best, H])
    W, excess = start.copy(), []
    for _ in range(settings["calls"]):
        problem.update(0, [W, H], PaperRule(order, 1e-10, 0.1, signed_break=False))
        excess.append(_finite(problem.objective([W, H]) / least - 1))
    return {"excess": excess, "least": least}


# ---- penalties -----------------------------------------------------------------------------------


def penalty(settings: Settings, folder: Path | None) -> Result:
    """A fit under penalties to most of the samples, scored on the others."""
    X, rank = load_set(settings["set"], folder), settings["rank"]
    known, new = train_test_split(X, test_size=0.2, random_state=0)
    weights = {name: settings[name] for name in ("l1_W", "l2_W", "l1_H", "l2_H")}
    model, _ = fit(known, "srcd", rank, tol=3e-4, max_iter=settings["iterations"], **weights)
    W, H = model.transform(known), model.components_
    masses = W.sum(axis=0) * H.sum(axis=1)
    live = masses > 1e-9 * masses.sum()
    return {
        "divergence": model.divergence_,
        "converged": model.converged_,
        "zeros": [float((H[live] == 0).mean()), float((W[:, live] == 0).mean())],
        "live": int(live.sum()),
        "score": model.score(new),
    }


MEASUREMENTS: dict[str, Callable[[Settings, Path | None], Result]] = {
    function.__name__: function
    for function in (curve, growth, size, break_test, subproblem, penalty)
}
MEASUREMENTS["threads"] = growth


def main() -> int:
    """Read a job, measure, write the result."""
    given, folder, result = sys.argv[1:]
    job = json.loads(given)
    started = time.perf_counter()
    outcome = MEASUREMENTS[job["kind"]](job["settings"], Path(folder) if folder else None)
    wall = time.perf_counter() - started
    write_json(Path(result), job | outcome | {"wall": wall, "environment": environment()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
