"""The step of kernels/step.cu in NumPy, for checks: second order, one pass, and certain to descend.

For a row with y = A x let g = c + l2 x − S and M = Aᵀ diag(v / y²) A. The step d minimises
g·d + dᵀ M d / 2 over d_k ≥ −0.6 x_k, or −x_k for small entries, by a few sweeps of coordinate
descent. Where no y falls by more than the share s,

    f(x + d) ≤ f(x) + g·d + κ(s) / 2 · dᵀ M d,    κ(s) = 2 (−log(1 − s) − s) / s²,

and as much of d is taken as makes that no higher than f(x). M is summed from numbers rounded to
bfloat16, which the bounds on s and on dᵀ M d allow for.
"""

from __future__ import annotations

import numpy as np

from klnmf.support.array_types import Array

SWEEPS, LAST_MOVE = 8, 0.2  # over the model at most; share of the first one's move at which to end
SMALL = 0.05  # x √M up to which an entry may go to 0 at once
KEPT = 0.4  # what is left of any other, at least
LONGEST, FURTHEST = 0.6, 0.95  # shares of y that a shortened step, and any, may take
ROUNDING = 2.0**-8  # a ≤ (1 + 2⁻⁸) fl(a) for bfloat16


def to_bfloat16(numbers: Array) -> Array:
    """Round to the nearest bfloat16, ties to even.

    >>> to_bfloat16(np.array([1.0, 1.0078125, 1.003]))
    array([1.       , 1.0078125, 1.       ])
    """
    bits = np.asarray(numbers, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def kappa(share: float) -> float:
    """Least κ with −log(1 + u) ≤ −u + κ u² / 2 for all u ≥ −share.

    >>> kappa(0.0), round(kappa(0.5), 3)
    (1.0, 1.545)
    """
    if share < 0.02:
        return 1 + share * (2 / 3 + share * (0.5 + 0.41 * share))
    return float(2 * (-np.log1p(-share) - share) / share**2)


def second_derivatives(v: Array, A: Array, y: Array) -> Array:
    """M = Σ_i v_i a_i a_iᵀ / y_i², of numbers rounded to bfloat16."""
    scaled = to_bfloat16(A * (np.sqrt(v) / y)[:, None])
    return np.asarray(np.einsum("ik,il->kl", scaled, scaled))


def largest_ratios(v: Array, M: Array) -> Array:
    """Bound on max_i A_ik / y_i: (1 + 2⁻⁸) √(M_kk / least v), because M_kk ≥ v_i (A_ik / y_i)²."""
    least = min(1.0, float(v.min(initial=1.0)))
    return np.asarray((1 + ROUNDING) * np.sqrt(np.diag(M) / least))


def minimum_of_model(x: Array, g: Array, M: Array, least: Array, c: Array) -> Array:
    """Minimise g·(z − x) + (z − x)ᵀ M (z − x) / 2 over z ≥ least by coordinate descent."""
    z, slope, first = x.copy(), g.copy(), 0.0
    for sweep in range(SWEEPS):
        before = z.copy()
        for k in range(len(z)):
            moved = max(z[k] - slope[k] / M[k, k], least[k])
            slope += (moved - z[k]) * M[k]
            z[k] = moved
        move = float(np.max(np.abs(z - before) * c, initial=0.0))
        first = move if sweep == 0 else first
        if not move > LAST_MOVE * first:
            break
    return z


def step(v: Array, A: Array, x: Array, c: Array, l2: float = 0.0) -> Array:
    """Return x after one step of a row problem; every nonzero is covered and stays so.

    Components with c = 0 are dead and become 0.
    """
    x = np.where(c > 0, x, 0.0)
    y = A @ x
    S = (v / y) @ A
    M = second_derivatives(v, A, y)
    x[S == 0] = 0.0
    active = np.flatnonzero((c > 0) & (np.diag(M) > 0) & ((x > 0) | (c < S)))
    of_active = np.ix_(active, active)
    bound, old = largest_ratios(v, M)[active], x[active]
    g = (c + l2 * x - S)[active]
    is_small = old * bound <= SMALL
    model = M[of_active] + l2 * np.eye(len(active))
    d = minimum_of_model(old, g, model, np.where(is_small, 0.0, KEPT * old), c[active]) - old
    falls = d < 0
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(falls & ~is_small, -d / old, 0.0)
    share = float(shares.max(initial=0.0) - (d * bound)[falls & is_small].sum())
    size = float(np.sum(np.abs(d) * np.sqrt(np.diag(M)[active])))
    square = (np.sqrt(max(float(d @ model @ d), 0.0)) + ROUNDING * size) ** 2
    linear, length = float(g @ d), 1.0
    if not (share < FURTHEST and linear + 0.5 * kappa(share) * square <= 0):
        length = LONGEST / share if share > LONGEST else 1.0
        if square > 0:
            length = min(length, -linear / (kappa(min(share, LONGEST)) * square))
    moved = x.copy()
    moved[active] = np.maximum(old + max(length, 0.0) * d, 0.0)
    return moved
