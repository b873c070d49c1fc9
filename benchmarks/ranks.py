"""Does `select_rank` find the true rank of simulated counts, and 1 for pure noise?

    python -m benchmarks.ranks                        # the grid, about ten minutes on one core
    python -m benchmarks.ranks --planted 5 --runs 3
    python -m benchmarks.ranks --starts               # warm starts against fresh ones
    python -m benchmarks.ranks --backgrounds best 0.001 0.01 0.1

Each run draws new factors and counts with `klnmf.simulate`. A run is correct if the chosen rank is
within 1 of the true one. The totals include all designs, even those whose components cannot be
distinguished from noise. The column "oracle" shows which these are: it is the deviance of the
choice minus the held-out deviance of a fit that starts from the true factors. If it is positive,
the true rank predicts better and the search missed it. If it is negative, a smaller model predicts
better with that many counts.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.model_selection import RankSelection, select_rank
from klnmf.model_selection.deviance import BACKGROUNDS
from klnmf.model_selection.growth import descended
from klnmf.model_selection.hold_out import ThinnedSplit, thinned
from klnmf.objective import Penalties
from klnmf.simulate import simulate_counts
from klnmf.solvers.base import Problem
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.loop import MaxIterations, Run, SmallGain
from klnmf.solvers.start import start_state


@dataclass(frozen=True)
class Design:
    """Sizes, and how distinct the components are."""

    n_samples: int
    n_features: int
    rank: int
    counts: int  # expected, per sample
    breadth: float  # concentration of the components over the features

    def __str__(self) -> str:
        return (
            f"{self.n_samples:5d} x {self.n_features:<5d} rank {self.rank:2d}, {self.counts:5d} "
            f"counts per sample, breadth {self.breadth:g}"
        )

    def draw(self, seed: int) -> tuple[sp.csr_array, np.ndarray, np.ndarray]:
        """Counts and the factors they come from."""
        drawn = simulate_counts(
            self.n_samples,
            self.n_features,
            self.rank,
            counts_per_sample=self.counts,
            concentration_H=self.breadth,
            random_state=seed,
        )
        return check_counts(drawn.X), drawn.W, drawn.H


def grid(planted: list[int], counts: list[int], breadths: list[float]) -> list[Design]:
    """All combinations, on matrices that grow with the rank."""
    size = {5: (200, 300), 10: (300, 400), 20: (600, 500)}
    return [
        Design(*size.get(rank, (30 * rank, 400)), rank, depth, breadth)
        for rank in planted
        for breadth in breadths
        for depth in counts
    ]


def noises(seed: int) -> dict[str, sp.csr_array]:
    """Independent Poisson counts, with equal or different rates of rows and columns."""
    generator = np.random.default_rng([99, seed])
    depths, shares = generator.lognormal(0, 0.7, 300), generator.dirichlet(np.full(200, 0.3))
    return {
        f"noise, {kind}, mean {mean:g}": check_counts(sp.csr_array(generator.poisson(rates)))
        for mean in (0.05, 0.5, 5.0)
        for kind, rates in (
            ("even", np.full((300, 200), mean)),
            ("uneven", mean * 200 * np.outer(depths, shares)),
        )
    }


def oracle_gap(
    design: Design, seed: int, X: sp.csr_array, W: np.ndarray, H: np.ndarray, found: RankSelection
) -> float:
    """Deviance of the choice minus that of a fit from the true factors, on the same splits."""
    of_oracle = []
    for split in range(found.n_splits):
        data = ThinnedSplit(
            X.astype(np.float32), found.train_fraction, [found.random_state, split], 1
        )
        start = (
            np.ascontiguousarray(W * found.train_fraction, np.float32),
            np.ascontiguousarray(H, np.float32),
        )
        factors, _ = descended(data._problem, start, 0, swap_failures=0)
        of_oracle.append(data.deviances(factors, BACKGROUNDS).mean(axis=1))
    return float(
        found.deviance[list(found.ranks).index(found.best_rank)] - np.mean(of_oracle, axis=0).min()
    )


def run_design(design: Design, args: argparse.Namespace) -> dict[str, list[int]]:
    """Choices of all runs for each background; prints them."""
    chosen: dict[str, list[int]] = {background: [] for background in args.backgrounds}
    gaps, started = [], time.perf_counter()
    for seed in range(args.runs):
        X, W, H = design.draw(1000 * seed + design.rank)
        for background in args.backgrounds:
            found = select_rank(
                X,
                range(1, design.rank + 11),
                n_splits=args.splits,
                background=background if background == "best" else float(background),
                random_state=seed,
                n_jobs=args.jobs,
            )
            chosen[background].append(found.best_rank)
        gaps.append(oracle_gap(design, seed, X, W, H, found))
    seconds = (time.perf_counter() - started) / args.runs
    for background, ranks in chosen.items():
        right = np.mean([abs(rank - design.rank) <= 1 for rank in ranks])
        print(
            f"{design}: {right:4.0%}  chosen {' '.join(map(str, ranks))}"
            + (f"  background {background}" if len(chosen) > 1 else "")
            + f"  oracle {np.mean(gaps):+.2f}  {seconds:.1f} s",
            flush=True,
        )
    return chosen


def measure(args: argparse.Namespace) -> None:
    """All designs, the noise, and the totals."""
    right: dict[str, list[bool]] = {background: [] for background in args.backgrounds}
    n_good = 0
    designs = grid(args.planted, args.counts, args.breadths)
    for design in designs:
        chosen = run_design(design, args)
        hits = [abs(rank - design.rank) <= 1 for rank in chosen[args.backgrounds[0]]]
        n_good += np.mean(hits) >= 0.9
        for background, ranks in chosen.items():
            right[background] += [abs(rank - design.rank) <= 1 for rank in ranks]
    for background, hits in right.items():
        print(f"background {background}: {np.mean(hits):.1%} of {len(hits)} runs within 1")
    print(f"{n_good} of {len(designs)} designs reach 90 % or more")
    if args.no_noise:
        return
    noise: dict[str, list[int]] = {}
    for seed in range(args.runs):
        for name, X in noises(seed).items():
            found = select_rank(X, range(1, 11), n_splits=args.splits, random_state=seed)
            noise.setdefault(name, []).append(found.best_rank)
    for name, ranks in noise.items():
        print(f"{name}: chosen {' '.join(map(str, ranks))}")
    every = [rank for ranks in noise.values() for rank in ranks]
    print(f"noise: {np.mean(np.array(every) == 1):.1%} of {len(every)} runs say 1")


def compare_starts(args: argparse.Namespace) -> None:
    """Final objective of the search against those of fresh fits with the same stopping rule."""
    for design in grid(args.planted, args.counts, args.breadths):
        gaps = []
        for seed in range(args.runs):
            X, _, _ = design.draw(1000 * seed + design.rank)
            train, _ = thinned(X.astype(np.float32), 0.9, np.random.default_rng([seed, 0]))
            split = ThinnedSplit(X.astype(np.float32), 0.9, [seed, 0], 1)
            problem = Problem(make_backend("auto", InMemoryData(train), 1), Penalties())
            factors = None
            for rank in range(1, design.rank + 6):
                factors = split.fitted(factors, rank, [seed, 0, rank])
                if rank in (design.rank - 2, design.rank, design.rank + 5):
                    warm = problem.objective(list(factors))
                    gaps.append((rank, warm / fresh_objective(problem, rank, seed) - 1))
        for rank in sorted({rank for rank, _ in gaps}):
            here = [gap for r, gap in gaps if r == rank]
            print(
                f"{design}, fits of rank {rank:2d}: warm above fresh by {100 * np.mean(here):+.3f} "
                f"% on average, {100 * max(here):+.3f} % at worst",
                flush=True,
            )


def fresh_objective(problem: Problem, rank: int, seed: int) -> float:
    """Final objective of a fit from a random start, as in `KLNMF`."""
    state = start_state(problem, rank, "samples", seed)
    run = Run.started(problem, SparseCoordinateDescent(), state)
    run.until(SmallGain(1e-4), MaxIterations(300))
    return float(state.objective)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--planted", type=int, nargs="+", default=[5, 10, 20], help="true ranks")
    add(
        "--counts",
        type=int,
        nargs="+",
        default=[50, 100, 200, 400, 1000],
        help="expected counts per sample",
    )
    add(
        "--breadths",
        type=float,
        nargs="+",
        default=[0.1, 0.5],
        help="concentrations of the components",
    )
    add("--runs", type=int, default=10, help="runs per design")
    add("--splits", type=int, default=5)
    add("--jobs", type=int, help="splits at a time (default: all CPUs)")
    add("--backgrounds", nargs="+", default=["best"], help="backgrounds: best, or numbers")
    add("--no-noise", action="store_true", help="simulated counts without the noise")
    add("--starts", action="store_true", help="compare warm starts with fresh ones instead")
    args = parser.parse_args()
    compare_starts(args) if args.starts else measure(args)


if __name__ == "__main__":
    main()
