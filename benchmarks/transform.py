"""`transform` of new rows against scikit-learn's, at the same objective, one thread each.

    python -m benchmarks.transform --data DIR

The components come from a fit to the first half of the samples. Both sides then get the second half
and the same components (zeros are raised to 1e-9, because scikit-learn's updates cannot leave 0).
Prints scikit-learn's time divided by ours, for the complete `transform`, which solves each row to a
residual of 1e-5, and for a solve that stops once its divergence is at most scikit-learn's (0 if it
never is). Figures are medians over several models.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks.common import add_data_argument, load_matrix
from klnmf import KLNMF, RunOptions
from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import NO_PENALTIES
from klnmf.data.sparse_data import InMemoryData
from klnmf.objective import kl_divergence
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows

# From rough to fine: more relaxed multiplicative steps, then more steps of Newton's method.
EFFORTS = [
    RowSolve(0.0, rounds=rounds, relaxed=relaxed)
    for rounds, relaxed in ((1, 3), (1, 4), (1, 5), (1, 6), (2, 5), (2, 6), (3, 6), (4, 6), (6, 6))
]


def least(action: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    """Minimum seconds of several runs, and the last result."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = action()
        times.append(time.perf_counter() - started)
    return min(times), result


def ratios(X: sp.csr_array, rank: int, seed: int) -> tuple[float, float, float, float]:
    """scikit-learn's seconds, over ours to its divergence, over ours in full, % we end below it."""
    half = X.shape[0] // 2
    known, new = sp.csr_array(X[:half]), sp.csr_array(X[half:])
    run = RunOptions(progress=False)
    model = KLNMF(rank, n_threads=1, random_state=seed, max_iter=30, run=run).fit(known)
    components = np.maximum(model.components_, np.float32(1e-9)).astype(np.float32)
    model.components_, H = components, np.ascontiguousarray(components.T)

    theirs = NMF(rank, solver="mu", beta_loss="kullback-leibler", init="random", max_iter=1)
    theirs.fit(sp.csr_matrix(known[: 10 * rank]))
    theirs.components_, theirs.max_iter = components, 200
    matrix = sp.csr_matrix(new)
    their_seconds, their_W = least(lambda: theirs.transform(matrix), repeats=2)
    target = kl_divergence(new, their_W, components)

    full_seconds, W = least(lambda: model.transform(new))
    below = 100 * (1 - kl_divergence(new, W, components) / target)
    same = 0.0  # not reached
    for effort in EFFORTS:
        seconds, W = least(
            lambda how=effort: solved_rows(  # type: ignore[misc]
                Problem(CpuBackend(InMemoryData(new), 1), NO_PENALTIES), 0, [None, H], how
            )
        )
        if kl_divergence(new, W, components) <= target:
            same = their_seconds / seconds
            break
    return their_seconds, same, their_seconds / full_seconds, below


def compare(name: str, X: sp.csr_array, rank: int, n_fits: int) -> None:
    """Print one line: how far scikit-learn goes depends on the components, so there are several."""
    runs = np.array([ratios(X, rank, seed) for seed in range(n_fits)])
    seconds, same, full, below = np.median(runs, axis=0)
    listed = ", ".join(f"{ratio:.0f}" for ratio in runs[:, 1])
    print(
        f"  {name}, r = {rank}: scikit-learn {seconds:.2f} s; ours to the same divergence "
        f"{same:.0f} x ({listed}); ours in full ({below:.3f} % lower) {full:.0f} x",
        flush=True,
    )


def main() -> None:
    """Compare on all data sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_argument(parser)
    parser.add_argument(
        "--sets", nargs="+", default=["reuters21578", "tdt2_top30", "20newsgroups_qwone", "pbmc3k"]
    )
    parser.add_argument("--rank", "-r", type=int, default=20)
    parser.add_argument("--fits", type=int, default=3, help="models, the median is printed (3)")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("transform of new samples, float32, one thread: scikit-learn's seconds over ours")
    with threadpool_limits(1):
        for name in args.sets:
            compare(name, load_matrix(args.data, name), args.rank, args.fits)


if __name__ == "__main__":
    main()
