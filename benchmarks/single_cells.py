"""Single-cell programs compared with the package cnmf, on the same genes and scale.

    pip install cnmf anndata
    python -m benchmarks.single_cells --sets simulated
    python -m benchmarks.single_cells --data DIR     # and PBMC3k (pbmc3k.npz, pbmc3k.vocab.txt)

cnmf prepares the data (genes of high variance, each scaled to unit variance), runs scikit-learn's
multiplicative updates for the KL divergence from many starts, and takes the median of each cluster
of programs. klnmf gets the matrix that cnmf factorises. It keeps the fit of lowest divergence from
a few starts, and `klnmf.model_selection.consensus` uses as many runs as cnmf. Programs (weights of
genes that sum to 1) are matched so that the sum of their correlations is largest.

The script prints the correlations of matched programs with cnmf's consensus, for each outlier
threshold, and with cnmf's run of lowest divergence. For simulated cells it also prints those with
the true programs. Times are seconds of processor time on one thread. "To the same objective" is the
time of one of our runs, as in `consensus`, until it is below the median final divergence of cnmf's
runs, in float64 (as cnmf) and in float32 (the default of `consensus`). Both are evaluated in
float64 on cnmf's matrix. For reference, the script prints how well cnmf's runs agree with each
other, and the silhouette of all programs without a threshold, by which users of cnmf choose the
rank. The divergence of a consensus is infinite if the medians leave a gene without any program.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from benchmarks.common import add_data_argument, load_matrix
from klnmf import KLNMF, RunOptions
from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.model_selection import Consensus, consensus
from klnmf.objective import Penalties, kl_divergence
from klnmf.simulate import simulate_counts
from klnmf.solvers.base import Problem
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.start import start_state

SETS = ("simulated", "pbmc3k")


@dataclass
class Cells:
    """Raw counts, and the true programs of simulated cells."""

    name: str
    counts: ad.AnnData
    planted: pd.DataFrame | None = None


@dataclass
class Theirs:
    """Results of cnmf."""

    normalised: ad.AnnData  # what it factorised
    runs: list[pd.DataFrame]
    consensus: dict[float, pd.DataFrame]  # for each threshold
    silhouette: float
    run_seconds: float
    consensus_seconds: float


def simulated_cells(rank: int) -> Cells:
    """500 cells with few programs each, and depths that vary as in an experiment."""
    depths = np.random.default_rng(0).lognormal(np.log(2000), 0.4, size=500)
    drawn = simulate_counts(
        500, 1500, rank, counts_per_sample=depths, concentration_W=0.2, random_state=0
    )
    counts = _anndata(drawn.X, [f"g{j}" for j in range(1500)])
    planted = pd.DataFrame(drawn.H.T, columns=[f"g{j}" for j in range(1500)])
    return Cells(f"simulated, {rank} planted programs", counts, planted)


def blood_cells(folder: Path | None) -> Cells:
    """PBMC3k."""
    X = load_matrix(folder, "pbmc3k")  # says what to do where there is no folder
    genes = (Path(str(folder)) / "pbmc3k.vocab.txt").read_text(encoding="utf-8").splitlines()
    return Cells("PBMC3k", _anndata(X, genes))


def _anndata(X: Any, genes: list[str]) -> ad.AnnData:
    counts = ad.AnnData(sp.csr_matrix(X, dtype=np.float64))
    counts.var_names, counts.obs_names = genes, [f"cell {i}" for i in range(X.shape[0])]
    return counts[:, np.asarray((X > 0).sum(axis=0)).ravel() > 0].copy()


def factorise_with_cnmf(cells: Cells, args: argparse.Namespace) -> Theirs:
    """Prepare, factorise, combine and take the consensus."""
    from cnmf import cNMF, load_df_from_npz

    rank, starts = args.rank, args.starts
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "counts.h5ad"
        cells.counts.write_h5ad(path)
        run = cNMF(output_dir=folder, name="run")
        run.prepare(
            str(path),
            components=[rank],
            n_iter=starts,
            seed=args.seed,
            beta_loss="kullback-leibler",
            num_highvar_genes=args.genes,
        )
        started = time.process_time()
        run.factorize()
        run_seconds = time.process_time() - started
        run.combine()
        started = time.process_time()
        for threshold in args.thresholds:
            run.consensus(rank, density_threshold=threshold, show_clustering=False, build_ref=False)
        consensus_seconds = (time.process_time() - started) / len(args.thresholds)
        stats = run.consensus(rank, skip_density_and_return_after_stats=True)
        paths = {
            threshold: run.paths["consensus_spectra"] % (rank, str(threshold).replace(".", "_"))
            for threshold in args.thresholds
        }
        return Theirs(
            ad.read_h5ad(run.paths["normalized_counts"]),
            [load_df_from_npz(run.paths["iter_spectra"] % (rank, i)) for i in range(starts)],
            {threshold: load_df_from_npz(path) for threshold, path in paths.items()},
            float(stats.loc["silhouette", "stats"]),
            run_seconds,
            consensus_seconds,
        )


def agreed_programs(
    X: sp.csr_array, args: argparse.Namespace
) -> tuple[dict[float, Consensus], Consensus, float]:
    """Our consensus for each threshold and without one, and the seconds of the first."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        started, seconds = time.process_time(), 0.0
        for threshold in (*args.thresholds, 2.0):
            found[threshold] = consensus(
                X,
                args.rank,
                args.starts,
                density_threshold=threshold,
                random_state=args.seed,
                n_jobs=1,
                progress=False,
                checkpoint=Path(folder) / "runs",
            )
            seconds = seconds or time.process_time() - started
    return found, found[2.0], seconds


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
                exact = kl_divergence(X, *(factor.astype(np.float64) for factor in state.factors))
                if exact <= target:
                    break
                spent = float("nan")
        seconds.append(spent)
    return seconds


