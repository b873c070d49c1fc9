"""Differential features of models that were fitted with weights, constraints or missing cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from klnmf import KLNMF
from klnmf.uncertainty import differential_features

GENERATOR = np.random.default_rng(0)
SHARES = GENERATOR.dirichlet(np.full(30, 0.5), 3)
W = GENERATOR.dirichlet(np.full(3, 0.5), 80) * 400
X = sp.csr_array(GENERATOR.poisson(W @ SHARES * GENERATOR.gamma(5, 0.2, (80, 30))))
MISSING = sp.csr_array(GENERATOR.random(X.shape) < 0.1)
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "sample_weight": {"sample_weight": np.linspace(0.5, 2, 80)},
    "exposure": {"exposure": np.linspace(1, 5, 80)},
    "missing": {"missing": MISSING},
    "zero_W": {"zero_W": sp.csr_array(np.eye(80, 3))},
    "fixed_W": {"fixed_W": W[:, 2:]},
    "fixed_W and exposure": {"fixed_W": W[:, 2:] / 3, "exposure": np.full(80, 3.0)},
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "feature_weight": {"feature_weight": np.linspace(0.5, 2, 30)},
    "fixed_components": {"fixed_components": SHARES[:1]},
    "zero_components": {"zero_components": sp.csr_array(np.eye(3, 30))},
    "penalties": {"l1_W": 0.5, "l2_H": 0.1},
}


def fitted(parameters: dict[str, Any] | None = None, **constraints: Any) -> KLNMF:
    model = KLNMF(3, random_state=0, tol=1e-5, max_iter=2000, **(parameters or {}))
    return model.fit(X, H=SHARES.astype(np.float32), **constraints)


@pytest.mark.parametrize("name", [*CONSTRAINTS, *PARAMETERS])
def test_large_differences_are_found_under_every_constraint(name: str) -> None:
    constraints = CONSTRAINTS.get(name, {})
    model = fitted(PARAMETERS.get(name), **constraints)
    found = differential_features(model, X, 0, nuisance=[], alternative="two-sided", **constraints)
    truth = np.log2(SHARES[1:] / SHARES[0])
    sure = np.abs(truth) > 3
    sure &= (SHARES[1:] > 0.02) | (SHARES[0] > 0.02)
    assert np.mean(found.q_value[sure] < 0.05) > 0.8
    assert np.all(
        np.sign(found.z[sure & (found.q_value < 0.05)])
        == np.sign(truth)[sure & (found.q_value < 0.05)]
    )


@pytest.mark.parametrize("name", ["sample_weight", "missing", "fixed_W", "zero_W"])
def test_what_the_fit_had_must_be_passed_again(name: str) -> None:
    with pytest.raises(ValueError, match=rf"fitted with {name}.*Pass the same again"):
        differential_features(fitted(**CONSTRAINTS[name]), X)


def test_weights_and_exposures_of_one_value_change_nothing() -> None:
    plain = differential_features(fitted(), X)
    weighted = differential_features(
        fitted(sample_weight=np.full(80, 3.0)), X, sample_weight=np.full(80, 3.0)
    )
    exposed = differential_features(
        fitted(exposure=np.linspace(1, 5, 80)), X, exposure=np.linspace(1, 5, 80)
    )
    for other in (weighted, exposed):
        np.testing.assert_allclose(other.z, plain.z, atol=0.02)
        np.testing.assert_allclose(other.standard_error, plain.standard_error, rtol=0.02)


def test_samples_of_weight_0_are_not_there() -> None:
    weight = np.ones(80)
    weight[::4] = 0.0
    given: dict[str, Any] = {"against": "others", "alternative": "two-sided"}
    model = KLNMF.from_components(SHARES.astype(np.float32))
    weighted = differential_features(model, X, W=W, sample_weight=weight, **given)
    kept = weight > 0
    without = differential_features(model, X[kept], W=W[kept], **given)
    np.testing.assert_allclose(weighted.z, without.z, atol=1e-6)
    np.testing.assert_allclose(weighted.standard_error, without.standard_error, rtol=1e-6)


def test_missing_cells_are_not_zeros() -> None:
    """A sample with nothing observed is not there, and other features' cells do not matter."""
    model = KLNMF.from_components(SHARES.astype(np.float32))
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[:20, 4] = True
    hidden[60:, 7] = True
    counts = np.random.default_rng(2).poisson(W @ SHARES)
    options: dict[str, Any] = {"against": 1, "alternative": "two-sided"}
    found = differential_features(model, counts, W=W, missing=sp.csr_array(hidden), **options)
    part = differential_features(model, counts[20:], W=W[20:], **options)
    for one in (found, part):
        assert one.dispersion is not None and one.dispersion.is_poisson  # noqa: PT018
    # Pseudo-counts go by the sizes of the components in all samples.
    np.testing.assert_allclose(found.z[:, 4], part.z[:, 4], rtol=1e-4)
    np.testing.assert_allclose(found.lower[:, 4], part.lower[:, 4], rtol=0.05, atol=0.05)
    as_zeros = differential_features(model, np.where(hidden, 0, counts), W=W, **options)
    assert np.abs(found.z[:, 4] - as_zeros.z[:, 4]).max() > 0.1


def test_given_w_needs_its_exposure_and_nothing_else() -> None:
    exposure = np.linspace(1, 5, 80)
    model = fitted(exposure=exposure)
    per_unit = model.transform(X, exposure=exposure)
    with pytest.raises(ValueError, match=r"fitted with exposure\. Pass exposure"):
        differential_features(model, X, W=per_unit)
    one = differential_features(model, X, W=per_unit, exposure=exposure)
    other = differential_features(model, X, W=model.transform(X), exposure=np.ones(80))
    np.testing.assert_allclose(one.z, other.z, atol=1e-3)
    with pytest.raises(ValueError, match="nothing to solve for with fixed_W"):
        differential_features(model, X, W=per_unit, exposure=exposure, fixed_W=W[:, 2:])
    with pytest.raises(TypeError, match="weights"):
        differential_features(model, X, weights=np.ones(80))  # type: ignore[call-arg]
