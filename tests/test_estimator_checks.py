"""scikit-learn's own checks of an estimator, every one of them."""

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
        solver=SparseCoordinateDescent(swap_failures=0),
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


# The data of these checks have three features. With more components than that, each sample has many
# optimal rows of W (adding to a row what H maps to 0 changes no rate, docs/maths/stopping.md), and
# transform ends at another one than fit_transform. scikit-learn's NMF fails the same checks, for
# this reason.
MANY_OPTIMA = dict.fromkeys(
    ("check_transformer_general", "check_transformer_data_not_an_array"),
    "more components than the data have features: W is not unique",
)
WITH_MANY = KLNMF(n_threads=1)


def expected_failures(estimator: Any) -> dict[str, str]:
    return MANY_OPTIMA if estimator.n_components > 3 else {}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
# Raised by scikit-learn where an optional part of a check cannot run on this machine.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([*ESTIMATORS, WITH_MANY], expected_failed_checks=expected_failures)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)
