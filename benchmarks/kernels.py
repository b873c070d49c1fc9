"""Cost of a half-step, in nanoseconds and instructions per nonzero × component, on one thread.

There are three parts: the half-steps of a fit on real data, at the start and after 12 iterations;
the half-step of the samples on simulated rows of equal length; and instructions counted by
valgrind, which do not depend on the load of the machine. Times are the minimum over several
repeats.

    python -m benchmarks.kernels --data DIR --json kernels.json
    python -m benchmarks.kernels --no-callgrind       # without valgrind; simulated data alone
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import add_data_argument, load_matrix, start_pair
from klnmf import KLNMF, RunOptions
from klnmf.backends.base import Fixed, Improve, Multiply, Rule
from klnmf.backends.cpu import CpuBackend, instruction_set
from klnmf.data.sparse_data import InMemoryData
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem

Array = npt.NDArray[Any]
Figure = dict[str, Any]

SETS = ("reuters21578", "tdt2_top30", "pbmc3k")
RANKS = (10, 20, 50)
STATES = ("first", "warm")
WARM_ITERATIONS = 12
MIN_REPEATS = 5

ZEROS = "zeros of x (share)"  # what the guarded rule's cost depends on
MU, GUARDED, GUARDED_VALUE = "mu", "guarded, 2 sweeps", "guarded, 2 sweeps, value"
# (set, rule, rank): nanoseconds for each nonzero × component to compare with, mean of W and H.
FLOORS = {
    ("tdt2_top30", GUARDED, 20): 0.8,
    ("tdt2_top30", GUARDED, 50): 0.5,
    ("tdt2_top30", MU, 50): 0.25,
}

# Simulated rows of one length.
LENGTHS = (4, 16, 64, 256, 1024, 4096)
SIMULATED_RANKS = (10, 20, 50, 100)
SIMULATED_NONZEROS, SIMULATED_FEATURES = 1_000_000, 20_000
ZEROS_OF_A = 0.7

# Counted by callgrind: far fewer nonzeros, and features too, so that they remain most of the work.
COUNTED_LENGTHS = (16, 128, 1024)
COUNTED_RULES = (MU, GUARDED, GUARDED_VALUE)
COUNTED_NONZEROS, COUNTED_FEATURES, COUNTED_RANK = 100_000, 2_000, 20
# The extension has no symbols to switch the counting by. So the child calls this function of libc
# before and after each half-step, and callgrind writes and resets its counts at every call.
MARK = "getsid"


# ---- half-steps ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One half-step to measure: the factor ``x`` of ``mode`` moves, with ``A`` fixed."""

    problem: Problem
    mode: int
    x: Array
    A: Array

    def nanoseconds(self, rule: Rule, seconds: float) -> float:
        """Minimum processor time per nonzero × component, over repeats of this many seconds."""
        times: list[float] = []
        x = np.empty_like(self.x)
        factors = [x, self.A] if self.mode == 0 else [self.A, x]
        while len(times) < MIN_REPEATS or sum(times) < seconds:
            np.copyto(x, self.x)
            started = time.process_time()  # one thread: the load of the machine does not count
            self.problem.update(self.mode, factors, rule)
            times.append(time.process_time() - started)
        return per_unit(1e9 * min(times), self.problem.backend.data.nnz, x.shape[1])


def per_unit(cost: float, nonzeros: int, rank: int) -> float:
    """Cost per nonzero × component."""
    return cost / (nonzeros * rank)


def rules_of(rank: int) -> dict[str, Rule]:
    """All measured rules, by name."""
    order = np.random.default_rng(0).permutation(rank).astype(np.int32)
    rules: dict[str, Rule] = {MU: Multiply()}
    for sweeps in (1, 2):
        name = f"guarded, {sweeps} sweep{'s' if sweeps > 1 else ''}"
        rules[name] = Improve(order, passes=sweeps, want_value=False)
        rules[f"{name}, value"] = Improve(order, passes=sweeps, want_value=True)
    return rules


