"""Two ways to hold data out: thinned counts, and hidden cells for data that are not counts.

Thinning splits each count into training and test counts, which is exact for Poisson data.

Hidden cells, which include zeros, are missing entries for the fit. The EM algorithm fills each of
them with its current estimate, improves the factors on the filled matrix, and repeats. With y° the
filled-in estimates, the objective of the filled matrix exceeds that of the visible cells by
Σ_hidden d(y°, y) ≥ 0, and equals it at y = y°. So a step that lowers the first lowers the second at
least as much, the objective of the visible cells never rises, and both have the same stationary
points. Time and memory grow with the nonzeros and the hidden cells.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from klnmf.backends import make_backend
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import VALUE_RANGE
from klnmf.estimators.completion import split_by_values
from klnmf.model_selection.deviance import Cells, deviances, feature_shares, products
from klnmf.model_selection.growth import (
    ENOUGH,
    Factors,
    descended,
    objective_of,
    one_component,
    resized,
)
from klnmf.objective import Penalties
from klnmf.solvers.base import Problem
from klnmf.support.array_types import Array, FloatArray

# Largest number of hidden cells per nonzero, and the number that is always allowed.
CELLS_PER_NONZERO = 10
CELLS_IN_ANY_CASE = 100_000
ITERATIONS_A_ROUND = 4
MOST_ROUNDS = 40


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
        self._scale = (1.0 - train_fraction) / train_fraction

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
        shares, cells = feature_shares(self._data), Cells.stored_in(self._test)
        return deviances(cells, factors, shares, backgrounds, rest_is_zero=True, scale=self._scale)


def _state_seed(seed: list[int]) -> int:
    return int(np.random.default_rng([*seed, 1]).integers(2**31))


# ---- hidden cells --------------------------------------------------------------------------------


def n_hidden(shape: tuple[int, int], nnz: int, train_fraction: float) -> int:
    """Return the number of cells to hide: 1 − f of all, or fewer if X is very sparse."""
    wanted = round((1.0 - train_fraction) * shape[0] * shape[1])
    return max(1, min(wanted, max(CELLS_PER_NONZERO * nnz, CELLS_IN_ANY_CASE)))


def random_cells(shape: tuple[int, int], n_cells: int, generator: np.random.Generator) -> Array:
    """Draw distinct random cells as sorted numbers i · m + j, in memory proportional to them."""
    size = shape[0] * shape[1]
    if n_cells > size // 4:
        return np.sort(generator.permutation(size)[:n_cells])
    cells = np.unique(generator.integers(size, size=n_cells))
    while len(cells) < n_cells:
        more = generator.integers(size, size=n_cells - len(cells))
        cells = np.unique(np.concatenate([cells, more]))
    return cells


class SpeckledSplit:
    """One choice of hidden cells, and the fits to the others; see `ThinnedSplit`."""

    def __init__(
        self, X: sp.csr_array, train_fraction: float, seed: list[int], n_threads: int | None
    ) -> None:
        self._shape, self._dtype, self._n_threads = X.shape, X.dtype, n_threads
        generator = np.random.default_rng(seed)
        hidden = random_cells(X.shape, n_hidden(X.shape, X.nnz, train_fraction), generator)
        stored = Cells.stored_in(X).rows.astype(np.int64) * X.shape[1] + X.indices
        is_hidden = np.isin(stored, hidden, assume_unique=True)
        values = np.zeros(len(hidden))
        values[np.searchsorted(hidden, stored[is_hidden])] = X.data[is_hidden]
        self._hidden = Cells(values, *np.divmod(hidden, X.shape[1]))
        # Visible nonzeros and hidden cells in one pattern, in order of rows.
        cells = np.concatenate([stored[~is_hidden], hidden])
        self._order = np.argsort(cells, kind="stable")
        self._cells = cells[self._order]
        self._visible = X.data[~is_hidden]

    def fitted(self, factors: Factors | None, n_components: int, seed: list[int]) -> Factors:
        """Return a fit with this many components, starting from a smaller one if there is one."""
        if factors is None:
            # Hidden cells start with the estimates from row and column sums.
            factors = one_component(self._filled(np.zeros(len(self._hidden.x))))
            factors, _ = self._rounds(factors, seed)
        if factors[0].shape[1] < n_components:
            factors = resized(self._problem(factors), factors, n_components, seed)
            factors, before = self._rounds(factors, seed)
            swapped, objective = descended(self._problem(factors), factors, seed[-1])
            if objective < before:
                factors, _ = self._rounds(swapped, seed)
        return factors

    def merged(self, factors: Factors, n_components: int, seed: list[int]) -> Factors:
        """Return a fit with this many components, starting from a larger one."""
        factors = resized(self._problem(factors), factors, n_components, seed)
        return self._rounds(factors, seed)[0]

    def deviances(self, factors: Factors, backgrounds: Sequence[float]) -> FloatArray:
        """Deviance of the hidden cells for each background and sample."""
        shares = feature_shares(self._problem(factors).backend.data)
        return deviances(self._hidden, factors, shares, backgrounds, rest_is_zero=False)

    def objective(self, factors: Factors) -> float:
        """KL divergence of the visible cells."""
        return objective_of(self._problem(factors), factors)  # the hidden cells contribute 0

    def _rounds(self, factors: Factors, seed: list[int]) -> tuple[Factors, float]:
        """Repeat filling and fitting until it gains little; return factors and objective."""
        before = self.objective(factors)
        for number in range(MOST_ROUNDS):
            state_seed = int(np.random.default_rng([*seed, number]).integers(2**31))
            factors, _ = descended(
                self._problem(factors),
                factors,
                state_seed,
                max_iter=ITERATIONS_A_ROUND,
                swap_failures=0,
            )
            objective = self.objective(factors)
            if before - objective <= ENOUGH * abs(objective):
                break
            before = objective
        return factors, objective

    def _problem(self, factors: Factors) -> Problem:
        """Return the problem of the data with hidden cells as these factors estimate them."""
        data = self._filled(products(*factors, self._hidden.rows, self._hidden.columns))
        return Problem(make_backend("auto", data, self._n_threads), Penalties())

    def _filled(self, estimates: FloatArray) -> InMemoryData:
        """Return the data with these values in the hidden cells; tiny values become 0."""
        lowest = VALUE_RANGE[self._dtype.name][0]
        filling = np.where(estimates < lowest, 0.0, estimates).astype(self._dtype)
        values = np.concatenate([self._visible, filling])[self._order]
        kept = values > 0
        rows, columns = np.divmod(self._cells[kept], self._shape[1])
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self._shape[0]))])
        matrix = sp.csr_array((values[kept], columns, indptr), shape=self._shape)
        matrix.has_canonical_format = True
        return InMemoryData(matrix)
