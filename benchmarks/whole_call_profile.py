"""Where the time of a call goes until scikit-learn's 200-iteration objective is passed.

    python -m benchmarks.whole_call_profile --data DIR --levels docs/whole_calls.json --threads 1 16

Prints, by set and number of threads, the milliseconds of the whole call and of its parts: the
calls into the core by name, and the rest of the functions of klnmf by their own time. The least
of ``--repeats`` calls, after one that is not counted.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from benchmarks.common import add_data_argument
from benchmarks.whole_call_worker import load
from benchmarks.whole_calls import SHORT
from klnmf import KLNMF, RunOptions

SETS = ["bible", "reuters", "tdt2", "pbmc3k", "20ng", "mnist"]


def call(X: sp.csr_array, rank: int, threads: int, level: float) -> None:
    """The default call, ended by the first record at or below the level."""
    run = RunOptions(callback=lambda record: record["divergence"] <= level)
    KLNMF(rank, random_state=0, n_threads=threads, run=run).fit(X)


def parts_of(profile: cProfile.Profile) -> dict[str, float]:
    """Own time by function: of the core, of klnmf, and of everything else by its module."""
    parts: dict[str, float] = defaultdict(float)
    stats: Any = pstats.Stats(profile)
    for (file, _, name), (_, _, own, _, _) in stats.stats.items():
        where = Path(file)
        if "klnmf" in where.parts:
            parts[f"{where.stem}.{name}"] += own
        elif file == "~":
            parts[name.strip("<>").replace("built-in method ", "")] += own
        else:
            parts[where.stem] += own
    return parts


def main() -> None:
    """Profile all sets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--levels", type=Path, required=True, help="file of whole_calls --json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--top", type=int, default=14, help="parts that are printed")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    levels = {
        (record["set"], record["rank"]): record["objective"]
        for record in json.loads(args.levels.read_text())["records"]
        if record["kind"] == "scikit-learn" and record["dtype"] == "float32"
    }
    for short in args.sets:
        name = SHORT.get(short, short)
        if (name, args.rank) not in levels:
            print(f"{short}: no level in {args.levels}")
            continue
        X = load(name, str(args.data), "float32")
        for threads in args.threads:
            best: tuple[float, dict[str, float]] | None = None
            for repeat in range(args.repeats + 1):
                profile = cProfile.Profile()
                begin = time.perf_counter()
                profile.runcall(call, X, args.rank, threads, levels[name, args.rank])
                seconds = time.perf_counter() - begin
                if repeat and (best is None or seconds < best[0]):
                    best = seconds, parts_of(profile)
            assert best is not None
            print(f"\n{short}, {threads} threads: {1000 * best[0]:.1f} ms")
            for part, own in sorted(best[1].items(), key=lambda item: -item[1])[: args.top]:
                print(f"  {1000 * own:8.2f}  {part}")


if __name__ == "__main__":
    main()
