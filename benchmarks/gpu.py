"""What backend="cuda" takes, beside the goals for one H200: python benchmarks/gpu.py [part ...].

Parts: passes, fit, cpu, large, cells, reuters, torch. Times are medians of repeated runs after the
first, which compiles. Needs a GPU, CuPy, and for "reuters" the file of that set as argument --data.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.backends.base import Fixed, Improve, Multiply
from klnmf.backends.cuda.backend import CudaBackend
from klnmf.data.sparse_data import InMemoryData

PARTS = ("passes", "fit", "cpu", "large", "cells", "reuters", "torch")


def zipf_counts(n: int, m: int, per_row: float, topics: int = 50, seed: int = 0) -> sp.csr_array:
    """Planted topics over words with Zipf's frequencies; drawn on the GPU."""
    generator = np.random.default_rng(seed)
    cp.random.seed(seed)
    base = cp.asarray(((1.0 + np.arange(m)) ** -0.9)[generator.permutation(m)])
    shares = base * cp.exp(1.5 * cp.random.standard_normal((topics, m)))
    shares /= shares.sum(axis=1, keepdims=True)
    ends = cp.minimum(cp.cumsum(shares, axis=1), 1 - 1e-12) + cp.arange(topics)[:, None]
    ends = ends.ravel()

    def drawn(n_rows: int, length: float) -> tuple[Any, Any, Any]:
        spread = cp.exp(np.log(length) - 0.18 + 0.6 * cp.random.standard_normal(n_rows))
        last = cp.cumsum(cp.clip(spread, 10, 20000).astype(cp.int64))
        total = int(last[-1])
        row = cp.searchsorted(last, cp.arange(total), side="right")
        of_row = cp.random.randint(0, topics, (n_rows, 4))
        which = cp.searchsorted(cp.array([0.5, 0.8, 0.95]), cp.random.random(total))
        topic = of_row[row, which]
        column = cp.searchsorted(ends, topic + cp.random.random(total), side="right") - topic * m
        cells = cp.sort(row * m + cp.minimum(column, m - 1))
        first = cp.flatnonzero(cp.concatenate([cp.ones(1, bool), cells[1:] != cells[:-1]]))
        counts = cp.diff(cp.concatenate([first, cp.array([total])]))
        return cells[first] // m, cells[first] % m, counts

    length = per_row * 1.4
    for _ in range(3):
        length *= (per_row / (len(drawn(5000, length)[0]) / 5000)) ** 1.2
    starts, columns, values, batch = [np.zeros(1, np.int64)], [], [], 25_000
    for begin in range(0, n, batch):
        row, column, count = drawn(min(batch, n - begin), length)
        ends_here = cp.searchsorted(row, cp.arange(min(batch, n - begin)), side="right")
        starts.append(starts[-1][-1] + ends_here.get())
        columns.append(column.astype(cp.int32).get())
        values.append(count.astype(cp.float32).get())
    indptr = np.concatenate(starts)
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)  # SciPy would widen the indices to match
    arrays = (np.concatenate(values), np.concatenate(columns), indptr)
    cp.get_default_memory_pool().free_all_blocks()
    X = sp.csr_array((arrays[0], arrays[1], arrays[2]), shape=(n, m))
    used = np.flatnonzero(np.bincount(X.indices, minlength=m))
    return X if len(used) == m else sp.csr_array(X[:, used])


def milliseconds(function: Callable[[], Any], repeats: int = 7) -> float:
    """Median time of a function's work on the GPU."""
    found = []
    for _ in range(repeats + 2):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record()
        function()
        end.record()
        end.synchronize()
        found.append(cp.cuda.get_elapsed_time(begin, end))
    return float(np.median(found[2:]))


def say(what: str, found: str, goal: str = "") -> None:
    print(f"{what:<66} {found:>12} {goal}", flush=True)


# Iterations at about 1e8 nonzeros.
GOALS = {50: "goal 9, floor 12", 20: "goal 4.5, floor 6.5"}


def passes(X: sp.csr_array, goals: dict[int, str] = GOALS) -> None:
    """Iterations 21 to 30 of a fit without extrapolation, and what they consist of."""
    data = InMemoryData(X, n_threads=16)
    began = time.perf_counter()
    data.view(1)
    say("transposition on 16 threads of the CPU", f"{time.perf_counter() - began:.2f} s")
    backend = CudaBackend(data)
    for rank, goal in goals.items():
        generator = np.random.default_rng(0)
        factors = [
            backend.upload(0.5 + generator.random((size, rank), dtype=np.float32), mode)
            for mode, size in enumerate(X.shape)
        ]
        order = np.arange(rank, dtype=np.int32)
        began = time.perf_counter()

        def half(mode: int, rule: Any, factors: list[Any] = factors) -> None:
            backend.update_rows(factors[mode], Fixed(mode, (factors[1 - mode],)), rule)

        def both(rule: Any) -> None:
            half(0, rule), half(1, rule)

        for _ in range(3):
            both(Multiply(relaxed=1))
        for _ in range(18):
            both(Improve(order, want_value=False))
        cp.cuda.Device().synchronize()
        say(
            f"r = {rank}: opening, 18 iterations, upload of X, compilation",
            f"{time.perf_counter() - began:.2f} s",
        )
        took = milliseconds(lambda: both(Improve(order, want_value=False)), 10)  # noqa: B023
        say(f"iteration, {X.nnz:.3g} nonzeros, r = {rank}", f"{took:.2f} ms", goal)
        for mode in (0, 1):
            fixed = Fixed(mode, (factors[1 - mode],))
            rules = {"step": Improve(order, want_value=False), "multiply": Multiply()}
            for name, rule in rules.items():
                kept = backend.copy(factors[mode])
                took = milliseconds(lambda m=mode, r=rule: half(m, r))
                factors[mode] = kept
                say(f"r = {rank}, mode {mode}: {name}", f"{took:.2f} ms")
            for name, want in (("value", False), ("evaluation", True)):
                took = milliseconds(
                    lambda f=fixed, w=want, m=mode: backend.evaluate(factors[m], f, w)  # noqa: B023
                )
                say(f"r = {rank}, mode {mode}: {name}", f"{took:.2f} ms")


