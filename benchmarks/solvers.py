"""Our solvers compared with each other, from the same starts and at the same cost.

The unit of cost is one iteration of multiplicative updates ("mu") on the same matrix, on one
thread. For each data set and rank, prints the median over starts of each solver's objective at 8,
16, 32 and 64 units, relative to the best solver, and the zeros of "srcd" with those of the table in
the SRCD paper.

    python -m benchmarks.solvers --data DIR
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import add_data_argument, load_matrix, start_pair
from klnmf import KLNMF, RunOptions
from klnmf.solvers.initialization import STARTS

BUDGETS = (8, 16, 32, 64)
SOLVERS = ("srcd", "mu", "bmme", "srcd-paper", "ccd")

# Sparsity (%) of (components, representation) in the paper's Table 2.
PAPER_ZEROS = {
    ("reuters21578", 10): (75.6, 71.6),
    ("reuters21578", 20): (84.2, 80.4),
    ("tdt2_top30", 10): (68.5, 71.3),
    ("tdt2_top30", 20): (78.6, 81.1),
}


def run(
    X: sp.csr_array, solver: str, start: tuple[Any, Any], seconds: float, max_iter: int = 100_000
) -> KLNMF:
    """Fit from a start for this many seconds."""
    W, H = start
    model = KLNMF(
        n_components=W.shape[1],
        solver=solver,
        max_iter=max_iter,
        tol=0.0,
        n_threads=1,
        random_state=0,
        run=RunOptions(progress=False, callback=lambda record: record["seconds"] >= seconds),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, W=W.copy(), H=H.copy())


def cost_of_an_iteration(X: sp.csr_array, start: tuple[Any, Any]) -> float:
    """Seconds of one multiplicative iteration: the minimum of several."""
    model = run(X, "mu", start, seconds=float("inf"), max_iter=12)
    seconds = np.diff([0.0] + [record["seconds"] for record in model.history_])
    return float(seconds.min())


def quietest_history(
    X: sp.csr_array, solver: str, start: tuple[Any, Any], seconds: float, repeats: int
) -> list[dict[str, Any]]:
    """History of a run, with the minimum time of each iteration over several repeats.

    The iterates are the same in all repeats; only the load of the machine differs.
    """
    runs = [run(X, solver, start, seconds).history_ for _ in range(repeats)]
    length = max(len(history) for history in runs)
    times = [np.diff([0.0] + [record["seconds"] for record in history]) for history in runs]
    least = [min(time[i] for time in times if i < len(time)) for i in range(length)]
    longest = max(runs, key=len)
    cumulated = np.cumsum(least)
    return [record | {"seconds": float(t)} for record, t in zip(longest, cumulated, strict=True)]


def objective_at(history: list[dict[str, Any]], seconds: float) -> float:
    """Objective of the last iteration completed by then; infinite before the first."""
    done = [record["objective"] for record in history if record["seconds"] <= seconds]
    return done[-1] if done else float("inf")


def compare(
    name: str,
    X: sp.csr_array,
    rank: int,
    n_starts: int,
    solvers: list[str],
    init: str,
    repeats: int,
) -> bool:
    """Print one block; True if "srcd" is lowest at every budget, with the paper's zeros."""
    reached: dict[str, list[list[float]]] = {solver: [] for solver in solvers}
    first: dict[str, list[float]] = {solver: [] for solver in solvers}
    iterations: dict[str, list[float]] = {solver: [] for solver in solvers}
    zeros = []
    units = []
    for seed in range(n_starts):
        start = start_pair(X, rank, seed, init)
        unit = cost_of_an_iteration(X, start)
        units.append(unit)
        for solver in solvers:
            once = solver == "ccd"  # far too slow to matter, and for noise to change that
            history = quietest_history(
                X, solver, start, BUDGETS[-1] * unit, repeats=1 if once else repeats
            )
            reached[solver].append([objective_at(history, budget * unit) for budget in BUDGETS])
            iterations[solver].append(len(history))
            first[solver].append(history[0]["seconds"] / unit)
            if solver == "srcd":
                zeros.append((100 * history[-1]["zeros_H"], 100 * history[-1]["zeros_W"]))
    medians = {solver: np.median(reached[solver], axis=0) for solver in solvers}
    best = np.min(list(medians.values()), axis=0)
    milliseconds = np.median(units) * 1e3
    print(f"\n{name}, r = {rank}, {n_starts} starts; one MU iteration: {milliseconds:.2f} ms")
    print("  objective above the lowest (%), at a cost of".ljust(48), *(f"{b:>8}" for b in BUDGETS))
    for solver in solvers:
        with np.errstate(invalid="ignore"):
            above = 100 * (medians[solver] / best - 1)
        # A dash: no iteration was over by then. inf: a nonzero was left without cover.
        begun = [np.median(first[solver]) <= budget for budget in BUDGETS]
        cells = [f"{x:8.2f}" if done else "       –" for x, done in zip(above, begun, strict=True)]
        note = f"({np.median(iterations[solver]):.0f} iterations)"
        print(f"  {solver:<12} {note:<33}", *cells)
    ours, theirs = np.median(zeros, axis=0), PAPER_ZEROS[name, rank]
    print(
        f"  zeros of srcd (%): components {ours[0]:.1f} (paper {theirs[0]}), "
        f"representation {ours[1]:.1f} (paper {theirs[1]})"
    )
    lowest = all((medians["srcd"] <= medians[solver]).all() for solver in solvers)
    close = bool(np.all(np.abs(ours - theirs) <= 5))
    print(f"  srcd lowest at every cost: {lowest}; zeros within 5 points: {close}")
    return lowest and close


def main() -> int:
    """Run all comparisons; the exit status is 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--sets", nargs="+", default=["reuters21578", "tdt2_top30"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[10, 20])
    parser.add_argument("--init", default="samples", choices=STARTS)
    parser.add_argument("--repeats", type=int, default=3, help="runs from each start")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--solvers", nargs="+", default=list(SOLVERS), choices=SOLVERS)
    args = parser.parse_args()
    results = []
    for name in args.sets:
        X = load_matrix(args.data, name)
        results += [
            compare(name, X, rank, args.starts, args.solvers, args.init, args.repeats)
            for rank in args.ranks
        ]
    print(f"\nall hold: {all(results)}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
