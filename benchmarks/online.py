"""Mini-batch learning: how close it comes to the full solver, and its speed against scikit-learn.

    python -m benchmarks.online --data DIR

The objective is the divergence of X, with W from `transform`. Everything runs on one thread, and
evaluation is not timed. For 1 to 3 passes of `fit`, and for one pass of `partial_fit`, prints the
gap to a converged fit of KLNMF, and the time. Then prints the time that scikit-learn's MiniBatchNMF
needs to reach the objective of that one pass, divided by ours. If it does not reach it within
``--limit`` seconds, prints how far it came, and a lower bound of the ratio.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import MiniBatchNMF
from threadpoolctl import threadpool_limits

from benchmarks.common import add_data_argument, load_matrix
from klnmf import KLNMF, MiniBatchKLNMF
from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows

ROW_SOLVE = RowSolve(tolerance=1e-5)


def objective_of(X: sp.csr_array) -> Callable[[Any], float]:
    """Return a function that computes the divergence of components with the best W."""
    problem = Problem(make_backend("cpu", InMemoryData(X), 1), Penalties())

    def objective(components: Any) -> float:
        H = problem.backend.upload(np.maximum(components.T, 1e-12), 1)  # theirs may lack a cover
        return problem.objective([solved_rows(problem, 0, [None, H], ROW_SOLVE), H])

    return objective


def timed(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def shuffled_batches(X: sp.csr_array, size: int, seed: int) -> list[sp.csr_array]:
    rows = np.random.default_rng(seed).permutation(X.shape[0])
    return [X[rows[start : start + size]] for start in range(0, X.shape[0], size)]


def report_fits(X: sp.csr_array, options: argparse.Namespace, judge: Any, best: float) -> None:
    for seed in range(options.seeds):
        for passes in (1, 2, 3):
            model = MiniBatchKLNMF(
                options.rank,
                batch_size=options.batch_size,
                max_iter=passes,
                max_no_improvement=None,
                random_state=seed,
                n_threads=1,
            )
            seconds = timed(lambda model=model: model.fit(X))
            gap = judge(model.components_) / best - 1
            print(f"fit, seed {seed}, {passes} passes: {seconds:6.2f} s, gap {gap:7.3%}")


def report_stream(X: sp.csr_array, options: argparse.Namespace, judge: Any, best: float) -> None:
    batches = shuffled_batches(X, options.batch_size, 0)
    runs = []
    for _ in range(3):  # short, so that one run says little on a busy machine
        ours = MiniBatchKLNMF(options.rank, random_state=0, n_threads=1)
        runs.append(sum(timed(lambda batch=batch: ours.partial_fit(batch)) for batch in batches))  # noqa: B023
    seconds = float(np.median(runs))
    target = judge(ours.components_)
    gap = target / best - 1
    print(f"partial_fit, one pass: {seconds:6.2f} s, gap {gap:7.3%}")
    theirs = MiniBatchNMF(
        options.rank, beta_loss="kullback-leibler", init="random", random_state=0, forget_factor=0.7
    )
    their_seconds, reached = 0.0, np.inf
    while reached > target and their_seconds < options.limit:
        for batch in batches:
            their_seconds += timed(lambda batch=batch: theirs.partial_fit(batch))
            if their_seconds >= options.limit:
                break
        reached = judge(theirs.components_)
        print(f"MiniBatchNMF: {their_seconds:7.1f} s, gap {reached / best - 1:7.3%}", flush=True)
    sign = "" if reached <= target else "> "
    print(
        f"scikit-learn's time over ours to a gap of {gap:.3%}: {sign}{their_seconds / seconds:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--name", default="20newsgroups_qwone", help="matrix NAME.npz in --data")
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--seeds", type=int, default=3, help="fits of MiniBatchKLNMF")
    parser.add_argument(
        "--limit", type=float, default=300, help="time limit of scikit-learn in seconds"
    )
    options = parser.parse_args()
    X = load_matrix(options.data, options.name)
    judge = objective_of(X)
    with threadpool_limits(1):
        full = KLNMF(options.rank, random_state=0, n_threads=1)
        seconds = timed(lambda: full.fit(X))
        best = judge(full.components_)
        print(f"KLNMF, converged: {seconds:.1f} s, {full.n_iter_} iterations, objective {best:.6g}")
        report_fits(X, options, judge, best)
        report_stream(X, options, judge, best)


if __name__ == "__main__":
    main()
