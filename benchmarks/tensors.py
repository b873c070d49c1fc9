"""PoissonCP: whole calls beside pyttb, whole fits, kernels beside those of matrices, sizes, memory.

Parts, of which ``--parts`` chooses some:

- peer: the call of ``PoissonCP`` until its objective is at most that of ``pyttb.cp_apr`` after 16
  multiplicative iterations, each with its own random start, on one thread; the ratio is against
  both clocks. Tensors are in the form of each library before the clock starts.
- fits: default fits to their certificate, for several seeds.
- kernels: nanoseconds of a half-step per nonzero with three modes, over those of the same rows with
  one of the other modes alone, which is a matrix: without the value of the objective, with it, and
  mixed as in a fit, where one half-step of an iteration has it (one of three, one of two).
- growth: the same by the number of nonzeros, components and modes.
- threads: sorts, half-steps and short fits on several threads, as ratios to the first number.
- memory: peak of a fit above the process with X loaded, over what the nonzeros and factors need.

    python -m benchmarks.tensors --data DIR                        # NAME: online_retail_tensor.npz
    python -m benchmarks.tensors --parts threads --nnz 1e8 --threads 1 2 4 8 16
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks.common import add_data_argument
from benchmarks.memory import resident, settle
from klnmf import PoissonCP, RunOptions, SparseTensor
from klnmf.backends.base import Improve
from klnmf.backends.cpu import CpuBackend
from klnmf.constraints.penalties import Penalties
from klnmf.data.sparse_data import CountData, InMemoryData
from klnmf.data.tensor_data import TensorData
from klnmf.simulate import simulate_tensor
from klnmf.solvers.base import Problem

Array = npt.NDArray[Any]

PARTS = ("peer", "fits", "kernels", "growth", "threads", "memory")
RETAIL = "online_retail_tensor"
PEER_ITERATIONS = 16
# Name, and the ratio to pyttb that is wanted at least, and hoped for.
RETAIL_FLOORS, SMALL_FLOORS = (150, 300), (50, 100)
FIT_FLOORS = (2.0, 1.0)  # seconds
RANKS = (10, 20, 50)
SWEEPS_TO_WARM = 8
SHAPES = {3: (1.0, 0.8, 0.02), 4: (1.0, 0.8, 0.02, 0.01), 5: (1.0, 0.8, 0.02, 0.01, 0.005)}


# ---- data ----------------------------------------------------------------------------------------


def retail(folder: Path | None) -> SparseTensor:
    """Return customers × products × weeks."""
    if folder is None:
        raise SystemExit("Set the data folder with --data DIR or the variable KLNMF_DATA.")
    with np.load(Path(folder) / f"{RETAIL}.npz") as stored:
        return SparseTensor(stored["coords"].T, stored["vals"], stored["shape"].tolist())


def small() -> SparseTensor:
    """Return 184 × 184 × 189 with about 17,000 nonzeros, as few counts as networks have."""
    return simulate_tensor((184, 184, 189), 10, n_counts=17_300, random_state=0).X


def large(nnz: float, d: int = 3, seed: int = 0) -> SparseTensor:
    """Return about this many nonzeros, spread over modes whose sizes grow with their root."""
    side = 40 * (nnz / 1e3) ** 0.5
    shape = [max(4, int(share * side)) for share in SHAPES[d]]
    generator = np.random.default_rng(seed)
    n = int(nnz)
    coords = np.empty((d, n), dtype=np.int32)
    for places, size in zip(coords, shape, strict=True):
        # As uneven as most: a few slices have many counts.
        places[:] = np.minimum(size * generator.random(n, dtype=np.float32) ** 1.5, size - 1)
    values = generator.geometric(0.6, size=n).astype(np.float32)
    return SparseTensor(coords, values, shape)


def divergence(X: SparseTensor, factors: list[Array], weights: Array) -> float:
    """Kullback-Leibler divergence of X and its rates, in float64."""
    rates = np.broadcast_to(weights.astype(np.float64), (X.nnz, len(weights)))
    for places, factor in zip(X.coords, factors, strict=True):
        rates = rates * factor.astype(np.float64)[places]
    v = X.values.astype(np.float64)
    sums = np.prod([factor.sum(axis=0, dtype=np.float64) for factor in factors], axis=0)
    return float(np.sum(v * np.log(v / rates.sum(axis=1))) - v.sum() + weights @ sums)


# ---- whole calls ---------------------------------------------------------------------------------


def timed(action: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a call returns, and its seconds by the clock and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def peer_call(X: SparseTensor, rank: int, seed: int) -> tuple[float, float, float]:
    """Objective, seconds and processor seconds of pyttb's multiplicative updates."""
    import pyttb

    tensor = X.to_pyttb()

    def call(tensor: Any, max_iter: int = PEER_ITERATIONS) -> Any:
        return pyttb.cp_apr(tensor, rank, algorithm="mu", maxiters=max_iter, printitn=0)

    with threadpool_limits(1):
        call(large(1e3).to_pyttb(), 1)  # its first call imports and compiles
        np.random.seed(seed)  # noqa: NPY002 (pyttb draws its start from it)
        (model, _, about), wall, cpu = timed(lambda: call(tensor))
    if len(about["nInnerIters"]) != PEER_ITERATIONS:
        print(f"  pyttb stopped after {len(about['nInnerIters'])} iterations")
    return divergence(X, model.factor_matrices, model.weights), wall, cpu


