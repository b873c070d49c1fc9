"""Whole calls of one build of the library, made one after another in one process.

    python benchmarks/whole_call_worker.py FOLDER

Reads a call as JSON from each line of the standard input and answers with a line of JSON. The
build is the one that Python imports, so that ``benchmarks.whole_calls`` can keep workers of two
builds side by side. FOLDER holds the matrices.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import klnmf
from klnmf import KLNMF, RunOptions
from klnmf.datasets import load_bible
from klnmf.simulate import simulate_counts

SCIKIT_ITERATIONS = 200


@functools.lru_cache(maxsize=1)
def load(name: str, folder: str, dtype: str) -> sp.csr_array:
    """Counts of one set, in a type that no part of the call needs to change."""
    X = load_bible().data if name == "bible" else sp.load_npz(Path(folder) / f"{name}.npz")
    return sp.csr_array(X).astype(dtype)


def whole_call(X: sp.csr_array, call: dict[str, Any]) -> dict[str, Any]:
    """The default call, from the call to its return."""
    model = KLNMF(call["rank"], random_state=call["seed"], n_threads=call["threads"])
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X)
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "seconds": seconds,
        "cpu": cpu_seconds,
        "solver_seconds": model.history_[-1]["seconds"],
        "iterations": int(model.n_iter_),
        "objective": float(model.divergence_),
        "gap": getattr(model, "optimality_gap_", None),  # earlier builds have none
        "converged": bool(model.converged_),
    }


def call_to_level(X: sp.csr_array, call: dict[str, Any]) -> dict[str, Any]:
    """The default call, ended by the first record at or below the level.

    ``seconds`` is the time from the call to that record. ``around`` is the time from the call to
    its return without the solver's: checks, transposition, start, last solve and evaluation.
    """
    passed: dict[str, Any] = {}

    def note(record: dict[str, Any]) -> bool:
        if record["divergence"] > call["level"]:
            return False
        passed.update(record, wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
        return True

    run = RunOptions(callback=note)
    model = KLNMF(call["rank"], random_state=call["seed"], n_threads=call["threads"], run=run)
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X)
    returned = time.perf_counter() - wall
    if not passed:
        return {"seconds": None, "objective": float(model.divergence_)}
    return {
        "seconds": passed["wall"],
        "cpu": passed["cpu"],
        "solver_seconds": passed["seconds"],
        "returned": returned,
        "around": returned - passed["seconds"],
        "iterations": passed["iteration"],
        "objective": passed["divergence"],
    }


def scikit_learn(X: sp.csr_array, call: dict[str, Any]) -> dict[str, Any]:
    """Scikit-learn's multiplicative updates, all 200 iterations from a random start."""
    from sklearn.decomposition import NMF

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from benchmarks.peer_clock import divergence

    model = NMF(
        call["rank"],
        init="random",
        solver="mu",
        beta_loss="kullback-leibler",
        tol=0,
        max_iter=SCIKIT_ITERATIONS,
        random_state=call["seed"],
    )
    wall, cpu = time.perf_counter(), time.process_time()
    W = model.fit_transform(X)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "iterations": int(model.n_iter_),
        "objective": divergence(X, W, model.components_),
    }


KINDS = {"whole": whole_call, "level": call_to_level, "scikit-learn": scikit_learn}


def main() -> int:
    """Answer calls until the input ends."""
    (folder,) = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    warnings.simplefilter("ignore")
    KLNMF(3, random_state=0).fit(simulate_counts(60, 40, 3, random_state=0).X)  # first allocations
    print(json.dumps({"library": str(Path(klnmf.__file__).parent)}), file=answers, flush=True)
    for line in sys.stdin:
        call = json.loads(line)
        X = load(call["set"], folder, call["dtype"])
        load_before = os.getloadavg()[0]
        answer = KINDS[call["kind"]](X, call)
        answer |= {"shape": list(X.shape), "nonzeros": int(X.nnz), "load_before": load_before}
        print(json.dumps(answer, default=np.ndarray.item), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
