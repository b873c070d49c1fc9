"""Whether intervals contain the true value.

    python -m benchmarks.coverage                     # the intervals, ten minutes on one core
    python -m benchmarks.coverage --only intervals --repeats 20 --processes 16
    python -m benchmarks.coverage --only intervals --noise poisson  # as if counts were Poisson
    python -m benchmarks.coverage --only kinds        # other ways to make an interval from the runs

Counts for the intervals come from `benchmarks.overdispersed`, which shares no code with the
library: Poisson, negative binomial and lognormal. New factors are drawn for every data set. Entries
of a component count if the fit has found it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning

from benchmarks.overdispersed import draw
from klnmf import KLNMF, RunOptions
from klnmf.topics import match_components
from klnmf.uncertainty import Bootstrap, bootstrap
from klnmf.uncertainty.parametric_bootstrap import shares_of
from klnmf.uncertainty.refits import Refit, refits

NOISES: dict[str, dict[str, Any]] = {
    "Poisson": {},
    "size 10": {"size": 10.0},
    "size 3": {"size": 3.0},
    "size 1": {"size": 1.0},
    "lognormal 0.3": {"noise": "lognormal", "variance": 0.3},
}


@dataclass(frozen=True)
class Design:
    """Sizes, and how distinct the components are."""

    n_samples: int
    n_features: int
    rank: int
    counts: int  # expected, per sample
    components: str  # see benchmarks.overdispersed
    mixing: float = 0.3  # concentration of the samples over the components

    def __str__(self) -> str:
        return (
            f"{self.n_samples} × {self.n_features}, rank {self.rank}, {self.counts} counts, "
            f"{self.components}, mixing {self.mixing:g}"
        )


DESIGNS = (
    Design(400, 300, 3, 50, "sparse"),
    Design(300, 100, 3, 50, "broad"),
    Design(300, 100, 3, 100, "broad"),
    Design(300, 100, 3, 100, "broad", mixing=1.0),
    Design(300, 200, 5, 300, "broad", mixing=2.0),  # samples with all components: hardly determined
    Design(300, 200, 7, 300, "zipf"),
    Design(250, 96, 4, 1500, "broad"),
    Design(250, 96, 4, 3000, "sparse"),
)


@dataclass
class Tally:
    """Number of intervals that contain the true value, and number of intervals."""

    covered: int = 0
    n: int = 0

    def add(self, covered: np.ndarray) -> None:
        self.covered += int(covered.sum())
        self.n += covered.size

    def __str__(self) -> str:
        return f"{100 * self.covered / self.n:5.1f}" if self.n else "    -"


class Drawn(NamedTuple):
    """Intervals of one data set, with the true shares in the same order."""

    found: Bootstrap
    truth: dict[str, np.ndarray]
    is_matched: np.ndarray  # by component

    def selected(self, part: str, inside: bool) -> np.ndarray:
        """Entries of matched components that are interior, or those that are not."""
        matched = self.is_matched[:, None] if part == "components" else self.is_matched[None]
        return (getattr(self.found, part).is_interior == inside) & matched


MATCHED = 0.8  # cosine similarity of a planted component with the fitted one
SAMPLES = 150  # whose proportions are compared


def drawn_and_run(
    design: Design, noise: str, seed: int, runs: int, tol: float, model_noise: str
) -> Drawn:
    planted = draw(
        design.n_samples,
        design.n_features,
        design.rank,
        design.counts,
        design.components,
        mixing=design.mixing,
        seed=[seed, 17],
        **NOISES[noise],
    )
    model = KLNMF(design.rank, random_state=0, n_threads=1, tol=tol, max_iter=2000).fit(planted.X)
    match = match_components(model.components_, planted.H.T)
    samples = np.arange(min(SAMPLES, design.n_samples))
    found = bootstrap(
        model,
        planted.X,
        runs,
        noise=model_noise,
        samples=samples,
        n_jobs=1,
        random_state=seed,
        run=RunOptions(progress=False),
    )
    order = match.second
    proportions = planted.W / planted.W.sum(axis=1, keepdims=True)
    sizes = planted.W.sum(axis=0) / planted.W.sum()
    truth = {
        "components": planted.H.T[order],
        "proportions": proportions[samples][:, order],
        "sizes": sizes[order][np.newaxis],
    }
    return Drawn(found, truth, match.similarity > MATCHED)


def contains(lower: np.ndarray, upper: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return (lower <= truth + 1e-12) & (truth <= upper + 1e-12)


PARTS = ("components", "proportions", "sizes")


def covered(task: tuple[Any, ...]) -> dict[Any, Any]:
    """Return counts of covered entries of one data set, for a pool of processes."""
    design, noise, seed, runs, tol, model_noise = task
    warnings.simplefilter("ignore", ConvergenceWarning)
    drawn = drawn_and_run(design, noise, seed, runs, tol, model_noise)
    result: dict[Any, Any] = {
        "dispersion": drawn.found.dispersion.common,
        "factor": drawn.found.dispersion.factor,
        "matched": drawn.is_matched.mean(),
    }
    for part in PARTS:
        intervals = getattr(drawn.found, part)
        hits = contains(intervals.lower, intervals.upper, drawn.truth[part])
        for inside in (True, False):
            result[part, inside] = hits[drawn.selected(part, inside)]
    return result


def tasks_of(args: argparse.Namespace) -> list[tuple[Any, ...]]:
    """Arguments of all data sets, in the order of the tables."""
    return [
        (design, noise, args.seed + seed, args.runs, args.tol, args.noise)
        for design in args.designs
        for noise in args.noises
        for seed in range(args.repeats)
    ]


def measure_intervals(args: argparse.Namespace) -> None:
    print(
        f"coverage (%) of 95 % intervals: {args.repeats} data sets per line, {args.runs} runs "
        f"each, drawn as {args.noise}; interior entries, and in brackets the others; matched: "
        f"components with a similarity above {MATCHED}"
    )
    print("| design | noise | components | proportions | sizes | interior | α | factor | matched |")
    print("|---|---|---|---|---|---|---|---|---|")
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        found = pool.imap(covered, tasks_of(args))
        for design in args.designs:
            for noise in args.noises:
                print(_line(design, noise, [next(found) for _ in range(args.repeats)]), flush=True)


def _line(design: Design, noise: str, results: list[dict[Any, Any]]) -> str:
    cells = [str(design), noise]
    tallies = {}
    for key in [(part, inside) for part in PARTS for inside in (True, False)]:
        tallies[key] = Tally()
        for result in results:
            tallies[key].add(result[key])
    for part in PARTS:
        other = tallies[part, False]
        cells.append(f"{tallies[part, True]}" + (f" ({other})" if other.n else ""))
    shares = [
        tallies[part, True].n / max(tallies[part, True].n + tallies[part, False].n, 1)
        for part in PARTS[:2]
    ]
    cells.append(", ".join(f"{share:.0%}" for share in shares))
    alphas = [result["dispersion"] for result in results]
    cells.append(f"{np.mean(alphas):.3f} ± {np.std(alphas):.3f}")
    cells.append(f"{np.mean([result['factor'] for result in results]):.1f}")
    cells.append(f"{np.mean([result['matched'] for result in results]):.0%}")
    return "| " + " | ".join(cells) + " |"


def other_kinds(estimate: np.ndarray, draws: np.ndarray) -> dict[str, tuple[np.ndarray, ...]]:
    """Ends of 95 % intervals by other methods, from the shares of all runs."""
    z = student.ppf(0.975, len(draws) - 1)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    spread, bias = draws.std(axis=0, ddof=1), draws.mean(axis=0) - estimate
    angles = np.arcsin(np.sqrt(np.clip(draws, 0, 1)))
    angle = np.arcsin(np.sqrt(np.clip(estimate, 0, 1)))
    turn, shift = angles.std(axis=0, ddof=1), angles.mean(axis=0) - angle

    def by_angle(middle: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, ...]:
        ends = (middle - reach, middle + reach)
        return tuple(np.sin(np.clip(end, 0.0, np.pi / 2)) ** 2 for end in ends)

    return {
        "percentiles": (low, high),
        "basic": (2 * estimate - high, 2 * estimate - low),
        "normal": (estimate - z * spread, estimate + z * spread),
        "normal, bias subtracted": (
            estimate - bias - z * spread,
            estimate - bias + z * spread,
        ),
        "angle": by_angle(angle, z * turn),
        "angle, bias subtracted": by_angle(angle - shift, z * turn),
        "angle, bias² added": by_angle(angle, z * np.hypot(turn, shift)),
    }


def covered_by_kind(task: tuple[Any, ...]) -> dict[Any, np.ndarray]:
    design, noise, seed, runs, tol, model_noise = task
    warnings.simplefilter("ignore", ConvergenceWarning)
    kept: list[Refit] = []

    def keeping(*arguments: Any) -> Iterator[Refit]:
        for refit in refits(*arguments):
            kept.append(refit)
            yield refit

    with patch("klnmf.uncertainty.parametric_bootstrap.refits", keeping):
        drawn = drawn_and_run(design, noise, seed, runs, tol, model_noise)
    shares = [shares_of(refit.W, refit.components, drawn.found.samples) for refit in kept]
    result = {}
    for part, draws in zip(PARTS, zip(*shares, strict=True), strict=True):
        intervals, inside = getattr(drawn.found, part), drawn.selected(part, True)
        kinds = other_kinds(intervals.estimate, np.array(draws))
        kinds["ours: angle, (2 bias)² added"] = (intervals.lower, intervals.upper)
        for kind, ends in kinds.items():
            result[kind, part] = contains(*ends, drawn.truth[part])[inside]
    return result


def measure_kinds(args: argparse.Namespace) -> None:
    print(
        f"coverage (%) of interior entries by kind of interval, means and least values over "
        f"designs × noises: {args.repeats} data sets each, {args.runs} runs"
    )
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        found = pool.map(covered_by_kind, tasks_of(args), chunksize=1)
    groups = [found[i : i + args.repeats] for i in range(0, len(found), args.repeats)]
    print("| interval | components | proportions | sizes |\n|---|---|---|---|")
    for kind in dict.fromkeys(kind for kind, _ in found[0]):
        cells = []
        for part in PARTS:
            rates = [np.concatenate([one[kind, part] for one in group]) for group in groups]
            means = [100 * hits.mean() for hits in rates if len(hits)]
            cells.append(f"{np.mean(means):.1f} ({min(means):.1f})")
        print(f"| {kind} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--only", choices=["intervals", "kinds"], help="print only one table")
    add("--repeats", type=int, default=4, help="repeats, each with new factors and counts")
    add("--runs", type=int, default=60, help="refits per bootstrap")
    add("--tol", type=float, default=3e-4, help="of all fits")
    add("--seed", type=int, default=0, help="of the first data set")
    add("--processes", type=int, default=1, help="data sets at a time")
    add("--designs", type=int, nargs="+", help="numbers of the designs for the intervals, from 0")
    add("--noises", nargs="+", choices=NOISES, default=list(NOISES), help="noise of the data")
    add("--noise", default="estimated", help="noise= of bootstrap")
    args = parser.parse_args()
    args.designs = [DESIGNS[i] for i in args.designs] if args.designs else DESIGNS
    warnings.simplefilter("ignore", ConvergenceWarning)
    if args.only in (None, "intervals"):
        measure_intervals(args)
    if args.only == "kinds":
        measure_kinds(args)


if __name__ == "__main__":
    main()
