"""Peak memory of a fit above the process with X loaded, against docs/internals/promises.md.

The limit is the nonzeros twice (a value and an index each), 4 (n + m) r entries of factors, and a
tile of r columns for each thread. Prints the ratio of the peak to this limit; a ratio above 1.1 is
a failure.

    python -m benchmarks.memory                      # 1e7 nonzeros, r = 20
    python -m benchmarks.memory --nnz 1e6 -r 50 --threads 2 --dtype float64
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from klnmf import KLNMF, _core
from klnmf.solvers import SparseCoordinateDescent


def random_counts(n: int, m: int, nnz: int, dtype: str, seed: int = 0) -> sp.csr_array:
    """Counts with Zipf-distributed columns, made row by row in little memory."""
    generator = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, m + 1) ** 0.8
    edges = np.cumsum(popularity) / popularity.sum()
    lengths = generator.multinomial(nnz, np.full(n, 1.0 / n))
    rows = [
        np.unique(np.searchsorted(edges, generator.random(2 * length)))[:length]
        for length in lengths
    ]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    indices = np.concatenate(rows).astype(np.int32)
    values = generator.geometric(0.6, size=len(indices)).astype(dtype)
    return sp.csr_array((values, indices, indptr), shape=(n, m))


def resident(which: str) -> int:
    """Bytes of this process: "VmRSS" now, "VmHWM" at its peak since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {which}: this script needs Linux.")


class AlwaysSwapping(SparseCoordinateDescent):
    """Trials of swaps, which need the most memory, in every iteration but the first."""

    swap_gain = 1.0


def settle() -> int:
    """Release free memory, reset the peak, and return the current memory of the process."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def main() -> int:
    """Measure one fit; the exit status is 1 if it exceeds the limit by more than 10 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nnz", type=float, default=1e7)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=50_000)
    parser.add_argument("-r", "--rank", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--iterations", type=int, default=8)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    solver = AlwaysSwapping(swap_failures=args.iterations)
    model = KLNMF(
        args.rank,
        solver=solver,
        max_iter=args.iterations,
        n_threads=args.threads,
        random_state=0,
    )
    model.fit(random_counts(300, 200, 3000, args.dtype))  # imports and first allocations

    X = random_counts(args.samples, args.features, int(args.nnz), args.dtype)
    before = settle()
    W = model.fit_transform(X)
    peak = resident("VmHWM") - before

    size = np.dtype(args.dtype).itemsize
    n, m = X.shape
    nonzeros = 2 * X.nnz * (size + X.indices.itemsize)
    factors = 4 * (n + m) * args.rank * size
    tiles = args.threads * _core.TILE * args.rank * size
    promised = nonzeros + factors + tiles
    mib = 1024**2
    print(f"{n} × {m}, {X.nnz} nonzeros, r = {args.rank}, {args.dtype}, {args.threads} threads")
    print(f"X itself            {X.nnz * (size + 4) / mib:9.1f} MiB (not counted)")
    print(f"W and H returned    {(W.nbytes + model.components_.nbytes) / mib:9.1f} MiB (counted)")
    print(
        f"promised            {promised / mib:9.1f} MiB = nonzeros twice {nonzeros / mib:.1f} "
        f"+ 4 (n + m) r {factors / mib:.1f} + tiles {tiles / mib:.1f}"
    )
    print(f"peak above X loaded {peak / mib:9.1f} MiB")
    print(f"ratio               {peak / promised:9.3f}")
    print(f"dense n × m         {n * m * size / mib:9.1f} MiB (never made)")
    return 0 if peak <= 1.1 * promised else 1


if __name__ == "__main__":
    raise SystemExit(main())
