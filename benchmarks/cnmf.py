"""Programs of cells compared with the package cnmf, step by step.

    python -m venv cnmf-venv && cnmf-venv/bin/pip install cnmf
    python -m benchmarks.cnmf --cnmf-python cnmf-venv/bin/python --sets simulated
    python -m benchmarks.cnmf --cnmf-python cnmf-venv/bin/python --data DIR   # and PBMC3k

DIR has pbmc3k.npz, pbmc3k.vocab.txt and pbmc3k.labels.txt. cnmf runs in processes of its own, with
its own interpreter; everything is on one thread, and seconds are those of the processor.

cnmf chooses genes of high variance, divides each by its standard deviation, fits them from many
starts with scikit-learn, takes the medians of clusters of programs, and refits the usages to TPM.
Its loss is Frobenius by default, and Kullback-Leibler if asked. klnmf gets the same counts and the
same number of starts, first with cnmf's genes and scale (``mask_var``, ``scale_genes``), and then
without the one, without the other, and without both.

For each way, the table shows the adjusted Rand index of the types and the main program (the largest
usage, or share) of each cell; for PBMC3k also with all T cells as one type, which cnmf's genes tell
apart least. "Scaled" is the same with shares of counts that are divided by the deviations, which is
what cnmf's usages are. "One fit" is the mean over the first three seeds of `klnmf.tl.nmf`. Programs
are compared with those of cnmf with the same loss as klnmf, as distributions over the scaled
genes: correlations after matching, median and smallest.

At last, runs of klnmf are timed to the divergence at which half of cnmf's runs end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from benchmarks.common import add_data_argument, load_matrix
from klnmf import KLNMF, RunOptions, tl
from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.objective import Penalties, kl_divergence
from klnmf.simulate import simulate_counts
from klnmf.solvers.base import Problem
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.start import start_state
from klnmf.tl.fit_data import inverse_deviations

SETS = ("simulated", "pbmc3k")
LOSSES = ("frobenius", "kullback-leibler")
T_CELLS = ("Naive CD4 T", "Memory CD4 T", "CD8 T")


@dataclass
class Cells:
    """Raw counts, and the types of the cells, fine and coarse; "NA" is not typed."""

    name: str
    counts: ad.AnnData
    types: np.ndarray
    coarse: np.ndarray


def simulated_cells(rank: int) -> Cells:
    """500 cells with few programs each, and depths that vary as in an experiment."""
    depths = np.random.default_rng(0).lognormal(np.log(2000), 0.4, size=500)
    drawn = simulate_counts(
        500, 1500, rank, counts_per_sample=depths, concentration_W=0.2, random_state=0
    )
    types = drawn.W.argmax(axis=1).astype(str)
    return Cells(f"simulated, {rank} planted programs", _anndata(drawn.X), types, types)


def blood_cells(folder: Path | None) -> Cells:
    """PBMC3k."""
    X = load_matrix(folder, "pbmc3k")  # says what to do where there is no folder
    types = (Path(str(folder)) / "pbmc3k.labels.txt").read_text(encoding="utf-8").splitlines()
    coarse = ["T" if name in T_CELLS else name for name in types]
    return Cells("PBMC3k", _anndata(X), np.array(types), np.array(coarse))


def _anndata(X: Any) -> ad.AnnData:
    counts = ad.AnnData(sp.csr_matrix(X, dtype=np.float64))
    counts.var_names = [f"g{j}" for j in range(X.shape[1])]
    counts.obs_names = [f"cell {i}" for i in range(X.shape[0])]
    return counts[:, np.asarray((X > 0).sum(axis=0)).ravel() > 0].copy()


def with_cnmf(cells: Cells, loss: str, args: argparse.Namespace) -> dict[str, Any]:
    """Results of cnmf_worker.py."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        counts, out = Path(folder) / "counts.h5ad", Path(folder) / "out.npz"
        cells.counts.write_h5ad(counts)
        numbers = (args.rank, args.runs, args.genes, loss, args.threshold, args.seed)
        worker = Path(__file__).with_name("cnmf_worker.py")
        words = [args.cnmf_python, "-I", worker, counts, out, *numbers]  # -I: not this cnmf.py
        subprocess.run([str(word) for word in words], check=True, env={**os.environ, **one_thread})
        with np.load(out) as found:
            return dict(found)


