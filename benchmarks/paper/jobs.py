"""Measurements as jobs: each runs once, in a separate process, and its result is kept in a file."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.peer_run import write_json
from benchmarks.peers import THREAD_VARIABLES

# Seconds after which a job is given up, whatever it was told: the clock is its own.
PATIENCE = 1800.0


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement: its kind and its settings, which JSON can hold."""

    kind: str
    settings: dict[str, Any]
    alone: bool = False  # its time would suffer from another one beside it

    @property
    def threads(self) -> int:
        """Threads that the solver may use."""
        return int(self.settings.get("threads", 1))

    @property
    def name(self) -> str:
        """Name of the file of its result."""
        values = (f"{key}={value}" for key, value in self.settings.items())
        return "_".join([self.kind, *values])


def run_all(jobs: Sequence[Job], data: Path | None, runs: Path, at_once: int) -> None:
    """Run the jobs without a result, several at a time except those that must run alone."""
    waiting = [job for job in jobs if not (runs / f"{job.name}.json").exists()]
    print(f"{len(waiting)} of {len(jobs)} measurements to do, the others are stored", flush=True)
    alone = [job for job in waiting if job.alone]
    together = [job for job in waiting if not job.alone]
    outcomes = _outcomes(together, alone, data, runs, at_once)
    for done, (job, outcome) in enumerate(outcomes, start=1):
        print(f"[{done}/{len(waiting)}] {job.name}: {outcome}", flush=True)


def _outcomes(
    together: Iterable[Job], alone: Iterable[Job], data: Path | None, runs: Path, at_once: int
) -> Iterator[tuple[Job, str]]:
    with ThreadPoolExecutor(at_once) as pool:
        try:
            yield from pool.map(lambda job: (job, run_one(job, data, runs)), together)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for job in alone:
        yield job, run_one(job, data, runs)


def run_one(job: Job, data: Path | None, runs: Path) -> str:
    """Run a job in a separate process; failures are stored too. Returns a short summary."""
    path = runs / f"{job.name}.json"
    environ = dict(os.environ) | {name: str(job.threads) for name in THREAD_VARIABLES}
    root = str(Path(__file__).resolve().parents[2])
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "benchmarks.paper.measurements"]
    command += [json.dumps(dataclasses.asdict(job)), str(data or ""), str(path)]
    try:
        child = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        error = f"not done after {PATIENCE:.0f} s"
    else:
        if child.returncode == 0:
            return "done"
        error = "".join(child.stderr.strip().splitlines()[-1:]) or f"status {child.returncode}"
    write_json(path, dataclasses.asdict(job) | {"error": error})
    return f"failed: {error}"


def load_results(runs: Path) -> list[dict[str, Any]]:
    """All stored results, each with its kind and its settings."""
    return [json.loads(path.read_text()) for path in sorted(runs.glob("*.json"))]
