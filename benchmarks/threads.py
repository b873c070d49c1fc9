"""Speed-up of every part of a fit by number of threads, beside independent processes.

    python -m benchmarks.threads                                    # simulated counts
    python -m benchmarks.threads --data DIR --sets reuters21578 --threads 1 2 4 8 16

Parts: the checks of X with its sums and its transpose, the start, both half-steps, an evaluation,
whole fits (the default, cut at ``--iterations``). For each number of threads: milliseconds, the
speed-up against one thread, the gain in throughput of as many independent processes with one thread
each (what shared caches, memory and other load leave to anyone), and the share of it that the
threads reach. A part that is slower than with fewer threads is marked "slower".
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections.abc import Callable
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp

from benchmarks.common import add_data_argument, load_matrix
from benchmarks.scaling import HalfSteps, counts, least_seconds
from klnmf import KLNMF
from klnmf.backends import make_backend
from klnmf.solvers.start import start_state

Action = Callable[[], Any]
# Slower than with fewer threads by more than this is no noise.
NOISE = 1.1


def parts_of_fit(X: sp.csr_array, rank: int, n_threads: int, iterations: int) -> dict[str, Action]:
    """Return what is timed, by name, ready to be called."""
    steps = HalfSteps(X, rank, n_threads)
    model = KLNMF(n_components=rank, random_state=0, n_threads=n_threads, max_iter=iterations)

    def checks() -> None:
        data = model._checked(X, {}, reset=True).data
        make_backend("auto", data, n_threads).data.prepare()

    return {
        "checks and transpose": checks,
        "start": lambda: start_state(steps.problem, rank, "samples", 0),
        "half-step of W": lambda: steps.run((0,)),
        "half-step of H": lambda: steps.run((1,)),
        "evaluation": lambda: steps.problem.evaluate(steps.start),
        "whole fit": lambda: model.fit(X),
    }


# ---- independent processes -----------------------------------------------------------------------

# In a worker: its parts, and the barrier at which all workers meet before they start.
_worker: dict[str, Any] = {}


def _begin(barrier: Any, X: sp.csr_array, rank: int, iterations: int) -> None:
    warnings.simplefilter("ignore")
    _worker["barrier"] = barrier
    _worker["parts"] = parts_of_fit(X, rank, 1, iterations)


def _seconds_among_others(task: tuple[str, float]) -> float:
    part, budget = task
    action = _worker["parts"][part]
    action()
    _worker["barrier"].wait()
    started, n_runs = time.perf_counter(), 0
    while n_runs == 0 or time.perf_counter() - started < budget:
        action()
        n_runs += 1
    return (time.perf_counter() - started) / n_runs


def throughput(pool: Pool, number: int, part: str, budget: float, alone: float) -> float:
    """Gain in throughput of so many processes that do a part at the same time."""
    seconds = pool.map(_seconds_among_others, [(part, budget)] * number, chunksize=1)
    return sum(alone / each for each in seconds)


# ---- the table -----------------------------------------------------------------------------------


def measured(
    X: sp.csr_array, rank: int, numbers: list[int], iterations: int, budget: float
) -> list[dict[str, Any]]:
    """Measure and print every part at every number of threads."""
    records: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    alone: dict[str, float] = {}
    fastest: dict[str, float] = {}
    for number in numbers:
        parts = parts_of_fit(X, rank, number, iterations)
        settings = (context.Barrier(number), X, rank, iterations)
        with context.Pool(number, _begin, settings) as pool:
            for part, action in parts.items():
                action()
                seconds = least_seconds(action, budget=budget)
                if number == 1:
                    alone[part] = seconds
                gain = throughput(pool, number, part, budget, alone[part])
                record = {
                    "part": part,
                    "threads": number,
                    "milliseconds": 1e3 * seconds,
                    "speedup": alone[part] / seconds,
                    "independent": gain,
                    "efficiency": alone[part] / seconds / gain,
                    "is_slower": seconds > NOISE * fastest.get(part, np.inf),
                }
                fastest[part] = min(seconds, fastest.get(part, np.inf))
                records.append(record)
                print(
                    f"  {number:>3} threads  {part:<21}{record['milliseconds']:>10.2f} ms"
                    f"{record['speedup']:>8.2f}{gain:>8.2f}{100 * record['efficiency']:>6.0f} %"
                    f"{'  slower' if record['is_slower'] else ''}",
                    flush=True,
                )
    return records


def main() -> None:
    """Measure the chosen sets."""
    most = joblib.cpu_count()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--sets", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--nnz", nargs="+", type=float, default=[1e6, 8e6], help="if no sets are")
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=20, help="of whole fits, at most")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds for each figure")
    parser.add_argument(
        "--threads", nargs="+", type=int, default=[n for n in (1, 2, 4, 8, 16, 32) if n <= most]
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # fits are cut short
    numbers = sorted({1, *args.threads})
    matrices: dict[str, Callable[[], sp.csr_array]] = {
        name: lambda name=name: load_matrix(args.data, name) for name in args.sets
    } or {f"simulated, {nnz:.0e}": lambda nnz=nnz: counts(int(nnz), 1.0) for nnz in args.nnz}
    results = {}
    for name, load in matrices.items():
        X = load()
        print(f"\n{name}: {X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} nonzeros, r = {args.rank}")
        print("  time, speed-up, that of independent processes, share of it")
        results[name] = measured(X, args.rank, numbers, args.iterations, args.budget)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
