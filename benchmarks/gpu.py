"""What backend="cuda" takes, beside the goals for one H200: python -m benchmarks.gpu [part].

Parts: passes, where, growth, fit, cpu, torch, streamed, large, huge, cells, reuters. Times are
medians of repeated runs after the first, which compiles. Needs a GPU, CuPy, for "torch" PyTorch,
and for "reuters" the file of that set as --data. "growth" draws its figure into the folder --plots,
if there is one.
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

from benchmarks.gpu_counts import tiled, zipf_counts
from klnmf import KLNMF
from klnmf.backends.base import Fixed, Improve, Multiply
from klnmf.backends.cuda import backend as cuda
from klnmf.backends.cuda.backend import CudaBackend, HalfStep
from klnmf.backends.cuda.modules import source
from klnmf.data.sparse_data import InMemoryData

PARTS = ("passes", "where", "growth", "fit", "cpu", "torch", "streamed", "large", "huge", "cells")
THREADS = 16

# The gather of a half-step alone: rows of A at the nonzeros, in the layout of the kernels.
GATHER = """
extern "C" __global__ void __launch_bounds__(32)
    gather(TASK_ARGUMENTS, const float* A, float* out) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const Tasks tasks = TASKS;
    const Steps steps(tasks, blockIdx.x);
    float sum = 0;
    Four next = steps.at(0, t);
