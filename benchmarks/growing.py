"""Whether components get better with more data, and whether intervals hold as samples are added.

    python -m benchmarks.growing --quick                  # minutes on one core
    python -m benchmarks.growing --processes 16           # the grid
    python -m benchmarks.growing --lines 0 3 --repeats 4 --methods posterior
    python -m benchmarks.growing --only speed --threads 16 [--size 3]

Data come from plain NumPy and share no code with the library. A line changes one thing of the base:
1,500 samples × 150 features, rank 5, 800 counts, dense components with a background, proportions
Dirichlet(0.5), Poisson. TV is the total-variation error of components that are found, coverage that
of 95 % intervals of interior entries.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from klnmf import KLNMF, RunOptions
from klnmf.uncertainty import bootstrap, posterior


@dataclass(frozen=True)
class Design:
    """Sizes, the kinds of proportions and components, and the noise."""

    n: int = 1500
    depth: int = 800
    W: str = "dirichlet"
    H: str = "dense"
    size: float = np.inf  # of negative binomial counts
    r: int = 5
    m: int = 150
    extra: int = 0  # components of the model minus those of the data

    def __str__(self) -> str:
        base = Design()
        changed = [f"{k} {v}" for k, v in vars(self).items() if v != getattr(base, k)]
        return ", ".join(changed) or "base"


BASE = Design()
GRID = (
    *(replace(BASE, n=n) for n in (300, 1500, 5000, 20000)),
    *(replace(BASE, depth=depth) for depth in (200, 3000, 8000)),
    *(replace(BASE, W=kind) for kind in ("clusters", "half zeros", "logistic normal")),
    replace(BASE, H="sparse"),
    *(replace(BASE, size=size) for size in (3.0, 1.0)),
    replace(BASE, size=3.0, n=5000),
    replace(BASE, size=3.0, W="clusters"),
    replace(BASE, size=3.0, H="sparse"),
    replace(BASE, r=12, m=500),
    replace(BASE, r=12, m=500, n=5000),
    *(replace(BASE, extra=extra) for extra in (-1, 1)),
)
QUICK = tuple(
    replace(BASE, n=n, m=60, r=3, depth=depth, W=kind, size=size)
    for n, depth, kind, size in (
        (300, 300, "dirichlet", np.inf),
        (1500, 300, "dirichlet", np.inf),
        (600, 300, "clusters", np.inf),
        (600, 300, "dirichlet", 3.0),
    )
)


def simulated(design: Design, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, proportions (n × r) and components (r × m)."""
    generator = np.random.default_rng([seed, design.n, design.depth, design.r, 29])
    n, m, r = design.n, design.m, design.r
    H = generator.dirichlet(np.full(m, 0.3), size=r)
    H = H * (generator.random((r, m)) < 0.6) if design.H == "sparse" else H + 0.2 / m
    H /= H.sum(axis=1, keepdims=True)
    if design.W == "dirichlet":
        P = generator.dirichlet(np.full(r, 0.5), size=n)
    elif design.W == "half zeros":
        P = generator.dirichlet(np.ones(r), size=n) * (generator.random((n, r)) < 0.5)
        P[P.sum(axis=1) == 0, 0] = 1.0
    elif design.W == "clusters":
        centres = generator.dirichlet(np.full(r, 0.5), size=6)[generator.integers(6, size=n)]
        P = np.array([generator.dirichlet(20 * centre + 0.02) for centre in centres])
    else:
        mixed = generator.standard_normal((r, r))
        covariance = mixed @ mixed.T / r + 0.1 * np.eye(r)
        scale = np.sqrt(np.diag(covariance))
        normal = generator.multivariate_normal(np.zeros(r), covariance, size=n) / scale
        P = np.exp(1.5 * normal)
    P /= P.sum(axis=1, keepdims=True)
    rates = (P @ H) * (design.depth * np.exp(0.5 * generator.standard_normal(n)))[:, np.newaxis]
    if np.isfinite(design.size):
        rates *= generator.gamma(design.size, 1.0 / design.size, size=rates.shape)
    return generator.poisson(rates), P, H


def judged(found: Any, P: np.ndarray, H: np.ndarray) -> dict[str, Any]:
    """Error and coverage of the components that match a true one."""
    distances = abs(found.components.estimate[:, np.newaxis] - H).sum(axis=2) / 2
    ours, true = linear_sum_assignment(distances)
    covered = {}
    parts = {
        "components": (found.components, (ours, slice(None)), H[true]),
        "proportions": (found.proportions, (slice(None), ours), P[:, true]),
    }
    for part, (intervals, at, truth) in parts.items():
        inside = intervals.is_interior[at]
        hit = (intervals.lower[at] <= truth) & (truth <= intervals.upper[at])
        covered[part] = (hit[inside].sum(), inside.sum())
    return {
        "TV": distances[ours, true].mean(),
        "MAE": abs(found.proportions.estimate[:, ours] - P[:, true]).mean(),
        **covered,
    }


