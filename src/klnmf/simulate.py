"""Simulated counts with given factors, to test whether a method recovers them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from klnmf.data.sparse_tensor import SparseTensor
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.descriptions import described, listed
from klnmf.support.number_checks import checked_nonnegative, checked_positive, checked_whole
from klnmf.topics.checks import checked_components, checked_representation, dense

__all__ = [
    "SimulatedCounts",
    "SimulatedTensor",
    "draw_counts",
    "simulate_counts",
    "simulate_tensor",
]

RandomLike = int | np.integer | np.random.RandomState | np.random.Generator | None

# Draws held at once: 4 million (row, column) pairs are 64 MB, whatever the total count.
_MAX_DRAWS_AT_ONCE = 1 << 22


class SimulatedCounts(NamedTuple):
    """Simulated counts and their factors.

    Attributes
    ----------
    X : scipy.sparse.csr_matrix of int64, shape (n_samples, n_features)
        Independent counts, X_ij ~ Poisson((W Hᵀ)_ij).
    W : ndarray of float64, shape (n_samples, n_components)
        The sum of row i is the expected total count of sample i.
    H : ndarray of float64, shape (n_features, n_components)
        Each column sums to 1.
    """

    X: sparse.csr_matrix
    W: FloatArray
    H: FloatArray


def simulate_counts(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    counts_per_sample: float | npt.ArrayLike = 100.0,
    sparsity: float = 0.0,
    concentration_W: float = 0.5,
    concentration_H: float = 0.1,
    random_state: RandomLike = None,
) -> SimulatedCounts:
    """Draw factors W and H, and Poisson counts with mean W Hᵀ.

    Rows of W (times the expected total) and columns of H have Dirichlet distributions. The counts
    are exact Poisson draws, and W Hᵀ is never formed: component k has a Poisson number of events
    with mean (Σ_i W_ik)(Σ_j H_jk), and each falls in row i and column j with probabilities in
    proportion to W_ik and H_jk. The time is proportional to the total count, the memory to the
    factors and the nonzeros.

    Parameters
    ----------
    n_samples, n_features, n_components : int
        Shape of X, and the number of components.
    counts_per_sample : float or array-like of shape (n_samples,), default=100.0
        Expected total count of each sample.
    sparsity : float in [0, 1), default=0.0
        Probability that an entry of W or H is exactly 0. Each row of W and each column of H has at
        least one positive entry. A row of H may be 0; its feature then does not occur.
    concentration_W : float, default=0.5
        Dirichlet concentration of the rows of W. With small values, samples have few components.
    concentration_H : float, default=0.1
        Dirichlet concentration of the columns of H. With small values, components have few
        features.
    random_state : None, int, RandomState or Generator, default=None
        Seed or generator. The same int gives the same result.

    Returns
    -------
    SimulatedCounts
        Named tuple (X, W, H).

    Examples
    --------
    >>> from klnmf.simulate import simulate_counts
    >>> X, W, H = simulate_counts(50, 200, 3, counts_per_sample=80, random_state=0)
    >>> X.shape, W.shape, H.shape
    ((50, 200), (50, 3), (200, 3))
    >>> bool(abs(X.sum() - 50 * 80) < 4 * (50 * 80) ** 0.5)  # the total is Poisson
    True
    """
    n_samples = checked_whole("n_samples", n_samples)
    n_features = checked_whole("n_features", n_features)
    n_components = checked_whole("n_components", n_components)
    if checked_nonnegative("sparsity", sparsity) >= 1.0:
        raise ValueError(f"sparsity must be in [0, 1); got {sparsity}.")
    for name, value in (("concentration_W", concentration_W), ("concentration_H", concentration_H)):
        if checked_positive(name, value) == math.inf:
            raise ValueError(f"{name} must be positive and finite; got {value}.")
    totals = one_for_each("counts_per_sample", counts_per_sample, n_samples, "samples")

    generator = _as_generator(random_state)
    W = _sparse_dirichlet(generator, n_samples, n_components, concentration_W, sparsity)
    W *= totals[:, np.newaxis]
    # Each row of the draw is one component.
    H = np.ascontiguousarray(
        _sparse_dirichlet(generator, n_components, n_features, concentration_H, sparsity).T
    )
    return SimulatedCounts(X=_poisson_counts(generator, W, H), W=W, H=H)


def draw_counts(
    W: npt.ArrayLike,
    components: npt.ArrayLike,
    random_state: RandomLike = None,
    *,
    dispersion: float | npt.ArrayLike = 0.0,
) -> sparse.csr_matrix:
    """Draw Poisson or negative binomial counts whose mean is W times the components.

    The draws are exact, as in `simulate_counts`, and the product is never formed. A negative
    binomial count of mean y and size s = 1 / α is a Poisson number of clusters, with mean
    s log(1 + y / s), each with a logarithmic number of events. The clusters are a random part of
    Poisson counts of mean y.

    Parameters
    ----------
    W : array-like of shape (n_samples, n_components)
        Nonnegative factor.
    components : array-like of shape (n_components, n_features)
        Nonnegative factor, for example ``components_`` of a fitted model.
    random_state : None, int, RandomState or Generator, default=None
        Seed or generator. The same int gives the same result.
    dispersion : float or array-like of shape (n_features,), default=0.0
        α: the variance is y + α y² for a mean of y. 0 draws Poisson counts.

    Returns
    -------
    scipy.sparse.csr_matrix of int64, shape (n_samples, n_features)
        Independent counts with the means W · components.

    Examples
    --------
    >>> import numpy as np
    >>> from klnmf.simulate import draw_counts
    >>> X = draw_counts(np.full((1000, 2), 0.5), [[2.0, 0.0], [0.0, 4.0]], random_state=0)
    >>> bool(np.allclose(X.mean(axis=0), [1.0, 2.0], atol=0.2))
    True
    """
    H = dense(checked_components(components)).T
    W = dense(checked_representation(W, H.shape[1])).astype(np.float64)
    alpha = one_for_each("dispersion", dispersion, len(H), "features")
    generator = _as_generator(random_state)
    counts = _poisson_counts(generator, W, H)
    return _clustered(generator, counts, W, H, alpha) if alpha.any() else counts


class SimulatedTensor(NamedTuple):
    """Simulated counts with any number of modes, and their factors.

    Attributes
    ----------
    X : SparseTensor
        Independent counts, X_ijl ~ Poisson(Σ_k weights_k A_ik B_jk C_lk).
    factors : list of ndarray of float64, of shape (n_rows, n_components)
        One for each mode; columns sum to 1.
    weights : ndarray of float64, of shape (n_components,)
        Expected counts of the components.
    """

    X: SparseTensor
    factors: list[FloatArray]
    weights: FloatArray


def simulate_tensor(
    shape: Sequence[int],
    n_components: int,
    *,
    n_counts: float = 10_000.0,
    dispersion: float = 0.0,
    random_state: RandomLike = None,
) -> SimulatedTensor:
    """Draw factors, and Poisson or negative binomial counts of a tensor with their rates.

    Parameters
    ----------
    shape : sequence of int
        Size of each mode, two to eight of them.
    n_components : int
        Number of components.
    n_counts : float, default=10_000
        Expected number of counts in all.
    dispersion : float, default=0.0
        α: the variance of a cell is y + α y² for a mean of y. 0 draws Poisson counts.
    random_state : None, int, RandomState or Generator, default=None
        Seed or generator. The same int gives the same result.

    Returns
    -------
    SimulatedTensor
        Named tuple (X, factors, weights).

    Examples
    --------
    >>> from klnmf.simulate import simulate_tensor
    >>> X, factors, weights = simulate_tensor((30, 20, 5), 2, n_counts=1000, random_state=0)
    >>> X.shape, [factor.shape for factor in factors]
    ((30, 20, 5), [(30, 2), (20, 2), (5, 2)])
    """
    n_components = checked_whole("n_components", n_components)
    sizes = [checked_whole("shape", size) for size in listed(shape, "shape", "a list of sizes")]
    generator = _as_generator(random_state)
    shares = generator.dirichlet(np.full(n_components, 5.0))
    weights = shares * checked_positive("n_counts", n_counts)
    factors = [_sparse_dirichlet(generator, n_components, size, 0.3, 0.0).T for size in sizes]
    alpha = one_for_each("dispersion", dispersion, sizes[1], "rows of the second mode")
    X = drawn_tensor(generator, factors, weights, alpha)
    return SimulatedTensor(X, [np.ascontiguousarray(factor) for factor in factors], weights)


def drawn_tensor(
    generator: np.random.Generator,
    factors: list[FloatArray],
    weights: FloatArray,
    alpha: FloatArray,
) -> SparseTensor:
    """Draw counts from factors whose columns sum to 1, with α for each row of the second mode."""
    shape = [len(factor) for factor in factors]
    coords: Array = np.zeros((len(factors), 0), dtype=np.int64)
    values: Array = np.zeros(0)
    for k, total in enumerate(generator.poisson(weights)):
        for start in range(0, int(total), _MAX_DRAWS_AT_ONCE):
            size = min(_MAX_DRAWS_AT_ONCE, int(total) - start)
            places = np.stack([generator.choice(len(x), size=size, p=x[:, k]) for x in factors])
            # Adding each batch at once sums duplicates, so memory stays at the nonzeros.
            coords = np.concatenate([coords, places], axis=1)
            X = SparseTensor(coords, np.concatenate([values, np.ones(size)]), shape)
            coords, values = X.coords, X.values
    X = SparseTensor(coords, values.astype(np.int64), shape)
    if not alpha.any():
        return X
    # Negative binomial counts, as in `_clustered`.
    rates = np.ones((X.nnz, len(weights))) * weights
    for places, factor in zip(X.coords, factors, strict=True):
        rates *= factor[places]
    values = _clustered_values(
        generator, X.values.astype(np.int64), alpha[X.coords[1]] * rates.sum(axis=1)
    )
    return SparseTensor(X.coords, values, X.shape)


def one_for_each(name: str, given: float | npt.ArrayLike, n: int, items: str) -> FloatArray:
    """Return a number of 0 or more for each item, given one for all or one for each."""
    numbers = np.asarray(given, dtype=np.float64)
    if numbers.shape not in ((), (n,)):
        raise ValueError(
            f"{name} must be a number or one for each of the {n} {items}; got shape "
            f"{numbers.shape}."
        )
    if not (np.isfinite(numbers).all() and (numbers >= 0.0).all()):
        raise ValueError(f"{name} must be nonnegative and finite.")
    return np.broadcast_to(numbers, (n,))


def _as_generator(random_state: RandomLike) -> np.random.Generator:
    """Turn a seed into a Generator; a RandomState is advanced."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    if random_state is None or isinstance(random_state, int | np.integer | np.random.Generator):
        return np.random.default_rng(random_state)
    raise ValueError(
        f"random_state must be None, an int, a RandomState or a Generator; got "
        f"{described(random_state)}."
    )


