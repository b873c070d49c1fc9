"""The picture of the README: divergence against seconds, klnmf and scikit-learn, one thread.

    python -m benchmarks.first_figure --data DIR --set tdt2_top30 --out docs/_static/speed.svg
    python -m benchmarks.first_figure --set bible --out speed.svg       # the embedded corpus

scikit-learn's ``NMF`` runs its 200 multiplicative updates in parts, each continuing the last one;
the divergence after each part is not timed. klnmf is one default call, with all that surrounds its
solver; a callback reads the clock after each iteration.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import non_negative_factorization
from threadpoolctl import threadpool_limits

from benchmarks.common import add_data_argument, load_matrix
from benchmarks.peer_clock import divergence
from benchmarks.whole_call_tables import LABELS
from klnmf import KLNMF, RunOptions
from klnmf.datasets import load_bible
from klnmf.plots.style import pyplot

PARTS = (1, 1, 2, 4, 8, 16, 32, 64, 72)  # 200 iterations


def scikit_learn(X: sp.csr_array, rank: int) -> list[tuple[float, float]]:
    """Seconds and divergence after each part."""
    random = np.random.RandomState(0)
    scale = np.sqrt(X.mean() / rank)
    W, H = (
        np.abs(random.standard_normal(shape)).astype(X.dtype) * scale
        for shape in ((X.shape[0], rank), (rank, X.shape[1]))
    )
    points, seconds = [], 0.0
    for iterations in PARTS:
        began = time.perf_counter()
        W, H, _ = non_negative_factorization(
            *(X, W, H),
            n_components=rank,
            init="custom",
            solver="mu",
            beta_loss="kullback-leibler",
            tol=0,
            max_iter=iterations,
        )
        seconds += time.perf_counter() - began
        points.append((seconds, divergence(X, W, H)))
    return points


def main() -> int:
    """Run both and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--set", default="tdt2_top30", help="a matrix of --data, or bible")
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.svg")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    is_embedded = args.set == "bible"
    X = load_bible().data if is_embedded else load_matrix(args.data, args.set)
    X = sp.csr_array(X).astype(np.float32)
    KLNMF(2, n_threads=1).fit(X[:50])  # first allocations
    began = time.perf_counter()
    ours: list[tuple[float, float]] = []

    def note(record: dict[str, Any]) -> None:
        ours.append((time.perf_counter() - began, record["divergence"]))

    model = KLNMF(args.rank, random_state=0, n_threads=1, run=RunOptions(callback=note)).fit(X)
    whole = time.perf_counter() - began
    with threadpool_limits(1):
        theirs = scikit_learn(X, args.rank)
    passed = next(seconds for seconds, value in ours if value <= theirs[-1][1])
    print(f"scikit-learn, 200 iterations: {theirs[-1][0]:.1f} s, {theirs[-1][1]:.6g}")
    print(f"klnmf: the same after {passed:.2f} s, {theirs[-1][0] / passed:.0f} times as fast")
    print(f"klnmf: the whole call {whole:.1f} s, converged at {model.divergence_:.6g}")

    drawing, ax = pyplot().subplots(figsize=(7.2, 3.0), layout="constrained")
    for points, colour, name in (
        (theirs, "#9aa5b1", "scikit-learn NMF, 200 multiplicative updates"),
        (ours, "#2a6f97", "klnmf, converged and certified"),
    ):
        seconds, values = zip(*points, strict=True)
        ax.plot(seconds, values, "o-", color=colour, markersize=3, label=name)
    ax.axhline(theirs[-1][1], color="#9aa5b1", linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    lowest = min(value for _, value in ours)
    ax.set_ylim(lowest - 0.02 * lowest, theirs[2][1])
    ax.set_xlabel("seconds, one thread")
    ax.set_ylabel("KL divergence")
    n, m = X.shape
    name = "The Bible" if is_embedded else LABELS.get(args.set, args.set)
    ax.set_title(f"{name}: {n:,} × {m:,}, {X.nnz:,} nonzeros, r = {args.rank}", fontsize=10)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    drawing.savefig(args.out, facecolor="white", metadata={"Date": None})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
