"""Does scikit-learn's GridSearchCV find planted ranks by `KLNMF.score`?

    python -m benchmarks.grid_search                    # the grid, about half an hour on one core
    python -m benchmarks.grid_search --runs 1 --words 15 50 --ranks 7 --jobs 2

The counts come from `benchmarks.overdispersed`, which shares no code with the library. A run is
right if the chosen rank is within 1 of the planted one.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

from benchmarks.overdispersed import COMPONENTS, draw
from klnmf import KLNMF

NOISE: dict[str, dict[str, Any]] = {
    "Poisson": {},
    "size 10": {"size": 10.0},
    "size 3": {"size": 3.0},
    "size 1": {"size": 1.0},
    "lognormal 0.3": {"noise": "lognormal", "variance": 0.3},
}
RANKS = (1, 3, 7, 12)
WORDS = (15, 50, 300, 2000)
N_SAMPLES, N_FEATURES = 500, 300


def candidates(rank: int) -> list[int]:
    """Ranks of the search: all near the planted one, and some far from it."""
    near = range(max(1, rank - 3), rank + 4)
    return sorted({1, *near, rank + 6, rank + 12})


def chosen(design: tuple[str, int, str, int, int]) -> int:
    """Rank that the search chooses; seeds are the same for all designs."""
    components, rank, noise, words, seed = design
    planted = draw(N_SAMPLES, N_FEATURES, rank, words, components, seed=seed, **NOISE[noise])
    X = sp.csr_array(planted.X.astype(np.float32))
    model = KLNMF(random_state=0, n_threads=1)
    search = GridSearchCV(model, {"n_components": candidates(rank)}, cv=3, refit=False)
    return int(search.fit(X[np.diff(X.indptr) > 0]).best_params_["n_components"])


def main() -> None:
    """Print a table with the ranks that were chosen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--words", type=int, nargs="+", default=WORDS)
    parser.add_argument("--noise", nargs="+", choices=NOISE, default=list(NOISE))
    parser.add_argument("--components", nargs="+", choices=COMPONENTS, default=COMPONENTS)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    rows = list(product(args.components, args.ranks, args.noise, args.words))
    designs = [(*row, seed) for row in rows for seed in range(args.runs)]
    with ProcessPoolExecutor(args.jobs) as pool:
        found = np.array(list(pool.map(chosen, designs))).reshape(len(rows), args.runs)
    print("| components | planted | noise | words a sample | chosen |\n|---|---|---|---|---|")
    for row, ranks in zip(rows, found, strict=True):
        print(f"| {' | '.join(map(str, row))} | {', '.join(map(str, ranks))} |")
    planted = np.array([row[1] for row in rows])[:, None]
    right = abs(found - planted) <= 1
    print(f"\nwithin 1: {right.sum()} of {right.size}; exact: {(found == planted).sum()}")
    for name, place in (("words", 3), ("noise", 2), ("planted", 1), ("components", 0)):
        values = sorted({row[place] for row in rows}, key=str)
        shares = {v: right[[row[place] == v for row in rows]].mean() for v in values}
        print(name, ", ".join(f"{value}: {share:.0%}" for value, share in shares.items()))


if __name__ == "__main__":
    main()
