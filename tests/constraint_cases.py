"""Data of which much is known, and the objective as its formula says, for the tests of that."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import xlogy
from sklearn.exceptions import ConvergenceWarning

from klnmf import KLNMF, RunOptions
from klnmf.backends import make_backend
from klnmf.constraints.checks import check_constraints
from klnmf.constraints.explained_cells import check_explained
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import check_counts
from klnmf.objective import Penalties
from klnmf.simulate import simulate_counts
from klnmf.solvers.base import Problem, State
from klnmf.solvers.initialization import cover_cells, cover_columns
from klnmf.solvers.loop import Run
from strategies import Case, cases, default_backend, make_model

Array = np.ndarray

X = simulate_counts(30, 20, 3, counts_per_sample=80, random_state=0).X
RANK = 4


def everything_known(X: sp.csr_array = X, rank: int = RANK, seed: int = 0) -> dict[str, Any]:
    """One of each; the component before the last is free, so that every count can be explained."""
    generator = np.random.default_rng(seed)
    n, m = X.shape
    zero_W, zero_components = generator.random((n, rank)) < 0.3, generator.random((rank, m)) < 0.3
    zero_W[:, [rank - 2, rank - 1]] = zero_components[[0, rank - 2]] = False
    return {
        "sample_weight": generator.integers(0, 3, size=n).astype(float),
        "feature_weight": np.where(generator.random(m) < 0.1, 0, 0.5 + generator.random(m)),
        "exposure": 0.5 + generator.random(n),
        "missing": sp.csr_array(generator.random((n, m)) < 0.2),
        "fixed_W": generator.random((n, 1)),
        "zero_W": sp.csr_array(zero_W),
        "zero_components": sp.csr_array(zero_components),
        "fixed_components": generator.random((1, m)),
    }


def of_samples(known: dict[str, Any]) -> dict[str, Any]:
    """What of it ``transform`` takes."""
    names = ("exposure", "missing", "fixed_W", "zero_W")
    return {name: known[name] for name in names if name in known}


def divergence(X: Any, W: Array, components: Array, known: dict[str, Any]) -> float:
    """Σ over the cells that are not missing of w_i v_j KL(x_ij, e_i (W Hᵀ)_ij), dense."""
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    n, m = X.shape
    w, v, e = (
        np.asarray(known.get(name, np.ones(size)), dtype=float)
        for name, size in (("sample_weight", n), ("feature_weight", m), ("exposure", n))
    )
    missing = known.get("missing")
    seen = np.ones((n, m)) if missing is None else 1.0 - np.asarray(sp.csr_array(missing).toarray())
    weights = seen * w[:, None] * v
    rates = e[:, None] * (W.astype(float) @ components.astype(float))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = weights * (xlogy(X, X) - xlogy(X, rates) - X + rates)
    return float(np.sum(terms[weights > 0]))


def fit(X: Any = X, rank: int = RANK, **settings: Any) -> tuple[Array, KLNMF]:
    """W and the model of a fit in double precision, with parameters of both ``fit`` and KLNMF."""
    names = {**KLNMF().get_params(), **RunOptions().get_params()}
    parameters = {name: settings.pop(name) for name in list(settings) if name in names}
    defaults = {"n_threads": 1, "random_state": 0, "max_iter": 30, "dtype": np.float64}
    model = make_model(rank, **{**defaults, **parameters})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit_transform(X, **settings), model


# ---- drawn by hypothesis ------------------------------------------------------------------------

WEIGHTS = st.sampled_from([0.0, 1.0, 1.0, 0.5, 3.0])
EXPOSURES = st.sampled_from([1.0, 0.25, 8.0])
VALUES = st.sampled_from([0.0, 1.0, 0.3, 20.0])


@st.composite
def cases_with_known(draw: st.DrawFn) -> tuple[Case, dict[str, Any]]:
    """A case, and about half of what may be known of it."""
    case: Case = draw(cases())
    (n, m), rank = case.X.shape, case.W.shape[1]
    n_fixed = draw(st.integers(0, rank))
    n_fixed_W = draw(st.integers(0, rank - n_fixed))
    possible = {
        "sample_weight": hnp.arrays(float, n, elements=WEIGHTS),
        "feature_weight": hnp.arrays(float, m, elements=WEIGHTS),
        "exposure": hnp.arrays(float, n, elements=EXPOSURES),
        "missing": hnp.arrays(bool, (n, m)),
        "zero_W": hnp.arrays(bool, (n, rank), elements=st.sampled_from([False, False, True])),
        "zero_components": hnp.arrays(
            bool, (rank, m), elements=st.sampled_from([False, False, True])
        ),
        "fixed_components": hnp.arrays(float, (n_fixed, m), elements=VALUES),
        "fixed_W": hnp.arrays(float, (n, n_fixed_W), elements=VALUES),
    }
    return case, {name: draw(values) for name, values in possible.items() if draw(st.booleans())}


def start_run(
    case: Case, given: dict[str, Any], weights: Penalties, solver: Any, n_threads: int = 1
) -> Run | None:
    """A fit that is about to start from the pair of the case; None if there can be none."""
    X = check_counts(case.X)
    try:
        size = (X.shape, case.W.shape[1], X.dtype)
        known = check_constraints(given, *size, penalties=weights)
        data = InMemoryData(X).constrained(known)
        check_explained(known, data)
    except ValueError:  # weights of 0 alone, zeros over what is fixed, a count without a component
        return None
    made = make_backend(default_backend(data.dtype), data, n_threads)
    problem = Problem(made, weights)
    W, H = known.in_fit(0, case.W.copy()), known.in_fit(1, case.H.copy())
    cover_columns(H, data.view(1))
    cover_cells(known, [None, known.imposed_on(1, H)], data)
    return Run.started(problem, solver, State(problem.upload([W, H]), seed=0))
