"""Topics that are merged into one.

With components h_k that sum to 1 and masses s_k = Σ_i W_ik, topics K become one with

    W_i = Σ_{k ∈ K} W_ik        h = Σ_{k ∈ K} s_k h_k / Σ_{k ∈ K} s_k

It has as many counts in each document as they had together, and the words that they had on
average. It is not the best topic for that purpose: a merged model is no stationary point of the
divergence.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.objective import kl_divergence, optimality_gap
from klnmf.support.array_types import Array
from klnmf.topics.checks import dense


def groups_of_topics(merged: Sequence[Sequence[int]], n_topics: int) -> list[list[int]]:
    """All groups, of one topic too, in the order of their first topics.

    >>> groups_of_topics([[3, 1]], 4)
    [[0], [1, 3], [2]]
    """
    named = [k for group in merged for k in group]
    if any(len(group) < 2 for group in merged) or len(set(named)) < len(named):
        raise ValueError(
            f"merge takes lists of at least two topics, each topic in one list; got {merged}."
        )
    alone = [[k] for k in range(n_topics) if k not in named]
    return sorted([*(sorted(group) for group in merged), *alone])


def merged_model(
    model: KLNMF, W: Any, X: Any, groups: Sequence[Sequence[int]]
) -> tuple[KLNMF, Array]:
    """Return the model with one component per group, and its W.

    Without X, the divergence and the gap are unknown.
    """
    components, W = dense(model.components_), dense(W)
    members = np.zeros((len(components), len(groups)))
    for place, group in enumerate(groups):
        members[group, place] = 1.0
    sums = components.sum(axis=1, dtype=np.float64)
    masses = W.sum(axis=0, dtype=np.float64) * sums
    weights = members * np.where(masses > 0, masses, np.finfo(np.float64).tiny)[:, np.newaxis]
    scaled = components / np.where(sums > 0, sums, 1.0)[:, np.newaxis]
    H = ((weights / weights.sum(axis=0)).T @ scaled).astype(components.dtype)
    new_W = ((W * sums) @ members).astype(W.dtype)
    known: dict[str, Any] = {}
    if X is not None and model.feature_weight_ is None:
        counts = sp.csr_array(X, dtype=np.float64)
        known = {
            "divergence": float(kl_divergence(counts, new_W, H)),
            "optimality_gap": float(optimality_gap(counts, new_W, H)),
        }
    parameters = model.get_params(deep=False) | {
        "n_components": len(groups),
        "zero_components": None,
        "fixed_components": None,
    }
    merged = KLNMF.from_components(
        H,
        history=model.history_,
        W_sums=new_W.sum(axis=0, dtype=np.float64),
        data_checksum=model.data_checksum_,
        converged=False,
        **known,
        **parameters,
    )
    return merged, new_W