def matched(ours: pd.DataFrame, theirs: pd.DataFrame) -> np.ndarray:
    """Correlations of the matched programs, largest first."""
    a, b = (
        frame.to_numpy() / frame.to_numpy().sum(axis=1, keepdims=True) for frame in (ours, theirs)
    )
    correlations = np.corrcoef(a, b)[: len(a), len(a) :]
    return np.sort(correlations[linear_sum_assignment(-correlations)])[::-1]


def line(label: str, correlations: np.ndarray) -> str:
    """All correlations and their median."""
    numbers = " ".join(f"{value:.3f}" for value in correlations)
    return f"  {label:<44} median {np.median(correlations):.3f}: {numbers}"


def compare(cells: Cells, args: argparse.Namespace) -> None:
    """Print a block for one set of cells."""
    theirs = factorise_with_cnmf(cells, args)
    X, genes = sp.csr_array(theirs.normalised.X), theirs.normalised.var_names
    fits = []
    started = time.process_time()
    for seed in range(args.our_starts):
        run = RunOptions(progress=False)
        model = KLNMF(args.rank, random_state=seed, n_threads=1, run=run)
        fits.append((model, model.fit_transform(X)))
    seconds = time.process_time() - started
    agreed, without_threshold, agreed_seconds = agreed_programs(X, args)
    first = args.thresholds[0]
    our_consensus = pd.DataFrame(agreed[first].components, columns=genes)
    their_consensus = theirs.consensus[first]
    model, _ = min(fits, key=lambda fit: fit[0].divergence_)
    ours = pd.DataFrame(model.components_, columns=genes)

    def divergence(programs: pd.DataFrame) -> float:
        """Divergence of the data from these programs, with their use in each cell from klnmf."""
        holder = KLNMF.from_components(programs.to_numpy(), n_threads=1)
        return float(kl_divergence(X, holder.transform(X), holder.components_.T))

    best = min(theirs.runs, key=divergence)
    print(f"\n{cells.name}: {X.shape[0]:,} cells x {X.shape[1]:,} genes, r = {args.rank}")
    print(
        f"  cnmf: {theirs.run_seconds / args.starts:.2f} s per run ({args.starts} runs "
        f"{theirs.run_seconds:.1f} s, consensus {theirs.consensus_seconds:.1f} s); klnmf: "
        f"{seconds / args.our_starts:.2f} s a fit ({args.our_starts} fits {seconds:.1f} s)"
    )
    lowest = model.divergence_
    divergences = [divergence(programs) for programs in theirs.runs]
    runs = [100 * (value / lowest - 1) for value in divergences]
    their_end = float(np.median(divergences))
    a_run = theirs.run_seconds / args.starts
    print(
        f"  our consensus of {args.starts} runs: {agreed_seconds:.2f} s, "
        f"{agreed_seconds / args.starts:.3f} s per run; silhouette without threshold "
        f"{np.mean(without_threshold.silhouette):.2f}, cnmf's {theirs.silhouette:.2f}"
    )
    for dtype in (np.float64, np.float32):
        seconds_of_runs = seconds_to(their_end, X, dtype, args)
        spent = float(np.nanmedian(seconds_of_runs))
        print(
            f"  one run to the same objective in {dtype.__name__}: {spent:.4f} s, cnmf "
            f"{a_run:.2f} s: {a_run / spent:.0f} x ({np.isfinite(seconds_of_runs).sum()} of "
            f"{args.timed_runs} runs get there)"
        )
    print(
        f"  divergence above our lowest ({lowest:,.0f}): our fits "
        f"{', '.join(f'{100 * (fit.divergence_ / lowest - 1):.2f} %' for fit, _ in fits)}; cnmf's "
        f"runs {min(runs):.2f} to {max(runs):.2f} %, its consensus "
        f"{100 * (divergence(their_consensus) / lowest - 1):.2f} %"
    )
    for threshold, result in agreed.items():
        if threshold in theirs.consensus:
            frame = pd.DataFrame(result.components, columns=genes)
            label = f"our consensus with cnmf's, threshold {threshold:g}"
            print(line(label, matched(frame, theirs.consensus[threshold])))
    print(line("our lowest fit with cnmf's consensus", matched(ours, their_consensus)))
    print(line("ours with cnmf's run of lowest divergence", matched(ours, best)))
    print(line("cnmf's lowest run with its own consensus", matched(best, their_consensus)))
    others = [float(np.median(matched(theirs.runs[0], programs))) for programs in theirs.runs[1:]]
    if others:
        print(f"  cnmf's runs with its first one: medians {min(others):.3f} to {max(others):.3f}")
    if cells.planted is not None:
        scale = cells.counts[:, genes].X.toarray().std(axis=0, ddof=1)
        planted = cells.planted[genes] / scale  # as cnmf scales the counts
        print(line("our lowest fit with the planted programs", matched(ours, planted)))
        print(line("our consensus with the planted programs", matched(our_consensus, planted)))
        print(line("cnmf's consensus with the planted programs", matched(their_consensus, planted)))


def main() -> None:
    """Compare on every set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_data_argument(parser)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--rank", "-r", type=int, default=10)
    parser.add_argument("--genes", type=int, default=2000, help="genes of high variance")
    parser.add_argument("--starts", type=int, default=20, help="runs of cnmf")
    parser.add_argument("--our-starts", type=int, default=3)
    parser.add_argument("--timed-runs", type=int, default=15, help="of ours, to cnmf's objective")
    parser.add_argument(
        "--thresholds", type=float, nargs="+", default=[0.5, 0.7], help="for outliers (0.5, 0.7)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of cnmf's starts")
    args = parser.parse_args()
    if args.starts < 4:
        parser.error("cnmf looks at neighbours among 30 % of its runs: --starts must be 4 or more")
    warnings.simplefilter("ignore")  # cnmf's, on iteration limits and on pandas
    with threadpool_limits(1):
        for name in args.sets:
            compare(
                simulated_cells(args.rank) if name == "simulated" else blood_cells(args.data), args
            )


if __name__ == "__main__":
    main()
