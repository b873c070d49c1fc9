"""Intervals and tests of models in whose fit something was known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.simulate import simulate_counts
from klnmf.uncertainty import bootstrap, differential_features

PLANTED = simulate_counts(60, 25, 3, counts_per_sample=300, random_state=0)
X = PLANTED.X


def fitted(**known: Any) -> KLNMF:
    fixed = known.pop("fixed_components", None)
    penalty = known.pop("l1_W", 0.0)
    model = KLNMF(3, fixed_components=fixed, l1_W=penalty, l1_H=penalty, random_state=0)
    return model.fit(X, **known)


@pytest.mark.parametrize("ask", [bootstrap, differential_features])
@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("missing", {"missing": sp.random_array(X.shape, density=0.05, rng=0) > 0}),
        ("sample_weight", {"sample_weight": np.linspace(0.5, 2, 60)}),
        ("feature_weight", {"feature_weight": np.linspace(0.5, 2, 25)}),
        ("zero_W", {"zero_W": sp.csr_array(np.eye(60, 3))}),
        ("fixed_W", {"fixed_W": np.ones((60, 1))}),
        ("exposure", {"exposure": np.linspace(1, 5, 60), "l1_W": 0.1}),
    ],
)
def test_what_they_do_not_know_of_is_refused(ask: Any, name: str, known: dict) -> None:
    with pytest.raises(ValueError, match=f"was fitted with {name}, of which"):
        ask(fitted(**known), X)


def test_exposures_do_not_change_shares() -> None:
    plain, exposed = fitted(), fitted(exposure=np.linspace(1, 5, 60))
    found = [bootstrap(model, X, n_runs=4, random_state=0) for model in (plain, exposed)]
    for part in ("components", "proportions"):
        one, other = (getattr(result, part) for result in found)
        np.testing.assert_allclose(other.estimate, one.estimate, atol=0.02)
        np.testing.assert_allclose(other.upper, one.upper, atol=0.05)


def test_fixed_components_stay_fixed_in_all_runs() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"gene{j}" for j in range(25)]
    table = pandas.DataFrame(X.toarray(), columns=names)
    planted = PLANTED.H.T[:1]
    backwards = pandas.DataFrame(planted[:, ::-1], columns=names[::-1])
    model = KLNMF(3, fixed_components=backwards, random_state=0).fit(table)
    np.testing.assert_allclose(model.components_[0], planted[0])
    found = bootstrap(model, table, n_runs=4, random_state=0)
    np.testing.assert_allclose(found.components.standard_error[0], 0.0, atol=1e-12)
    assert (found.components.standard_error[1:] > 0).any(axis=1).all()