def _sparse_dirichlet(
    generator: np.random.Generator,
    n_rows: int,
    n_columns: int,
    concentration: float,
    sparsity: float,
) -> FloatArray:
    """Draw rows from a symmetric Dirichlet distribution over a random support."""
    # log Gamma(a) = log Gamma(a + 1) + log(U) / a in distribution. This avoids underflow for small
    # a, where Gamma(a) itself rounds to 0 and a row could become 0 / 0.
    uniform = 1.0 - generator.random((n_rows, n_columns))  # in (0, 1]
    log_gamma = np.log(generator.standard_gamma(concentration + 1.0, (n_rows, n_columns)))
    log_gamma += np.log(uniform) / concentration
    if sparsity > 0.0:
        dropped = generator.random((n_rows, n_columns)) < sparsity
        always_kept = generator.integers(n_columns, size=n_rows)
        dropped[np.arange(n_rows), always_kept] = False
        log_gamma[dropped] = -np.inf
    shares = np.exp(log_gamma - log_gamma.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray(shares)


def _poisson_counts(
    generator: np.random.Generator, W: FloatArray, H: FloatArray
) -> sparse.csr_matrix:
    """Draw counts with mean W Hᵀ, one component and one batch of events at a time."""
    shape = (W.shape[0], H.shape[0])
    counts = sparse.csr_matrix(shape, dtype=np.int64)
    for component in range(W.shape[1]):
        row_mass, column_mass = W[:, component].sum(), H[:, component].sum()
        total = int(generator.poisson(row_mass * column_mass))
        for start in range(0, total, _MAX_DRAWS_AT_ONCE):
            n_events = min(_MAX_DRAWS_AT_ONCE, total - start)
            # A multinomial over the rows is cheaper than one draw for each event.
            events_by_row = generator.multinomial(n_events, W[:, component] / row_mass)
            rows = np.repeat(np.arange(shape[0]), events_by_row)
            columns = generator.choice(shape[1], size=n_events, p=H[:, component] / column_mass)
            events = np.ones(n_events, dtype=np.int64)
            # Adding each batch at once sums duplicates, so memory stays at the nonzeros.
            counts = counts + sparse.csr_matrix((events, (rows, columns)), shape=shape)
    return counts


def _clustered(
    generator: np.random.Generator,
    counts: sparse.csr_matrix,
    W: FloatArray,
    H: FloatArray,
    alpha: FloatArray,
) -> sparse.csr_matrix:
    """Turn Poisson counts with mean W Hᵀ into negative binomial ones, in place.

    Each event becomes a cluster with probability log(1 + α y) / (α y), and a cluster has k events
    with a probability in proportion to θᵏ / k, θ = α y / (1 + α y).
    """
    for start in range(0, counts.nnz, _MAX_DRAWS_AT_ONCE // 16):
        part = slice(start, min(start + _MAX_DRAWS_AT_ONCE // 16, counts.nnz))
        columns = counts.indices[part]
        rows = np.searchsorted(counts.indptr, np.arange(part.start, part.stop), side="right") - 1
        excess = alpha[columns] * np.einsum("pk,pk->p", W[rows], H[columns])
        counts.data[part] = _clustered_values(generator, counts.data[part], excess)
    counts.eliminate_zeros()
    return counts


def _clustered_values(
    generator: np.random.Generator, values: npt.NDArray[np.int64], excess: FloatArray
) -> npt.NDArray[np.int64]:
    """Return negative binomial counts from Poisson counts of mean y; ``excess`` is α y."""
    is_clustered = excess > 1e-12  # below, clusters are single events
    excess, values = excess[is_clustered], values.copy()
    clusters = generator.binomial(values[is_clustered], np.log1p(excess) / excess)
    total = np.zeros(len(clusters), dtype=np.int64)
    place = np.repeat(np.arange(len(clusters)), clusters)
    sizes = generator.logseries(np.repeat(excess / (1.0 + excess), clusters))
    np.add.at(total, place, sizes)
    values[is_clustered] = total
    return values