def seconds_to(model: KLNMF, whole: float, objective: float) -> float:
    """Seconds of a fit, with everything around its loop, until it was as low as that."""
    there = [record["seconds"] for record in model.history_ if record["objective"] <= objective]
    return whole - model.history_[-1]["seconds"] + there[0] if there else float("nan")


def by_hand(X: sp.csr_array, rank: int, iterations: int = 200) -> tuple[float, float]:
    """Seconds and divergence of multiplicative updates with torch's sparse products."""
    import torch

    def on_device(matrix: sp.csr_array) -> Any:
        parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
        return torch.sparse_csr_tensor(*parts, size=matrix.shape, device="cuda")

    warnings.simplefilter("ignore")
    began = time.perf_counter()
    sides = [on_device(X), on_device(sp.csr_array(X.T))]
    ones = [
        torch.sparse_csr_tensor(
            side.crow_indices(), side.col_indices(), torch.zeros_like(side.values()), side.shape
        )
        for side in sides
    ]
    generator = torch.Generator("cuda").manual_seed(0)
    factors = [torch.rand(n, rank, device="cuda", generator=generator) + 0.5 for n in X.shape]
    for number in range(2 * iterations):
        mode = number % 2
        x, A = factors[mode], factors[1 - mode]
        y = torch.sparse.sampled_addmm(ones[mode], x, A.T).values()
        ratios = torch.sparse_csr_tensor(
            sides[mode].crow_indices(),
            sides[mode].col_indices(),
            sides[mode].values() / y,
            sides[mode].shape,
        )
        factors[mode] = x * (ratios @ A) / A.sum(dim=0)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    y = torch.sparse.sampled_addmm(ones[0], factors[0], factors[1].T).values().double()
    v = sides[0].values().double()
    sums = [factor.double().sum(dim=0) for factor in factors]
    divergence = (v * torch.log(v / y) - v).sum() + (sums[0] * sums[1]).sum()
    return seconds, float(divergence)


def timed_fit(X: Any, rank: int, **settings: Any) -> tuple[float, KLNMF]:
    model = KLNMF(rank, random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model.fit(X)
    return time.perf_counter() - began, model


def report_fit(
    name: str, X: Any, rank: int, goal: str = "", **settings: Any
) -> tuple[float, KLNMF]:
    seconds, model = timed_fit(X, rank, **settings)
    in_loop = model.history_[-1]["seconds"]
    say(
        f"{name}: whole fit, {model.n_iter_} iterations, {in_loop:.2f} s in the loop",
        f"{seconds:.2f} s",
        goal,
    )
    say(
        f"{name}: divergence {model.divergence_:.6e}, gap {model.optimality_gap_:.2e}, converged",
        str(model.converged_),
    )
    return seconds, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["passes", "fit"], choices=PARTS)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--data", type=Path, help="Reuters21578 as .npz")
    args = parser.parse_args()
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    say("device", device)
    if {"cpu", "torch"} & set(args.parts):
        args.parts.append("fit")
    if {"passes", "fit"} & set(args.parts):
        X = zipf_counts(args.rows, 50_000, 200.0)
        say("counts", f"{X.shape}, {X.nnz:,} nonzeros")
    if "passes" in args.parts:
        passes(X)
    if "fit" in args.parts:
        timed_fit(X[:2000], 50, backend="cuda", max_iter=3)  # compiles
        here = report_fit("1e8 nonzeros, r = 50", X, 50, "goal 3 s, floor 6 s", backend="cuda")
    if "cpu" in args.parts:
        there = report_fit("the same on the CPU", X, 50, backend="cpu", dtype=np.float32)
        target = max(model.history_[-1]["objective"] for _, model in (here, there))
        times = [seconds_to(model, seconds, target) for seconds, model in (here, there)]
        say(
            f"to {target:.6e}: {times[0]:.2f} s against {times[1]:.2f} s on the CPU",
            f"{times[1] / times[0]:.1f} x",
            "goal 40 x, floor 20 x",
        )
    if "torch" in args.parts:
        seconds, target = by_hand(X, 50)
        say(f"torch, 200 multiplicative updates: divergence {target:.6e}", f"{seconds:.1f} s")
        took = seconds_to(here[1], here[0], target)
        say(f"to that, {took:.2f} s", f"{seconds / took:.0f} x", "goal 200 x, floor 50 x")
    if "large" in args.parts:
        passes(zipf_counts(5_000_000, 50_000, 200.0), {50: "goal 100, floor 140"})
    if "cells" in args.parts:
        X = zipf_counts(1_000_000, 2_000, 300.0, topics=30)
        timed_fit(X[:2000], 30, backend="cuda", max_iter=3)
        report_fit("a million cells, r = 30", X, 30, "goal 10 s, floor 20 s", backend="cuda")
    if "reuters" in args.parts:
        X = sp.csr_array(sp.load_npz(args.data).astype(np.float32))
        timed_fit(X, 20, backend="cuda")
        report_fit("Reuters21578, r = 20", X, 20, backend="cuda")
        report_fit("Reuters21578, r = 20, CPU", X, 20, backend="cpu", dtype=np.float32)


if __name__ == "__main__":
    main()