def call_to(X: SparseTensor, rank: int, seed: int, level: float) -> tuple[PoissonCP, float, float]:
    """Fit with all defaults, on one thread, until the objective is at most ``level``."""

    def callback(record: dict[str, Any]) -> bool:
        return bool(record["objective"] <= level)

    run = RunOptions(callback=callback)
    model = PoissonCP(rank, random_state=seed, n_threads=1, run=run)
    return timed(lambda: model.fit(X))


def compare_with_peer(
    X: SparseTensor, rank: int, floors: tuple[int, int], seeds: int, repeats: int = 1
) -> None:
    """Print how many times as long pyttb takes to where it is after 16 iterations.

    Of ``repeats`` calls, of pyttb and of each seed, the least times count: they do the same.
    """
    calls = [peer_call(X, rank, seed=0) for _ in range(repeats)]
    level, wall, cpu = map(min, zip(*calls, strict=True))
    print(f"  {X!r}, r = {rank}")
    print(
        f"  pyttb, {PEER_ITERATIONS} iterations: {wall:.2f} s (processor {cpu:.2f}), KL {level:.6g}"
    )
    ratios = []
    for seed in range(seeds):
        calls_of_seed = [call_to(X, rank, seed, level) for _ in range(repeats)]
        model = calls_of_seed[0][0]
        own, own_cpu = (min(times) for times in list(zip(*calls_of_seed, strict=True))[1:])
        lowest = model.history_[-1]["objective"]
        reached = "" if lowest <= level else f"  NOT REACHED: {lowest:.6g}"
        ratios.append((wall / own, cpu / own_cpu))
        print(
            f"    seed {seed}: {1e3 * own:7.1f} ms (processor {1e3 * own_cpu:7.1f}), "
            f"{model.n_iter_:2d} iterations: {wall / own:5.0f} x, processor {cpu / own_cpu:5.0f} x"
            f"{reached}"
        )
    wall_ratio, cpu_ratio = np.median(ratios, axis=0)
    print(f"  median {wall_ratio:.0f} x, processor {cpu_ratio:.0f} x; ", end="")
    print(f"floor {floors[0]}, goal {floors[1]}")


def peers(args: argparse.Namespace) -> None:
    """Print both comparisons with pyttb."""
    compare_with_peer(small(), args.rank, SMALL_FLOORS, args.seeds, repeats=3)
    if not args.only_small:
        compare_with_peer(retail(args.data), args.rank, RETAIL_FLOORS, args.seeds, repeats=2)


def default_fits(X: SparseTensor, rank: int, seeds: int) -> None:
    """Print what fits with all defaults take, on one thread."""
    seconds, ends = [], []
    for seed in range(seeds):
        model = PoissonCP(rank, random_state=seed, n_threads=1)
        _, wall, cpu = timed(lambda model=model: model.fit(X))
        seconds.append((wall, cpu))
        ends.append(model.divergence_)
        print(
            f"    seed {seed}: {wall:.3f} s (processor {cpu:.3f}), {model.n_iter_} iterations, "
            f"KL {model.divergence_:.6g}, gap {model.optimality_gap_:.1e}"
            f"{'' if model.converged_ else ', NOT CONVERGED'}"
        )
    wall, cpu = np.median(seconds, axis=0)
    print(
        f"  median {wall:.2f} s (processor {cpu:.2f}); floor {FIT_FLOORS[0]}, goal {FIT_FLOORS[1]}"
    )
    print(f"  ends within {100 * (max(ends) / min(ends) - 1):.2f} % of the lowest")


# ---- kernels -------------------------------------------------------------------------------------


