"""Final objectives over many starts, and how often a simulated optimum is found.

    python -m benchmarks.quality --data DIR --starts 20
    python -m benchmarks.quality --planted              # simulated data alone

For each data set and kind of start, with and without swaps of components, prints the median final
divergence above the lowest one found, the spread (highest over lowest), and the median seconds of a
fit including its start. For simulated data, prints how many of ten runs end within 0.2 % of the fit
that starts from the true factors.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import add_data_argument, load_matrix
from klnmf import KLNMF, RunOptions
from klnmf.simulate import simulate_counts
from klnmf.solvers import SparseCoordinateDescent
from klnmf.solvers.initialization import STARTS

SETS = ("reuters21578", "tdt2_top30", "20newsgroups_qwone", "pbmc3k")
# Dirichlet concentrations: small ones make samples of few components, with many local optima.
PLANTED: dict[str, dict[str, float]] = {
    "mixed samples, 150 counts": {"concentration_W": 0.5, "counts_per_sample": 150},
    "mixed samples, 60 counts": {"concentration_W": 0.5, "counts_per_sample": 60},
    "few components, 100 counts": {"concentration_W": 0.1, "counts_per_sample": 100},
    "nearly pure samples, 200 counts": {
        "concentration_W": 0.05,
        "concentration_H": 0.05,
        "counts_per_sample": 200,
    },
}


SWAPS = {"": SparseCoordinateDescent(), ", no swaps": SparseCoordinateDescent(swap_failures=0)}


def ends(X: sp.csr_array, rank: int, way: str, starts: int, max_iter: int) -> tuple[Any, float]:
    """Final divergences of fits from several starts, and the median of their seconds."""
    init, solver = next(
        (way.removesuffix(suffix), solver)
        for suffix, solver in reversed(SWAPS.items())
        if way.endswith(suffix)
    )
    divergences, seconds = [], []
    for seed in range(starts):
        model = KLNMF(
            rank,
            init=init,
            solver=solver,
            max_iter=max_iter,
            random_state=seed,
            run=RunOptions(progress=False),
        )
        started = time.perf_counter()
        model.fit(X)
        seconds.append(time.perf_counter() - started)
        divergences.append(model.divergence_)
    return np.array(divergences), float(np.median(seconds))


def ways(args: argparse.Namespace) -> list[str]:
    """Names of the starts, with and without swaps."""
    return [init + suffix for init in args.init for suffix in SWAPS]


def on_sets(args: argparse.Namespace) -> None:
    """Print a block for each data set."""
    for name in args.sets:
        X = load_matrix(args.data, name)
        results = {way: ends(X, args.rank, way, args.starts, args.max_iter) for way in ways(args)}
        lowest = min(divergences.min() for divergences, _ in results.values())
        print(f"\n{name}, r = {args.rank}, {args.starts} starts; lowest divergence {lowest:,.0f}")
        for way, (divergences, seconds) in results.items():
            above = 100 * (np.median(divergences) / lowest - 1)
            spread = 100 * (divergences.max() / divergences.min() - 1)
            print(
                f"  {way:<18} median {np.median(divergences):,.0f} ({above:.2f} % above), spread "
                f"{spread:.2f} %, {seconds:.2f} s a fit",
                flush=True,
            )


def on_planted(args: argparse.Namespace) -> None:
    """Print how often each kind of start reaches the true optimum."""
    print(f"\nSimulated, 2000 × 1500, r = {args.rank}: runs out of 10 that reach the true optimum")
    for label, settings in PLANTED.items():
        simulated = simulate_counts(2000, 1500, args.rank, random_state=1, **settings)  # type: ignore[arg-type]
        X = sp.csr_array(simulated.X.astype(np.float32))
        W, H = np.maximum(simulated.W, 1e-6), np.maximum(simulated.H.T, 1e-9)
        at_planted = KLNMF(args.rank, max_iter=300, random_state=0).fit(X, W=W, H=H).divergence_
        hits = []
        for way in ways(args):
            divergences, _ = ends(X, args.rank, way, 10, 200)
            hits.append(f"{way} {int((divergences <= 1.002 * at_planted).sum())}")
        print(f"  {label}: {'; '.join(hits)}", flush=True)


def main() -> None:
    """Measure the selected data sets, then simulated data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--rank", "-r", type=int, default=20)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--max-iter", type=int, default=500)
    parser.add_argument("--init", nargs="+", default=list(STARTS), choices=STARTS)
    parser.add_argument("--planted", action="store_true", help="simulated data only")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if not args.planted:
        on_sets(args)
    on_planted(args)


if __name__ == "__main__":
    main()
