"""Cost of weights, exposures, missing cells and constraints, relative to a plain fit.

    python -m benchmarks.known --data DIR

All fits have the same data, start and number of iterations, on one thread. Prints the time of an
iteration (the median of the last ones, in the best of several runs) and of `transform`. Patterns of
missing cells are described by their number of cells per nonzero of X.
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

ITERATIONS, TIMED, RUNS = 14, 8, 3


def missing_cells(X: sp.csr_array, cells_per_nonzero: float) -> sp.csr_array:
    """Random cells, possibly with repetitions."""
    generator = np.random.default_rng(0)
    n_cells = int(cells_per_nonzero * X.nnz)
    places = tuple(generator.integers(size, size=n_cells) for size in X.shape)
    return sp.csr_array((np.ones(n_cells, dtype=bool), places), shape=X.shape)


def things_to_know(X: sp.csr_array, rank: int) -> dict[str, dict[str, Any]]:
    """Arguments of KLNMF and of its fit, by name."""
    generator = np.random.default_rng(0)
    n, m = X.shape
    components = KLNMF(rank, random_state=1, max_iter=10, n_threads=1).fit(X).components_
    return {
        "weights and exposures": {
            "sample_weight": 0.5 + generator.random(n),
            "feature_weight": 0.5 + generator.random(m),
            "exposure": 0.5 + generator.random(n),
        },
        "exposures, under L1 penalties": {
            "exposure": 0.5 + generator.random(n),
            **dict.fromkeys(("l1_W", "l1_H"), 0.1),
        },
        "2 fixed components": {"fixed_components": components[:2]},
        "a fixed column of W": {"fixed_W": np.ones(n)},
        "half of W's entries 0": {
            "zero_W": generator.random((n, rank)) < 0.5 * np.tri(1, rank, rank - 2)
        },
        "missing, 0.01 cells per nonzero": {"missing": missing_cells(X, 0.01)},
        "missing, 0.1 cells per nonzero": {"missing": missing_cells(X, 0.1)},
        "missing, 1 cell per nonzero": {"missing": missing_cells(X, 1.0)},
        "missing, 10 cells per nonzero": {"missing": missing_cells(X, 10.0)},
    }


def timed(X: sp.csr_array, rank: int, **given: Any) -> tuple[float, float]:
    """Seconds of an iteration, and of ``transform``."""
    names = KLNMF().get_params()
    parameters = {name: given.pop(name) for name in list(given) if name in names}
    of_samples = {
        name: given[name] for name in ("exposure", "missing", "fixed_W", "zero_W") if name in given
    }
    iteration = transform = np.inf
    for _ in range(RUNS):
        model = KLNMF(
            rank,
            random_state=0,
            max_iter=ITERATIONS,
            tol=0,
            n_threads=1,
            run=RunOptions(progress=False),
            **parameters,
        ).fit(X, **given)
        seconds = np.diff([record["seconds"] for record in model.history_])
        iteration = min(iteration, float(np.median(seconds[-TIMED:])))
        started = time.perf_counter()
        model.transform(X, **of_samples)
        transform = min(transform, time.perf_counter() - started)
    return iteration, transform


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_data_argument(parser)
    parser.add_argument("--sets", nargs="+", default=["reuters21578"], metavar="NAME")
    parser.add_argument("--rank", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    for name in arguments.sets:
        X = load_matrix(arguments.data, name)
        plain = timed(X, arguments.rank)
        print(f"{name} {X.shape}, {X.nnz:,} nonzeros, r = {arguments.rank}")
        print(f"  plain: iteration {1e3 * plain[0]:.1f} ms, transform {1e3 * plain[1]:.1f} ms")
        for what, given in things_to_know(X, arguments.rank).items():
            known = timed(X, arguments.rank, **given)
            ratios = [f"{a / b:.2f} x" for a, b in zip(known, plain, strict=True)]
            print(f"  {what}: {ratios[0]}, transform {ratios[1]}", flush=True)


if __name__ == "__main__":
    main()
