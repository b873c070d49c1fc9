"""Time of the call that people make, ``KLNMF(r, random_state=s).fit(X)``, until it returns.

    python -m benchmarks.whole_calls --data DIR --sets reuters tdt2 --threads 1 2 --json FILE
    python -m benchmarks.whole_calls --data DIR --baseline OTHER/src    # beside another build
    python -m benchmarks.whole_calls --data DIR --to-level              # to scikit-learn's level
    python -m benchmarks.whole_calls --data DIR --starts 20 --jobs 16   # where fits end

Calls of the two builds alternate, each in its own process that stays alive. --to-level also times
the same call until scikit-learn's objective after 200 iterations is passed, and scikit-learn
itself (once per set, rank and type; stored results are used again). Calls in FILE are not repeated
on the same machine unless --again is given; ``benchmarks.whole_call_tables`` makes the table of
docs/performance.md from it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import add_data_argument
from benchmarks.peer_run import environment, write_json
from benchmarks.peer_sets import EMBEDDED, SIMULATED, Folders, make_simulated
from benchmarks.peers import THREAD_VARIABLES
from benchmarks.whole_call_tables import KEY, Record, comparison, key_of, machine_of, to_level

SHORT = {
    "reuters": "reuters21578",
    "tdt2": "tdt2_top30",
    "20ng": "20newsgroups_qwone",
    "mnist": "mnist_train",
    "kos": "uci_kos",
    "nips": "uci_nips",
}
WORKER = Path(__file__).with_name("whole_call_worker.py")
OURS, BASELINE, SCIKIT = "klnmf", "baseline", "scikit-learn"


# ---- processes -----------------------------------------------------------------------------------


class Worker:
    """A process that makes calls of one build with one number of threads."""

    def __init__(
        self, source: Path | None, threads: int | None, folder: Path, **variables: str
    ) -> None:
        environ = os.environ | variables
        if threads is not None:
            environ |= {name: str(threads) for name in THREAD_VARIABLES}
        if source is not None:
            environ["PYTHONPATH"] = str(source)
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            text=True,
        )
        library = Path(self._answer()["library"]).resolve()
        if source is not None and library != (source / "klnmf").resolve():
            self.close()
            raise SystemExit(f"Python imports klnmf from {library}, not from {source}.")

    def call(self, **call: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise SystemExit(f"A worker ended with status {self.process.returncode}.")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Workers(threading.local):
    """The processes of this thread, started when they are first needed."""

    def __init__(self, baseline: Path | None, folders: Folders, everyone: list[Worker]) -> None:
        self.baseline, self.folders, self.everyone = baseline, folders, everyone
        self.started: dict[tuple[str, int | None, Path], Worker] = {}

    def of(self, build: str, threads: int | None, name: str) -> Worker:
        key = (build, threads, folder_of(name, self.folders))
        if key not in self.started:
            source = self.baseline if build == BASELINE else None
            self.started[key] = Worker(source, *key[1:])
            self.everyone.append(self.started[key])
        return self.started[key]


# ---- calls ---------------------------------------------------------------------------------------


class Results:
    """Records by key, written to a file after each call."""

    def __init__(self, path: Path | None, levels: list[Path], again: bool) -> None:
        self.path, self.lock, self.again = path, threading.Lock(), again
        self.records: dict[tuple[Any, ...], Record] = {}
        self.seen: list[Record] = []  # of this run, and scikit-learn's of other files
        self.environment = environment() | {"cores": str(os.cpu_count())}
        self.machine = machine_of(self.environment)
        for file in [*levels, *([path] if path and path.exists() else [])]:
            stored = json.loads(file.read_text())["records"]
            self.seen += [record for record in stored if record["kind"] == SCIKIT]
            if file == path:
                self.records = {key_of(record): record for record in stored}

    def level(self, name: str, rank: int, dtype: str) -> float | None:
        """Scikit-learn's objective, on whatever machine it was found."""
        for record in self.seen:
            if (record["set"], record["rank"], record["dtype"]) == (name, rank, dtype):
                return float(record["objective"])
        return None

    def make(self, workers: Workers, **call: Any) -> Record:
        """Make a call, unless its result is stored."""
        record: Record = call | {"machine": self.machine}
        stored = self.records.get(key_of(record))
        if stored is None or (self.again and call["kind"] != SCIKIT):
            worker = workers.of(call["build"], call["threads"], call["set"])
            stored = record | worker.call(**call) | {"environment": self.environment}
        with self.lock:
            self.records[key_of(record)] = stored
            self.seen.append(stored)
            if self.path:
                write_json(self.path, {"records": list(self.records.values())})
            what = " ".join(str(stored[name]) for name in KEY[:-1])
            seconds = "not reached" if stored["seconds"] is None else f"{stored['seconds']:.3f} s"
            print(f"{what}: {seconds}, {stored['objective']:.8g}", file=sys.stderr, flush=True)
        return stored


