"""Fits from disk: speed compared with fits in memory, and bounded memory.

    python -m benchmarks.out_of_core --nnz 2e7                   # the ratio to a fit in memory
    python -m benchmarks.out_of_core --nnz 2e8 --limit 600M      # as root: under a memory cgroup

The script generates a matrix in pieces and prepares it. Without --limit, fits in memory and from
disk alternate in one process, and the ratio of their times per iteration is printed. With --limit,
`prepare` and a fit each run in a cgroup of that size, which includes the page cache, and files are
not cached at the start. The script prints the peak memory of the group and of the process with the
documented limits, and the bandwidth of the fit with that of reading the same files. The same fit
without a limit must give exactly the same result. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.lib.format import write_array, write_array_header_1_0
from sklearn.exceptions import ConvergenceWarning

from benchmarks.memory import resident
from benchmarks.memory_group import MemoryGroup, memory_group, run_in
from klnmf import KLNMF, RunOptions, _core, open_matrix
from klnmf.data.on_disk.layout import parse_bytes
from klnmf.readers import OnDiskMatrix, prepare

COUNTS_PER_ROW = 700
ROWS = 1 << 12
TOPICS = 20
MIB = 1 << 20
STEPS = ("prepare", "disk", "ratio", "bandwidth")


# ---- the matrix ----------------------------------------------------------------------------------


def blocks(nnz: int, features: int, seed: int = 0) -> Iterator[sp.csr_array]:
    """Rows that mix three topics with Zipf-distributed words."""
    generator = np.random.default_rng(seed)
    edges = np.cumsum(np.arange(1, features + 1) ** -0.8)
    edges /= edges[-1]
    order = np.stack([generator.permutation(features) for _ in range(TOPICS)]).astype(np.int32)
    done = 0
    while done < nnz:
        ranks = np.searchsorted(edges, generator.random(ROWS * COUNTS_PER_ROW))
        own = generator.integers(TOPICS, size=(ROWS, 3))
        chosen = generator.integers(3, size=(ROWS, COUNTS_PER_ROW))
        topics = np.take_along_axis(own, chosen, axis=1).ravel()
        columns = order[topics, np.minimum(ranks, features - 1)]
        ends = np.arange(ROWS + 1) * COUNTS_PER_ROW
        values = np.ones(len(columns), dtype=np.float32)
        block = sp.csr_array((values, columns, ends), shape=(ROWS, features))
        block.sum_duplicates()
        done += block.nnz
        yield block


def generate(path: Path, nnz: int, features: int) -> None:
    """Write the file of ``scipy.sparse.save_npz`` with one block in memory at a time."""
    parts = {name: path.with_suffix(f".{name}") for name in ("indices", "data")}
    ends = [np.zeros(1, np.int64)]
    with parts["indices"].open("wb") as indices, parts["data"].open("wb") as data:
        for block in blocks(nnz, features):
            block.indices.astype(np.int32).tofile(indices)
            block.data.tofile(data)
            ends.append(block.indptr[1:] + ends[-1][-1])
    indptr = np.concatenate(ends)
    small = {
        "indptr": indptr,
        "shape": np.array([len(indptr) - 1, features]),
        "format": np.array(b"csr"),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in small.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array(member, array)
        for name, dtype in (("indices", "<i4"), ("data", "<f4")):
            described = {"descr": dtype, "fortran_order": False, "shape": (int(indptr[-1]),)}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array_header_1_0(member, described)
                with parts[name].open("rb") as source:
                    shutil.copyfileobj(source, member, MIB)
            parts[name].unlink()


def forget_cached(folder: Path) -> None:
    """Drop the files from the page cache."""
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


# ---- steps, each in a separate process -----------------------------------------------------------


def model_of(args: argparse.Namespace) -> KLNMF:
    return KLNMF(
        args.rank,
        max_iter=args.iterations,
        random_state=0,
        n_threads=args.threads,
        run=RunOptions(progress=False),
    )


def do_prepare(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    matrix = prepare(folder / "X.npz", folder / "X.disk", memory=args.memory)
    return {"nonzeros": matrix.nnz, "shape": matrix.shape}


def do_fit(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Fit from the disk."""
    model_of(args).fit(np.eye(3) + 1)  # imports and first allocations
    base, read_before = resident("VmRSS"), _bytes_read()
    matrix = open_matrix(folder / "X.disk", memory=args.memory)
    started = time.perf_counter()
    model = model_of(args)
    W = model.fit_transform(matrix)
    seconds = time.perf_counter() - started
    return {
        "base": base,
        "promised": promised(matrix, args),
        "seconds_iterations": model.history_[-1]["seconds"],
        "seconds_fit": seconds,
        "from_disk": _bytes_read() - read_before,
        "bits": hashlib.sha256(W.tobytes() + model.components_.tobytes()).hexdigest(),
    }