def print_table(title: str, columns: list[str], rows: dict[Any, list[float]]) -> None:
    """Print one number per column, in columns as wide as their names."""
    print(f"  {title:<26}", *(f"{column:>8}" for column in columns))
    for label, costs in rows.items():
        cells = (f"{x:{max(8, len(c))}.3f}" for x, c in zip(costs, columns, strict=True))
        print(f"  {label:<26}", *cells)


def problem_of(X: sp.csr_array) -> Problem:
    """Return the problem without penalties, on one thread."""
    return Problem(CpuBackend(InMemoryData(X), n_threads=1), Penalties())


# ---- real data -----------------------------------------------------------------------------------


def factors_of(X: sp.csr_array, rank: int, state: str) -> tuple[Array, Array]:
    """W and H (tall): the start of a fit, or what it returns after a few iterations."""
    if state == "first":
        W, components = start_pair(X, rank, seed=0)
    else:
        run = RunOptions(progress=False)
        model = KLNMF(rank, max_iter=WARM_ITERATIONS, n_threads=1, random_state=0, run=run)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            W = model.fit_transform(X)
        components = model.components_
    return np.ascontiguousarray(W), np.ascontiguousarray(components.T)


def measure_set(name: str, X: sp.csr_array, ranks: list[int], seconds: float) -> list[Figure]:
    """Time both half-steps for all ranks, states and rules."""
    problem = problem_of(X)
    problem.backend.data.prepare()
    figures = []
    for rank, state in itertools.product(ranks, STATES):
        W, H = factors_of(X, rank, state)
        cases = (Case(problem, 0, W, H), Case(problem, 1, H, W))
        for label, rule in rules_of(rank).items():
            of_W, of_H = (case.nanoseconds(rule, seconds) for case in cases)
            costs = {"W": of_W, "H": of_H, "mean": 0.5 * (of_W + of_H)}
            figures.append({"set": name, "rank": rank, "state": state, "rule": label, **costs})
    return figures


def print_set(name: str, X: sp.csr_array, ranks: list[int], figures: list[Figure]) -> None:
    """Print a table for each state: a row for each rule, and W, H and their mean at each rank."""
    columns = list(itertools.product(ranks, ("W", "H", "mean")))
    cost = {(f["state"], f["rule"], f["rank"], x): f[x] for f in figures for _, x in columns}
    print(f"\n{name}: {X.shape[0]} × {X.shape[1]}, {X.nnz} nonzeros; W, H and mean at each rank")
    for state in STATES:
        title = "first (start)" if state == "first" else f"warm ({WARM_ITERATIONS} iterations)"
        rows = {rule: [cost[state, rule, *column] for column in columns] for rule in rules_of(1)}
        print_table(title, [f"{x} {rank}" for rank, x in columns], rows)


def print_floors(figures: list[Figure]) -> None:
    """Print the figures that have a lower bound."""
    print("\nMean of both factors, beside the floors (ns per nonzero × component)")
    for (name, rule, rank), floor in FLOORS.items():
        found = [f for f in figures if (f["set"], f["rule"], f["rank"]) == (name, rule, rank)]
        cells = ", ".join(f"{f['state']} {f['mean']:.3f}" for f in found) or "not measured"
        print(f"  >> {name}, r = {rank}, {rule}: {cells}   (floor {floor})")


# ---- simulated rows of one length ----------------------------------------------------------------


def equal_rows(length: int, nonzeros: int, n_features: int, dtype: Any) -> sp.csr_array:
    """Small counts, equally many in each row, at random columns.

    Columns are sorted draws from n_features − length + 1 numbers, the i-th moved on by i: distinct.
    """
    generator = np.random.default_rng(length)
    n_rows = max(1, round(nonzeros / length))
    draws = generator.integers(n_features - length + 1, size=(n_rows, length), dtype=np.int32)
    draws.sort(axis=1)
    columns = (draws + np.arange(length, dtype=np.int32)).ravel()
    values = (1 + generator.poisson(0.5, size=n_rows * length)).astype(dtype)
    indptr = np.arange(n_rows + 1, dtype=np.int32) * np.int32(length)
    return sp.csr_array((values, columns, indptr), shape=(n_rows, n_features))