def cells_of(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is compared: sets, ranks and types."""
    for name in args.sets:
        for rank in args.ranks:
            for dtype in args.dtype:
                yield {"set": SHORT.get(name, name), "rank": rank, "dtype": dtype}


def run_start(
    args: argparse.Namespace, results: Results, workers: Workers, cell: dict[str, Any], seed: int
) -> None:
    """All calls of one start: builds alternate, and take turns in going first."""
    builds = [OURS, BASELINE][: 1 + bool(args.baseline)]
    kinds = ["whole"] if not args.to_level else ["whole", "level"] if args.whole else ["level"]
    for threads in args.threads:
        for kind in kinds:
            for build in builds[:: -1 if seed % 2 else 1]:
                call = cell | {"kind": kind, "build": build, "threads": threads, "seed": seed}
                if kind == "level":
                    call["level"] = results.level(cell["set"], cell["rank"], cell["dtype"])
                results.make(workers, **call)


def run_all(args: argparse.Namespace, results: Results) -> None:
    """Make all calls, several starts at a time if --jobs says so."""
    folders = Folders(args.data, args.out)
    for name in {cell["set"] for cell in cells_of(args)}:
        obtain(name, folders)
    everyone: list[Worker] = []
    workers = Workers(args.baseline and args.baseline.resolve(), folders, everyone)
    todo: queue.SimpleQueue[tuple[dict[str, Any], int]] = queue.SimpleQueue()
    for cell in cells_of(args):
        for seed in range(args.starts):
            todo.put((cell, seed))

    def work(_: int) -> None:
        while True:
            try:
                cell, seed = todo.get_nowait()
            except queue.Empty:
                return
            run_start(args, results, workers, cell, seed)

    def level(cell: dict[str, Any]) -> None:
        if results.level(cell["set"], cell["rank"], cell["dtype"]) is None:
            call = cell | {"kind": SCIKIT, "build": OURS, "threads": 1, "seed": 0}
            results.make(workers, **call)

    try:
        with ThreadPoolExecutor(args.jobs) as pool:
            try:
                list(pool.map(level, cells_of(args) if args.to_level else []))
                list(pool.map(work, range(args.jobs)))
            except BaseException:  # so that the threads of the pool end as well
                while not todo.empty():
                    todo.get_nowait()
                for worker in everyone:
                    worker.process.kill()
                raise
    finally:
        for worker in everyone:
            worker.close()


def folder_of(name: str, folders: Folders) -> Path:
    """The folder with the file of this set: the one that was given, or that of the results."""
    given = folders.data is not None and (folders.data / f"{name}.npz").exists()
    return folders.data if given and folders.data else folders.simulated


def obtain(name: str, folders: Folders) -> None:
    """Simulate a set that is not there; exit if it is none of those."""
    if name in SIMULATED:
        make_simulated(name, folders)
    elif name != EMBEDDED and not (folder_of(name, folders) / f"{name}.npz").exists():
        where = folders.data or "the folder of --data DIR or of the variable KLNMF_DATA"
        raise SystemExit(f"The set {name} needs a file {name}.npz in {where}.")


# ---- command line --------------------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_data_argument(parser)
    names = ", ".join([EMBEDDED, *SHORT, "pbmc3k", *SIMULATED])
    parser.add_argument("--sets", nargs="+", default=["reuters", "tdt2"], help=f"{names}, files")
    parser.add_argument("--ranks", nargs="+", type=int, default=[20], metavar="R")
    parser.add_argument("--starts", type=int, default=5, help="seeds 0, 1, ... (5)")
    parser.add_argument("--threads", nargs="+", type=_threads, default=[1], help="N or default")
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=("float32", "float64"))
    parser.add_argument("--baseline", type=Path, metavar="DIR", help="source of another build")
    parser.add_argument("--jobs", type=int, default=1, help="starts at a time (1)")
    parser.add_argument("--to-level", action="store_true", help="time to scikit-learn's level too")
    parser.add_argument(
        "--no-whole", dest="whole", action="store_false", help="with --to-level: that alone"
    )
    parser.add_argument(
        "--levels", nargs="+", type=Path, default=[], metavar="FILE", help="scikit-learn's results"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="results, added to this file")
    parser.add_argument("--again", action="store_true", help="repeat calls that are in the file")
    parser.add_argument(
        "--out", type=Path, default=Path("build"), metavar="DIR", help="for simulated sets (build)"
    )
    return parser.parse_args(arguments)


def _threads(text: str) -> int | None:
    return None if text == "default" else int(text)


def main(arguments: list[str] | None = None) -> int:
    """Make the calls and print the tables."""
    args = parse(arguments)
    results = Results(args.json, args.levels, args.again)
    try:
        run_all(args, results)
    except KeyboardInterrupt:
        print("\nInterrupted; the results so far:", file=sys.stderr)
    records = [record for record in results.seen if record["machine"] == results.machine]
    print(f"\n{results.machine}\n")
    print(comparison(records))
    if args.to_level:
        print(to_level(records))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
