"""scikit-learn's own checks of an estimator, every one of them, without expected failures."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from klnmf import KLNMF, MiniBatchKLNMF
from klnmf.solvers import SOLVERS, SparseCoordinateDescent

# Without warm_start=True: a second fit then goes on from the first, which is what it is for, while
# the checks expect both to be the same. One thread each: the data are tiny.
ESTIMATORS = [
    KLNMF(n_components=2, max_iter=300, n_threads=1),
    KLNMF(n_components=2, init="nndsvd", l1_W=0.01, l2_H=0.01, n_threads=1),
    KLNMF(n_components=3, sparse_output=True, n_threads=1),
    KLNMF(
        n_components=2,
        solver=SparseCoordinateDescent(sweeps=3, extrapolation=None),
        n_threads=1,
    ),
    *(
        KLNMF(n_components=2, solver=name, max_iter=50, n_threads=1)
        for name in SOLVERS
        if name != "srcd"
    ),
    MiniBatchKLNMF(n_components=2, n_threads=1),
    MiniBatchKLNMF(
        n_components=3, batch_size=7, forget_factor=0.9, sparse_output=True, n_threads=1
    ),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
# Raised by scikit-learn where an optional part of a check cannot run on this machine.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)
