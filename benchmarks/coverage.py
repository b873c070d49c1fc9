"""Coverage of the intervals, and false discoveries of the tests, on simulated data.

    python -m benchmarks.coverage                     # both tables, under three minutes on one core
    python -m benchmarks.coverage --only intervals --repeats 20
    python -m benchmarks.coverage --only kinds        # other ways to make an interval from the runs
    python -m benchmarks.coverage --only differences
    python -m benchmarks.coverage --only dispersion   # does the result notice a wrong model?

Each repeat draws new factors and counts, and fits a model from the default start. Its components
are matched to the true ones. In the "separable" design each component has five features that no
other component has (a tenth of its mass), every tenth sample has a single component, and three
tenths of the other entries of W are 0. The "anchors" design has only these features, "none" has
neither. In these two the data determine the factors less well, or not at all.

"interior" is the coverage of entries with ``is_interior``, "other" that of the one-sided intervals,
in percent over all repeats. All counts are Poisson and the rank is correct, so model errors are not
covered.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from klnmf import KLNMF
from klnmf.datasets import load_bible
from klnmf.simulate import draw_counts, simulate_counts
from klnmf.topics import match_components, plsi_probabilities
from klnmf.uncertainty import Bootstrap, Intervals, bootstrap, differential_features

ANCHORS = 5  # features of a component's own
ANCHOR_MASS = 0.1
FDR = 0.05


@dataclass(frozen=True)
class Design:
    """Sizes, and how distinct the components are."""

    n_samples: int
    n_features: int
    rank: int
    counts: int  # expected, per sample
    breadth: float  # concentration of the components over the features
    structure: str = "separable"  # or "anchors" alone, or "none"
    concentration: float = 0.5  # of the samples over the components

    def __str__(self) -> str:
        return (
            f"{self.n_samples:4d} x {self.n_features:<4d} rank {self.rank:2d}, {self.counts:4d} "
            f"counts, breadth {self.breadth:<3g} W {self.concentration:<3g} {self.structure}"
        )

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """W and components."""
        _, W, H = simulate_counts(
            self.n_samples,
            self.n_features,
            self.rank,
            counts_per_sample=self.counts,
            concentration_W=self.concentration,
            concentration_H=self.breadth,
            random_state=seed,
        )
        if self.structure == "none":
            return W, H.T
        generator = np.random.default_rng([1, seed])
        for k in range(self.rank):
            own = slice(k * ANCHORS, (k + 1) * ANCHORS)
            H[own] = 0.0
            H[own, k] = H[:, k].sum() * ANCHOR_MASS / (1 - ANCHOR_MASS) / ANCHORS
        H /= H.sum(axis=0)
        if self.structure == "anchors":
            return W, H.T
        dropped = generator.random(W.shape) < 0.3
        dropped[np.arange(len(W)), W.argmax(axis=1)] = False
        W[dropped] = 0.0
        pure = np.arange(0, len(W), 10)
        W[pure] = np.eye(self.rank)[(pure // 10) % self.rank]
        return self.counts * W / W.sum(axis=1, keepdims=True), H.T


DESIGNS = (
    Design(300, 100, 3, 100, 0.5),
    Design(300, 100, 3, 1000, 0.5),
    Design(300, 200, 5, 300, 0.1),
    Design(300, 200, 5, 300, 1.0),
    Design(400, 300, 10, 500, 0.5),
    Design(300, 100, 3, 30, 0.5),
    Design(300, 200, 5, 300, 1.0, "anchors"),
    Design(300, 200, 5, 300, 0.1, "none"),
    Design(300, 200, 5, 300, 1.0, "none"),
    Design(300, 200, 5, 300, 1.0, "none", concentration=2.0),
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


def drawn_and_run(
    design: Design, seed: int, args: argparse.Namespace, keep_draws: bool = False
) -> tuple[Bootstrap, np.ndarray, np.ndarray, float]:
    """Intervals, true shares in the same order, and the similarity of the worst match."""
    W, components = design.draw(seed)
    X = draw_counts(W, components, random_state=10_000 + seed)
    model = KLNMF(design.rank, random_state=0, tol=args.tol, max_iter=2000).fit(X)
    match = match_components(model.components_, components)
    truth = plsi_probabilities(W, components)
    found = bootstrap(
        model, X, args.runs, keep_draws=keep_draws, n_jobs=args.jobs, random_state=seed
    )
    return (
        found,
        truth.feature_given_component[match.second],
        truth.component_given_sample[:, match.second],
        float(match.similarity.min()),
    )


def contains(intervals: Intervals, truth: np.ndarray) -> np.ndarray:
    return (intervals.lower <= truth + 1e-12) & (truth <= intervals.upper + 1e-12)


def measure_intervals(args: argparse.Namespace) -> None:
    print(f"coverage of 95 % intervals: {args.repeats} repeats, {args.runs} runs each")
    print(f"{'':60s} components        proportions")
    print(
        f"{'design':60s} interior   other  interior   other   entries interior   worst match   "
        "dispersion"
    )
    for design in args.designs:
        tallies = {
            (what, inside): Tally() for what in ("components", "proportions") for inside in (1, 0)
        }
        n_inside = {what: [] for what in ("components", "proportions")}
        worst, dispersion, started = 1.0, [], time.perf_counter()
        for seed in range(args.repeats):
            found, components, proportions, similarity = drawn_and_run(design, seed, args)
            worst = min(worst, similarity)
            dispersion.append(found.dispersion.factor)
            for what, truth in (("components", components), ("proportions", proportions)):
                intervals = getattr(found, what)
                covered, inside = contains(intervals, truth), intervals.is_interior
                tallies[what, 1].add(covered[inside])
                tallies[what, 0].add(covered[~inside])
                n_inside[what].append(inside.mean())
        cells = "   ".join(str(tally) for tally in tallies.values())
        shares = " ".join(f"{100 * np.mean(values):4.0f} %" for values in n_inside.values())
        print(
            f"{design!s:60s}    {cells}      {shares}          {worst:.3f}         "
            f"{np.mean(dispersion):.3f}   {time.perf_counter() - started:.0f} s",
            flush=True,
        )


def other_kinds(estimate: np.ndarray, draws: np.ndarray) -> dict[str, tuple[np.ndarray, ...]]:
    """Ends of 95 % intervals by other methods, from the shares of all runs."""
    z = norm.ppf(0.975)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    spread, bias = draws.std(axis=0, ddof=1), draws.mean(axis=0) - estimate
    n = len(draws)
    below = np.clip((draws < estimate).mean(axis=0), 0.5 / n, 1 - 0.5 / n)
    ordered = np.sort(draws, axis=0)

    def at(level: np.ndarray) -> np.ndarray:
        place = np.clip(np.round(level * (n - 1)).astype(int), 0, n - 1)
        return np.take_along_axis(ordered, place[np.newaxis], axis=0)[0]

    shift = 2 * norm.ppf(below)
    return {
        "percentile": (low, high),
        "basic": (2 * estimate - high, 2 * estimate - low),
        "bias-corrected percentile": (at(norm.cdf(shift - z)), at(norm.cdf(shift + z))),
        "normal": (estimate - z * spread, estimate + z * spread),
        "normal, bias corrected": (
            estimate - bias - z * spread,
            estimate - bias + z * spread,
        ),
    }


def measure_kinds(args: argparse.Namespace) -> None:
    print(
        f"coverage of interior entries by kind of interval: {args.repeats} repeats, {args.runs} "
        "runs each"
    )
    for design in args.designs:
        tallies: dict[str, dict[str, Tally]] = {}
        for seed in range(args.repeats):
            found, components, proportions, _ = drawn_and_run(design, seed, args, keep_draws=True)
            for what, truth in (("components", components), ("proportions", proportions)):
                intervals = getattr(found, what)
                kinds = other_kinds(intervals.estimate, getattr(found.draws, what))
                kinds["ours"] = (intervals.lower, intervals.upper)
                inside = intervals.is_interior
                for kind, (low, high) in kinds.items():
                    tally = tallies.setdefault(kind, {}).setdefault(what, Tally())
                    tally.add(((low <= truth) & (truth <= high))[inside])
        print(design)
        for kind, cells in tallies.items():
            print(
                f"    {kind:26s} components {cells['components']}   proportions "
                f"{cells['proportions']}",
                flush=True,
            )


@dataclass(frozen=True)
class Difference:
    """Components with equal shares of most features, and some specific features."""

    n_samples: int
    n_features: int
    rank: int
    counts: int
    n_own: int  # features of which a component has two to 32 times as much as the others
    has_anchors: bool = True  # a third of these are in no other component

    def __str__(self) -> str:
        kind = "anchors" if self.has_anchors else "none"
        return (
            f"{self.n_samples:4d} x {self.n_features:<4d} rank {self.rank:2d}, {self.counts:4d} "
            f"counts, {self.n_own:2d} own, {kind:7s}"
        )

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """W and components; shares meant to be equal are exactly equal."""
        generator = np.random.default_rng([3, seed])
        base = generator.dirichlet(np.full(self.n_features, 1.0))
        shares = np.tile(base, (self.rank, 1))
        own = generator.permutation(self.n_features)[: self.rank * self.n_own]
        for k, features in enumerate(own.reshape(self.rank, self.n_own)):
            shares[k, features] *= 2.0 ** generator.uniform(1, 5, self.n_own)
            if self.has_anchors:
                alone = features[: self.n_own // 3]
                shares[:k, alone] = shares[k + 1 :, alone] = 0.0
        # One more feature takes up the difference in the sums, so that nothing is scaled.
        sums = shares.sum(axis=1)
        components = np.column_stack([shares, 1.02 * sums.max() - sums]) / (1.02 * sums.max())
        W = generator.dirichlet(np.full(self.rank, 0.5), self.n_samples) * self.counts
        return W, components


DIFFERENCES = (
    Difference(300, 200, 3, 50, 15),
    Difference(300, 200, 3, 200, 15),
    Difference(300, 200, 3, 1000, 15),
    Difference(300, 200, 3, 200, 15, has_anchors=False),
    Difference(300, 500, 5, 500, 30),
    Difference(400, 800, 10, 300, 30),
)


def are_different(W: np.ndarray, components: np.ndarray, against: str | int) -> np.ndarray:
    """Whether the null hypothesis of each test is false."""
    n = len(components)
    if against == "nearest":
        others = [np.delete(components, k, axis=0).max(axis=0) for k in range(n)]
        return components > np.array(others) + 1e-12
    if against == "others":
        sizes = W.sum(axis=0)
        others = [np.average(np.delete(components, k, 0), 0, np.delete(sizes, k)) for k in range(n)]
        return components > np.array(others) + 1e-12
    return np.abs(np.delete(components - components[against], against, axis=0)) > 1e-12


def measure_differences(args: argparse.Namespace) -> None:
    print(
        f"false discoveries and power at a rate of {FDR:.0%}, means of {args.repeats} repeats, in "
        "percent; tests below 5 % where shares are equal (pairs)"
    )
    print(
        f"{'design':50s} W        nearest         others          pairs, two-sided   "
        "tests below 5 %"
    )
    for design in DIFFERENCES:
        for is_known in (True, False):
            rates: dict[str, list[tuple[float, float]]] = {}
            below = Tally()
            started = time.perf_counter()
            for seed in range(args.repeats):
                W, components = design.draw(seed)
                X = draw_counts(W, components, random_state=seed)
                model = KLNMF(design.rank, random_state=0, tol=args.tol, max_iter=2000).fit(X)
                order = match_components(components, model.components_).second
                model.components_ = model.components_[order]
                if is_known:
                    model.components_ = components.astype(np.float32)
                for against in ("nearest", "others", 0):
                    found = differential_features(
                        model,
                        X,
                        against,
                        alternative="two-sided" if against == 0 else "greater",
                        W=W if is_known else None,
                    )
                    truth = are_different(W, components, against)
                    hits = found.q_value <= FDR
                    rates.setdefault(str(against), []).append(
                        ((hits & ~truth).sum() / max(hits.sum(), 1), hits[truth].mean())
                    )
                    if against == 0:
                        below.add(found.p_value[~truth & np.isfinite(found.p_value)] < 0.05)
            cells = "     ".join(
                f"{100 * np.mean(values, axis=0)[0]:4.1f} / {100 * np.mean(values, axis=0)[1]:3.0f}"
                for values in rates.values()
            )
            print(
                f"{design!s:50s} {'known' if is_known else 'fitted':8s} {cells}        {below}   "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )


def measure_dispersion(args: argparse.Namespace) -> None:
    """Print the ratio that shows when counts vary more than Poisson counts."""
    print("divergence of the data / of data drawn from the model, by variance of the rates' noise")
    print(f"{'design':60s}      0    0.2      1")
    sparse = Design(500, 1000, 5, 50, 0.5), Design(500, 1000, 5, 50, 0.5, "none")
    for design in (*args.designs, *sparse):
        ratios = []
        for variance in (0.0, 0.2, 1.0):
            generator = np.random.default_rng([4, 0])
            W, components = design.draw(0)
            rates = W @ components
            if variance:
                rates *= generator.gamma(1 / variance, variance, size=rates.shape)
            X = generator.poisson(rates)
            ratios.append(dispersion_of(X, design.rank, args))
        print(f"{design!s:60s} {'  '.join(f'{ratio:5.2f}' for ratio in ratios)}", flush=True)
    print(f"{'the Bible, rank 10':60s} {dispersion_of(load_bible().data, 10, args):5.2f}")


def dispersion_of(X: Any, rank: int, args: argparse.Namespace) -> float:
    model = KLNMF(rank, random_state=0, tol=args.tol, max_iter=2000).fit(X)
    return bootstrap(model, X, 5, samples=[], n_jobs=args.jobs, random_state=0).dispersion.factor


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add(
        "--only",
        choices=["intervals", "kinds", "differences", "dispersion"],
        help="print only one of the tables",
    )
    add("--repeats", type=int, default=4, help="repeats, each with new factors and counts")
    add("--runs", type=int, default=60, help="refits per bootstrap")
    add("--tol", type=float, default=3e-4, help="of all fits")
    add("--jobs", type=int, default=1, help="refits at a time")
    add("--designs", type=int, nargs="+", help="numbers of the designs for the intervals, from 0")
    args = parser.parse_args()
    args.designs = [DESIGNS[i] for i in args.designs] if args.designs else DESIGNS
    warnings.simplefilter("ignore", ConvergenceWarning)
    if args.only in (None, "intervals"):
        measure_intervals(args)
    if args.only in (None, "differences"):
        measure_differences(args)
    if args.only == "kinds":
        measure_kinds(args)
    if args.only == "dispersion":
        measure_dispersion(args)


if __name__ == "__main__":
    main()
