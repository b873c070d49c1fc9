"""Bi-cross-validation: every cell of X is predicted from other samples and from other features.

The samples are divided into folds at random, and the features into groups. For a fold, a model is
fitted to the samples outside it. For a group, the rows of W of the fold's samples are solved for
from the features outside the group, with the rows of H of those features. Their products with the
rows of H of the group predict the cells (fold × group). Over all folds and groups every cell is
predicted once, from data that do not include it, neither a part of its count nor its noise. So
nothing is assumed about the noise except that cells are independent of each other given the rates
(Owen and Perry 2009; docs/maths/held_out.md).

Only plain fits and row solves are needed, and memory is proportional to the nonzeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klnmf.estimators.checked_counts import ConstrainedCounts
from klnmf.estimators.held_out import Predictor, feature_shares, groups_of_features, unit_of
from klnmf.model_selection.growth import Factors, descended, one_component, resized
from klnmf.solvers.base import Problem
from klnmf.solvers.row_solve import RowSolve
from klnmf.solvers.start import start_state
from klnmf.support.array_types import Array, FloatArray

TINY = np.finfo(np.float32).tiny
# Held-out deviances need no more digits.
ROW_SOLVE = RowSolve(tolerance=1e-3)


def fold_of_samples(n_samples: int, n_splits: int, seed: int) -> Array:
    """Draw the fold of each sample; their sizes differ by 1 at most."""
    generator = np.random.default_rng([seed, 1])
    return generator.permutation(np.arange(n_samples) % n_splits)


class Fold:
    """The fits to the samples outside a fold, and their predictions of those inside."""

    def __init__(
        self,
        counts: ConstrainedCounts,
        is_test: Array,
        seed: int,
        n_threads: int | None,
        backend: str = "auto",
    ) -> None:
        self._train = counts.part(np.flatnonzero(~is_test))
        self._test = counts.part(np.flatnonzero(is_test))
        self._groups = groups_of_features(counts.X.shape[1], seed)
        self._n_threads, self._backend = n_threads, backend
        self._unit = unit_of(counts)

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
        found = self._predictor(factors, backgrounds).predicted(self._test).deviances
        return found * self._test.sample_weights

    def _predictor(self, factors: Factors, backgrounds: Sequence[float]) -> Predictor:
        _, *others = factors
        views = [self._train.data.view(mode) for mode in range(1, len(factors))]
        shares = [feature_shares(view.row_sums, self._unit) for view in views]
        solve = (self._groups, backgrounds, ROW_SOLVE, self._n_threads, self._backend)
        return Predictor(others, shares, self._unit, *solve)

    def free_components(self, factors: Factors) -> Array:
        """Columns of H of the components that were learned; of several modes, of length 1 each."""
        _, *others = factors
        n_components = others[0].shape[1]
        is_fixed = self._problem(n_components).is_frozen_anywhere(n_components)
        if len(others) > 1:
            others = [H / np.maximum(np.linalg.norm(H, axis=0), TINY) for H in others]
        return np.concatenate(others)[:, ~is_fixed]

    def _problem(self, n_components: int) -> Problem:
        return self._train.problem(n_components, self._n_threads, self._backend)

    def _smallest(self, n_components: int, seed: list[int]) -> Factors:
        """Start with the fixed components, and one more unless there is no room for it."""
        n_fixed = self._train.n_fixed
        if n_fixed == 0:
            return one_component(self._train.data)
        problem = self._problem(min(n_fixed + 1, n_components))
        state = start_state(problem, min(n_fixed + 1, n_components), "samples", _state_seed(seed))
        return tuple(problem.download(state.factors))

    def _without_data(self, n_components: int) -> Factors:
        data = self._train.data
        constraints = self._problem(n_components).constraints
        nothing = [np.zeros((size, n_components), dtype=data.dtype) for size in data.shape]
        return tuple(constraints.imposed_on(mode, x) for mode, x in enumerate(nothing))


def _state_seed(seed: list[int]) -> int:
    return int(np.random.default_rng([*seed, 1]).integers(2**31))
