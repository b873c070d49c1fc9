"""Dispersion and bootstrap intervals of tensors: `python -m benchmarks.tensor_intervals`.

Planted factors of three and four modes, with Poisson or negative binomial counts that are drawn
with NumPy from the dense rates, not by klnmf. Printed are the mean and the spread of the estimated
dispersion, and how many 95 % intervals contain the truth: of entries in the interior, of those near
0 or 1, and of the proportions of the rows of the first mode.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from klnmf import PoissonCP, SparseTensor
from klnmf.topics import match_components
from klnmf.uncertainty import bootstrap
from klnmf.uncertainty.intervals import Intervals

RANK = 3
SHAPES = {(40, 30, 12): 20_000, (20, 15, 10, 8): 20_000}


def planted(
    shape: tuple[int, ...], n_counts: float, alpha: float, seed: int
) -> tuple[SparseTensor, list[np.ndarray], np.ndarray]:
    """Draw factors whose columns sum to 1, the counts of components, and a tensor."""
    generator = np.random.default_rng([seed, len(shape), int(100 * alpha)])
    factors = [generator.dirichlet(np.full(size, 0.5), size=RANK).T for size in shape]
    weights = n_counts * generator.dirichlet(np.full(RANK, 5.0))
    rates = np.zeros(shape)
    for k, weight in enumerate(weights):
        of_component: Any = weight
        for factor in factors:
            of_component = np.multiply.outer(of_component, factor[:, k])
        rates += of_component
    if alpha:
        rates *= generator.gamma(1.0 / alpha, alpha, size=shape)
    counts = generator.poisson(rates)
    cells = np.nonzero(counts)
    return SparseTensor(np.array(cells), counts[cells], shape), factors, weights


def contained(intervals: Intervals, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By whether they are in the interior: which intervals contain the truth."""
    is_in = (intervals.lower <= truth) & (truth <= intervals.upper)
    return is_in[intervals.is_interior], is_in[~intervals.is_interior]


def replicate(
    shape: tuple[int, ...], alpha: float, seed: int, n_runs: int
) -> tuple[float, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Return the estimated dispersion, and which intervals contain the truth, by part."""
    X, factors, weights = planted(shape, SHAPES[shape], alpha, seed)
    model = PoissonCP(RANK, random_state=0, n_init=3).fit(X)
    found = bootstrap(model, X, n_runs, random_state=seed)
    order = match_components(model.factors_[1].T, factors[1].T).second
    amounts = (factors[0] * weights)[:, order]
    shares = amounts / amounts.sum(axis=1, keepdims=True)
    parts = {
        f"mode {mode}": contained(intervals, factors[mode][:, order])
        for mode, intervals in enumerate(found.factors)
    }
    parts["proportions"] = contained(found.proportions, shares)
    return found.dispersion.common, parts


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=30)
    parser.add_argument("--runs", type=int, default=60, help="refits per bootstrap")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.0, 0.3, 1.0])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| shape | α | estimated (s.d.) | part | interior | near 0 or 1 | share interior |")
    print("|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        for alpha in arguments.alpha:
            seeds = range(arguments.replicates)
            done = [replicate(shape, alpha, seed, arguments.runs) for seed in seeds]
            found = np.array([common for common, _ in done])
            known = f"{found.mean():.3f} ({found.std(ddof=1):.3f})"
            for part in done[0][1]:
                inside, near = (
                    np.concatenate([parts[part][side] for _, parts in done]) for side in (0, 1)
                )
                size = " × ".join(map(str, shape))
                share = len(inside) / (len(inside) + len(near))
                print(
                    f"| {size} | {alpha} | {known} | {part} | {inside.mean():.1%} | "
                    f"{near.mean():.1%} | {share:.0%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