class WarmRows:
    """The rows of one mode, some sweeps after a start, with the other factors fixed."""

    def __init__(self, data: CountData, mode: int, factors: list[Array]) -> None:
        none = (0.0,) * len(factors)
        self.problem = Problem(CpuBackend(data, 1), Penalties(none, none))
        self.mode, self.factors = mode, [np.array(x, np.float32, order="C") for x in factors]
        order = np.random.default_rng(0).permutation(factors[0].shape[1]).astype(np.int32)
        self.rule = Improve(order, passes=2, want_value=False)
        for _ in range(SWEEPS_TO_WARM):
            self.problem.update(mode, self.factors, self.rule)
        self.warm = self.factors[mode].copy()
        self.least = {False: np.inf, True: np.inf}  # without a value of the objective, and with

    def measure(self) -> None:
        """Do the half-step once more, and keep the least processor time."""
        for want_value in self.least:
            np.copyto(self.factors[self.mode], self.warm)
            rule = replace(self.rule, want_value=want_value)
            started = time.process_time()
            self.problem.update(self.mode, self.factors, rule)
            seconds = time.process_time() - started
            self.least[want_value] = min(self.least[want_value], seconds)


def as_matrix(X: SparseTensor, mode: int, other: int) -> InMemoryData:
    """Return the rows of a mode with one index for each nonzero; columns may repeat in a row."""
    view = TensorData(X).view(mode)
    others = [m for m in range(X.ndim) if m != mode]
    place = others.index(other)
    indices = view.indices[place] - sum(X.shape[m] for m in others[:place])
    shape = (X.shape[mode], X.shape[other])
    return InMemoryData(sp.csr_array((view.values, indices, view.indptr), shape=shape))


def kernels(X: SparseTensor, ranks: tuple[int, ...], repeats: int) -> None:
    """Print nanoseconds per nonzero of half-steps with three modes, and with two of them."""
    print(f"  {X!r}: ns per nonzero, mean over the modes, of the tensor over matrices")
    for rank in ranks:
        factors = warm_factors(X, rank)
        tensor, matrices = [], []
        data = TensorData(X)
        for mode in range(X.ndim):
            tensor.append(WarmRows(data, mode, factors))
            for other in range(X.ndim):
                if other != mode:
                    pair = [factors[mode], factors[other]]
                    matrices.append(WarmRows(as_matrix(X, mode, other), 0, pair))
        for _ in range(repeats):
            for case in (*tensor, *matrices):
                case.measure()
        print(f"    r = {rank}: {', '.join(_ratios(tensor, matrices, X))}", flush=True)


def _ratios(tensor: list[WarmRows], matrices: list[WarmRows], X: SparseTensor) -> list[str]:
    """Return costs without and with the value, and of the mix in a fit: it wants one in all."""
    parts = []
    for name, shares in (
        ("steps", (0.0, 0.0)),
        ("with value", (1.0, 1.0)),
        ("fit", (1 / 3, 1 / 2)),
    ):
        costs = [
            1e9 / X.nnz * np.mean([(1 - s) * c.least[False] + s * c.least[True] for c in cases])
            for s, cases in zip(shares, (tensor, matrices), strict=True)
        ]
        parts.append(f"{name} {costs[0]:.2f} over {costs[1]:.2f} = {costs[0] / costs[1]:.2f}")
    return parts


def warm_factors(X: SparseTensor, rank: int) -> list[Array]:
    """Return the factors of a fit after a few iterations, each with a share of the scale."""
    model = PoissonCP(rank, random_state=0, max_iter=6, tol=0.0, n_threads=1).fit(X)
    share = model.weights_ ** (1 / X.ndim)
    return [(factor * share).astype(np.float32) for factor in model.factors_]


# ---- sizes, threads and memory -------------------------------------------------------------------


def some_iterations(X: SparseTensor, rank: int, n_threads: int, iterations: int = 6) -> PoissonCP:
    """Return a fit after a few iterations."""
    settings = {"n_threads": n_threads, "init": "random", "random_state": 0, "tol": 0.0}
    return PoissonCP(rank, max_iter=iterations, **settings).fit(X)


def per_half_step(model: PoissonCP, X: SparseTensor) -> float:
    """Nanoseconds per nonzero of a half-step in a fit; the first iteration is left out."""
    seconds = np.diff([record["seconds"] for record in model.history_])
    return float(1e9 * seconds.min() / (X.nnz * X.ndim))


