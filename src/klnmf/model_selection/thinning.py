"""Counts thinned into training and test counts: exact for Poisson data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData
from klnmf.estimators.completion import split_by_values
from klnmf.model_selection.deviance import Cells, FloatArray, deviances, feature_shares
from klnmf.model_selection.growth import Factors, descended, objective_of, one_component, resized
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem

Array = npt.NDArray[Any]


def thinned(
    X: sp.csr_array, train_fraction: float, generator: np.random.Generator
) -> tuple[sp.csr_array, sp.csr_array]:
    """Split counts at random into training and test counts, which sum to X.

    Each unit of a count is training data with the probability f = ``train_fraction``. If X_ij is
    Poisson with rate λ, the two parts are independent Poisson counts with rates f λ and (1 − f) λ.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> X = sp.csr_array(np.array([[100.0, 0.0], [3.0, 7.0]]))
    >>> train, test = thinned(X, 0.9, np.random.default_rng(0))
    >>> (train + test).toarray().tolist()
    [[100.0, 0.0], [3.0, 7.0]]
    """
    return split_by_values(X, generator.binomial(X.data.astype(np.int64), train_fraction))


class ThinnedSplit:
    """One split of the counts, decided by the seed, and the fits to its training part."""

    def __init__(
        self, X: sp.csr_array, train_fraction: float, seed: list[int], n_threads: int | None
    ) -> None:
        train, self._test = thinned(X, train_fraction, np.random.default_rng(seed))
        self._data = InMemoryData(train)
        self._problem = Problem(make_backend("auto", self._data, n_threads), Penalties())
        self._ratio = (1.0 - train_fraction) / train_fraction

    def fitted(self, factors: Factors | None, n_components: int, seed: list[int]) -> Factors:
        """Return a fit with this many components, starting from a smaller one if there is one."""
        self._data.prepare()
        factors = one_component(self._data) if factors is None else factors
        factors = resized(self._problem, factors, n_components, seed)
        if n_components == 1 or self._data.nnz == 0:
            return factors
        return descended(self._problem, factors, _state_seed(seed))[0]

    def merged(self, factors: Factors, n_components: int, seed: list[int]) -> Factors:
        """Return a fit with this many components, starting from a larger one."""
        self._data.prepare()
        factors = resized(self._problem, factors, n_components, seed)
        if self._data.nnz == 0:
            return factors
        return descended(self._problem, factors, _state_seed(seed), swap_failures=0)[0]

    def objective(self, factors: Factors) -> float:
        """KL divergence of the training data."""
        return objective_of(self._problem, factors)

    def deviances(self, factors: Factors, backgrounds: Sequence[float]) -> FloatArray:
        """Held-out deviance for each background and sample."""
        held_out, shares = Cells.stored_in(self._test), feature_shares(self._data)
        return deviances(held_out, *factors, shares, backgrounds, self._ratio)


def _state_seed(seed: list[int]) -> int:
    return int(np.random.default_rng([*seed, 1]).integers(2**31))
