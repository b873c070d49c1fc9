"""False discoveries, power and intervals of `differential_features`, on counts that vary more.

    python -m benchmarks.differences                     # all tables, some minutes on 16 cores
    python -m benchmarks.differences --only planted --repeats 4 --jobs 2
    python -m benchmarks.differences --only boundary     # one-sided tests, W known
    python -m benchmarks.differences --only noise        # components of noise, and split counts
    python -m benchmarks.differences --only dense        # components that share a background
    python -m benchmarks.differences --only real --data DIR --jobs 16   # with pbmc3k.npz

The counts are drawn in NumPy alone. In "planted", components have the same shares of all features
but their own, of which they have two to 32 times as much; a third of these are in no other
component. Rates are multiplied by gamma noise of variance α (0: Poisson counts). Rates are means of
those data sets in which the model has found all components, whose number is in the column "found".

In "real", counts are drawn from a model of real cells with its dispersions (or as Poisson counts),
and refitted. The truth is that model: its shares are equal nowhere. "permuted" cells are the real
counts beside amounts of the components that were dealt out to the cells at random, so that all
shares are equal whatever the noise is. Contradictions are tests whose interval says "larger" at its
level, and whose p-value does not.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

from benchmarks.overdispersed import noisy
from klnmf import KLNMF, RunOptions
from klnmf.uncertainty import differential_features, dispersion, posterior, split_counts

FDR = 0.05
FOUND = 0.7  # smallest correlation of columns of W, planted and fitted, if a component was found


def drawn(rates: np.ndarray, alpha: float, generator: np.random.Generator) -> np.ndarray:
    return noisy(rates, generator, size=1 / alpha if alpha else None)


# ---- planted components --------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """Components with equal shares of most features, and some features of their own."""

    n_samples: int
    n_features: int
    rank: int
    counts: int
    alpha: float
    n_own: int = 15

    def __str__(self) -> str:
        return (
            f"{self.n_samples} × {self.n_features}, rank {self.rank}, {self.counts} counts, "
            f"α {self.alpha:g}"
        )

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, W and components; shares meant to be equal are exactly equal."""
        generator = np.random.default_rng([3, seed])
        shares = np.tile(generator.dirichlet(np.ones(self.n_features)), (self.rank, 1))
        own = generator.permutation(self.n_features)[: self.rank * self.n_own]
        for k, features in enumerate(own.reshape(self.rank, self.n_own)):
            shares[k, features] *= 2.0 ** generator.uniform(1, 5, self.n_own)
            alone = features[: self.n_own // 3]
            shares[:k, alone] = shares[k + 1 :, alone] = 0.0
        # One more feature takes up the difference in the sums, so that nothing is scaled.
        sums = shares.sum(axis=1)
        components = np.column_stack([shares, 1.02 * sums.max() - sums]) / (1.02 * sums.max())
        W = generator.dirichlet(np.full(self.rank, 0.5), self.n_samples) * self.counts
        return drawn(W @ components, self.alpha, generator), W, components


PLANTED = (
    *(Planted(300, 200, 3, n, alpha) for n in (3000, 300, 100) for alpha in (0.0, 0.1, 0.3, 1.0)),
    *(Planted(300, 500, 5, 500, alpha, 30) for alpha in (0.0, 0.3, 1.0)),
    Planted(400, 800, 10, 300, 0.3, 30),
)


def reference_shares(W: np.ndarray, components: np.ndarray, against: str | int) -> np.ndarray:
    """Share of each feature in the reference of each component."""
    others = [np.delete(components, k, axis=0) for k in range(len(components))]
    if against == "nearest":
        return np.array([part.max(axis=0) for part in others])
    if against == "others":
        sizes = W.sum(axis=0)
        return np.array([np.average(part, 0, np.delete(sizes, k)) for k, part in enumerate(others)])
    return np.tile(components[against], (len(components), 1))


def planted_figures(job: tuple[Planted, int, bool]) -> dict[str, float]:
    """Rates of one data set."""
    design, seed, is_known = job
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, W, components = design.draw(seed)
    worst = 1.0
    if is_known:
        model = KLNMF.from_components(components)
    else:
        model = KLNMF(design.rank, random_state=0, max_iter=2000, n_threads=1).fit(X)
        found_W = model.transform(X)
        between = np.corrcoef(W.T, found_W.T)[: design.rank, design.rank :]
        planted, order = linear_sum_assignment(-between)
        worst = float(between[planted, order].min())
        model.components_ = model.components_[order]
    figures = {"found": float(worst > FOUND)}
    for against in ("nearest", "others", 0):
        sides = "two-sided" if against == 0 else "greater"
        found = differential_features(
            model,
            X,
            against,
            alternative=sides,
            W=W if is_known else None,
            n_threads=1,
        )
        rows = found.components
        shares, reference = components[rows], reference_shares(W, components, against)[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.log2(shares / reference)
        differs = shares > reference + 1e-12
        if against == 0:
            differs = np.abs(shares - reference) > 1e-12
        hits, p = found.q_value <= FDR, found.p_value
        figures[f"{against} false"] = np.sum(hits & ~differs) / max(hits.sum(), 1)
        figures[f"{against} power"] = hits[differs].mean()
        equal = (np.ptp(components, axis=0) < 1e-12) & np.isfinite(p)
        if against == "others":
            figures["above"], figures["below"] = (p[equal] < 0.05).mean(), (p[equal] > 0.95).mean()
        if against == 0:
            covered = (found.lower <= change) & (change <= found.upper)
            figures["covered, equal"] = covered[equal].mean()
            figures["covered, different"] = covered[differs & np.isfinite(change)].mean()
            # Equal in components 0 and 1, and more in another one.
            raised = (
                (components[1] == components[0])
                & (components[0] > 0.0)
                & (np.ptp(components, axis=0) > 1e-12)
            )
            figures["raised elsewhere"] = (p[rows == 1][:, raised] < 0.05).mean()
    return figures


def measure_planted(args: argparse.Namespace, run: Callable[..., Iterable[Any]]) -> None:
    print(f"Planted differences: means of {args.repeats} data sets, in percent")
    print(
        "| design | W | nearest | others | pair | above | below | raised elsewhere "
        "| intervals | found |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    kinds = [(design, known) for design in PLANTED for known in (True, False)]
    jobs = [(design, seed, known) for design, known in kinds for seed in range(args.repeats)]
    found = list(run(planted_figures, jobs))
    for i, (design, known) in enumerate(kinds):
        drawn_sets = found[i * args.repeats : (i + 1) * args.repeats]
        part = [one for one in drawn_sets if one["found"]] or drawn_sets
        f = {name: 100 * np.mean([one[name] for one in part]) for name in part[0]}
        rates = " | ".join(
            f"{f[f'{kind} false']:.1f} / {f[f'{kind} power']:.0f}"
            for kind in ("nearest", "others", 0)
        )
        print(
            f"| {design} | {'known' if known else 'fitted'} | {rates} | {f['above']:.1f} "
            f"| {f['below']:.1f} | {f['raised elsewhere']:.1f} "
            f"| {f['covered, equal']:.1f} / {f['covered, different']:.1f} "
            f"| {sum(one['found'] for one in drawn_sets):.0f} of {args.repeats} |",
            flush=True,
        )


# ---- one-sided tests where shares are 0 ----------------------------------------------------------

BOUNDARIES = ("goes along", "small", "large")


def boundary_design(kind: str, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Amounts in 200 samples, and shares with x_0 = x_1 where other components have none.

    "goes along": a component without the feature comes together with the tested one; "small" and
    "large" are the size of the tested component beside that of the reference.
    """
    if kind == "goes along":
        g = generator.gamma(0.5, size=(200, 3))
        g[:, 2] = g[:, 0] * generator.gamma(2.0, 0.5, 200) + 0.05 * g[:, 2]
        return 1000 * g / g.sum(axis=1, keepdims=True), np.array([1.0, 1.0, 0.0])
    sizes = [0.05, 1.0] if kind == "small" else [2.0, 0.1]
    L = 1000 * generator.dirichlet([*sizes, 0.5, 0.5, 0.5], 200)
    return L, np.array([1.0, 1.0, 0.0, 0.0, 3.0])


def boundary_figures(job: tuple[str, float, int, int]) -> np.ndarray:
    kind, alpha, counts, seed = job
    generator = np.random.default_rng([4, seed])
    L, shares = boundary_design(kind, generator)
    rates = L @ (shares * counts / (L @ shares).sum())
    X = drawn(np.outer(rates, np.ones(600)), alpha, generator)
    model = KLNMF.from_components(np.full((L.shape[1], 600), 1 / 600))
    p = differential_features(model, X, 1, components=[0], W=L, n_threads=1).p_value
    p = p[np.isfinite(p)]
    return np.array([np.mean(part) for part in (p < 0.05, p < 0.001, p > 0.95, p > 0.999)])


def measure_boundary(args: argparse.Namespace, run: Callable[..., Iterable[Any]]) -> None:
    print("One-sided tests, W known: P(p < .05), P(p < .001), P(p > .95), P(p > .999), in percent")
    print("| shares of 0 | α | counts | rates |\n|---|---|---|---|")
    cases = [
        (kind, alpha, counts)
        for kind in BOUNDARIES
        for alpha in (0.0, 0.5)
        for counts in (5, 30, 300, 3000)
    ]
    jobs = [(*case, seed) for case in cases for seed in range(args.repeats)]
    found = np.reshape(list(run(boundary_figures, jobs)), (len(cases), -1, 4))
    for (kind, alpha, counts), means in zip(cases, 100 * found.mean(axis=1), strict=True):
        cell = "{:.1f}, {:.2f}; {:.1f}, {:.2f}".format(*means)
        print(f"| {kind} | {alpha:g} | {counts} | {cell} |", flush=True)


# ---- components of noise -------------------------------------------------------------------------


def noise_figures(job: tuple[int, float, int]) -> dict[str, tuple[float, float]]:
    """Significant tests and P(p < .05), for three components of one population."""
    counts, alpha, seed = job
    warnings.simplefilter("ignore", ConvergenceWarning)
    generator = np.random.default_rng([5, seed])
    rates = np.tile(counts * generator.dirichlet(np.ones(200)), (300, 1))
    X = drawn(rates, alpha, generator)
    model = KLNMF(3, random_state=0, max_iter=2000, n_threads=1).fit(X)
    found = {"same counts": differential_features(model, X, "others", n_threads=1)}
    parts = split_counts(X, dispersion=dispersion(model, X), random_state=seed)
    half = KLNMF(3, random_state=0, max_iter=2000, n_threads=1).fit(parts[0])
    found["split"] = differential_features(
        half, parts[1], "others", W=half.transform(parts[0]), n_threads=1
    )
    return {
        name: (float(np.nansum(one.q_value <= FDR)), float(np.nanmean(one.p_value < 0.05)))
        for name, one in found.items()
    }


def measure_noise(args: argparse.Namespace, run: Callable[..., Iterable[Any]]) -> None:
    print(
        "One population, three components, 600 tests: significant tests, and P(p < .05) in percent"
    )
    print("| counts | α | same counts | split counts |\n|---|---|---|---|")
    cases = [(counts, alpha) for counts in (3000, 300) for alpha in (0.0, 0.3, 1.0)]
    jobs = [(*case, seed) for case in cases for seed in range(args.repeats)]
    found = list(run(noise_figures, jobs))
    for i, (counts, alpha) in enumerate(cases):
        part = found[i * args.repeats : (i + 1) * args.repeats]
        cells = []
        for name in ("same counts", "split"):
            hits, below = np.mean([one[name] for one in part], axis=0)
            cells.append(f"{hits:.1f}; {100 * below:.1f}")
        print(f"| {counts} | {alpha:g} | {' | '.join(cells)} |", flush=True)


# ---- components that share a background ----------------------------------------------------------


def dense_figures(job: tuple[int, float, int]) -> tuple[float, ...]:
    """P(p < .05) of features with equal shares in two of five components, and more in a third.

    The components are half a common background. Returns rates for a fitted W, for that of the
    posterior, integrated out, and for the true W.
    """
    n_samples, alpha, seed = job
    warnings.simplefilter("ignore", UserWarning)  # of convergence, and of sweeps
    generator = np.random.default_rng([7, seed])
    shares = 0.5 * generator.dirichlet(np.ones(150)) + 0.5 * generator.dirichlet(
        np.full(150, 0.3), 5
    )
    features = generator.permutation(150)[:40]
    shares[1, features] = shares[0, features]
    shares[2, features] = 3.0 * shares[0, features]
    sums = shares.sum(axis=1)
    components = np.column_stack([shares, 1.02 * sums.max() - sums]) / (1.02 * sums.max())
    W = generator.dirichlet(np.full(5, 0.5), n_samples) * 800.0
    X = drawn(W @ components, alpha, generator)
    model = KLNMF(5, random_state=0, max_iter=2000, n_threads=1).fit(X)
    between = np.corrcoef(W.T, model.transform(X).T)[:5, 5:]
    model.components_ = model.components_[linear_sum_assignment(-between)[1]]
    options: dict[str, Any] = {"components": [1], "alternative": "two-sided", "n_threads": 1}
    fitted = differential_features(model, X, 0, **options)
    sampled = posterior(model, X, random_state=seed, n_threads=1, run=RunOptions(progress=False))
    integrated = differential_features(sampled, None, 0, **options)
    known = differential_features(KLNMF.from_components(components), X, 0, W=W, **options)
    tests = (fitted, integrated, known)
    return tuple(float(np.mean(one.p_value[0, features] < 0.05)) for one in tests)


def measure_dense(args: argparse.Namespace, run: Callable[..., Iterable[Any]]) -> None:
    print("Equal in two components that share a background, more in a third: P(p < .05), percent")
    print("| samples | α | W fitted | posterior | W known |\n|---|---|---|---|---|")
    cases = [(n, alpha) for alpha in (0.0, 0.1, 1 / 3) for n in args.samples]
    jobs = [(*case, seed) for case in cases for seed in range(args.repeats)]
    found = np.reshape(list(run(dense_figures, jobs)), (len(cases), args.repeats, 3))
    for (n, alpha), rates in zip(cases, 100 * found.mean(axis=1), strict=True):
        print(f"| {n} | {alpha:.2g} | {' | '.join(f'{rate:.1f}' for rate in rates)} |", flush=True)


# ---- counts of real cells ------------------------------------------------------------------------


def real_model(data: str, rank: int) -> tuple[sp.csr_array, np.ndarray, np.ndarray, np.ndarray]:
    """Counts of the genes that ten cells have, W, components and dispersions of a model."""
    X = sp.csr_array(sp.load_npz(Path(data) / "pbmc3k.npz"))
    X = sp.csr_array(X[:, np.flatnonzero((X > 0).sum(axis=0) >= 10)])
    model = KLNMF(rank, random_state=0, n_threads=1).fit(X)
    found = dispersion(model, X)
    return X, model.transform(X).astype(float), model.components_.astype(float), found.by_feature


def real_figures(job: tuple[str, int, str, str, int]) -> dict[str, float]:
    """Rates of one data set: "dispersed" or "poisson" counts, or "permuted" amounts."""
    data, rank, kind, against, seed = job
    warnings.simplefilter("ignore", ConvergenceWarning)
    generator = np.random.default_rng([6, seed])
    X, W, components, alpha = real_model(data, rank)
    if kind == "permuted":
        order = generator.permutation(len(W))
        depth, shares = W.sum(axis=1, keepdims=True), W / W.sum(axis=1, keepdims=True)
        model = KLNMF.from_components(components)
        found = differential_features(model, X, against, W=depth * shares[order], n_threads=1)
        true_change = np.zeros(found.z.shape)
    else:
        rates = W @ components
        if kind == "dispersed":
            size = 1.0 / np.maximum(alpha, 1e-9)
            rates *= generator.gamma(size, 1.0 / size, rates.shape)
        X = sp.csr_array(generator.poisson(rates))
        model = KLNMF(rank, n_threads=1).fit(X, W=W, H=components)  # so that components match
        between = np.corrcoef(W.T, model.transform(X).T)[:rank, rank:]
        model.components_ = model.components_[linear_sum_assignment(-between)[1]]
        found = differential_features(model, X, against, n_threads=1)
        reference = reference_shares(W, components, "others")
        if against == "nearest":
            reference = np.take_along_axis(components, np.maximum(found.reference, 0), axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            true_change = np.log2(components / reference)
    is_tested = np.isfinite(found.p_value) & ~np.isnan(true_change)
    is_larger = true_change > 0.0
    if kind != "permuted" and against == "nearest":
        is_larger = components > reference_shares(W, components, "nearest")
    hits, p, above = found.q_value <= FDR, found.p_value, found.lower > 0.0
    covered = (found.lower <= true_change) & (true_change <= found.upper)
    is_equal, is_clear = is_tested & (true_change <= 0.0), is_tested & (true_change >= 1.0)
    is_finite = is_tested & np.isfinite(true_change)
    is_frequent = is_finite & (W.sum(axis=0)[:, np.newaxis] * components >= 20.0)
    return {
        "false": np.sum(hits & ~is_larger) / max(hits.sum(), 1),
        "power": np.mean(hits[is_clear]) if is_clear.any() else np.nan,
        "p < .025": np.mean(p[is_equal] < 0.025),
        "lower > 0": np.mean(above[is_equal]),
        "covered": np.mean(covered[is_finite]),
        "covered, 20 counts": np.mean(covered[is_frequent]),
        "contradictions": np.sum(is_tested & ((above & (p > 0.0251)) | (~above & (p < 0.0249)))),
    }


def measure_real(args: argparse.Namespace, run: Callable[..., Iterable[Any]]) -> None:
    if args.data is None:
        print("Real cells: left out, as there is no --data DIR.")
        return
    print(f"Counts from models of real cells: means of {args.repeats} data sets, in percent")
    kinds = [
        (rank, kind, against)
        for rank in (5, 8)
        for kind in ("poisson", "dispersed", "permuted")
        for against in ("nearest", "others")
    ]
    jobs = [(args.data, *kind, seed) for kind in kinds for seed in range(args.repeats)]
    found = list(run(real_figures, jobs))
    for i, kind in enumerate(kinds):
        part = found[i * args.repeats : (i + 1) * args.repeats]
        if i == 0:
            print(f"| r | counts | against | {' | '.join(part[0])} |")
            print("|---|---|---|" + "---|" * len(part[0]))
        means = {name: float(np.mean([one[name] for one in part])) for name in part[0]}
        cells = [
            f"{value:.0f}" if name == "contradictions" else f"{100 * value:.1f}"
            for name, value in means.items()
        ]
        print(f"| {' | '.join(map(str, kind))} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", choices=["planted", "boundary", "noise", "dense", "real"], help="one table only"
    )
    parser.add_argument("--repeats", type=int, default=8, help="data sets of each design")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--samples", type=int, nargs="*", default=[300, 1500, 5000], help="of dense"
    )
    parser.add_argument("--data", default=os.environ.get("KLNMF_DATA"), help="folder of pbmc3k.npz")
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs) as pool:
        for name, measure in (
            ("planted", measure_planted),
            ("boundary", measure_boundary),
            ("noise", measure_noise),
            ("dense", measure_dense),
            ("real", measure_real),
        ):
            if args.only in (None, name):
                measure(args, pool.map)


if __name__ == "__main__":
    main()