class Judge:
    """Compares shares with the types of the cells, and programs with those of cnmf."""

    def __init__(self, cells: Cells, theirs: dict[str, Any]) -> None:
        self.cells, self.theirs = cells, theirs
        self.typed = cells.types != "NA"
        self.scale = inverse_deviations(sp.csr_array(cells.counts.X))
        self.places = cells.counts.var_names.get_indexer(theirs["genes"])

    def rand(self, shares: np.ndarray) -> np.ndarray:
        """Adjusted Rand index with the types, and with the coarse ones."""
        main = shares.argmax(axis=1)[self.typed]
        types, coarse = self.cells.types[self.typed], self.cells.coarse[self.typed]
        return np.array([adjusted_rand_score(types, main), adjusted_rand_score(coarse, main)])

    def scaled(self, adata: ad.AnnData, key: str) -> np.ndarray:
        """W times the sums of the components over scaled genes."""
        return np.asarray(adata.obsm[f"X_{key}"] * (adata.varm[key].T @ self.scale))

    def agreement(self, programs: np.ndarray) -> str:
        """Correlations with cnmf's programs on its genes: median, smallest, and how many > 0.9."""
        a, b = (x / x.sum(axis=1, keepdims=True) for x in (programs, self.theirs["programs"]))
        all_pairs = np.corrcoef(a, b)[: len(a), len(a) :]
        pairs = all_pairs[linear_sum_assignment(-all_pairs)]
        return f"{np.median(pairs):.3f} {pairs.min():.3f} {(pairs > 0.9).sum():>2}"

    def our_agreement(self, adata: ad.AnnData, key: str) -> str:
        """The same for a fit in an AnnData."""
        return self.agreement((adata.varm[key].T * self.scale)[:, self.places])


def two(indices: np.ndarray) -> str:
    """Return two numbers as text."""
    return f"{indices[0]:.3f} {indices[1]:.3f}"


def our_line(label: str, judge: Judge, args: argparse.Namespace, **options: Any) -> str:
    """One way of klnmf: consensus, and single fits."""
    adata = judge.cells.counts.copy()
    started = time.process_time()
    tl.consensus(
        adata,
        args.rank,
        args.runs,
        n_null_runs=0,
        density_threshold=args.threshold,
        random_state=args.seed,
        n_jobs=1,
        run=RunOptions(progress=False),
        **options,
    )
    seconds = time.process_time() - started
    singles, singles_scaled, started = [], [], time.process_time()
    for seed in range(3):
        tl.nmf(adata, args.rank, random_state=seed, n_threads=1, **options)
        singles.append(judge.rand(adata.obsm["X_nmf_shares"]))
        singles_scaled.append(judge.rand(judge.scaled(adata, "nmf")))
    a_fit = (time.process_time() - started) / 3
    key = "nmf_consensus"
    indices = (
        judge.rand(adata.obsm[f"X_{key}_shares"]),
        judge.rand(judge.scaled(adata, key)),
        np.mean(singles, axis=0),
        np.mean(singles_scaled, axis=0),
    )
    return (
        f"  {label:<36} {'   '.join(map(two, indices))}   "
        f"{judge.our_agreement(adata, key)} {seconds / args.runs:9.2f} {seconds:7.1f} {a_fit:8.2f}"
    )


def seconds_to(target: float, X: sp.csr_array, dtype: Any, args: argparse.Namespace) -> list[float]:
    """Processor time of each run until this divergence; NaN for runs that end above it."""
    problem = Problem(
        make_backend("auto", InMemoryData(check_counts(X, dtype=dtype)), 1), Penalties()
    )
    problem.backend.data.prepare()
    seconds = []
    for seed in range(args.timed_runs):
        started = time.process_time()
        solver = SparseCoordinateDescent()
        state = start_state(problem, args.rank, "samples", seed)
        solver.prepare(problem, state)
        spent = float("nan")
        for _ in range(100):
            solver.iterate(problem, state)
            state.iteration += 1
            if state.objective <= target:
                spent = time.process_time() - started
                # Not by what single precision makes of it.
                if kl_divergence(X, state.factors[0], state.factors[1].T) <= target:
                    break
                spent = float("nan")
        seconds.append(spent)
    return seconds