def measured(task: tuple[Design, int, tuple[str, ...], int, int]) -> dict[str, dict[str, Any]]:
    design, seed, methods, n_sweeps, n_runs = task
    warnings.simplefilter("ignore", UserWarning)
    X, P, H = simulated(design, seed)
    model = KLNMF(design.r + design.extra, random_state=seed, n_threads=1, max_iter=2000).fit(X)
    quiet, results = RunOptions(progress=False), {}
    for method in methods:
        started = time.process_time()
        if method == "posterior":
            found: Any = posterior(
                model, X, n_sweeps=n_sweeps, random_state=seed, n_threads=1, run=quiet
            )
        else:
            found = bootstrap(model, X, n_runs, random_state=seed, n_jobs=1, run=quiet)
        results[method] = judged(found, P, H) | {"seconds": time.process_time() - started}
        if method == "posterior":
            results[method] |= {"draws": found.effective_draws, "drift": found.drift}
    return results


def coverage(args: argparse.Namespace) -> None:
    grid = QUICK if args.quick else GRID
    designs = [grid[line] for line in args.lines] if args.lines else list(grid)
    print(
        f"{args.repeats} data sets a line; posterior: {args.sweeps} sweeps, bootstrap: {args.runs} "
        "runs; cover: components, proportions (%); seconds of one core"
    )
    print("| design | method | TV | cover | MAE of proportions | draws | drift | s |")
    print("|---|---|---|---|---|---|---|---|")
    tasks = [
        (design, args.seed + repeat, tuple(args.methods), args.sweeps, args.runs)
        for design in designs
        for repeat in range(args.repeats)
    ]
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        results = pool.imap(measured, tasks)
        for design in designs:
            of_design = [next(results) for _ in range(args.repeats)]
            for method in args.methods:
                print(_line(design, method, [each[method] for each in of_design]), flush=True)


def _line(design: Design, method: str, found: list[dict[str, Any]]) -> str:
    def mean(name: str, digits: int) -> str:
        values = [each[name] for each in found if name in each]
        return f"{np.mean(values):.{digits}f}" if values else "-"

    shares = []
    for part in ("components", "proportions"):
        hits, n = np.sum([each[part] for each in found], axis=0)
        shares.append(f"{100 * hits / n:.1f}" if n else "-")
    cells = [str(design), method, mean("TV", 4), ", ".join(shares), mean("MAE", 4)]
    cells += [mean("draws", 1), mean("drift", 2), mean("seconds", 1)]
    return "| " + " | ".join(cells) + " |"


# Of the size of UCI's KOS blog entries (353,160 nonzeros, 467,714 counts), and of 10,000 cells.
SPEEDS = {"KOS": (3430, 6906, 20, 136), "cells": (10_000, 2_000, 15, 1500)}


def drawn_sparse(n: int, m: int, r: int, depth: int, size: float = np.inf) -> Any:
    """Counts with features as unequal as words are."""
    generator = np.random.default_rng(5)
    popularity = 1.0 / (np.arange(m) + 20.0)
    H = generator.gamma(0.3, size=(r, m)) * popularity
    H /= H.sum(axis=1, keepdims=True)
    W = generator.dirichlet(np.full(r, 0.2), size=n) * depth
    rates = W @ H
    if np.isfinite(size):
        rates *= generator.gamma(size, 1.0 / size, size=rates.shape)
    return generator.poisson(rates)


def speed(args: argparse.Namespace) -> None:
    print("| counts | nonzeros | counts | rank | threads | fit, s | posterior, s | ns a count |")
    print("|---|---|---|---|---|---|---|---|")
    warnings.simplefilter("ignore", UserWarning)
    for name in args.sets:
        n, m, r, depth = SPEEDS[name]
        X = drawn_sparse(n, m, r, depth, args.size)
        started = time.perf_counter()
        model = KLNMF(r, random_state=0, n_threads=args.threads).fit(X)
        fitted = time.perf_counter()
        found = posterior(model, X, n_sweeps=args.sweeps, random_state=0, n_threads=args.threads)
        seconds = time.perf_counter() - fitted
        a_count = 1e9 * seconds / found.n_sweeps / X.sum()
        print(
            f"| {name} {n:,} × {m:,} | {np.count_nonzero(X):,} | {X.sum():,} | {r} | "
            f"{args.threads} | {fitted - started:.1f} | {seconds:.1f} | {a_count:.1f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["coverage", "speed"], default="coverage")
    parser.add_argument("--quick", action="store_true", help="four small designs")
    parser.add_argument("--lines", type=int, nargs="*", help="numbers of lines of the grid")
    parser.add_argument("--methods", nargs="*", default=["posterior", "bootstrap"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--sweeps", type=int, default=1500)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of the speed")
    parser.add_argument("--size", type=float, default=np.inf, help="of the counts of the speed")
    parser.add_argument("--sets", nargs="*", choices=list(SPEEDS), default=list(SPEEDS))
    args = parser.parse_args()
    (speed if args.only == "speed" else coverage)(args)


if __name__ == "__main__":
    main()
