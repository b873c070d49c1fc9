"""What is known comes in Series and DataFrames: by the names of features, in the samples' order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from constraint_cases import RANK, X, everything_known, fit
from strategies import same_bits

pandas = pytest.importorskip("pandas", reason="needs the extra [dataframes]")

ALL = everything_known()
n, m = X.shape
FEATURES = [f"f{j}" for j in range(m)]
SAMPLES = [f"s{i}" for i in range(n)]
FRAME = pandas.DataFrame(X.toarray(), columns=FEATURES, index=SAMPLES)
MIXED = list(np.random.default_rng(1).permutation(FEATURES))

OF_FEATURES = {
    "feature_weight": pandas.Series(ALL["feature_weight"], index=FEATURES),
    "missing": pandas.DataFrame(ALL["missing"].toarray(), columns=FEATURES, index=SAMPLES),
    "zero_components": pandas.DataFrame(ALL["zero_components"].toarray(), columns=FEATURES),
    "fixed_components": pandas.Series(ALL["fixed_components"][0], index=FEATURES),
}
OF_SAMPLES = {
    "sample_weight": pandas.Series(ALL["sample_weight"], index=SAMPLES),
    "exposure": pandas.Series(ALL["exposure"], index=SAMPLES),
    "missing": OF_FEATURES["missing"],
    "fixed_W": pandas.DataFrame(ALL["fixed_W"], index=SAMPLES),
    "zero_W": pandas.DataFrame(ALL["zero_W"].toarray(), index=SAMPLES),
}


@pytest.mark.parametrize("name", OF_FEATURES)
def test_features_are_put_in_the_order_of_x(name: str) -> None:
    value = OF_FEATURES[name]
    mixed = value[MIXED]
    W, model = fit(FRAME, max_iter=3, **{name: ALL[name]})
    found, other = fit(FRAME, max_iter=3, **{name: mixed})
    assert same_bits(found, W)
    assert same_bits(other.components_, model.components_)


@pytest.mark.parametrize("name", OF_FEATURES)
def test_other_features_are_refused(name: str) -> None:
    value = OF_FEATURES[name].copy()
    if value.ndim == 1:
        value.index = ["g0", *FEATURES[1:]]
    else:
        value.columns = ["g0", *FEATURES[1:]]
    with pytest.raises(
        ValueError, match=rf"{name} and X have different feature names: \['f0', 'g0'\] are in"
    ):
        fit(FRAME, **{name: value})


def test_repeated_names_are_refused() -> None:
    weights = OF_FEATURES["feature_weight"]
    with pytest.raises(ValueError, match="different feature names: some are repeated"):
        fit(FRAME, feature_weight=pandas.concat([weights, weights[:1]]))


def test_new_samples_have_the_features_of_the_model() -> None:
    model = fit(FRAME, max_iter=3)[1]
    missing = OF_FEATURES["missing"]
    expected = model.transform(FRAME, missing=ALL["missing"])
    assert same_bits(model.transform(FRAME, missing=missing[MIXED]), expected)
    scores = {model.score(FRAME, missing=cells) for cells in (missing[MIXED], missing)}
    assert scores == {model.score(FRAME, missing=ALL["missing"])}


def test_what_has_no_names_is_taken_as_it_is() -> None:
    expected = fit(max_iter=3, feature_weight=ALL["feature_weight"])[0]
    weights = pandas.Series(ALL["feature_weight"])  # 0, 1, ... are no names
    assert same_bits(fit(FRAME, max_iter=3, feature_weight=weights)[0], expected)
    named = OF_FEATURES["feature_weight"]
    assert same_bits(fit(X, max_iter=3, feature_weight=named)[0], expected)


@pytest.mark.parametrize("name", OF_SAMPLES)
def test_samples_in_another_order_are_refused(name: str) -> None:
    value: Any = OF_SAMPLES[name]
    expected = fit(FRAME, max_iter=2, **{name: ALL[name]})[0]
    assert same_bits(fit(FRAME, max_iter=2, **{name: value})[0], expected)
    with pytest.raises(ValueError, match=rf"{name} has the samples of X in another order"):
        fit(FRAME, **{name: value[::-1]})
    unlabelled = value.reset_index(drop=True)  # other labels say nothing
    assert same_bits(fit(FRAME, max_iter=2, **{name: unlabelled})[0], expected)


def test_new_samples_in_another_order_are_refused() -> None:
    model = fit(FRAME, RANK, max_iter=2)[1]
    with pytest.raises(ValueError, match="exposure has the samples of X in another order"):
        model.transform(FRAME, exposure=OF_SAMPLES["exposure"][::-1])
    with pytest.raises(ValueError, match="missing has the samples of X in another order"):
        model.score(FRAME, missing=OF_SAMPLES["missing"][::-1])