def sparse_factor(n_rows: int, rank: int, dtype: Any) -> Array:
    """Random factor with zeros, and at least one positive entry in every row."""
    generator = np.random.default_rng(rank)
    positive = 0.05 + generator.random((n_rows, rank))
    keep = generator.random((n_rows, rank)) >= ZEROS_OF_A
    keep[np.arange(n_rows), generator.integers(rank, size=n_rows)] = True
    return np.where(keep, positive, 0).astype(dtype)


def simulated_case(X: sp.csr_array, rank: int) -> Case:
    """Return the half-step of the samples with such a factor, after two guarded ones."""
    problem = problem_of(X)
    A = sparse_factor(X.shape[1], rank, X.dtype)
    scale = X.sum() / (X.shape[0] * A.sum(dtype=np.float64))
    noise = 0.5 + np.random.default_rng(rank).random((X.shape[0], rank))
    x = (scale * noise).astype(X.dtype)
    for _ in range(2):
        problem.update(0, [x, A], rules_of(rank)[GUARDED])
    return Case(problem, 0, x, A)


def measure_simulated(dtype: Any, seconds: float) -> list[Figure]:
    """Time the samples' half-step for all lengths and ranks."""
    figures = []
    for length in LENGTHS:
        X = equal_rows(length, SIMULATED_NONZEROS, SIMULATED_FEATURES, dtype)
        for rank in SIMULATED_RANKS:
            case, rules = simulated_case(X, rank), rules_of(rank)
            costs = {name: case.nanoseconds(rules[name], seconds) for name in (MU, GUARDED)}
            costs[ZEROS] = float(np.mean(case.x == 0))
            figures.append({"length": length, "rank": rank, **costs})
    return figures


def print_simulated(figures: list[Figure]) -> None:
    """Print a table for each rule: a row for each length, a column for each rank."""
    found = {(f["length"], f["rank"]): f for f in figures}
    print("\nSimulated rows of one length, the samples' half-step (ns per nonzero × component)")
    for name in (MU, GUARDED, ZEROS):
        rows = {n: [found[n, rank][name] for rank in SIMULATED_RANKS] for n in LENGTHS}
        print_table(name, [f"r = {rank}" for rank in SIMULATED_RANKS], rows)


# ---- instructions --------------------------------------------------------------------------------


def counted_case(length: int, dtype: Any) -> Case:
    """One of the half-steps that are counted."""
    X = equal_rows(length, COUNTED_NONZEROS, COUNTED_FEATURES, dtype)
    return simulated_case(X, COUNTED_RANK)


def run_counted(dtype: Any) -> None:
    """Work of the child process under callgrind: each counted half-step between two marks."""
    mark = getattr(os, MARK)
    prepared = []
    for length in COUNTED_LENGTHS:
        case = counted_case(length, dtype)
        backend = case.problem.backend
        for name in COUNTED_RULES:
            fixed = Fixed(0, (case.A,), slopes=backend.column_sums(case.A))
            asked = (fixed, rules_of(COUNTED_RANK)[name])
            backend.update_rows(case.x.copy(), *asked)  # loads what it needs
            prepared.append((backend, case.x.copy(), asked))
    mark(0)
    mark(0)
    for backend, x, asked in prepared:
        mark(0)
        backend.update_rows(x, *asked)
        mark(0)


def instructions_of(profile: str) -> int:
    """Instructions in one of callgrind's files."""
    found = re.search(r"^(?:totals|summary):\s*(\d+)", profile, flags=re.MULTILINE)
    if found is None:
        raise ValueError("This is not a complete callgrind file: it has no line of totals.")
    return int(found[1])


def parts_between_marks(folder: Path, n_parts: int) -> list[int]:
    """Instructions of the last so many pairs of marks, less those of a pair with nothing between.

    Callgrind numbers its files from 1, one a mark; the file without a number is the end.
    """
    numbered = sorted((int(path.suffix[1:]), path) for path in folder.glob("out.*"))
    totals = [instructions_of(path.read_text()) for _, path in numbered[-2 * (n_parts + 1) :]]
    if len(totals) < 2 * (n_parts + 1):
        raise ValueError(f"Callgrind left {len(totals)} parts, not {2 * (n_parts + 1)}.")
    nothing, *counts = totals[1::2]
    return [count - nothing for count in counts]