def growth(most: float, plot: Path | None) -> None:
    """Print the time of a half-step by nonzeros, components and modes, and draw it."""
    print("  ns per nonzero of a half-step in a fit, one thread, float32")

    def cost(X: SparseTensor, rank: int) -> float:
        return per_half_step(some_iterations(X, rank, 1), X)

    X = large(1e6)
    sizes = [size for size in (1e5, 1e6, 1e7, 1e8) if size <= most]
    costs = {
        "nonzeros (d = 3, r = 10)": {size: cost(large(size), 10) for size in sizes},
        "r (d = 3, 1e6 nonzeros)": {rank: cost(X, rank) for rank in (5, 10, 20, 50, 100)},
        "d (r = 10, 1e6 nonzeros)": {d: cost(large(1e6, d), 10) for d in SHAPES},
    }
    for by, found in costs.items():
        print(f"    by {by}:", ", ".join(f"{at:g}: {value:.1f}" for at, value in found.items()))
    if plot is not None:
        draw(costs, plot)


def draw(costs: dict[str, dict[Any, float]], path: Path) -> None:
    """Draw the times of half-steps, one panel for each of what they grow with."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6), layout="constrained")
    for panel, (by, found) in zip(figure.subplots(1, 3), costs.items(), strict=True):
        panel.plot(list(found), list(found.values()), "o-")
        panel.set(xlabel=by, ylabel="ns per nonzero", ylim=(0, 1.1 * max(found.values())))
        if by.startswith("nonzeros"):
            panel.set_xscale("log")
    figure.savefig(path)


def threads(nnz: float, numbers: list[int], rank: int) -> None:
    """Print the speed-up by threads: of sorting, half-steps, the end of a fit and whole calls."""
    X, wall, _ = timed(lambda: large(nnz))
    print(
        f"  {X!r}, r = {rank}, drawn in {wall:.0f} s; seconds, and times as fast as the first row"
    )
    first: dict[str, float] = {}
    for number in numbers:
        modes = range(X.ndim)
        data = TensorData(X, n_threads=number)
        _, sorting, _ = timed(lambda data=data, modes=modes: [data.view(mode) for mode in modes])
        del data
        call = partial(some_iterations, X, rank, number)
        model, whole, _ = timed(call)
        half_step = 1e-9 * X.nnz * per_half_step(model, X)
        rest = whole - sorting - model.history_[-1]["seconds"]
        seconds = {"sorts": sorting, "half-step": half_step, "other": rest, "call": whole}
        first = first or seconds
        parts = [f"{name} {s:.3f} ({first[name] / s:.1f} x)" for name, s in seconds.items()]
        print(f"    {number:2d} threads: {', '.join(parts)}", flush=True)
    print(f"  peak of the process {resident('VmHWM') / 2**30:.1f} GiB")


def memory(nnz: float, rank: int = 10) -> None:
    """Print the peak of a fit above the process with X loaded, over what it needs."""
    PoissonCP(2, random_state=0, max_iter=3, tol=0.0).fit(large(1e4))
    for d in (3, 4):
        X = large(nnz, d)
        before = settle()
        PoissonCP(rank, random_state=0, max_iter=8, tol=0.0, n_threads=1).fit(X)
        peak = resident("VmHWM") - before
        # An index for each other mode and a value, by the rows of every mode; factors, their
        # extrapolations and predecessors, and the stacked copy.
        views = d * X.nnz * (4 * (d - 1) + X.values.itemsize)
        factors = 4 * sum(X.shape) * rank * X.values.itemsize
        print(
            f"    d = {d}, {X.nnz:,} nonzeros, r = {rank}: {peak / 2**20:.0f} MiB, needed "
            f"{(views + factors) / 2**20:.0f} MiB, ratio {peak / (views + factors):.2f}"
        )


# ---- the script ----------------------------------------------------------------------------------


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_argument(parser)
    parser.add_argument("--only-small", action="store_true", help="the small tensor (peer)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("-r", "--rank", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=21, help="of a half-step (kernels)")
    parser.add_argument("--nnz", type=float, default=1e6, help="for threads and memory")
    parser.add_argument("--most", type=float, default=1e7, help="nonzeros, for growth")
    parser.add_argument("--plot", type=Path, help="draw the growth into this file")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    actions: dict[str, Callable[[], None]] = {
        "peer": lambda: peers(args),
        "fits": lambda: default_fits(retail(args.data), args.rank, args.seeds),
        "kernels": lambda: kernels(retail(args.data), RANKS, args.repeats),
        "growth": lambda: growth(args.most, args.plot),
        "threads": lambda: threads(args.nnz, args.threads, args.rank),
        "memory": lambda: memory(args.nnz, args.rank),
    }
    for part in args.parts:
        print(f"{part} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors)", flush=True)
        actions[part]()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
