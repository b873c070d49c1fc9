"""`equal_fits`: how far components can be moved without any change of the fit.

With h_k the components as distributions and L = W in counts, put h' = Σ_l v_l h_l, Σ v = 1, in the
place of h_k. The product stays the same if component l ≠ k gives L_ik v_l / v_k of its counts in
sample i, and k takes L_ik / v_k. Both factors are nonnegative if

    v_k > 0,    Σ_l v_l h_lj ≥ 0 for each feature j,    v_l ≤ v_k min_i L_il / L_ik for each l ≠ k,

which is linear in v. The corners of this polytope in the directions ± v_l are linear programmes.
"""

from typing import Any

import numpy as np
from scipy.optimize import linprog

from klnmf.support.array_types import FloatArray
from klnmf.topics.checks import checked_components, checked_representation, dense

# Entries below this share of the largest one of their component or sample count as 0, which makes
# the polytope smaller.
_ZERO = 1e-6
_SMALLEST_PART = 1e-6  # v_k > 0
_MENTIONED_FROM = 1e-3  # distance that a person is told of
_MOST_WORK = 2_000_000  # features × components³ for which this takes seconds


def equal_fits(W: Any, components: Any) -> FloatArray:
    """Find how far each component can be moved, at least, in another model with the same W Hᵀ.

    Such a model fits exactly as well, and no data can say which is right. It exists where
    neither W nor H has zeros in the right places, as with many counts per sample and components
    that share all features. Time grows with features × components³: seconds for 2,000 features and
    ten components, and none where the zeros alone decide. One component is moved at a time, along
    with W; moving several at once may lead further.

    Parameters
    ----------
    W : array-like or sparse matrix of shape (n_samples, n_components)
        Representation of the samples, as ``fit_transform`` returns it.
    components : array-like or sparse matrix of shape (n_components, n_features)
        ``components_`` of the model.

    Returns
    -------
    ndarray of shape (n_components,)
        Total-variation distance (from 0 to 1) between each component and the farthest one that was
        found in its place; 0 if it is unique in this sense.

    Examples
    --------
    >>> from klnmf.uncertainty import equal_fits
    >>> equal_fits([[1, 1], [2, 1]], [[0.5, 0.5], [0.25, 0.75]]).round(2).tolist()
    [0.5, 0.25]
    >>> equal_fits([[1, 0], [0, 1]], [[0.8, 0.2, 0], [0, 0.3, 0.7]]).tolist()
    [0.0, 0.0]
    """
    H = dense(checked_components(components)).astype(np.float64)
    L = dense(checked_representation(W, len(H))).astype(np.float64) * H.sum(axis=1)
    H = H / np.maximum(H.sum(axis=1, keepdims=True), 1e-300)
    H[_ZERO * H.max(axis=1, keepdims=True) > H] = 0.0
    L[_ZERO * L.max(axis=1, keepdims=True, initial=0.0) > L] = 0.0
    return np.array([_farthest(L, H, k) for k in range(len(H))])


def equal_fits_in_words(W: Any, components: Any, component: str = "component") -> str:
    """Say that other components fit equally well; "" where there are none, or many to look for."""
    r, n_features = np.shape(components)
    if n_features * r**3 > _MOST_WORK:
        return ""
    distances = equal_fits(W, components)
    k, n_moved = int(distances.argmax()), int(np.sum(distances >= _MENTIONED_FROM))
    if not n_moved:
        return ""
    return (
        f"Another model fits equally well, {distances[k]:.3f} away in {component} {k} (total "
        f"variation, from 0 to 1): these data do not determine {n_moved} of the {r} {component}s "
        "exactly."
    )


def _farthest(L: FloatArray, H: FloatArray, k: int) -> float:
    used = L[:, k] > 0.0
    if not used.any() or not H[k].any():
        return 0.0
    others = np.flatnonzero((np.arange(len(H)) != k) & H.any(axis=1))
    room = (L[used][:, others] / L[used][:, [k]]).min(axis=0)
    # With nothing to take from others, each v_l ≤ 0; and v_l = 0 if l has a feature that k lacks.
    if not room.any() and (H[others][:, H[k] == 0.0] > 0.0).any(axis=1).all():
        return 0.0
    # The unknowns are the v_l of the others; v_k = 1 − Σ v_l.
    of_features = (H[k] - H[others]).T
    of_samples = np.eye(len(others)) + room[:, np.newaxis]
    limits = np.concatenate([H[k], room, [1.0 - _SMALLEST_PART]])
    rows = np.vstack([of_features, of_samples, np.ones(len(others))])
    farthest = 0.0
    for direction in np.vstack([np.eye(len(others)), -np.eye(len(others))]):
        found = linprog(direction, A_ub=rows, b_ub=limits, bounds=(None, None))
        if found.status == 0:
            moved = found.x @ (H[others] - H[k])
            farthest = max(farthest, float(np.abs(moved).sum() / 2.0))
    return farthest if farthest > _ZERO else 0.0
