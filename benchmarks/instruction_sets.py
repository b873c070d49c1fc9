"""CPU time of default fits with each instruction set of each build, beside another build.

    python -m benchmarks.instruction_sets --data DIR --than OTHER/src
    python -m benchmarks.instruction_sets --data DIR --than OTHER/src --instruction-sets x86-64-v3

Prints, for this build and each of ``--builds``, the CPU time on one thread divided by that of the
build ``--than`` (this one, with its highest set, if not given): medians over starts. Fits of all
builds take turns. A build is the folder that holds its ``klnmf``, with the compiled core in it.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.common import add_data_argument
from benchmarks.whole_calls import SHORT, Worker
from klnmf import _core

SETS = ["reuters", "tdt2", "pbmc3k"]


def workers_of(args: argparse.Namespace) -> dict[str, Worker]:
    """A process for each build and set, by a name for them; the first is what they are beside."""
    sets = args.instruction_sets or _core.usable_instruction_sets()[::-1]
    workers = {f"than: {args.than or 'this build'}": Worker(args.than, 1, args.data)}
    for build in [None, *args.builds]:
        for name in sets:
            label = f"{build or 'this build'}, {name}"
            workers[label] = Worker(build, 1, args.data, KLNMF_INSTRUCTION_SET=name)
    return workers


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--than", type=Path, metavar="DIR", help="build that all are compared with")
    parser.add_argument("--builds", nargs="+", type=Path, default=[], metavar="DIR")
    parser.add_argument("--instruction-sets", nargs="+", metavar="SET", help="default: all")
    parser.add_argument("--sets", nargs="+", default=SETS, help="data sets")
    parser.add_argument("--starts", type=int, default=5, help="seeds 0, 1, ... (5)")
    parser.add_argument("--rank", type=int, default=20)
    args = parser.parse_args()
    workers = workers_of(args)
    first = next(iter(workers))
    width = max(map(len, workers))
    print(f"{'':{width}} " + " ".join(f"{name:>16}" for name in args.sets))
    cpu: dict[str, list[float]] = {label: [] for label in workers}
    for name in args.sets:
        seconds: dict[str, list[float]] = {label: [] for label in workers}
        for seed in range(args.starts):
            for label, worker in list(workers.items())[:: -1 if seed % 2 else 1]:
                call = {"set": SHORT.get(name, name), "rank": args.rank, "dtype": "float32"}
                answer = worker.call(**call, kind="whole", threads=1, seed=seed)
                # Instruction sets round differently: per iteration, so that paths may differ.
                seconds[label].append(answer["cpu"] / answer["iterations"])
        for label in workers:
            cpu[label].append(statistics.median(seconds[label]))
    for label in workers:
        cells = [
            f"{1000 * c:7.2f} ms {c / base:5.2f} ×"
            for c, base in zip(cpu[label], cpu[first], strict=True)
        ]
        print(f"{label:{width}} " + " ".join(f"{cell:>16}" for cell in cells))
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    main()
