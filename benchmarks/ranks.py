"""Does `select_rank` find the true rank of simulated counts, and 1 for pure noise?

    python -m benchmarks.ranks                             # the grid; hours on one core
    python -m benchmarks.ranks --jobs 16 --runs 2
    python -m benchmarks.ranks --ranks 7 --counts 300 --components sparse zipf --noises poisson 3

Every run draws new factors and counts with `benchmarks.overdispersed`, which shares no code with
the library. A run is right if the chosen rank is within 1 of the true one. In some designs there
are too few counts to tell the components apart, and a smaller model predicts better. To find these,
every fold is also fitted from the true factors. A wrong choice is a *miss* if those fits predict
better than the choice, and *out of reach* if they do not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from benchmarks.overdispersed import COMPONENTS, Planted, draw
from klnmf.constraints.constraints import Constraints
from klnmf.data.validation import check_counts
from klnmf.estimators.checked_counts import ConstrainedCounts
from klnmf.estimators.held_out import BACKGROUNDS
from klnmf.model_selection import RankSelection, select_rank
from klnmf.model_selection.growth import descended
from klnmf.model_selection.hold_out import Fold, fold_of_samples

# Noise by its name: "poisson", the size of negative binomial counts, or "gamma": y g, not rounded.
NOISES: dict[str, dict[str, Any]] = {
    "poisson": {},
    "10": {"size": 10.0},
    "3": {"size": 3.0},
    "1": {"size": 1.0},
    "gamma": {"noise": "gamma", "variance": 0.05},
    "lognormal": {"noise": "lognormal", "variance": 0.3},
}


@dataclass(frozen=True)
class Design:
    """How counts are drawn."""

    n: int
    m: int
    rank: int
    counts: float  # expected, per sample
    components: str
    noise: str

    def drawn(self, seed: int) -> Planted:
        """Counts and their factors."""
        sizes = (self.n, self.m, self.rank, self.counts, self.components)
        return draw(*sizes, seed=[seed, self.rank, int(self.counts)], **NOISES[self.noise])


class Run(NamedTuple):
    """What one search found."""

    design: Design
    chosen: int
    lowest: int
    gap: float  # deviance of the choice minus that of fits from the true factors
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether the choice is within 1 of the true rank."""
        return abs(self.chosen - self.design.rank) <= 1

    @property
    def is_miss(self) -> bool:
        """Whether it is not, although the true model would predict better."""
        return not self.is_right and self.gap > 0


def searched(design: Design, seed: int) -> Run:
    """Draw counts and search on one thread."""
    planted = design.drawn(seed)
    started = time.perf_counter()
    ranks = range(1, design.rank + 9)
    found = select_rank(planted.X, ranks, random_state=seed, n_jobs=1, n_threads=1)
    seconds = time.perf_counter() - started
    gap = oracle_gap(planted, found)
    return Run(design, found.best_rank, found.lowest_rank, gap, seconds)


def oracle_gap(planted: Planted, found: RankSelection) -> float:
    """Deviance of the choice minus that of fits from the true factors, on the same folds."""
    X = check_counts(planted.X).astype(np.float32)
    counts = ConstrainedCounts(X, Constraints(X.shape, 1))
    folds = fold_of_samples(found.n_samples, found.n_splits, found.random_state)
    deviances = []
    for number in range(found.n_splits):
        fold = Fold(counts, folds == number, found.random_state, 1)
        start = planted.W[folds != number], planted.H
        W, H = (np.ascontiguousarray(factor, np.float32) for factor in start)
        factors, _ = descended(fold._problem(W.shape[1]), (W, H), 0, swap_failures=0)
        deviances.append(fold.deviances(factors, BACKGROUNDS))
    of_truth = np.concatenate(deviances, axis=1).mean(axis=1).min()
    return float(found.deviance[list(found.ranks).index(found.best_rank)] - of_truth)


def grid(args: argparse.Namespace) -> list[Design]:
    """All combinations, those that take longest first."""
    designs = [
        Design(args.samples, args.features, rank, counts, components, noise)
        for rank, counts, components, noise in product(
            args.ranks, args.counts, args.components, args.noises
        )
    ]
    return sorted(designs, key=lambda design: -design.rank * design.counts**0.5)


def measured(designs: list[Design], n_runs: int, jobs: int) -> list[Run]:
    """Search all designs, ``jobs`` of them at a time."""
    tasks = [(design, seed) for design in designs for seed in range(n_runs)]
    if jobs == 1:
        return [searched(*task) for task in tasks]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(searched, *zip(*tasks, strict=True)))


def in_words(runs: Iterable[Run]) -> str:
    """Say how many are right, how many a better search could get right, and the choices."""
    runs = list(runs)
    right, missed = sum(run.is_right for run in runs), sum(run.is_miss for run in runs)
    text = f"{right:3d} of {len(runs):3d} right"
    if right + missed:
        text += f", {right / (right + missed):4.0%} of {right + missed:3d} within reach"
    return text


def report(runs: list[Run]) -> None:
    """Print a line for each design, and totals by each of its parts."""
    for design in sorted({run.design for run in runs}, key=str):
        of_design = [run for run in runs if run.design == design]
        choices = " ".join(str(run.chosen) for run in of_design)
        gaps = " ".join(f"{run.gap:+.2f}" for run in of_design)
        seconds = np.mean([run.seconds for run in of_design])
        print(
            f"rank {design.rank:2d}, {design.counts:5g} counts, {design.components:14s} noise "
            f"{design.noise:9s}: chosen {choices:10s} oracle {gaps:14s} {seconds:5.1f} s"
        )
    for name in ("rank", "counts", "components", "noise"):
        print()
        for value in sorted({getattr(run.design, name) for run in runs}, key=str):
            here = [run for run in runs if getattr(run.design, name) == value]
            print(f"{name} {value!s:15s}: {in_words(here)}")
    print(f"\nall: {in_words(runs)}")
    noise = [run.chosen for run in runs if run.design.rank == 1]
    if noise:
        print(f"pure noise: 1 in {noise.count(1)} of {len(noise)}")
    too_many = [run for run in runs if run.chosen > run.design.rank + 1]
    print(f"too many components: {len(too_many)} of {len(runs)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--samples", type=int, default=400)
    add("--features", type=int, default=300)
    add("--ranks", type=int, nargs="+", default=[1, 3, 7, 12, 20], help="true ranks")
    add("--counts", type=float, nargs="+", default=[50, 200, 1000, 3000], help="per sample")
    add("--components", nargs="+", default=COMPONENTS, choices=COMPONENTS)
    add("--noises", nargs="+", default=["poisson", "10", "3", "1"], choices=NOISES)
    add("--runs", type=int, default=1, help="runs per design")
    add("--jobs", type=int, default=1, help="runs at a time")
    args = parser.parse_args()
    started = time.perf_counter()
    report(measured(grid(args), args.runs, args.jobs))
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