def time_to_their_end(judge: Judge, theirs: dict[str, Any], args: argparse.Namespace) -> None:
    """Print how long runs of klnmf take to where half of cnmf's runs end."""
    X = sp.csr_array(judge.cells.counts.X)[:, judge.places]
    X = sp.csr_array(X @ sp.diags_array(judge.scale[judge.places]))

    def divergence(programs: np.ndarray) -> float:
        holder = KLNMF.from_components(programs, n_threads=1)
        return float(kl_divergence(X, holder.transform(X), holder.components_))

    ends = [divergence(programs) for programs in theirs["runs"][: args.judged_runs]]
    a_run = float(theirs["run_seconds"]) / args.runs
    for dtype in (np.float64, np.float32):
        seconds = seconds_to(float(np.median(ends)), X, dtype, args)
        spent = float(np.nanmedian(seconds))
        print(
            f"  one run to the same divergence in {dtype.__name__}: {spent:.3f} s, cnmf "
            f"{a_run:.2f} s: {a_run / spent:.0f} x ({np.isfinite(seconds).sum()} of {len(seconds)} "
            "get there)"
        )


def compare(cells: Cells, args: argparse.Namespace) -> None:
    """Print the table of one set of cells."""
    theirs = {loss: with_cnmf(cells, loss, args) for loss in LOSSES}
    judge = Judge(cells, theirs["kullback-leibler"])
    (n, m), r = cells.counts.shape, args.rank
    print(f"\n{cells.name}: {n:,} cells x {m:,} genes, r = {r}, {args.runs} runs")
    print(
        f"  {'adjusted Rand index: types, coarse':<36} {'consensus':<13} {'scaled':<13} "
        f"{'one fit':<13} {'scaled':<13} programs as cnmf    s/run   s all  s a fit"
    )
    for loss, found in theirs.items():
        seconds, rest = float(found["run_seconds"]), float(found["consensus_seconds"])
        programs, a_run = judge.agreement(found["programs"]), seconds / args.runs
        for label, usages in (("", "usages"), (", without last refit", "medians")):
            text = f"cnmf, {'KL' if loss in LOSSES[1:] else loss}{label}"
            print(
                f"  {text:<36} {'':<13} {two(judge.rand(found[usages]))}   {'':<29} {programs} "
                f"{a_run:9.2f} {seconds + rest:7.1f}"
            )
    mask = np.isin(cells.counts.var_names, judge.theirs["genes"])
    for label, options in (
        ("klnmf, same genes, scaled", {"mask_var": mask, "scale_genes": True}),
        ("klnmf, same genes", {"mask_var": mask}),
        ("klnmf, all genes, scaled", {"scale_genes": True}),
        ("klnmf, all genes", {}),
    ):
        print(our_line(label, judge, args, **options), flush=True)
    time_to_their_end(judge, theirs["kullback-leibler"], args)


def main() -> None:
    """Compare on every set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_data_argument(parser)
    add = parser.add_argument
    add("--cnmf-python", default=sys.executable, help="interpreter that has the package cnmf")
    add("--sets", nargs="+", default=SETS, choices=SETS)
    add("--rank", "-r", type=int, default=10)
    add("--genes", type=int, default=2000, help="genes of high variance")
    add("--runs", type=int, default=20, help="starts, of both")
    add("--timed-runs", type=int, default=15, help="of ours, to cnmf's divergence")
    add("--judged-runs", type=int, default=9, help="runs of cnmf whose divergence is computed")
    add("--threshold", type=float, default=0.5, help="for outliers")
    add("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.runs < 4:
        parser.error("cnmf looks at neighbours among 30 % of its runs: --runs must be 4 or more")
    warnings.simplefilter("ignore")
    for name in args.sets:
        compare(simulated_cells(args.rank) if name == "simulated" else blood_cells(args.data), args)


if __name__ == "__main__":
    main()
