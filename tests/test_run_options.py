"""How a fit is run is one parameter, and what belongs elsewhere is sent there."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline

import klnmf
from klnmf import KLNMF, RunOptions
from klnmf.model_selection import consensus, select_rank
from klnmf.simulate import simulate_counts
from klnmf.tl import nmf
from klnmf.uncertainty import bootstrap

SQUARE = simulate_counts(30, 30, 3, counts_per_sample=200, random_state=0).X
SETTINGS: dict[str, Any] = {"n_threads": 1, "random_state": 0, "tol": 1.0, "max_iter": 5}


def stops(record: dict[str, Any]) -> bool:
    return bool(record["iteration"] == 2)


def test_a_callback_cannot_change_the_history() -> None:
    run = RunOptions(callback=lambda record: record.clear())
    history = KLNMF(3, run=run, **SETTINGS).fit(SQUARE).history_
    assert [record["iteration"] for record in history] == list(range(1, len(history) + 1))


# ---- one parameter ------------------------------------------------------------------------------


def test_run_options_are_parameters_of_a_parameter(tmp_path: Path) -> None:
    model = KLNMF(3, run=RunOptions(callback=stops), **(SETTINGS | {"tol": 0.0}))
    assert model.get_params()["run__callback"] is stops
    assert model.fit(SQUARE).n_iter_ == 2
    model.set_params(run__callback=None, run__checkpoint=tmp_path / "fit", max_iter=1, tol=1e6)
    model.fit(SQUARE)
    assert (tmp_path / "fit").exists()
    for copy in (clone(model), pickle.loads(pickle.dumps(model))):
        assert copy.run is not model.run
        assert copy.run.get_params() == model.run.get_params()


def test_run_options_work_in_pipelines_and_searches() -> None:
    run = RunOptions(callback=stops, progress=False)
    model = KLNMF(3, run=run, **(SETTINGS | {"tol": 0.0}))
    pipeline = make_pipeline(model).fit(SQUARE)
    assert pipeline[0].n_iter_ == 2
    search = GridSearchCV(model, {"n_components": [2, 3]}, cv=2, error_score="raise").fit(SQUARE)
    assert search.best_estimator_.n_iter_ == 2
    assert repr(KLNMF(run=RunOptions(resume=False))) == "KLNMF(run=RunOptions(resume=False))"


# ---- arguments that belong elsewhere -------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["callback", "checkpoint", "checkpoint_every", "progress", "resume"]
)
def test_run_options_in_other_places_are_sent_to_theirs(name: str) -> None:
    place = rf"run=klnmf\.RunOptions\({name}=\.\.\.\)"
    for call in (
        KLNMF,
        KLNMF().set_params,
        lambda **given: select_rank(SQUARE, [1], **given),
        lambda **given: consensus(SQUARE, 2, 2, **given),
        lambda **given: bootstrap(KLNMF(2, **SETTINGS).fit(SQUARE), SQUARE, **given),
    ):
        message = rf"does not take the argument '{name}'\. Use {place}\."
        with pytest.raises((TypeError, ValueError), match=message):
            call(**{name: 1})
    with pytest.raises(TypeError, match=rf"argument '{name}'\. Use klnmf\.KLNMF\({place}\)\."):
        KLNMF(2).fit(SQUARE, **{name: None})


@pytest.mark.parametrize("name", ["feature_weight", "zero_components", "fixed_components"])
def test_constraints_on_features_are_parameters(name: str) -> None:
    model = KLNMF(2, **SETTINGS)
    for call in (model.fit, model.fit_transform, model.fit(SQUARE).transform):
        with pytest.raises(TypeError, match=rf"'{name}'. Use klnmf\.KLNMF\({name}=\.\.\.\)"):
            call(SQUARE, **{name: np.ones(30)})


def test_constraints_on_samples_are_arguments_of_fit() -> None:
    with pytest.raises(TypeError, match=r"'missing'. Use fit\(X, missing=\.\.\.\)"):
        KLNMF(missing=SQUARE)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="KLNMF does not take the argument 'alpha'"):
        KLNMF(alpha=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="Invalid parameter 'alpha'"):
        KLNMF().set_params(alpha=1)
    with pytest.raises(TypeError, match=r"argument 'alpha'\. By name it takes exposure"):
        KLNMF().fit(SQUARE, alpha=1)  # type: ignore[call-arg]


def test_anndata_tools_send_them_there_too() -> None:
    anndata = pytest.importorskip("anndata")
    with pytest.raises(TypeError, match=r"'callback'. Use run=klnmf\.RunOptions"):
        nmf(anndata.AnnData(SQUARE), callback=print)


# ---- metadata routing with as many samples as features -------------------------------------------


def test_routing_slices_what_is_about_samples_and_nothing_else() -> None:
    """Whatever has n_samples rows is sliced on its way to fit; here, features are as many."""
    weights, zeros = np.linspace(0.5, 2.0, 30), np.eye(3, 30) > 0
    of_samples = np.linspace(1.0, 3.0, 30)
    parameters = {**SETTINGS, "feature_weight": weights, "zero_components": zeros}
    with sklearn.config_context(enable_metadata_routing=True):
        model = KLNMF(3, **parameters).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        found = cross_validate(
            model,
            SQUARE,
            cv=3,
            params={"sample_weight": of_samples},
            return_estimator=True,
            return_indices=True,
            error_score="raise",
        )
        for name in ("feature_weight", "zero_components"):
            with pytest.raises(TypeError, match=name):
                KLNMF(3).set_fit_request(**{name: True})
    folds = found["indices"]["train"], found["indices"]["test"], found["test_score"]
    for fitted, train, test, score in zip(found["estimator"], *folds, strict=True):
        alone = KLNMF(3, **parameters).fit(SQUARE[train], sample_weight=of_samples[train])
        np.testing.assert_array_equal(fitted.components_, alone.components_)
        np.testing.assert_array_equal(fitted.feature_weight_, weights)
        assert score == alone.score(SQUARE[test], sample_weight=of_samples[test])
        assert not fitted.components_[zeros].any()


# ---- models from components ----------------------------------------------------------------------


def test_a_model_from_components_is_a_fitted_one(tmp_path: Path) -> None:
    fitted = KLNMF(3, **SETTINGS).fit(SQUARE)
    names = [f"f{j}" for j in range(30)]
    made = KLNMF.from_components(fitted.components_, feature_names=names, n_threads=1, tol=1.0)
    assert {name for name in vars(fitted) if name.endswith("_")} < set(vars(made))
    np.testing.assert_array_equal(made.feature_names_in_, names)
    assert np.isnan(made.divergence_)
    assert np.isnan(made.optimality_gap_)
    assert np.isnan(made.kkt_residual_)
    assert (made.converged_, made.n_iter_, made.history_) == (False, 0, [])
    assert (made.constraint_names_, made.n_fixed_W_, made.data_checksum_) == ([], 0, None)
    nameless = KLNMF.from_components(fitted.components_, n_threads=1, tol=1.0)
    np.testing.assert_array_equal(nameless.transform(SQUARE), fitted.transform(SQUARE))
    summed = KLNMF.from_components(fitted.components_, n_threads=1, tol=1.0, W_sums=fitted.W_sums_)
    assert summed.score(SQUARE) == fitted.score(SQUARE)
    nameless.save(tmp_path / "model.klnmf")
    again = KLNMF.load(tmp_path / "model.klnmf")
    np.testing.assert_array_equal(again.components_, fitted.components_)
    assert again.set_params(warm_start=True, max_iter=1, tol=1e6).fit(SQUARE).n_iter_ == 1


def test_a_model_from_components_keeps_what_is_given() -> None:
    weights = np.linspace(0.5, 2.0, 3)
    model = KLNMF.from_components(
        np.eye(2, 3), optimality_gap=1e-4, feature_weight=weights, n_fixed_W=1, sparse_output=True
    )
    assert model.converged_
    assert model.n_components == model.n_components_ == 2
    np.testing.assert_array_equal(model.feature_weight_, weights)
    W = model.transform([[2, 3, 0]], fixed_W=[[1.5]])
    np.testing.assert_allclose(W.toarray(), [[2, 1.5]])


@pytest.mark.parametrize(
    ("components", "given", "message"),
    [
        ([[1.0, -1.0]], {}, "components must be nonnegative; the least is -1"),
        ([[1.0, np.nan]], {}, "components contains NaN"),
        ([[1.0, 2.0]], {"feature_names": ["a"]}, "feature_names must be 2 strings"),
        ([[1.0, 2.0]], {"feature_names": [1, 2]}, "feature_names must be 2 strings"),
        ([[1.0, 2.0]], {"n_fixed_W": 2}, "n_fixed_W must be from 0 to 1, got 2"),
        ([[1.0, 2.0]], {"feature_weight": [1.0]}, r"feature_weight must have .* shape \(2,\)"),
    ],
)
def test_parts_that_do_not_fit_are_refused(components: Any, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KLNMF.from_components(components, **given)


def test_a_model_of_components_does_not_share_their_array() -> None:
    components = np.array([[0.75, 0.25, 0], [0, 0.5, 0.5]])
    model = KLNMF.from_components(components)
    before = model.transform([[9, 7, 4]])
    components *= 2
    assert (model.transform([[9, 7, 4]]) == before).all()
    assert sp.issparse(KLNMF.from_components(components, sparse_output=True).components_)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_components": 7}, "n_components=7, but components has 2 rows"),
        ({"tol": -1}, "'tol' parameter of KLNMF"),
        ({"constraint_names": "missing"}, "must be a list of names; got 'missing'"),
        ({"feature_names": "abc"}, "must be a list of names; got 'abc'"),
    ],
)
def test_parameters_that_contradict_the_components_are_refused(given: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        KLNMF.from_components(np.ones((2, 3)), **given)


def test_run_options_can_be_set_on_a_model_without_any() -> None:
    model = KLNMF().set_params(run__checkpoint="fit.checkpoint", n_components=3)
    assert (model.run.checkpoint, model.n_components) == ("fit.checkpoint", 3)
    with pytest.raises(ValueError, match=r"checkpoint.*RunOptions\(checkpoint="):
        KLNMF().set_params(checkpoint="fit.checkpoint")


def test_a_fit_that_is_cut_short_is_not_the_one_to_continue() -> None:
    X = np.random.default_rng(0).poisson(3.0, (30, 12))

    def fail(record: Any) -> None:
        raise RuntimeError("no")

    model = KLNMF(3, random_state=0, warm_start=True, tol=0, max_iter=3)
    with pytest.warns(ConvergenceWarning):
        model.fit(X)
    components = model.components_.copy()
    with pytest.raises(RuntimeError, match="no"):
        model.set_params(run__callback=fail).fit(X)
    assert (model.components_ == components).all()
    with pytest.warns(ConvergenceWarning):
        model.set_params(run__callback=None).fit(X)
    # From the components, not from the state that the failed fit changed.
    assert [record["iteration"] for record in model.history_] == [1, 2, 3]


# ---- names ---------------------------------------------------------------------------------------


def test_warnings_of_data_have_classes() -> None:
    X = np.eye(3)
    X[2] = 0
    with (
        pytest.warns(klnmf.EmptySamplesWarning, match="1 of 3 samples has no counts"),
        pytest.warns(klnmf.ManyComponentsWarning, match="3 components are learned"),
    ):
        KLNMF(3, **SETTINGS).fit(X)


def test_an_unfitted_model_cannot_be_used() -> None:
    with pytest.raises(NotFittedError):
        KLNMF(run=RunOptions()).transform(SQUARE)