def promised(matrix: OnDiskMatrix, args: argparse.Namespace) -> int:
    """Memory of a fit in bytes: factors, scratch and the budget for X."""
    (n, m), size = matrix.shape, matrix.dtype.itemsize
    lanes = 32 // size
    padded = 0 if args.rank % lanes == 0 else max(n, m) * -(-args.rank // lanes) * lanes * size
    factors = 4 * (n + m) * args.rank * size
    vectors = 8 * (2 * (n + m) + 3 * max(n, m))  # starts and sums of rows; of a pass: three more
    tiles = args.threads * _core.TILE * args.rank * size
    return factors + padded + vectors + tiles + parse_bytes(args.memory)


def do_ratio(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Alternate fits in memory and from disk, with cached files."""
    matrix = open_matrix(folder / "X.disk", memory=args.memory)
    X = matrix.as_csr().copy()
    seconds: dict[str, list[float]] = {"memory": [], "disk": []}
    bits = set()
    for _ in range(args.repeats):
        for name, data in (("memory", X), ("disk", matrix)):
            model = model_of(args)
            model.fit(data)
            bits.add(hashlib.sha256(model.components_.tobytes()).hexdigest())
            seconds[name].append(model.history_[-1]["seconds"] / model.n_iter_)
    return {"seconds": seconds, "same": len(bits) == 1}


def do_bandwidth(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Read the files in order and discard the data."""
    forget_cached(folder / "X.disk")
    before, started = _bytes_read(), time.perf_counter()
    block = bytearray(8 * MIB)
    for file in sorted((folder / "X.disk").iterdir()):
        with file.open("rb", buffering=0) as stream:
            while stream.readinto(block):
                pass
    return {"seconds": time.perf_counter() - started, "from_disk": _bytes_read() - before}


def _bytes_read() -> int:
    """Bytes read from disk by this process so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


DO = dict(zip(STEPS, (do_prepare, do_fit, do_ratio, do_bandwidth), strict=True))


def run(
    step: str, folder: Path, args: argparse.Namespace, group: MemoryGroup | None = None
) -> dict[str, Any]:
    """Run a step in a new process, in the group if there is one."""
    words = [sys.executable, "-m", "benchmarks.out_of_core", "--step", step, "--out", str(folder)]
    for option in ("rank", "iterations", "threads", "memory", "repeats"):
        words += [f"--{option}", str(getattr(args, option))]
    return dict(json.loads(run_in(group, words).splitlines()[-1]))


# ---- reports -------------------------------------------------------------------------------------


def report_ratio(folder: Path, args: argparse.Namespace) -> bool:
    found = run("ratio", folder, args)
    for name, seconds in found["seconds"].items():
        shown = ", ".join(f"{1000 * value:.0f}" for value in seconds)
        print(f"{name:20} {shown} ms per iteration, {args.threads} threads")
    best = {name: min(seconds) for name, seconds in found["seconds"].items()}
    ratio = best["disk"] / best["memory"]
    print(f"time from disk / in memory, files cached: {ratio:.2f} (at most 1.3)")
    print(f"same result          {found['same']}")
    return ratio <= 1.3 and found["same"]


def report_limited(folder: Path, args: argparse.Namespace, size: int, group: MemoryGroup) -> bool:
    group.reset()
    forget_cached(folder / "X.disk")
    before = group.n_reclaims
    found = run("disk", folder, args, group)
    needed = found["base"] + found["promised"]
    print(
        f"fit under the limit  {found['seconds_fit']:8.1f} s, {args.iterations} iterations of "
        f"{found['seconds_iterations'] / args.iterations:.2f} s"
    )
    print(
        f"  peak of the group  {group.peak / MIB:8.0f} MiB of {group.limit / MIB:.0f}, "
        f"{group.n_reclaims - before:,} times at the limit, {group.n_kills} killed"
    )
    print(
        f"  peak of the process{found['peak'] / MIB:8.0f} MiB resident; limit "
        f"{needed / MIB:.0f}: {found['base'] / MIB:.0f} of Python, "
        f"{found['promised'] / MIB:.0f} of factors, scratch and {args.memory}"
    )
    rate = found["from_disk"] / found["seconds_fit"] / MIB
    print(f"  read from disk     {found['from_disk'] / MIB:8.0f} MiB, {rate:.0f} MiB/s")
    disk = run("bandwidth", folder, args)
    print(
        f"the files alone      {disk['from_disk'] / MIB:8.0f} MiB, "
        f"{disk['from_disk'] / disk['seconds'] / MIB:.0f} MiB/s"
    )
    free = run("disk", folder, args)
    same = free["bits"] == found["bits"]
    print(
        f"fit without a limit  {free['seconds_fit']:8.1f} s, {args.iterations} iterations of "
        f"{free['seconds_iterations'] / args.iterations:.2f} s; same result: {same}"
    )
    print(f"files / limit        {size / group.limit:8.2f} (at least 4)")
    return same and size >= 4 * group.limit and found["peak"] <= 1.1 * needed


def main() -> int:
    """Generate, prepare, fit; the exit status is 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nnz", type=float, default=2e7)
    parser.add_argument("--features", type=int, default=50_000)
    parser.add_argument("-r", "--rank", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="128M", help="memory for `prepare`, and for X in a fit")
    parser.add_argument("--limit", help="size of a memory cgroup for `prepare` and the fit")
    parser.add_argument("--out", type=Path, help="output folder (default: a temporary folder)")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if args.step:
        started = time.perf_counter()
        facts = DO[args.step](args.out, args)
        print(json.dumps({"all": time.perf_counter() - started, "peak": resident("VmHWM")} | facts))
        return 0
    with tempfile.TemporaryDirectory(dir=args.out) as name:
        folder = Path(name)
        started = time.perf_counter()
        generate(folder / "X.npz", int(args.nnz), args.features)
        size = (folder / "X.npz").stat().st_size
        print(
            f"generated            {time.perf_counter() - started:8.1f} s, {size / MIB:.0f} MiB, "
            f"{resident('VmHWM') / MIB:.0f} MiB resident"
        )
        if args.limit is None:
            report_prepared(run("prepare", folder, args), folder, args)
            return 0 if report_ratio(folder, args) else 1
        with memory_group(parse_bytes(args.limit)) as group:
            forget_cached(folder)
            size = report_prepared(run("prepare", folder, args, group), folder, args)
            print(f"  peak of the group  {group.peak / MIB:8.0f} MiB, {group.n_kills} killed")
            return 0 if report_limited(folder, args, size, group) else 1


def report_prepared(found: dict[str, Any], folder: Path, args: argparse.Namespace) -> int:
    size = sum(file.stat().st_size for file in (folder / "X.disk").iterdir())
    (folder / "X.npz").unlink()
    print(
        f"prepared             {found['all']:8.1f} s with --memory {args.memory}, "
        f"{found['peak'] / MIB:.0f} MiB resident"
    )
    print(
        f"on disk              {size / MIB:8.0f} MiB, {found['nonzeros']:,} nonzeros, "
        f"{found['shape'][0]:,} × {found['shape'][1]:,}"
    )
    return size


if __name__ == "__main__":
    raise SystemExit(main())