def count_instructions(dtype: str) -> list[Figure]:
    """Instructions by unit, from one run of this module under callgrind."""
    child = [sys.executable, "-m", "benchmarks.kernels", "--counted-child", "--dtype", dtype]
    valgrind = ["valgrind", "--tool=callgrind", f"--dump-before={MARK}"]
    root = Path(__file__).parents[1]
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [*valgrind, f"--callgrind-out-file={folder}/out", *child]
        subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, text=True)
        keys = list(itertools.product(COUNTED_LENGTHS, COUNTED_RULES))
        counts = dict(zip(keys, parts_between_marks(Path(folder), len(keys)), strict=True))
    figures = []
    for length in COUNTED_LENGTHS:
        case = counted_case(length, np.dtype(dtype))
        nnz = case.problem.backend.data.nnz
        costs = {rule: per_unit(counts[length, rule], nnz, COUNTED_RANK) for rule in COUNTED_RULES}
        figures.append({"length": length, **costs, ZEROS: float(np.mean(case.x == 0))})
    return figures


def report_instructions(dtype: str) -> list[Figure] | None:
    """Count and print; prints why and returns None if that is not possible."""
    print("\nInstructions per nonzero × component, the samples' half-step without its column sums")
    if shutil.which("valgrind") is None:
        print("  valgrind not found")
        return None
    try:
        figures = count_instructions(dtype)
    except (subprocess.CalledProcessError, ValueError) as error:
        print(f"  not counted: {error}\n{getattr(error, 'stderr', '')[-2000:]}")
        return None
    print(f"  {COUNTED_NONZEROS} nonzeros among {COUNTED_FEATURES} features, r = {COUNTED_RANK}.")
    if platform.machine() in ("x86_64", "AMD64"):
        print("  Valgrind shows a CPU without AVX-512: the counts are those of AVX2.")
    columns = [*COUNTED_RULES, ZEROS]
    print_table("row length", columns, {f["length"]: [f[c] for c in columns] for f in figures})
    return figures


# ---- the machine ---------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Processor, caches of one core, instruction set, and the load when this began."""
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.exists() else ""
    fields = dict(re.findall(r"^(.+?)\s*:\s*(.*)$", text, flags=re.MULTILINE))
    caches = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / f).read_text().strip() for f in ("level", "type", "size"))
        caches.append(f"L{level}{'' if kind == 'Unified' else kind[0].lower()} {size}")
    return {
        "processor": fields.get("model name") or platform.processor() or platform.machine(),
        "family/model": f"{fields.get('cpu family', '?')}/{fields.get('model', '?')}",
        "cpus": os.cpu_count(),
        "caches": ", ".join(caches) or "unknown",
        "instruction set": instruction_set(),
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Measure and print all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_argument(parser)
    parser.add_argument(
        "--sets", nargs="*", default=list(SETS), help="data sets; missing ones are skipped"
    )
    parser.add_argument("--ranks", nargs="+", type=int, default=list(RANKS))
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument(
        "--seconds", type=float, default=0.3, help="seconds of repeats for each figure"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all figures")
    parser.add_argument("--no-callgrind", action="store_true", help="do not count instructions")
    parser.add_argument("--counted-child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    dtype = np.dtype(args.dtype).type
    if args.counted_child:
        run_counted(dtype)
        return
    results: dict[str, Any] = {"machine": machine(), "dtype": args.dtype, "sets": []}
    print(*(f"{name} {value}" for name, value in results["machine"].items()), sep="; ")
    print(
        f"One thread, {args.dtype}. Half-steps in ns per nonzero × component; minimum over repeats."
    )
    for name in args.sets:
        if args.data is None or not (Path(args.data) / f"{name}.npz").exists():
            print(f"\n{name}: not found in --data")
            continue
        X = load_matrix(args.data, name, dtype)
        figures = measure_set(name, X, args.ranks, args.seconds)
        print_set(name, X, args.ranks, figures)
        results["sets"] += figures
    print_floors(results["sets"])
    results["simulated"] = measure_simulated(dtype, args.seconds)
    print_simulated(results["simulated"])
    results["instructions"] = None if args.no_callgrind else report_instructions(args.dtype)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
