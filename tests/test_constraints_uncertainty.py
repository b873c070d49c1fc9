"""Intervals and tests of models in whose fit something was known."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.overdispersed import draw, noisy

from klnmf import KLNMF
from klnmf.simulate import simulate_counts
from klnmf.topics import match_components
from klnmf.uncertainty import bootstrap
from klnmf.uncertainty.refits import matched

PLANTED = simulate_counts(60, 25, 3, counts_per_sample=300, random_state=0)
X = PLANTED.X
SAMPLES = ("sample_weight", "exposure", "missing", "fixed_W", "zero_W")


def fitted(**known: Any) -> KLNMF:
    penalty = known.pop("l1_W", 0.0)
    parameters = {name: known.pop(name) for name in list(known) if name in KLNMF().get_params()}
    model = KLNMF(3, l1_W=penalty, l1_H=penalty, random_state=0, **parameters)
    return model.fit(X, **known)


@pytest.mark.parametrize(
    "known",
    [
        {"missing": sp.csr_array(sp.random(*X.shape, 0.05, random_state=0)) > 0},
        {"sample_weight": np.linspace(0, 2, 60)},
        {"feature_weight": np.linspace(0.5, 2, 25)},
        {"exposure": np.linspace(1, 5, 60), "l1_W": 0.1},
        {"fixed_W": np.linspace(1, 5, 60), "exposure": np.linspace(1, 5, 60)},
    ],
    ids=lambda known: " and ".join(known),
)
def test_refits_have_the_constraints_of_the_fit(known: dict, monkeypatch: Any) -> None:
    """Every refit is given the same, and draws have the rates of the model."""
    model = fitted(**known)
    given = {name: value for name, value in known.items() if name in SAMPLES}
    seen = []
    original = KLNMF.fit_transform

    def watched(self: KLNMF, X: Any, *args: Any, **constraints: Any) -> Any:
        seen.append((X.sum(), self.feature_weight, constraints))
        return original(self, X, *args, **constraints)

    monkeypatch.setattr(KLNMF, "fit_transform", watched)
    bootstrap(model, X, n_runs=6, n_jobs=1, random_state=0, **given)
    for _, feature_weight, constraints in seen:
        passed = {name for name, value in constraints.items() if value is not None}
        assert passed - {"W", "H"} == set(given)
        for name in given:
            expected = given[name].toarray() if sp.issparse(given[name]) else given[name]
            was = constraints[name]
            was = was.toarray() if sp.issparse(was) else np.squeeze(was)
            np.testing.assert_allclose(was, expected)
        if "feature_weight" in known:
            np.testing.assert_allclose(feature_weight, known["feature_weight"])
    W = model.transform(X, **{k: v for k, v in given.items() if k != "sample_weight"})
    rates = W @ model.components_ * np.broadcast_to(given.get("exposure", 1.0), 60)[:, None]
    assert np.mean([total for total, *_ in seen]) == pytest.approx(rates.sum(), rel=0.03)
    left_out = pytest.raises(ValueError, match=r"Pass the same again: bootstrap\(model, X, ")
    with left_out if given else nullcontext():
        bootstrap(model, X, n_runs=2)


def test_zeros_of_the_fit_stay_zeros() -> None:
    zero_W = np.zeros((60, 3), bool)
    zero_W[:10, 0] = True
    zero_H = np.zeros((3, 25), bool)
    zero_H[1, ::5] = True
    model = KLNMF(3, zero_components=zero_H, random_state=0).fit(X, zero_W=zero_W)
    found = bootstrap(model, X, n_runs=3, random_state=0, zero_W=zero_W)
    np.testing.assert_array_equal(found.components.upper[zero_H], 0.0)
    np.testing.assert_array_equal(found.proportions.upper[zero_W], 0.0)
    assert np.all(found.components.upper[~zero_H] > 0.0)


def test_hypermutators_with_weights() -> None:
    """Six samples with 200 times the counts, down-weighted in the fit."""
    planted = draw(120, 40, 3, 200, "broad", size=5.0, seed=4)
    generator = np.random.default_rng(0)
    heavy = noisy(200 * planted.W[:6] @ planted.H.T, generator, size=2.0)
    counts = np.vstack([planted.X, heavy])
    weights = 1.0 / counts.sum(axis=1)
    model = KLNMF(3, random_state=0, n_threads=1).fit(counts, sample_weight=weights)
    found = bootstrap(model, counts, n_runs=20, random_state=0, sample_weight=weights)
    order = match_components(model.components_, planted.H.T).second
    truth = planted.H.T[order]
    inside = found.components.is_interior
    covered = (found.components.lower <= truth) & (truth <= found.components.upper)
    assert covered[inside].mean() > 0.85


def test_exposures_do_not_change_shares() -> None:
    plain, exposed = fitted(), fitted(exposure=np.linspace(1, 5, 60))
    found = [
        bootstrap(plain, X, n_runs=4, random_state=0),
        bootstrap(exposed, X, n_runs=4, random_state=0, exposure=np.linspace(1, 5, 60)),
    ]
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
    np.testing.assert_allclose(found.similarity[:, :n_known], 1.0)


def test_one_known_component_may_be_a_list() -> None:
    model = KLNMF(3, fixed_components=PLANTED.H.T[:1].tolist(), random_state=0).fit(X)
    found = bootstrap(model, X, n_runs=2, random_state=0).components
    np.testing.assert_array_equal(found.upper[0], found.estimate[0])
    assert (found.upper[1:] > found.lower[1:]).any(axis=1).all()


def test_known_components_are_not_matched_with_learned_ones() -> None:
    """The learned one has gone to the other side of the known one, which lies between."""
    before = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    after = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0], [0.1, 1.0, 0.0]])
    order, similarity = matched(before, after, np.array([True, False, False]))
    assert order.tolist() == [0, 2, 1]
    np.testing.assert_allclose(similarity, [1.0, 0.1 / np.sqrt(1.01), 1.0])
    assert matched(before, after, np.zeros(3, bool))[0].tolist() != order.tolist()
