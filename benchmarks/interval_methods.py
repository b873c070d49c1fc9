"""Standard errors of four kinds, as intervals: which of them hold for overdispersed counts?

    python -m benchmarks.interval_methods --repeats 4 --processes 2

- *negative binomial*: the library's bootstrap, counts drawn with the estimated dispersion;
- *quasi-Poisson*: a bootstrap with Poisson draws, times the root of the mean of variance / rate;
- *sandwich*: I⁻¹ J I⁻¹ of every row problem, the other factor as it is;
- *samples*: refits to samples drawn with replacement (components alone).

All intervals are sin²(φ ± 1.96 s / (2 √(p (1 − p)))) with φ = arcsin √p, the same entries for all:
those that the library's bootstrap calls interior, of components that the fit has found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import warnings
from typing import Any

import numpy as np

from benchmarks.coverage import DESIGNS, MATCHED, NOISES, contains
from benchmarks.overdispersed import draw
from klnmf import KLNMF
from klnmf.topics import match_components
from klnmf.uncertainty import bootstrap

METHODS = ("negative binomial", "quasi-Poisson", "sandwich", "samples")


def hits(estimate: np.ndarray, error: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Whether the intervals with these standard errors contain the true shares."""
    p = np.clip(estimate, 1e-12, 1 - 1e-12)
    angle, width = np.arcsin(np.sqrt(p)), 1.96 * error / (2 * np.sqrt(p * (1 - p)))
    low, high = np.maximum(angle - width, 0.0), np.minimum(angle + width, np.pi / 2)
    return contains(np.sin(low) ** 2, np.sin(high) ** 2, truth)


def sandwich(X: np.ndarray, x: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Covariances of the rows of x, for X ≈ x Aᵀ: rows × components × components."""
    y = np.maximum(x @ A.T, 1e-12)
    information = np.einsum("ij,jk,jl->ikl", 1.0 / y, A, A)
    scores = np.einsum("ij,jk,jl->ikl", ((X - y) / y) ** 2, A, A)
    inverse = np.linalg.pinv(information)
    return inverse @ scores @ inverse


def errors_of_samples(model: KLNMF, X: np.ndarray, runs: int, seed: int) -> np.ndarray:
    """Standard errors of components from refits to samples drawn with replacement."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(runs):
        rows = generator.integers(len(X), size=len(X))
        refit = KLNMF(model.n_components, n_threads=1).fit(X[rows], H=model.components_)
        order = match_components(model.components_, refit.components_).second
        found.append(refit.components_[order])
    return np.std(found, axis=0, ddof=1)


def covered(task: tuple[int, str, int, int]) -> dict[tuple[str, str], np.ndarray]:
    """Covered entries of one data set, by part and method."""
    number, noise, seed, runs = task
    warnings.simplefilter("ignore")
    design = DESIGNS[number]
    size = (design.n_samples, design.n_features, design.rank, design.counts, design.components)
    X, W_true, H_true = draw(*size, mixing=design.mixing, seed=[seed, 23], **NOISES[noise])
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    model = KLNMF(design.rank, random_state=0, n_threads=1, max_iter=2000)
    W = model.fit_transform(X).astype(float)
    match = match_components(model.components_, H_true.T)
    options: dict[str, Any] = {"n_jobs": 1, "random_state": seed, "progress": False}
    drawn = bootstrap(model, X, runs, **options)
    poisson = bootstrap(model, X, runs, noise="poisson", **options)
    root = np.sqrt(drawn.dispersion.factor)
    H = model.components_.T.astype(float)
    of_H = np.sqrt(np.maximum(np.einsum("jkk->jk", sandwich(X.T, H, W)), 0.0)).T
    # The shares of a sample are W over its sum: p_k changes by (dW_k − p_k Σ dW) / t.
    totals = np.maximum(W.sum(axis=1), 1e-12)
    p = W / totals[:, None]
    slopes = (np.eye(W.shape[1])[None] - p[:, :, None]) / totals[:, None, None]
    of_W = np.einsum("ikl,ilm,ikm->ik", slopes, sandwich(X, W, H), slopes)
    truth = W_true / W_true.sum(axis=1, keepdims=True)
    is_found = match.similarity > MATCHED
    parts = {
        "components": (drawn.components, H_true.T[match.second], is_found[:, None]),
        "proportions": (drawn.proportions, truth[:, match.second], is_found[None]),
    }
    errors = {
        ("components", "negative binomial"): drawn.components.standard_error,
        ("components", "quasi-Poisson"): root * poisson.components.standard_error,
        ("components", "sandwich"): of_H,
        ("components", "samples"): errors_of_samples(model, X, runs, seed),
        ("proportions", "negative binomial"): drawn.proportions.standard_error,
        ("proportions", "quasi-Poisson"): root * poisson.proportions.standard_error,
        ("proportions", "sandwich"): np.sqrt(np.maximum(of_W, 0.0)),
    }
    result = {}
    for (part, method), error in errors.items():
        intervals, true_shares, chosen = parts[part]
        inside = intervals.is_interior & chosen
        result[part, method] = hits(intervals.estimate, error, true_shares)[inside]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--designs", type=int, nargs="+", default=[1, 3, 4, 5])
    parser.add_argument("--noises", nargs="+", default=["Poisson", "size 3", "size 1"])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    print(f"| design | noise | part | {' | '.join(METHODS)} |\n|---|---|---|---|---|---|---|")
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for number in args.designs:
            for noise in args.noises:
                tasks = [(number, noise, seed, args.runs) for seed in range(args.repeats)]
                found = pool.map(covered, tasks, chunksize=1)
                for part in ("components", "proportions"):
                    cells = [
                        f"{100 * np.concatenate([one[part, method] for one in found]).mean():.1f}"
                        if (part, method) in found[0]
                        else "–"
                        for method in METHODS
                    ]
                    row = f"| {DESIGNS[number]} | {noise} | {part} | {' | '.join(cells)} |"
                    print(row, flush=True)


if __name__ == "__main__":
    main()
