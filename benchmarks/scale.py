"""Overhead of Dask on one machine, data exchanged by its workers, and scaling by simulation.

    python -m benchmarks.scale                              # 1e7 and 1e8 nonzeros: 8 GB
    python -m benchmarks.scale --nonzeros 1e7

The overhead is the time of an iteration on two workers with one thread each, divided by that of one
process with two threads. Both start from the same factors and alternate. The simulation uses the
task times and message sizes measured here; the workers for 1e10 nonzeros are simulated.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from benchmarks.scaling import counts
from klnmf.backends import make_backend
from klnmf.backends.base import Backend
from klnmf.backends.cpu import column_sums
from klnmf.constraints.penalties import NO_PENALTIES
from klnmf.data.sparse_data import InMemoryData
from klnmf.solvers.base import Problem, State
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.start import start_state

RANK = 20
BANDWIDTH = 10e9 / 8  # bytes a second of a link
# Rows and columns of the matrix that is simulated.
FAR_NONZEROS, FAR_SHAPE = 1e10, (10**8, 10**6)


class Fit:
    """A fit that runs a few iterations at a time."""

    def __init__(self, backend: Backend) -> None:
        self.problem = Problem(backend, NO_PENALTIES)
        self.solver = SparseCoordinateDescent(swap_failures=0)
        backend.data.prepare()
        self.state: State = start_state(self.problem, RANK, "samples", seed=0)
        self.solver.prepare(self.problem, self.state)

    def iterate(self, n_iterations: int) -> float:
        """Return the seconds per iteration, including records of the history."""
        started = time.perf_counter()
        for _ in range(n_iterations):
            self.solver.iterate(self.problem, self.state)
            self.state.iteration += 1
            for factor in self.state.factors:
                self.problem.backend.count_zeros(factor)
        return (time.perf_counter() - started) / n_iterations


@dataclass
class Measured:
    """Measurements on one machine."""

    nonzeros: int
    shape: tuple[int, int]
    cpu: float  # seconds per iteration
    dask: float
    ratio: float  # median over the turns
    need: float  # bytes that two workers must send each other, per iteration


def measure(nonzeros: int, turns: int, iterations: int) -> Measured:
    """Alternate iterations of both back-ends on the same data."""
    X = counts(nonzeros, exponent=1.0)
    cpu = Fit(make_backend("cpu", InMemoryData(X), 2))
    backend = make_backend("dask", cpu.problem.backend.data, 2)
    try:
        dask = Fit(backend)
        for fit in (cpu, dask):
            fit.iterate(5)  # until most entries are 0, as they are in a fit
        pairs = [(cpu.iterate(iterations), dask.iterate(iterations)) for _ in range(turns)]
        factors = [backend.download(factor) for factor in dask.state.factors]
        for ours, theirs in zip(factors, cpu.state.factors, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    finally:
        backend.close()
    # Two workers: each needs the half of each fixed factor that it does not hold.
    need = sum(factor.nbytes for factor in factors)
    return Measured(
        X.nnz,
        X.shape,
        min(a for a, _ in pairs),
        min(b for _, b in pairs),
        float(np.median([b / a for a, b in pairs])),
        need,
    )


def show(measured: list[Measured]) -> None:
    print(f"\nr = {RANK}, float32: 2 workers of 1 thread each against 2 threads")
    print("nonzeros   2 threads   dask   ratio  MB needed")
    for m in measured:
        print(
            f"{m.nonzeros:8.1e} {m.cpu:9.3f} s {m.dask:6.3f} s {m.ratio:6.2f} {m.need / 1e6:9.1f}"
        )


# ---- simulation ----------------------------------------------------------------------------------


@dataclass
class Costs:
    """Measurements that the simulation uses."""

    nonzero: float  # seconds of one thread a nonzero × component of a half-step
    copy: float  # seconds to copy and add up an entry of a factor
    round: float  # seconds of a round, and
    worker: float  # of each worker in it


def copying_cost() -> float:
    """Seconds to copy an entry of a factor to its place among all rows, and to add it up."""
    rows = np.ones((1_000_000, RANK), dtype=np.float32)
    target, times = np.empty_like(rows), []
    for _ in range(5):
        started = time.perf_counter()
        np.copyto(target, rows)
        column_sums(target)
        times.append(time.perf_counter() - started)
    return min(times) / rows.size


def round_costs() -> tuple[float, float]:
    """Seconds of an empty round, and of each worker in it, from clusters of several sizes."""
    sizes, seconds = [2, 8, 32], []
    for size in sizes:
        with (
            LocalCluster(
                n_workers=size, threads_per_worker=1, processes=False, dashboard_address=":0"
            ) as cluster,
            Client(cluster) as client,
        ):
            times = []
            for _ in range(20):
                started = time.perf_counter()
                client.run(int)
                times.append(time.perf_counter() - started)
            seconds.append(float(np.median(times)))
    slope, start = np.polyfit(sizes, seconds, 1)
    return max(float(start), 1e-3), float(slope)


def simulate(costs: Costs, workers: int, threads: int) -> dict[str, float]:
    """Seconds of an iteration, by kind of work."""
    n_components = RANK
    share = FAR_NONZEROS * n_components / (workers * threads)
    seconds = {"kernels": 2 * share * costs.nonzero, "links": 0.0, "copying": 0.0}
    for rows in FAR_SHAPE:
        entries = rows * n_components
        others = entries * (workers - 1) / workers
        seconds["links"] += others * 4 / BANDWIDTH
        seconds["copying"] += entries * costs.copy
    # Two half-steps and two extrapolations.
    seconds["rounds"] = 4 * (costs.round + costs.worker * workers)
    seconds["all"] = sum(seconds.values())
    return seconds


def show_simulation(costs: Costs) -> list[dict[str, Any]]:
    print(f"\nSimulated: {FAR_NONZEROS:.0e} nonzeros, {FAR_SHAPE[0]:.0e} × {FAR_SHAPE[1]:.0e}, ")
    print(f"r = {RANK}, links of 10 Gbit/s; from {costs}")
    print(
        "workers x threads   iteration   kernels   links   copying   rounds   speed-up over 16 x 1"
    )
    base = simulate(costs, 16, 1)["all"]
    records = []
    for threads in (1, 16):
        for workers in (16, 64, 256):
            seconds = simulate(costs, workers, threads)
            records.append({"workers": workers, "threads": threads, **seconds})
            parts = " ".join(
                f"{seconds[part]:8.2f}" for part in ("kernels", "links", "copying", "rounds")
            )
            print(
                f"{workers:7} x {threads:<7} {seconds['all']:10.2f} s {parts} "
                f"{base / seconds['all']:10.1f}"
            )
    return records


def main() -> None:
    """Measure and simulate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nonzeros", type=float, nargs="+", default=[1e7, 1e8])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=4, help="of a turn")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    measured = []
    for nonzeros in args.nonzeros:
        measured.append(measure(int(nonzeros), args.turns, args.iterations))
        show(measured[-1:])
    show(measured)
    last = measured[-1]
    costs = Costs(
        2 * last.cpu / (2 * last.nonzeros * RANK),
        copying_cost(),
        *round_costs(),
    )
    records = show_simulation(costs)
    if args.json:
        results = {"measured": [vars(m) for m in measured], "simulated": records}
        args.json.write_text(json.dumps({**results, "costs": vars(costs)}, indent=1))


if __name__ == "__main__":
    main()
