"""A fit of a matrix on disk against the same fit in memory: memory, and throughput as a ratio.

    python -m benchmarks.out_of_core                                # 2e8 nonzeros: 3.2 GB on disk
    python -m benchmarks.out_of_core --nnz 1e7 --limit 512M         # in a memory cgroup, if allowed

Each step runs in a process of its own: the matrix is generated in blocks, prepared in bounded
memory, fitted from the disk, and fitted in memory. With --limit, the steps on disk run in a memory
cgroup of that size where this process may make one (``systemd-run --scope``), and it says if not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from benchmarks.memory import resident
from klnmf import KLNMF, open_matrix
from klnmf.on_disk import prepare

NONZEROS_PER_ROW = 100
ROWS = 1 << 14


def blocks(nnz: int, features: int, seed: int = 0) -> Iterator[sp.csr_array]:
    """Rows of about 100 counts, whose columns are as uneven as words."""
    generator = np.random.default_rng(seed)
    edges = np.cumsum(np.arange(1, features + 1) ** -0.8)
    edges /= edges[-1]
    n = max(1, nnz // NONZEROS_PER_ROW)
    for start in range(0, n, ROWS):
        rows = min(ROWS, n - start)
        columns = np.searchsorted(edges, generator.random(rows * NONZEROS_PER_ROW))
        ends = np.arange(rows + 1) * NONZEROS_PER_ROW
        values = np.ones(len(columns), dtype=np.float32)
        block = sp.csr_array(
            (values, np.minimum(columns, features - 1), ends), shape=(rows, features)
        )
        block.sum_duplicates()
        yield block


def generate(folder: Path, nnz: int, features: int) -> None:
    """Write lines of row, column, count, block by block: a source larger than memory."""
    counts = [(b.shape[0], b.nnz) for b in blocks(nnz, features)]
    n, total = (sum(numbers) for numbers in zip(*counts, strict=True))
    with (folder / "X.mtx").open("wb") as stream:
        stream.write(b"%%MatrixMarket matrix coordinate integer general\n")
        stream.write(f"{n} {features} {total}\n".encode())
        start = 1
        for block in blocks(nnz, features):
            rows = np.repeat(np.arange(start, start + block.shape[0]), np.diff(block.indptr))
            lines = np.column_stack([rows, block.indices + 1, block.data.astype(np.int64)])
            stream.write("\n".join(" ".join(map(str, line)) for line in lines.tolist()).encode())
            stream.write(b"\n")
            start += block.shape[0]


def step(name: str, folder: Path, args: argparse.Namespace) -> dict[str, object]:
    """Do one step in this process; returns what it took."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    model = KLNMF(
        args.rank, max_iter=args.iterations, tol=0, random_state=0, n_threads=args.threads
    )
    started = time.perf_counter()
    if name == "prepare":
        matrix = prepare(folder / "X.mtx", folder / "X.disk", memory=args.memory)
        facts: dict[str, object] = {"nonzeros": matrix.nnz, "shape": matrix.shape}
    else:
        matrix = open_matrix(folder / "X.disk", memory=args.memory)
        model.fit(matrix if name == "disk" else matrix.as_csr().copy())
        facts = {
            "seconds_solver": model.history_[-1]["seconds"],
            "components": hashlib.sha256(model.components_.tobytes()).hexdigest(),
        }
    own = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("RssAnon:")
    )
    facts |= {"seconds": time.perf_counter() - started, "peak": resident("VmHWM"), "anon": own}
    return facts


def run(name: str, folder: Path, args: argparse.Namespace, limit: str | None) -> dict[str, object]:
    """Do a step in another process, in a cgroup if there is a limit."""
    command = [sys.executable, "-m", "benchmarks.out_of_core", "--step", name]
    for option in ("rank", "iterations", "threads", "memory"):
        command += [f"--{option}", str(getattr(args, option))]
    command += ["--folder", str(folder)]
    if limit:
        command = [*_scope(limit), *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed ({done.returncode}): {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _scope(limit: str) -> list[str]:
    options = ["-p", f"MemoryMax={limit}", "-p", "MemorySwapMax=0"]
    return ["systemd-run", "--scope", "--quiet", *options]


def may_limit(limit: str) -> bool:
    """Whether this process may start others in a memory cgroup."""
    if shutil.which("systemd-run") is None:
        return False
    done = subprocess.run([*_scope(limit), "true"], capture_output=True, check=False)
    return done.returncode == 0


def main() -> int:
    """Run all steps; exit status 1 if the two fits differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nnz", type=float, default=2e8)
    parser.add_argument("--features", type=int, default=50_000)
    parser.add_argument("-r", "--rank", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="128M", help="for preparing, and of X in a fit")
    parser.add_argument("--limit", help="memory cgroup for the steps on disk, such as 1G")
    parser.add_argument("--folder", type=Path, help="where to write (a temporary folder)")
    parser.add_argument("--step", choices=("prepare", "disk", "memory"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        print(json.dumps(step(args.step, args.folder, args)))
        return 0
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        started = time.perf_counter()
        generate(folder, int(args.nnz), args.features)
        print(
            f"generated            {time.perf_counter() - started:8.1f} s, "
            f"{(folder / 'X.mtx').stat().st_size / 2**20:.0f} MiB of text"
        )
        limit = args.limit if args.limit and may_limit(args.limit) else None
        if args.limit and not limit:
            print(f"no memory cgroup may be made here: --limit {args.limit} is not enforced")
        found = {"prepare": run("prepare", folder, args, limit)}
        size = sum(file.stat().st_size for file in (folder / "X.disk").iterdir())
        print(
            f"on disk              {size / 2**20:8.0f} MiB, "
            f"{found['prepare']['nonzeros']:,} nonzeros, shape {found['prepare']['shape']}"
        )
        found["disk, first"] = run("disk", folder, args, limit)
        found["disk, warm"] = run("disk", folder, args, limit)
        found["memory"] = run("memory", folder, args, None)
        for what, facts in found.items():
            solver = facts.get("seconds_solver")
            in_solver = "" if solver is None else f", solver {solver:.2f} s"
            print(
                f"{what:20} {facts['seconds']:8.1f} s{in_solver}, "
                f"peak {facts['peak'] / 2**20:.0f} MiB resident"
            )
    ratio = found["memory"]["seconds_solver"] / found["disk, warm"]["seconds_solver"]
    same = found["memory"]["components"] == found["disk, warm"]["components"]
    print(f"throughput on disk (warm cache) / in memory: {ratio:.2f}")
    print(f"same components to the bit: {same}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
