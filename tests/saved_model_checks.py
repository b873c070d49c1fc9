"""Fitted models to save, and what makes two of them the same."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.simulate import simulate_counts
from strategies import fit_quietly, same_bits

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=60, random_state=0).X
FITTED = (
    "n_iter_",
    "divergence_",
    "optimality_gap_",
    "kkt_residual_",
    "converged_",
    "history_",
    "n_components_",
    "data_checksum_",
)


def fitted(**parameters: Any) -> KLNMF:
    defaults = {"n_components": 3, "random_state": 0, "n_threads": 1, "max_iter": 5}
    return fit_quietly(COUNTS, **{**defaults, **parameters})[1]


def dense(matrix: Any) -> Any:
    return matrix.toarray() if sp.issparse(matrix) else matrix


def assert_same_model(found: KLNMF, expected: KLNMF) -> None:
    assert repr(found.get_params()) == repr(expected.get_params())
    assert type(found.components_) is type(expected.components_)
    assert same_bits(dense(found.components_), dense(expected.components_))
    for name in (*FITTED, "n_features_in_"):
        value, wanted = getattr(found, name), getattr(expected, name)
        assert type(value) is type(wanted), name
        assert repr(value) == repr(wanted), name  # NaN does not equal itself
