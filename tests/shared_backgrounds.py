"""Counts whose components share a background, drawn in NumPy alone."""

from __future__ import annotations

import numpy as np

Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]


def with_background(
    seed: int, n: int = 600, depth: float = 300.0, background: float = 0.2
) -> Drawn:
    """Counts, proportions and components (3 × 60). Without background most shares are 0.

    The first 15 features have equal shares in components 0 and 1, and more in component 2.
    """
    generator = np.random.default_rng([seed, 31])
    H = generator.dirichlet(np.full(60, 0.3), size=3)
    if background == 0.0:
        H *= generator.random((3, 60)) < 0.5
        H[:, :15] += 1e-3
    H /= H.sum(axis=1, keepdims=True)
    H += background / 60
    H[0, :15] *= 0.2 / H[0, :15].sum()
    H[1, :15] = H[0, :15]
    H[2, :15] = 3.0 * H[0, :15]
    H[:, 15:] *= ((1.0 - H[:, :15].sum(axis=1)) / H[:, 15:].sum(axis=1))[:, np.newaxis]
    P = generator.dirichlet(np.full(3, 0.5), size=n)
    totals = depth * np.exp(0.5 * generator.standard_normal(n))
    return generator.poisson(totals[:, np.newaxis] * (P @ H)), P, H
