"""Counts with planted components and more variance than Poisson counts, in NumPy alone.

Nothing here comes from the library, so that its estimates are not checked by their own code. With
the rates y = (W Hᵀ)_ij, all with mean y:

- "poisson": variance y;
- size = s: negative binomial, that is Poisson with the rate y g for a gamma g with mean 1 and
  variance 1/s in every cell: variance y + y²/s;
- noise = "gamma" with variance v: y g itself, not rounded;
- noise = "lognormal" with variance v: Poisson with rate y g, log g normal, g with mean 1 and
  variance v.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

COMPONENTS = ("sparse", "broad", "zipf", "near-duplicate")


class Planted(NamedTuple):
    """Counts and the factors that they come from; the columns of H sum to 1."""

    X: np.ndarray  # n × m
    W: np.ndarray  # n × r
    H: np.ndarray  # m × r


def components_of(kind: str, m: int, r: int, generator: np.random.Generator) -> np.ndarray:
    """Draw H (m × r), whose columns sum to 1.

    "sparse" and "broad" are Dirichlet with concentrations 0.1 and 0.5; "zipf" has the same word
    frequencies 1/rank in all components, times gamma numbers of shape 0.3; "near-duplicate" is
    sparse, but the last component shares 60 % of the first (with r = 1, there is only one).
    """
    if kind in ("sparse", "near-duplicate"):
        H = generator.dirichlet(np.full(m, 0.1), size=r).T
    elif kind == "broad":
        H = generator.dirichlet(np.full(m, 0.5), size=r).T
    elif kind == "zipf":
        frequencies = 1.0 / (np.arange(m) + 3.0)
        H = frequencies[:, None] * generator.gamma(0.3, size=(m, r))
        H = generator.permutation(H, axis=0)
    else:
        raise ValueError(f"components must be one of {COMPONENTS}; got {kind!r}.")
    if kind == "near-duplicate" and r > 1:
        H[:, -1] = 0.6 * H[:, 0] + 0.4 * H[:, -1]
    return np.asarray(H / H.sum(axis=0))


def noisy(
    rates: np.ndarray,
    generator: np.random.Generator,
    *,
    noise: str = "poisson",
    size: float | None = None,
    variance: float = 0.3,
) -> np.ndarray:
    """Draw values with these means; ``size`` gives negative binomial counts."""
    if size is not None:
        return generator.poisson(rates * generator.gamma(size, 1.0 / size, rates.shape))
    if noise == "poisson":
        return generator.poisson(rates)
    if noise == "gamma":
        return np.asarray(rates * generator.gamma(1.0 / variance, variance, rates.shape))
    if noise == "lognormal":
        spread = np.log1p(variance)
        factors = generator.lognormal(-0.5 * spread, np.sqrt(spread), rates.shape)
        return generator.poisson(rates * factors)
    raise ValueError(f"noise must be 'poisson', 'gamma' or 'lognormal'; got {noise!r}.")


def draw(
    n: int,
    m: int,
    r: int,
    counts: float,
    components: str = "sparse",
    *,
    mixing: float = 0.3,
    seed: Any = 0,
    **noise: Any,
) -> Planted:
    """Draw n samples of about ``counts`` counts each.

    The shares of the components in a sample are Dirichlet with concentration ``mixing``; sample
    sizes are lognormal with a standard deviation of 0.5 around their mean ``counts``. ``noise`` are
    the arguments of `noisy`.
    """
    generator = np.random.default_rng(seed)
    H = components_of(components, m, r, generator)
    sizes = counts * generator.lognormal(-0.125, 0.5, n)
    W = sizes[:, None] * generator.dirichlet(np.full(r, mixing), size=n)
    return Planted(noisy(W @ H.T, generator, **noise), W, H)
