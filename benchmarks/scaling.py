"""Cost of a half-step by number of threads, nonzeros, rank and unevenness of columns.

    python -m benchmarks.scaling                         # all of it; 1e8 nonzeros need 8 GB
    python -m benchmarks.scaling --largest 1e7 --only threads

Threads are compared with independent work in the same run: as many threads, each with a separate
matrix and kernel call. What these lose to each other (shared caches, memory, other load on the
machine) no parallel code can avoid. The printed efficiency is the speed-up of one half-step on k
threads, divided by the gain in throughput of k independent ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp

from klnmf.backends.base import Improve
from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import NO_PENALTIES
from klnmf.data.sparse_data import InMemoryData
from klnmf.solvers.base import Problem

Array = np.ndarray
NONZEROS_PER_ROW = 100


def counts(nnz: int, exponent: float, seed: int = 0) -> sp.csr_array:
    """Counts with column frequencies rank ** -exponent; 0 gives equal frequencies.

    Rows have 100 draws each, from a tenth as many columns as rows but at least 2,000.
    """
    generator = np.random.default_rng(seed)
    n = nnz // NONZEROS_PER_ROW
    m = max(2_000, n // 10)
    popularity = np.arange(1, m + 1) ** -exponent
    edges = np.cumsum(popularity) / popularity.sum()
    blocks = []
    for start in range(0, n, 10_000):  # little memory beside the result
        rows = min(10_000, n - start)
        columns = np.searchsorted(edges, generator.random(rows * NONZEROS_PER_ROW)).astype(np.int32)
        indptr = np.arange(rows + 1, dtype=np.int32) * NONZEROS_PER_ROW
        values = np.ones(len(columns), dtype=np.float32)
        block = sp.csr_array((values, np.minimum(columns, m - 1), indptr), shape=(rows, m))
        block.sum_duplicates()
        blocks.append(block)
    return sp.csr_array(sp.vstack(blocks, format="csr"))


class HalfSteps:
    """Both half-steps of one problem, always from the factors after three iterations."""

    def __init__(self, X: sp.csr_array, rank: int, n_threads: int = 1, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.nnz, self.rank = X.nnz, rank
        self.problem = Problem(CpuBackend(InMemoryData(X), n_threads), NO_PENALTIES)
        self.problem.backend.data.prepare()
        self.rule = Improve(np.arange(rank, dtype=np.int32), passes=2, want_value=False)
        self.start = [generator.random((size, rank), dtype=np.float32) for size in X.shape]
        for _ in range(3):  # until most entries are 0, as they are in a fit
            for mode in (0, 1):
                self.problem.update(mode, self.start, self.rule)
        self.x = [factor.copy() for factor in self.start]

    def run(self, modes: tuple[int, ...] = (0, 1)) -> None:
        """Do the half-steps of these modes from the same start."""
        for mode in modes:
            np.copyto(self.x[mode], self.start[mode])
            factors = list(self.start)
            factors[mode] = self.x[mode]
            self.problem.update(mode, factors, self.rule)


def least_seconds(action: Callable[[], Any], budget: float = 1.0, repeats: int = 3) -> float:
    """Minimum time of several runs: at least `repeats`, and as many as fit in the budget."""
    times: list[float] = []
    while len(times) < repeats or sum(times) < budget:
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def run_all(pool: ThreadPoolExecutor, crowd: list[HalfSteps]) -> None:
    """Run them at the same time, each on a separate thread."""
    list(pool.map(HalfSteps.run, crowd))


def nanoseconds(steps: HalfSteps) -> float:
    """Nanoseconds per nonzero × component, the mean of both half-steps."""
    return least_seconds(steps.run) * 1e9 / (2 * steps.nnz * steps.rank)


# ---- what grows ----------------------------------------------------------------------------------


def threads(nnz: int, most: int, rank: int = 20) -> list[dict[str, Any]]:
    """Efficiency of 2, 4, … threads against independent work, for even and uneven columns."""
    print(f"\nThreads ({nnz:.0e} nonzeros, r = {rank}): speed-up, independent work, efficiency")
    numbers = sorted({2**i for i in range(1, 12) if 2**i <= most} | {most})
    records = []
    for label, exponent in (("even columns", 0.0), ("Zipf columns", 1.0)):
        X = counts(nnz, exponent)
        longest = int(np.diff(X.T.tocsr().indptr).max()) / X.nnz
        alone = HalfSteps(X, rank)
        crowd = [alone] + [HalfSteps(X, rank, seed=i) for i in range(1, most)]
        for number in numbers:
            together = HalfSteps(X, rank, n_threads=number)
            with ThreadPoolExecutor(number) as pool:
                ratios = []
                for _ in range(3):  # all three of them under the same load
                    one = least_seconds(alone.run, budget=0.5)
                    independent = least_seconds(partial(run_all, pool, crowd[:number]), budget=0.5)
                    parallel = least_seconds(together.run, budget=0.5)
                    ratios.append((one / parallel, number * one / independent))
            speedup, throughput = np.median(ratios, axis=0)
            record = {
                "columns": label,
                "longest column": longest,
                "threads": number,
                "speedup": float(speedup),
                "independent": float(throughput),
                "efficiency": float(speedup / throughput),
            }
            records.append(record)
            print(
                f"  {label}, longest {100 * longest:.2f} % of X, {number:>3} threads: "
                f"{speedup:5.2f} {throughput:5.2f} {100 * speedup / throughput:5.0f} %",
                flush=True,
            )
    return records


def nonzeros(largest: float, rank: int = 20) -> list[dict[str, Any]]:
    """Nanoseconds by number of nonzeros, for even and uneven columns."""
    print(f"\nNonzeros (r = {rank}, one thread): ns per nonzero x component, even / Zipf columns")
    records = []
    sizes = [10**power for power in range(5, 9) if 10**power <= largest]
    for nnz in sizes:
        even, zipf = (nanoseconds(HalfSteps(counts(nnz, s), rank)) for s in (0.0, 1.0))
        records.append({"nonzeros": nnz, "even": even, "zipf": zipf})
        print(f"  {nnz:.0e}: {even:.3f} / {zipf:.3f}", flush=True)
    return records


def ranks(nnz: int) -> list[dict[str, Any]]:
    """Nanoseconds by rank."""
    print(f"\nRank ({nnz:.0e} nonzeros, Zipf columns, one thread): ns per nonzero x component")
    X = counts(nnz, 1.0)
    records = []
    for rank in (10, 20, 30, 50, 75, 100):
        value = nanoseconds(HalfSteps(X, rank))
        records.append({"rank": rank, "nanoseconds": value})
        print(
            f"  r = {rank}: {value:.3f} (a half-step: {value * nnz * rank / 1e6:.1f} ms)",
            flush=True,
        )
    return records


def main() -> None:
    """Measure the selected parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=float, default=1e8, help="largest number of nonzeros")
    parser.add_argument("--threads", type=int, default=joblib.cpu_count(), help="most threads")
    parser.add_argument(
        "--only", nargs="+", default=["threads", "nonzeros", "ranks"], metavar="PART"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    parts: dict[str, Callable[[], Any]] = {
        "threads": lambda: threads(int(min(args.largest, 1e7)), args.threads),
        "nonzeros": lambda: nonzeros(args.largest),
        "ranks": lambda: ranks(int(min(args.largest, 1e6))),
    }
    unknown = set(args.only) - set(parts)
    if unknown:
        parser.error(f"unknown part: {', '.join(unknown)}; there are {', '.join(parts)}")
    results = {part: parts[part]() for part in args.only}
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
