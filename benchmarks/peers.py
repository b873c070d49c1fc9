"""klnmf against other implementations of NMF with the Kullback-Leibler divergence.

    python -m benchmarks.peers --quick --out DIR        # embedded corpus, a few seconds per solver
    python -m benchmarks.peers --data DIR --out DIR     # everything: many hours

``pip install --group peers ".[plots]"`` installs the peers; fastTopics is run where R has it.
Missing ones are listed and left out. Each run is a separate process whose result is a file in
OUT/runs. A run with a result file is not repeated (unless --again names its solver), so the
benchmark can be interrupted and resumed. OUT/peers.json, OUT/peers.md and OUT/plots are rebuilt
from these files each time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from benchmarks.common import add_data_argument
from benchmarks.peer_clock import CAP
from benchmarks.peer_jobs import Group, Job
from benchmarks.peer_report import markdown
from benchmarks.peer_run import write_json
from benchmarks.peer_sets import (
    ALL_SETS,
    EMBEDDED,
    LARGE,
    LARGEST_DENSE,
    SIMULATED,
    Folders,
    check_sets,
    make_simulated,
    smallest_dense,
)
from benchmarks.peer_solvers import SOLVERS
from benchmarks.peer_tables import OURS, Run, load_runs, summarise

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
DTYPES = ("float32", "float64")


# ---- what to run ---------------------------------------------------------------------------------


def plan(args: argparse.Namespace, dense_set: str | None) -> list[Job]:
    """All runs in order.

    The solvers alternate, so that changes in the load of the machine affect all of them.
    """
    return [
        Job(name, solver_name, rank, dtype, seed, threads, args.seconds)
        for name in args.sets
        for rank in args.ranks
        for dtype in args.dtype
        for threads in args.threads
        for seed in range(args.starts or (5 if rank == 20 else 1))
        for solver_name, solver in SOLVERS.items()
        if solver_name in args.solvers
        and solver.is_installed
        and dtype in solver.dtypes
        and (solver.on_large_sets or name not in LARGE)
        and (not solver.dense or name == dense_set)
    ]


def left_out(present: Collection[str], sets: Collection[str]) -> list[str]:
    """List the solvers that are left out, or limited to some data sets, with the reason."""
    notes = []
    for name, solver in SOLVERS.items():
        reasons = []
        if name not in present:
            install = f"not installed ({solver.how_to_get})"
            reasons.append("not run" if solver.is_installed else install)
        missing = [dtype for dtype in DTYPES if dtype not in solver.dtypes]
        if missing:
            reasons.append(f"cannot compute in {', '.join(missing)}")
        if solver.dense:
            reasons.append(
                "dense, run only on the set whose dense form is smallest, if that is below "
                f"{LARGEST_DENSE / 1e6:.0f} MB"
            )
        if reasons:
            notes.append(f"{solver.label}: {'; '.join(reasons)}.")
    if large := sorted(LARGE.intersection(sets)):
        few = [solver.label for solver in SOLVERS.values() if solver.on_large_sets]
        notes.append(f"{', '.join(large)}: run with {'; '.join(few)} alone.")
    return notes


# ---- running -------------------------------------------------------------------------------------


def run_all(jobs: list[Job], folders: Folders, again: list[str]) -> None:
    """Do the runs that are not stored yet, one at a time."""
    waiting = [
        job
        for job in jobs
        if job.solver in again or not (folders.out / "runs" / f"{job.name}.json").exists()
    ]
    print(f"{len(waiting)} of {len(jobs)} runs to do, the others are stored", flush=True)
    for i, job in enumerate(waiting, start=1):
        if job.set in SIMULATED:
            make_simulated(job.set, folders)
        started = time.perf_counter()
        outcome = run_one(job, folders)
        wall = time.perf_counter() - started
        print(f"[{i}/{len(waiting)}] {job.name}: {outcome} ({wall:.0f} s in all)", flush=True)


def run_one(job: Job, folders: Folders) -> str:
    """Run one job in a separate process; failures are stored too. Returns a short summary."""
    path = folders.out / "runs" / f"{job.name}.json"
    environ = dict(os.environ) | {name: str(job.threads) for name in THREAD_VARIABLES}
    root = str(Path(__file__).resolve().parent.parent)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "benchmarks.peer_run", json.dumps(dataclasses.asdict(job))]
    command += [str(folders.of(job.set) or ""), str(path)]
    # The clock is the child's. This only ends one that hangs: the divergences take time as well.
    patience = 1200 + 4 * max(CAP, job.seconds)
    error = ""
    try:
        child = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=patience, check=False
        )
        if child.returncode:
            last_words = child.stderr.strip().splitlines()[-1:]
            error = "".join(last_words) or f"exit status {child.returncode}"
    except subprocess.TimeoutExpired:
        error = f"not done after {patience:.0f} s"
    if error:
        write_json(path, dataclasses.asdict(job) | {"error": error, "points": []})
        return f"failed: {error}"
    seconds, iterations, value = json.loads(path.read_text())["points"][-1]
    return f"{seconds:.2f} s, {iterations} iterations, {value or float('nan'):,.1f}"


# ---- results -------------------------------------------------------------------------------------


def write_results(folders: Folders) -> None:
    """Make the tables and the plots from the stored runs."""
    runs = load_runs(folders.out / "runs")
    if not runs:
        raise SystemExit(f"There are no runs in {folders.out / 'runs'} yet.")
    present = {run["solver"] for group in runs.values() for run in group}
    notes = left_out(present, {group.set for group in runs})
    groups = summarise(runs)
    machine = _environment(runs)
    write_json(
        folders.out / "peers.json", {"environment": machine, "notes": notes, "groups": groups}
    )
    (folders.out / "peers.md").write_text(markdown(groups, machine, notes))
    print(f"\n{folders.out / 'peers.md'} and peers.json written")
    try:
        from benchmarks.peer_plots import draw_all
    except ImportError:
        print('No plots: they need matplotlib, pip install ".[plots]".')
        return
    draw_all(runs, folders.out / "plots")
    print(f"plots in {folders.out / 'plots'}")


def _environment(runs: dict[Group, list[Run]]) -> dict[str, str]:
    """Versions and processors of the runs; several values if they differ."""
    seen: dict[str, dict[str, None]] = {}
    for run in (run for group in runs.values() for run in group):
        for name, value in run.get("environment", {}).items():
            seen.setdefault(name, {})[value] = None
    return {name: " / ".join(values) for name, values in seen.items()}


# ---- command line --------------------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_data_argument(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the results"
    )
    parser.add_argument("--sets", nargs="+", default=list(ALL_SETS), metavar="SET")
    parser.add_argument("--ranks", nargs="+", type=int, default=[10, 20, 50], metavar="R")
    parser.add_argument("--starts", type=int, help="default: 5 at r = 20, 1 at other ranks")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, help="default: all")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, help="default: both")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds per run")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument(
        "--again", nargs="+", default=[], choices=SOLVERS, help="solvers to measure again"
    )
    parser.add_argument("--tables-only", action="store_true", help="run nothing")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{EMBEDDED}, r = 10, float64, one start, 3 s, klnmf and its peers: about a minute",
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.sets, args.ranks, args.starts, args.seconds = [EMBEDDED], [10], 1, 3.0
        args.dtype = args.dtype or ["float64"]
        args.solvers = args.solvers or [
            name for name, solver in SOLVERS.items() if solver.is_peer or name == OURS
        ]
    args.dtype = args.dtype or list(DTYPES)
    args.solvers = args.solvers or list(SOLVERS)
    return args


def main() -> int:
    """Run what is missing, then make the tables."""
    args = parse()
    folders = Folders(args.data, args.out)
    if not args.tables_only:
        check_sets(args.sets, folders)
        jobs = plan(args, smallest_dense(args.sets, folders))
        print(*left_out({job.solver for job in jobs}, args.sets), sep="\n")
        try:
            run_all(jobs, folders, args.again)
        except KeyboardInterrupt:
            print(
                "\nInterrupted. Run the same command to resume; --tables-only shows results so far."
            )
            return 130
    write_results(folders)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
