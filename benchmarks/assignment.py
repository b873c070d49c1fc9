"""Sparse assignment: which components samples get, on simulated tumours and on a cohort.

The simulator is plain NumPy. Tumours have 1 to 6 of 20 known signatures; counts are Poisson, or
Poisson with gamma noise of relative variance 0.05 on the rates.

    python -m benchmarks.assignment
    python -m benchmarks.assignment --data DIR    also a cohort, tcga_wes_sbs96.npz
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import rel_entr

from benchmarks.common import add_data_argument
from klnmf import KLNMF, capped_weights
from klnmf.readers import read_counts
from klnmf.topics import match_components
from klnmf.uncertainty import sparse_assignment

COHORT = "tcga_wes_sbs96.npz"
COLUMNS = "components | false | any % | more % | >10% | 5-10% | <5%"


def signatures_of(generator: np.random.Generator, r: int) -> np.ndarray:
    """Signatures over 96 types: 70 % of them narrow, 20 % broad, 10 % nearly flat."""
    place = np.arange(r) / r
    concentrations = np.select([place < 0.7, place < 0.9], [0.15, 0.6], 3.0)
    return np.array([generator.dirichlet(np.full(96, c)) for c in concentrations])


def tumours_of(
    generator: np.random.Generator, signatures: np.ndarray, totals: np.ndarray, dispersion: float
) -> tuple[np.ndarray, np.ndarray]:
    """Counts, and the shares of the signatures that each tumour has."""
    r = len(signatures)
    shares = np.zeros((len(totals), r))
    for row in shares:
        active = generator.choice(r, generator.integers(1, 7), replace=False)
        row[active] = generator.dirichlet(np.full(len(active), 1.5))
    rates = totals[:, None] * (shares @ signatures)
    if dispersion:
        rates *= generator.gamma(1 / dispersion, dispersion, rates.shape)
    return generator.poisson(rates), shares


def rates_of(found: np.ndarray, shares: np.ndarray) -> str:
    """Cells of a row: how often components are there and should (not) be."""
    there, active = found > 0, shares > 0
    wrong = (there & ~active).sum(axis=1)
    is_more = there.sum(axis=1) > active.sum(axis=1)
    sizes = [shares > 0.1, (shares > 0.05) & (shares <= 0.1), (shares > 0) & (shares <= 0.05)]
    power = " | ".join(f"{100 * there[size].mean():.0f}" for size in sizes)
    return (
        f"{there.sum(axis=1).mean():.2f} | {wrong.mean():.2f} | {100 * np.mean(wrong > 0):.0f} | "
        f"{100 * is_more.mean():.1f} | {power}"
    )


def known_signatures(n: int, seed: int) -> None:
    """Table 1: signatures are known, amounts are found."""
    print(f"\n| mutations | dispersion | W | {COLUMNS} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for dispersion in (0.0, 0.05):
        for total in (50, 200, 1000, 5000):
            generator = np.random.default_rng(seed)
            signatures = signatures_of(generator, 20)
            totals = generator.lognormal(np.log(total), 0.3, size=n)
            X, shares = tumours_of(generator, signatures, totals, dispersion)
            model = KLNMF.from_components(signatures)
            W = model.transform(X)
            ways = {"true": shares, "most likely": W, "over 5 %": W * (model.proportions(W) > 0.05)}
            ways["sparse, Poisson"] = sparse_assignment(model, X, noise="poisson").toarray()
            ways["sparse"] = sparse_assignment(model, X).toarray()
            for name, found in ways.items():
                line = f"| {total} | {dispersion} | {name} | {rates_of(found, shares)} |"
                print(line, flush=True)


def learned_signatures(n: int, seeds: range) -> None:
    """Table 2: signatures are learned, and refitted with the zeros of the assignment."""
    print(f"\n| data set | refits | cosine, mean | lowest | {COLUMNS} |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for seed in seeds:
        generator = np.random.default_rng(seed)
        signatures = signatures_of(generator, 10)
        X, shares = tumours_of(generator, signatures, generator.lognormal(5.0, 1.2, size=n), 0.05)
        model: Any = KLNMF(10, random_state=0).fit(X)
        for n_refits in range(5):
            W = sparse_assignment(model, X)
            match = match_components(signatures, model.components_)
            cosine = f"{match.similarity.mean():.4f} | {match.similarity.min():.4f}"
            rates = rates_of(W.toarray()[:, match.second], shares)
            print(f"| {seed} | {n_refits} | {cosine} | {rates} |", flush=True)
            model = KLNMF(10, random_state=0).fit(X, H=model.components_, zero_W=W.toarray() == 0)


def cohort(path: Path) -> None:
    """Table 3: how many components the tumours of a cohort have."""
    X = read_counts(path).X
    totals = np.asarray(X.sum(axis=1)).ravel()
    print(f"\n{path.name}: {X.shape[0]:,} tumours, median {np.median(totals):.0f} mutations")
    print("| r | cap | refits | seconds | zeros in H | most likely W | sparse W | mean |")
    print("|---|---|---|---|---|---|---|---|")
    for r in (10, 20):
        for quantile in (None, 0.95):
            weights = None if quantile is None else capped_weights(X, quantile=quantile)
            model: Any = KLNMF(r, random_state=0, n_threads=1).fit(X, sample_weight=weights)
            for n_refits in range(5):
                begin = time.perf_counter()
                W = sparse_assignment(model, X, sample_weight=weights)
                seconds = time.perf_counter() - begin
                before, after = (
                    (model.proportions(amounts) > 0.01).sum(axis=1)
                    for amounts in (model.transform(X), W)
                )
                print(
                    f"| {r} | {quantile} | {n_refits} | {seconds:.0f} | "
                    f"{np.mean(model.components_ == 0):.0%} | {np.median(before):.0f} | "
                    f"{np.median(after):.0f} | {after.mean():.1f} |",
                    flush=True,
                )
                again = KLNMF(r, random_state=0, n_threads=1)
                zeros = W.toarray() == 0
                model = again.fit(X, H=model.components_, zero_W=zeros, sample_weight=weights)


def capping(path: Path) -> None:
    """Table 4: what capping the tumours with the most mutations changes."""
    X = read_counts(path).X
    totals = np.asarray(X.sum(axis=1)).ravel()
    is_large = totals > np.quantile(totals, 0.95)
    mass = totals[is_large].sum() / totals.sum()
    print(f"\nThe 5 % largest tumours hold {mass:.0%} of the mutations. Of 20 signatures:")
    print("| cap | > 50, 75, 90 % in large tumours | divergence per tumour, large | others |")
    print("|---|---|---|---|")
    models = []
    for weights in (None, capped_weights(X)):
        model: Any = KLNMF(20, random_state=0, n_threads=1)
        W = model.fit_transform(X, sample_weight=weights)
        share = W[is_large].sum(axis=0) / W.sum(axis=0)
        x, y = X.toarray().astype(np.float64), W @ model.components_
        divergence = (rel_entr(x, y) - x + y).sum(axis=1)
        means = f"{divergence[is_large].mean():.1f} | {divergence[~is_large].mean():.1f}"
        numbers = ", ".join(str(np.sum(share > limit)) for limit in (0.5, 0.75, 0.9))
        print(f"| {weights is not None} | {numbers} | {means} |")
        models.append(model)
    similarity = match_components(*(model.components_ for model in models)).similarity
    print(f"{np.sum(similarity > 0.9)} of the 20 pairs have a cosine over 0.9")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_data_argument(parser)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    known_signatures(args.samples, args.seed)
    learned_signatures(args.samples, range(args.seed, args.seed + 8))
    if args.data and Path(args.data, COHORT).exists():
        cohort(Path(args.data, COHORT))
        capping(Path(args.data, COHORT))


if __name__ == "__main__":
    main()
