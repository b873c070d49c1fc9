"""Learn H from one batch of samples after the other; W is solved for and need not be kept.

For each feature j the memory holds how often it occurs (``totals``) and how these counts are shared
among the components (``shares``, rows that sum to 1), so that H_jk ∝ totals_j · shares_jk. A batch
says for each of *its* features how its counts are best shared there; the memory moves towards that,
by a step that shrinks with the number of batches the feature was seen in. So each feature has its
step, and no batch touches features that are not in it. See docs/maths/batches.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.backends.base import Fixed, Improve
from klnmf.constraints.penalties import Penalties
from klnmf.data.sparse_data import InMemoryData, InMemoryView
from klnmf.solvers.base import Problem
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.solvers.loop import MaxIterations, Run
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.solvers.start import start_state
from klnmf.support.array_types import Array

# Step of a feature seen in v batches: (v + 1) ** −STEP_DECAY. Measured on text, 0.6 to 0.9 are
# about as good.
STEP_DECAY = 0.7
# Shares below this part of the feature's largest are set to 0. The descent brings them back where a
# batch asks for them.
LEAST_SHARE = 1e-3
# A component with less than this part of an even share of all counts is dead.
DEAD_MASS = 1e-6
# How far W is solved for before H moves, and iterations on the samples that H starts from.
TOLERANCE = 0.05
START_ITERATIONS = 20


@dataclass(frozen=True)
class BatchProblem(Problem):
    """A batch without the features that do not occur in it; H has columns that sum to 1 over all.

    So the slope of W's row problems is 1 for every component, whatever part of H the batch sees.
    """

    def fixed(self, mode: int, factors: list[Any]) -> Fixed:
        """See :class:`Problem`."""
        fixed = super().fixed(mode, factors)
        return fixed if mode else fixed._replace(slopes=np.ones(factors[1].shape[1]))


class Batch:
    """Some samples to learn from, with their part of W once it was solved for.

    X is as :func:`klnmf.data.validation.check_counts` returns it.
    """

    def __init__(self, X: sp.csr_array, backend: str, n_threads: int | None) -> None:
        self.features, places = np.unique(X.indices, return_inverse=True)
        compressed = sp.csr_array(
            (X.data, places.astype(X.indices.dtype), X.indptr),
            shape=(X.shape[0], len(self.features)),
        )
        self.data = InMemoryData(compressed)
        self.problem = BatchProblem(make_backend(backend, self.data, n_threads), Penalties())
        self.counts: Array = self.data.view(1).row_sums
        self.W: Any = None


@dataclass
class OnlineMemory:
    """What was learnt about H so far; its size does not depend on the number of batches."""

    totals: Array  # m, float64: counts of each feature
    shares: Array  # m × r: how they are shared; rows of features never seen are 0
    weights: Array  # m, float64: counts that the shares are an average over
    visits: Array  # m, int64: batches in which the feature occurred
    n_revived: int = 0  # components that had died and were started again

    @classmethod
    def begin(
        cls, X: sp.csr_array, n_components: int, seed: int, backend: str, n_threads: int | None
    ) -> OnlineMemory:
        """Start from the components that the default solver finds in these samples."""
        problem = Problem(make_backend(backend, InMemoryData(X), n_threads), Penalties())
        state = start_state(problem, n_components, "samples", seed)
        run = Run.started(problem, SparseCoordinateDescent(), state)
        run.until(MaxIterations(START_ITERATIONS))
        W, H = (problem.backend.copy(factor, X.dtype) for factor in state.factors)
        expected = problem.backend.download(H) * problem.backend.column_sums(W).astype(X.dtype)
        totals = problem.backend.data.view(1).row_sums
        # Few samples make their features look more decided than they are.
        overall = expected.sum(axis=0, dtype=np.float64)
        overall /= overall.sum() or 1.0
        shares = _normalised(expected)
        shares *= X.dtype.type(0.9)
        shares += (0.1 * overall).astype(X.dtype)
        shares[totals == 0] = 0
        return cls(totals, shares, totals.copy(), np.zeros(len(totals), dtype=np.int64))

    def observe(self, batch: Batch, keep: float = 1.0) -> None:
        """Count the features of a batch; what was counted before keeps this part of its weight."""
        if keep != 1:
            self.totals *= keep
        self.totals[batch.features] += batch.counts

    def components(self) -> Array:
        """H with columns that sum to 1; a column is 0 if its component is dead."""
        dtype = self.shares.dtype
        H: Array = self.shares * self.totals.astype(dtype)[:, None]
        H /= _or_one(self.masses()).astype(dtype)
        return H

    def learn(self, batch: Batch, least_step: float = 0.0) -> float:
        """Solve for the batch's W, move the shares of its features, and return the divergence.

        The divergence is that of the batch at its new W and the H from before: what a model that
        has not yet learnt from the batch makes of it (in later passes: not again).
        """
        seen, problem = batch.features, batch.problem
        masses = self.masses()
        self._introduce(seen, masses)
        scales = (self.totals[seen, None] / _or_one(masses)).astype(self.shares.dtype)
        factors = [batch.W, problem.backend.upload(self.shares[seen] * scales, 1)]
        order = np.arange(len(masses), dtype=np.int32)
        if batch.W is None:
            batch.W = factors[0] = solved_rows(problem, 0, factors, RowSolve(TOLERANCE, rounds=1))
        divergence = problem.update(
            0, factors, Improve(order, rounds=2, tolerance=TOLERANCE)
        ).objective
        problem.update(1, factors, Improve(order, want_value=False))
        H = problem.backend.download(factors[1])
        self._move(seen, H * problem.backend.column_sums(batch.W).astype(H.dtype), least_step)
        self._revive_dead(batch, H)
        return divergence

    def _introduce(self, features: Array, masses: Array) -> None:
        """Share the counts of features that are new like all counts."""
        new = features[self.weights[features] == 0]
        if len(new):
            self.shares[new] = masses / masses.sum() if masses.any() else 1 / len(masses)

    def _move(self, features: Array, expected: Array, least_step: float) -> None:
        self.visits[features] += 1
        step = np.maximum((self.visits[features] + 1.0) ** -STEP_DECAY, least_step)
        old = (1 - step) * self.weights[features]
        mixed = old.astype(expected.dtype)[:, None] * self.shares[features]
        mixed += step.astype(expected.dtype)[:, None] * expected
        self.weights[features] = mixed.sum(axis=1, dtype=np.float64)
        mixed[mixed < LEAST_SHARE * mixed.max(axis=1, keepdims=True)] = 0
        self.shares[features] = _normalised(mixed)

    def masses(self) -> Array:
        """Return the counts of each component; einsum sums without a BLAS and its threads."""
        masses: Array = np.einsum("j,jk->k", self.totals, self.shares, optimize=False)
        return masses

    def _revive_dead(self, batch: Batch, H: Array) -> None:
        """Let dead components begin again as the samples of the batch that the others fit worst.

        Half of the counts of such a sample's features go to the component.
        """
        masses = self.masses()
        dead = np.flatnonzero(masses < DEAD_MASS * masses.mean())
        if len(dead) == 0:
            return
        by_rows = batch.data.view(0)
        misfit = _misfit(by_rows, batch.problem.backend.download(batch.W), H)
        worst = np.argsort(-misfit, kind="stable")[: len(dead)]
        for component, row in zip(dead, worst, strict=False):
            if not misfit[row] > 0:
                break
            entries = slice(by_rows.indptr[row], by_rows.indptr[row + 1])
            features = batch.features[by_rows.indices[entries]]
            self.shares[features] *= 0.5
            self.shares[features, component] += 0.5
            self.n_revived += 1


def _misfit(by_rows: InMemoryView, W: Array, H: Array) -> Array:
    """Σ v log(v / y) of each row."""
    rows = np.repeat(np.arange(by_rows.n_rows), np.diff(by_rows.indptr))
    y = np.zeros(len(rows))
    for w, h in zip(W.T, H.T, strict=True):  # nothing of size nonzeros × r
        y += w[rows] * h[by_rows.indices]
    tiny = np.finfo(np.float64).tiny
    losses = by_rows.values * np.log(by_rows.values / np.maximum(y, tiny))
    return np.bincount(rows, weights=losses, minlength=by_rows.n_rows)


def _normalised(rows: Array) -> Array:
    """Rows divided by their sums; rows of zeros stay."""
    sums = rows.sum(axis=1, dtype=np.float64)
    normalised: Array = rows / _or_one(sums)[:, None].astype(rows.dtype)
    return normalised


def _or_one(sums: Array) -> Array:
    return np.where(sums > 0, sums, 1.0)
