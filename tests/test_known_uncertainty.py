"""Intervals and tests of models in whose fit something was known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.simulate import simulate_counts
from klnmf.uncertainty import bootstrap
from klnmf.uncertainty.parametric_bootstrap import _matched

PLANTED = simulate_counts(60, 25, 3, counts_per_sample=300, random_state=0)
X = PLANTED.X


def fitted(**known: Any) -> KLNMF:
    penalty = known.pop("l1_W", 0.0)
    parameters = {name: known.pop(name) for name in list(known) if name in KLNMF().get_params()}
    model = KLNMF(3, l1_W=penalty, l1_H=penalty, random_state=0, **parameters)
    return model.fit(X, **known)


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
def test_what_it_does_not_know_of_is_refused(name: str, known: dict) -> None:
    with pytest.raises(ValueError, match=f"was fitted with {name}.*do not support this"):
        bootstrap(fitted(**known), X)


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


@pytest.mark.parametrize("n_known", [1, 3])
def test_known_components_have_no_room(n_known: int) -> None:
    known = PLANTED.H.T[:n_known].copy()
    known[:, ::3] = 0.0
    known[:, 0] = [0.1, 0.2, 0.3][:n_known]  # no feature is left without a component
    learned = slice(n_known, None)
    counts = X.toarray()
    counts[:, 3::3] = 0 if n_known == 3 else counts[:, 3::3]
    model = KLNMF(3, fixed_components=known, random_state=0).fit(counts)
    found = bootstrap(model, counts, n_runs=3, random_state=0)
    ends = found.components
    np.testing.assert_array_equal(ends.lower[:n_known], ends.estimate[:n_known])
    np.testing.assert_array_equal(ends.upper[:n_known], ends.estimate[:n_known])
    assert (ends.upper[learned] > ends.estimate[learned]).any(axis=1).all()
    assert (found.proportions.upper > found.proportions.lower).any(axis=1).all()
    np.testing.assert_array_equal(found.similarity[:, :n_known], 1.0)


def test_one_known_component_may_be_a_list() -> None:
    model = KLNMF(3, fixed_components=PLANTED.H.T[:1].tolist(), random_state=0).fit(X)
    found = bootstrap(model, X, n_runs=2, random_state=0).components
    np.testing.assert_array_equal(found.upper[0], found.estimate[0])
    assert (found.upper[1:] > found.lower[1:]).any(axis=1).all()


def test_known_components_are_not_matched_with_learned_ones() -> None:
    """The learned one has gone to the other side of the known one, which lies between."""
    before = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    after = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0], [0.1, 1.0, 0.0]])
    order, similarity = _matched(before, after, n_fixed=1)
    assert order.tolist() == [0, 2, 1]
    np.testing.assert_allclose(similarity, [1.0, 0.1 / np.sqrt(1.01), 1.0])
    assert _matched(before, after, n_fixed=0)[0].tolist() != order.tolist()