#pragma unroll 1
    for (int s = 0; s < steps.count; ++s) {
        const Four now = next;
        next = steps.at(s + 1, t);
        float a[4][NT];
        load_rows(A, now.id, g, a);
#pragma unroll
        for (int q = 0; q < 4; ++q)
#pragma unroll
            for (int n = 0; n < NT; ++n)
                sum += a[q][n];
    }
    if (sum == 1.2345f)
        out[0] = sum;
}
"""
READ = """
extern "C" __global__ void read(const float4* from, int count, int times, float* out) {
    float sum = 0;
    const int step = gridDim.x * blockDim.x, own = blockIdx.x * blockDim.x + threadIdx.x;
    for (int n = 0; n < times; ++n)
        for (int i = (own + n * 12347) % step; i < count; i += step) {
            const float4 f = __ldcg(from + i);
            sum += f.x + f.y + f.z + f.w;
        }
    if (sum == 1.2345f)
        out[0] = sum;
}
"""


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


def say(
    what: str, found: float, unit: str, goal: float | None = None, floor: float | None = None
) -> None:
    """One line: what was measured, and its ratio to goal and floor (above 1: better than these)."""
    line = f"{what:<72} {found:>9.4g} {unit:<4}"
    if goal is not None and floor is not None:
        ratios = [found / aim if unit == "x" else aim / found for aim in (goal, floor)]
        words = "goal" if ratios[0] >= 1 else "floor" if ratios[1] >= 1 else "MISSED"
        line += f" goal {goal:g} ({ratios[0]:.2f}), floor {floor:g} ({ratios[1]:.2f}): {words}"
    print(line, flush=True)


class Halves:
    """Factors after an opening and some iterations, for half-steps of a back-end."""

    def __init__(self, X: sp.csr_array, rank: int, iterations: int = 18) -> None:
        data = InMemoryData(X, n_threads=THREADS)
        self.backend, generator = CudaBackend(data, THREADS), np.random.default_rng(0)
        self.factors = [
            self.backend.upload(0.5 + generator.random((size, rank), dtype=np.float32), mode)
            for mode, size in enumerate(X.shape)
        ]
        self.step = Improve(np.arange(rank, dtype=np.int32), want_value=False)
        for _ in range(3):
            self.both(Multiply(relaxed=1))
        for _ in range(iterations):
            self.both(self.step)

    def fixed(self, mode: int) -> Fixed:
        return Fixed(mode, (self.factors[1 - mode],))

    def half(self, mode: int, rule: Any) -> Any:
        return self.backend.update_rows(self.factors[mode], self.fixed(mode), rule)

    def both(self, rule: Any) -> None:
        self.half(0, rule), self.half(1, rule)

    def iteration(self, repeats: int = 10) -> float:
        return milliseconds(lambda: self.both(self.step), repeats)

    def value(self, repeats: int = 7) -> float:
        return milliseconds(
            lambda: self.backend.evaluate(self.factors[1], self.fixed(1), False), repeats
        )


def passes(X: sp.csr_array, goals: dict[int, tuple[float, float]]) -> None:
    """Iterations 21 to 30 of a fit without extrapolation, and what they consist of."""
    for rank, goal in goals.items():
        began = time.perf_counter()
        halves = Halves(X, rank)
        cp.cuda.Device().synchronize()
        say(f"r = {rank}: upload, opening, 18 iterations", time.perf_counter() - began, "s")
        say(f"iteration, {X.nnz:.3g} nonzeros, r = {rank}", halves.iteration(), "ms", *goal)
        for mode, name in enumerate("WH"):
            for what, rule in (("step", halves.step), ("multiply", Multiply())):
                kept = halves.backend.copy(halves.factors[mode])
                took = milliseconds(lambda m=mode, r=rule, h=halves: h.half(m, r))
                halves.factors[mode] = kept
                say(f"r = {rank}, {name}: {what}", took, "ms")
        say(f"r = {rank}: value", halves.value(), "ms")
        halves.backend.close()


def where(X: sp.csr_array, rank: int = 50) -> None:
    """Where a half-step's time goes, and how near the gather is to what the second cache gives."""
    out, small = cp.zeros(1, dtype=np.float32), cp.ones(5_000_000, dtype=np.float32)
    read, blocks = cp.RawKernel(READ, "read"), 132 * 8
    arguments = (small, np.int32(small.size // 4), np.int32(50), out)
    l2 = 50 * small.nbytes / milliseconds(lambda: read((blocks,), (256,), arguments)) / 1e6
    large, copy = cp.ones((2, 500_000_000), dtype=np.float32)
    memory = 2 * large.nbytes / milliseconds(lambda: cp.copyto(copy, large)) / 1e6
    say("ceiling: reads of 20 MB from the second cache", l2, "GB/s")
    say("ceiling: copy in the device's memory, reads and writes", memory, "GB/s")
    halves = Halves(X, rank)
    rank_class = halves.factors[0].rank_class
    kernel = cp.RawModule(code=source() + GATHER, options=rank_class.options).get_function("gather")
    for mode, name in enumerate("WH"):
        rows, A = halves.backend.data.rows(mode), halves.factors[1 - mode].array
        ((_, tasks),), count = rows.loaded(), rows.chunks[0].n_tasks
        arguments = (cuda.NULL, np.int32(count), *tasks, A, out)
        gather = milliseconds(lambda a=arguments, c=count: kernel((c,), (32,), a))
        half_step = HalfStep(rows, halves.backend.copy(halves.factors[mode]), halves.fixed(mode))

        def sums(half_step: HalfStep = half_step) -> None:
            half_step.first_order(1.0, only_sums=True)

        def step(half_step: HalfStep = half_step) -> None:
            half_step.rows.state[:] = 0
            half_step.second_order(0.0, least=True, measured=True)

        first, sweeps = milliseconds(sums), cuda.SWEEPS
        cuda.SWEEPS = 0
        without = milliseconds(step)
        cuda.SWEEPS = sweeps
        whole = milliseconds(lambda m=mode: halves.half(m, halves.step))
        rate = X.nnz * 4 * rank_class.stride / gather / 1e6
        say(f"{name}: gather alone, {rate:.0f} GB/s, {rate / l2:.0%} of that cache", gather, "ms")
        say(f"{name}: products with x and the ratios", first - gather, "ms")
        say(f"{name}: second derivatives, and the row's epilogue", without - first, "ms")
        say(f"{name}: the small problem's sweeps", milliseconds(step) - without, "ms")
        say(f"{name}: half-step with sums over rows and columns", whole, "ms")
    halves.backend.close()


def growth(X: sp.csr_array, plots: Path | None) -> None:
    """Iterations by nonzeros (r = 50) and by components (a quarter of X)."""
    n, by_rows, by_rank = X.shape[0], [], []
    for share in (64, 16, 4, 2, 1):
        part = X[: n // share]
        halves = Halves(part, 50, 6)
        by_rows.append((part.nnz, halves.iteration(5)))
        halves.backend.close()
        say(f"growth: {part.nnz:.3g} nonzeros, r = 50", by_rows[-1][1], "ms")
    part = X[: n // 4]
    for rank in (8, 20, 40, 50, 112, 512):
        halves = Halves(part, rank, 6)
        by_rank.append((rank, halves.iteration(5)))
        halves.backend.close()
        say(f"growth: r = {rank}, {part.nnz:.3g} nonzeros", by_rank[-1][1], "ms")
    if plots is not None:
        draw_growth(by_rows, by_rank, plots / "gpu_growth.svg")


def draw_growth(
    by_rows: list[tuple[int, float]], by_rank: list[tuple[int, float]], path: Path
) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for axis, found, label in zip(
        axes, (by_rows, by_rank), ("nonzeros", "components"), strict=True
    ):
        axis.loglog(*zip(*found, strict=True), "o-")
        axis.set(xlabel=label, ylabel="milliseconds per iteration")
    figure.savefig(path)


def streamed(X: sp.csr_array, rank: int = 50) -> None:
    """An iteration with its value: X in host memory against X on the device."""
    times = []
    for limit in (None, 4 * 6 * sum(X.shape) * 56 + 1_500_000_000):
        CudaBackend.memory_limit = limit
        halves = Halves(X, rank, 3)
        chunks = len(halves.backend.data.rows(0).chunks)
        times.append(halves.iteration(4) + halves.value(4))
        say(f"iteration and value, X in {chunks} chunks", times[-1], "ms")
        halves.backend.close()
    CudaBackend.memory_limit = None
    assert chunks > 1
    say("streamed from host memory over resident, times", times[1] / times[0], "", 2.5, 4)


def huge(X: sp.csr_array, times: int = 22, rank: int = 20) -> None:
    """More than 2^31 nonzeros, columns of 1e7: the same rows many times have that many values."""
    one, many = Halves(X, rank, 0), tiled(X, times)
    expected = one.backend.evaluate(one.factors[0], one.fixed(0), True)
    W, H = (one.backend.download(factor) for factor in one.factors)
    one.backend.close()
    backend = CudaBackend(InMemoryData(many, n_threads=THREADS), THREADS)
    factors = [backend.upload(x, mode) for mode, x in enumerate((np.tile(W, (times, 1)), H))]
    fixed = Fixed(0, (factors[1],))
    found = backend.evaluate(factors[0], fixed, True)
    longest = int(np.bincount(X.indices).max()) * times
    say(f"{many.nnz:.4g} nonzeros, longest column {longest:.3g}: value over {times} x", 1.0, "")
    print(f"    {found.value:.12e} against {times * expected.value:.12e}", flush=True)
    assert abs(found.value / (times * expected.value) - 1) < 1e-12
    rule, values = Improve(np.arange(rank, dtype=np.int32)), []
    for _ in range(3):
        for mode in (0, 1):
            other = Fixed(mode, (factors[1 - mode],))
            values.append(backend.update_rows(factors[mode], other, rule).value)
    print("    half-steps end at", " ".join(f"{value:.9e}" for value in values), flush=True)
    assert values[0] <= found.value * (1 + 1e-9 * np.sign(found.value))
    took = milliseconds(
        lambda: [
            backend.update_rows(factors[mode], Fixed(mode, (factors[1 - mode],)), rule)
            for mode in (0, 1)
        ],
        3,
    )
    say(f"iteration with values, {many.nnz:.3g} nonzeros, r = {rank}", took, "ms")
    backend.close()


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
    name: str, X: Any, rank: int, goal: tuple[float, float] | None = None, **settings: Any
) -> tuple[float, KLNMF]:
    """The median of three fits, or one on the CPU, and what it found."""
    repeats = 3 if settings.get("backend") == "cuda" else 1
    fits = [timed_fit(X, rank, **settings) for _ in range(repeats)]
    seconds, model = sorted(fits, key=lambda fit: fit[0])[repeats // 2]
    in_loop = model.history_[-1]["seconds"]
    what = f"{name}: whole fit, {model.n_iter_} iterations, {in_loop:.2f} s in the loop"
    say(what, seconds, "s", *(goal or ()))
    found = f"divergence {model.divergence_:.7e}, gap {model.optimality_gap_:.2e}"
    print(f"    {found}, converged: {model.converged_}", flush=True)
    return seconds, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["passes", "fit"], choices=[*PARTS, "reuters"])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--data", type=Path, help="Reuters21578 as .npz")
    parser.add_argument("--plots", type=Path, help="folder for the figure of growth")
    args = parser.parse_args()
    parts = set(args.parts) | ({"fit"} if {"cpu", "torch"} & set(args.parts) else set())
    print("device:", cp.cuda.runtime.getDeviceProperties(0)["name"].decode(), flush=True)
    if parts - {"cells", "reuters"}:
        X = zipf_counts(args.rows, 50_000, 200.0)
        print(f"counts: {X.shape}, {X.nnz:,} nonzeros", flush=True)
    if "passes" in parts:
        passes(X, {50: (9, 12), 20: (4.5, 6.5)})
    if "where" in parts:
        where(X)
    if "growth" in parts:
        growth(X, args.plots)
    if "fit" in parts:
        timed_fit(X[:2000], 50, backend="cuda", max_iter=3)  # compiles
        here = report_fit("1e8 nonzeros, r = 50", X, 50, (3, 6), backend="cuda")
    if "cpu" in parts:
        there = report_fit("the same on the CPU", X, 50, backend="cpu", dtype=np.float32)
        target = max(model.history_[-1]["objective"] for _, model in (here, there))
        times = [seconds_to(model, seconds, target) for seconds, model in (here, there)]
        what = f"to {target:.6e}: {times[0]:.2f} s, CPU {times[1]:.2f} s"
        say(what, times[1] / times[0], "x", 40, 20)
    if "torch" in parts:
        seconds, target = by_hand(X, 50)
        say(f"torch, 200 multiplicative updates: divergence {target:.6e}", seconds, "s")
        took = seconds_to(here[1], here[0], target)
        say(f"to that, {took:.2f} s", seconds / took, "x", 200, 50)
    if "streamed" in parts:
        streamed(X)
    if "large" in parts:
        passes(tiled(X, 10), {50: (100, 140)})
    if "huge" in parts:
        huge(X)
    if "cells" in parts:
        X = zipf_counts(1_000_000, 2_000, 300.0, topics=30)
        timed_fit(X[:2000], 30, backend="cuda", max_iter=3)
        report_fit(f"a million cells, {X.nnz:.2g}, r = 30", X, 30, (10, 20), backend="cuda")
    if "reuters" in parts:
        X = sp.csr_array(sp.load_npz(args.data).astype(np.float32))
        timed_fit(X, 20, backend="cuda")
        here = report_fit("Reuters21578, r = 20", X, 20, backend="cuda")
        timed_fit(X, 20, backend="cpu")
        there = report_fit("Reuters21578, r = 20, CPU", X, 20, backend="cpu", dtype=np.float32)
        say("Reuters21578: CPU over GPU", there[0] / here[0], "x", 1, 0.5)


if __name__ == "__main__":
    main()
