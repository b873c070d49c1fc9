"""Where the half-steps stand relative to what one core of this machine can do.

    python -m benchmarks.roofline --data DIR [--page docs/performance_log.md]

Measures, with a few lines of C that are compiled for this machine (``cc``), how fast one core
streams memory, gathers rows of a factor in the order of a real matrix, and multiplies and adds.
These give the least time of a half-step, which for each nonzero

- streams a value and an index, 8 bytes in float32,
- gathers a row of the fixed factor, 4 r bytes (padded to whole vectors, as the kernels do),
- multiplies and adds 2 r times: r for the product, r for the gradient,

and divides once. ``benchmarks.kernels`` measures the same half-steps. Times are minima over
repeats, of the processor. --page replaces what stands between the two comments that name this
script.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks import kernels
from benchmarks.common import add_data_argument, load_matrix
from benchmarks.peer_report import table
from benchmarks.peer_run import environment
from benchmarks.whole_call_tables import LABELS, replace_between

SOURCE = Path(__file__).with_suffix(".c")
STREAMED_FLOATS = 1 << 26
PREFETCHED = 16  # places that `gather` looks ahead
REPEATS = 5


@functools.cache
def library() -> Any:
    """Compile the C functions for this processor."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("The roofline needs a C compiler, cc or gcc.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "roofline.so"
        # Sums may be vectorised. Not -ffast-math: the library would switch off denormals for good.
        reordered = ["-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"]
        options = ["-O3", "-march=native", *reordered, "-shared", "-fPIC"]
        subprocess.run([compiler, *options, str(SOURCE), "-o", str(path)], check=True)
        compiled = ctypes.CDLL(str(path))
    for name in ("stream", "gather", "multiply_add"):
        getattr(compiled, name).restype = ctypes.c_float
    return compiled


def shortest(work: Callable[[], Any]) -> float:
    """Least processor seconds over a few repeats."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def padded(rank: int) -> int:
    """Floats of a row with whole vectors of 8.

    Examples
    --------
    >>> [padded(rank) for rank in (10, 16, 20, 50)]
    [16, 16, 24, 56]
    """
    return -(-rank // 8) * 8


def streaming() -> float:
    """Bytes per second from memory."""
    x = np.ones(STREAMED_FLOATS, dtype=np.float32)
    call = functools.partial(library().stream, _pointer(x), ctypes.c_int64(x.size))
    return x.nbytes / shortest(call)


def gathering(X: sp.csr_array, rank: int) -> float:
    """Rows of the factor per second, in the order in which a half-step reads them."""
    width = padded(rank)
    A = np.ones((X.shape[1], width), dtype=np.float32)
    places = np.concatenate([X.indices, X.indices[:PREFETCHED]]).astype(np.int32)
    n, row = ctypes.c_int64(X.nnz), ctypes.c_int(width)
    call = functools.partial(library().gather, _pointer(A), _pointer(places), n, row)
    return X.nnz / shortest(call)


def multiplying() -> float:
    """Multiplications with an addition per second."""
    rounds = 2_000_000
    numbers = ctypes.c_float(0.5), ctypes.c_float(1.0)
    call = functools.partial(library().multiply_add, ctypes.c_int64(rounds), *numbers)
    return 128 * rounds / shortest(call)


def _pointer(x: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def least_nanoseconds(rank: int, rows_per_second: float, stream: float, fused: float) -> float:
    """Least time of a half-step, per nonzero × component.

    Loads overlap with arithmetic, so it is the longer of the two. Streaming and gathering share the
    same loads, so they add up. Rows are read once: the second pass over a row of X finds them in
    the cache.
    """
    loads = 8 / stream + 1 / rows_per_second
    return 1e9 * max(loads, 2 * padded(rank) / fused) / rank


def measure(folder: Path | None, sets: list[str], ranks: list[int], seconds: float) -> str:
    """The whole section, as Markdown."""
    stream, fused = streaming(), multiplying()
    rows: list[list[str]] = []
    names: list[str] = []
    for name in sets:
        X = load_matrix(folder, name)
        figures = [f for f in kernels.measure_set(name, X, ranks, seconds) if f["state"] == "warm"]
        for rank in ranks:
            sides = {"W": X, "H": sp.csr_array(X.T)}
            for side, matrix in sides.items():
                rate = gathering(matrix, rank)
                least = least_nanoseconds(rank, rate, stream, fused)
                found = {f["rule"]: f[side] for f in figures if f["rank"] == rank}
                names = [rule for rule in found if not rule.endswith("value")]
                row = [f"{LABELS.get(name, name)}, r = {rank}, {side}"]
                row += [f"{4 * padded(rank) * rate / 1e9:.1f}", f"{least:.3f}"]
                rows.append(row + [f"{found[r]:.2f} ({found[r] / least:.1f} ×)" for r in names])
    machine = environment()["processor"]
    head = f"{machine}, one core: {stream / 1e9:.1f} GB/s streamed from memory, "
    head += f"{fused / 1e9:.0f} billion multiplications with an addition per second.\n\n"
    return head + table(["half-step", "gathered, GB/s", "least", *names], rows)


def main() -> int:
    """Measure, and print or replace the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_data_argument(parser)
    sets = ["reuters21578", "tdt2_top30", "pbmc3k"]
    parser.add_argument("--sets", nargs="+", default=sets)
    parser.add_argument("--ranks", nargs="+", type=int, default=[20, 50], metavar="R")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each half-step")
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    text = measure(args.data, args.sets, args.ranks, args.seconds)
    if args.page is None:
        print(text)
    else:
        page = args.page.read_text(encoding="utf-8")
        args.page.write_text(replace_between(page, text, "roofline"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
