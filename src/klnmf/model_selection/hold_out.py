"""Bi-cross-validation: every cell of X is predicted from other samples and from other features.

The samples are divided into folds at random, and the features into groups. For a fold, a model is
fitted to the samples outside it. For a group, the rows of W of the fold's samples are solved for
from the features outside the group, with the rows of H of those features. Their products with the
rows of H of the group predict the cells (fold × group). Over all folds and groups every cell is
predicted once, from data that do not include it, neither a part of its count nor its noise. So
nothing is assumed about the noise except that cells are independent of each other given the rates
(Owen and Perry 2009; docs/maths.md).

Only plain fits and row solves are needed, and memory is proportional to the nonzeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.constraints.constraints import Constraints
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.sparse_data import InMemoryData
from klnmf.model_selection.deviance import HeldOutCells, deviances, feature_shares
from klnmf.model_selection.growth import Factors, descended, one_component, resized
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve, solved_rows
from klnmf.solvers.start import start_state
from klnmf.support.array_types import Array, FloatArray

# More groups leave more of a sample to solve for its W, and take more time.
FEATURE_GROUPS = 10
# Held-out deviances need no more digits.
ROW_SOLVE = RowSolve(tolerance=1e-3)
# Sum of a component, in units of the smallest float, below which W could overflow.
VANISHED = 1e8


@dataclass(frozen=True)
class ConstrainedCounts:
    """X, what is known about it and its factors, and the penalties.

    The rank of ``constraints`` has no meaning: every fit has its own.
    """

    X: sp.csr_array
    constraints: Constraints | None = None
    penalties: Penalties = NO_PENALTIES

    @property
    def n_fixed(self) -> int:
        """Number of components that are fixed in W or in H."""
        if self.constraints is None:
            return 0
        return sum(0 if part is None else part.shape[1] for part in self.constraints.fixed)

    @property
    def is_plain(self) -> bool:
        """Whether a fit is one of weighted counts, without anything else."""
        constraints = self.constraints
        has_others = constraints is not None and (self.n_fixed or constraints.missing is not None)
        return not (has_others or any(self.penalties.penalised_modes))

    def part(self, rows: Array) -> ConstrainedCounts:
        """Return some samples."""
        constraints = None if self.constraints is None else self.constraints.part(rows)
        return replace(self, X=self.X[rows], constraints=constraints)

    def of_features(self, columns: Array) -> ConstrainedCounts:
        """Return some features."""
        constraints = None if self.constraints is None else self.constraints.of_features(columns)
        return replace(self, X=self.X[:, columns], constraints=constraints)

    @cached_property
    def data(self) -> InMemoryData:
        """X as a fit sees it; fixed components have no places yet."""
        return self._data(max(1, self.n_fixed))

    def problem(self, n_components: int, n_threads: int | None) -> Problem:
        """Return the problem of a fit with this many components."""
        data = self._data(n_components) if self.n_fixed else self.data
        return Problem(make_backend("auto", data, n_threads), self.penalties)

    def _data(self, n_components: int) -> InMemoryData:
        data = InMemoryData(self.X)
        if self.constraints is None:
            return data
        return data.constrained(replace(self.constraints, n_components=n_components))


def fold_of_samples(n_samples: int, n_splits: int, seed: int) -> Array:
    """Draw the fold of each sample; their sizes differ by 1 at most."""
    generator = np.random.default_rng([seed, 1])
    return generator.permutation(np.arange(n_samples) % n_splits)


def groups_of_features(n_features: int, seed: int) -> list[Array]:
    """Draw the groups of features; their sizes differ by 1 at most."""
    generator = np.random.default_rng([seed, 2])
    numbers = generator.permutation(np.arange(n_features) % FEATURE_GROUPS)
    return [np.flatnonzero(numbers == g) for g in range(min(FEATURE_GROUPS, n_features))]


class Fold:
    """The fits to the samples outside a fold, and their predictions of those inside."""

    def __init__(
        self, counts: ConstrainedCounts, is_test: Array, seed: int, n_threads: int | None
    ) -> None:
        self._train = counts.part(np.flatnonzero(~is_test))
        self._test = counts.part(np.flatnonzero(is_test))
        self._groups = groups_of_features(counts.X.shape[1], seed)
        self._n_threads = n_threads
        # One count, or what comes closest to it in other data.
        self._unit = float(np.median(counts.data.view(0).values)) if counts.data.nnz else 1.0

    def fitted(self, factors: Factors | None, n_components: int, seed: list[int]) -> Factors:
        """Return a fit with this many components, starting from a smaller one if there is one."""
        if self._train.data.nnz == 0:
            return self._without_data(n_components)
        if factors is None:
            factors = self._smallest(n_components, seed)
        factors = resized(self._problem, factors, n_components, seed)
        if n_components == 1 and self._train.is_plain:
            return factors
        return descended(self._problem(n_components), factors, _state_seed(seed))[0]

    def merged(self, factors: Factors, n_components: int, seed: list[int]) -> Factors:
        """Return a fit with this many components, starting from a larger one."""
        if self._train.data.nnz == 0:
            return self._without_data(n_components)
        factors = resized(self._problem, factors, n_components, seed)
        problem = self._problem(n_components)
        return descended(problem, factors, _state_seed(seed), swap_failures=0)[0]

    def objective(self, factors: Factors) -> float:
        """Objective of the training data."""
        problem = self._problem(factors[0].shape[1])
        return float(problem.objective(problem.upload(factors)))

    def deviances(self, factors: Factors, backgrounds: Sequence[float]) -> FloatArray:
        """Deviance for each background and sample of the fold, in the units of a fit."""
        H = factors[1]
        shares = feature_shares(self._train.data, self._unit)
        found = np.zeros((len(backgrounds), self._test.X.shape[0]))
        for features in self._groups:
            W = self._W_without(features, H)
            cells = HeldOutCells.of(self._test.of_features(features).data)
            found += deviances(cells, W, H, features, shares, self._unit, backgrounds)
        return found

    def free_components(self, factors: Factors) -> Array:
        """Columns of H of the components that were learned."""
        n_components = factors[1].shape[1]
        problem = self._problem(n_components)
        is_fixed = problem.is_frozen(0, n_components) | problem.is_frozen(1, n_components)
        return factors[1][:, ~is_fixed]

    def _W_without(self, features: Array, H: Array) -> Array:  # noqa: N802
        """W of the fold's samples from the other features."""
        others = np.setdiff1d(np.arange(len(H)), features, assume_unique=True)
        if not len(others):
            return np.zeros((self._test.X.shape[0], H.shape[1]))
        problem = self._test.of_features(others).problem(H.shape[1], self._n_threads)
        known = np.ascontiguousarray(H[others])
        # Of a component that has all but vanished from these features, any amount may be in a
        # sample: none is.
        known[:, known.sum(axis=0, dtype=np.float64) < VANISHED * np.finfo(H.dtype).tiny] = 0
        known = problem.backend.upload(known)
        return problem.backend.download(solved_rows(problem, 0, [None, known], ROW_SOLVE))

    def _problem(self, n_components: int) -> Problem:
        return self._train.problem(n_components, self._n_threads)

    def _smallest(self, n_components: int, seed: list[int]) -> Factors:
        """Start with the fixed components, and one more unless there is no room for it."""
        n_fixed = self._train.n_fixed
        if n_fixed == 0:
            return one_component(self._train.data)
        problem = self._problem(min(n_fixed + 1, n_components))
        state = start_state(problem, min(n_fixed + 1, n_components), "samples", _state_seed(seed))
        W, H = problem.download(state.factors)
        return W, H

    def _without_data(self, n_components: int) -> Factors:
        data = self._train.data
        W, H = (np.zeros((size, n_components), dtype=data.dtype) for size in data.shape)
        constraints = self._problem(n_components).constraints
        if constraints is not None:
            W, H = constraints.imposed_on(0, W), constraints.imposed_on(1, H)
        return W, H


def _state_seed(seed: list[int]) -> int:
    return int(np.random.default_rng([*seed, 1]).integers(2**31))
