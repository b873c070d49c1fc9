"""Fits on a busy machine: the default number of threads against one thread.

    python -m benchmarks.busy --data DIR --set reuters21578

While the fits run, one process per CPU keeps that CPU busy. Prints the seconds of a whole fit, and
the ratio of the fastest of several alternating fits. Threads that keep a core busy while they wait
would make the ratio far larger than 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import add_data_argument, load_matrix
from klnmf import KLNMF


def count_for_ever() -> None:
    """Keep one core busy."""
    while True:
        pass


def seconds(X: sp.csr_array, rank: int, n_threads: int) -> float:
    """Wall time of a fit of 40 iterations."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        KLNMF(rank, random_state=0, n_threads=n_threads, max_iter=40).fit(X)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_data_argument(parser)
    parser.add_argument("--set", default="reuters21578")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--others", type=int, default=joblib.cpu_count(), help="busy processes")
    args = parser.parse_args()
    X = load_matrix(args.data, args.set)
    others = [multiprocessing.Process(target=count_for_ever) for _ in range(args.others)]
    for other in others:
        other.start()
    try:
        n_threads = joblib.cpu_count()
        times = {n: [] for n in (1, n_threads)}
        for _ in range(args.repeats):
            for n, of_n in times.items():
                of_n.append(seconds(X, args.rank, n))
    finally:
        for other in others:
            other.kill()
    for n, of_n in times.items():
        print(f"{n:3} threads: {min(of_n):.2f} s (fastest), {np.median(of_n):.2f} s (median)")
    ratio = min(times[n_threads]) / min(times[1])
    print(f"{n_threads} threads take {ratio:.2f} of the time of one")


if __name__ == "__main__":
    main()
