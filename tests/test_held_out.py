"""The held-out likelihood of new samples, compared with its definition in dense NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln
from sklearn.model_selection import GridSearchCV

from constraint_cases import RANK, X, everything_known, fit
from klnmf import KLNMF, MiniBatchKLNMF, load_model
from klnmf.estimators import held_out
from klnmf.estimators.held_out import BACKGROUNDS, UNKNOWN, expected_margins, groups_of_features
from klnmf.evaluation import evaluate

ALL = everything_known()
n, m = X.shape
PENALTIES = {"l1_W": 0.3, "l2_W": 0.2, "l1_H": 0.1}
OF_MODEL = ("fixed_components", "zero_components", "feature_weight")


def rates(
    model: KLNMF, counts: np.ndarray, share: float, **known: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Rates of all cells, each group by a model of the features in the others; and their shares."""
    weights = np.ones(m) if model.feature_weight_ is None else model.feature_weight_
    H = model.components_.T.astype(float)
    counted = np.flatnonzero(weights)
    weighted = counts * weights
    if "missing" in known:
        weighted[known["missing"].toarray()] = 0
    unit = np.median(weighted[weighted > 0])
    margins = weights * (H @ model.W_sums_)
    q = np.where(weights > 0, margins + unit, 0)
    q /= q.sum()
    found, shares = np.zeros((len(counts), m)), np.zeros((len(counts), m))
    for group in groups_of_features(len(counted), 0):
        hidden = np.isin(np.arange(m), counted[group])
        visible = ~hidden
        part = KLNMF.from_components(
            model.components_[:, visible],
            n_fixed_W=model.n_fixed_W_,
            feature_weight=weights[visible],
            tol=model.tol,
            **{name: getattr(model, name) for name in PENALTIES},
        )
        its = {name: value for name, value in known.items() if name != "sample_weight"}
        if "missing" in its:
            its["missing"] = its["missing"].toarray()[:, visible]
        y = part.transform(counts[:, visible], **its).astype(float) @ H.T
        y *= np.asarray(known.get("exposure", np.ones(len(y))))[:, None] * weights
        mu = (1 - share) * y + (share * y.sum(axis=1, keepdims=True) + UNKNOWN * unit) * q
        found[:, hidden] = mu[:, hidden] / weights[hidden]
        shares[:, hidden] = (mu / mu.sum(axis=1, keepdims=True))[:, hidden]
    return found, shares


CASES: dict[str, list[str]] = {
    "nothing": [],
    "penalties": ["penalties"],
    **{name: [name] for name in ALL},
    "all": [*ALL, "penalties"],
}


@pytest.mark.filterwarnings("ignore:Only [0-9]+ samples have counts")
@pytest.mark.parametrize("case", CASES)
def test_a_score_is_the_dense_formula_with_whatever_is_known(case: str) -> None:
    known = {name: ALL[name] for name in CASES[case] if name in ALL}
    penalties = PENALTIES if "penalties" in CASES[case] else {}
    model = fit(**known, **penalties, dtype=np.float64)[1]
    of_samples = {name: value for name, value in known.items() if name not in OF_MODEL}
    missing = np.zeros((n, m), bool)
    if "missing" in known:
        missing = known["missing"].toarray()
    counts = np.where(missing, 0, X.toarray()).astype(float)
    w = np.asarray(known.get("sample_weight", np.ones(n)))
    v = np.asarray(known.get("feature_weight", np.ones(m)))
    seen = ~missing & (v > 0)
    weights = np.where(seen, np.outer(w, v), 0.0)
    by_share = {}
    for share in BACKGROUNDS:
        mu = np.where(seen, rates(model, counts, share, **of_samples)[0], 1.0)
        terms = counts * np.log(mu) - mu - gammaln(counts + 1)
        by_share[share] = (weights * terms).sum() / w.sum()
    best = max(by_share, key=by_share.__getitem__)
    assert model.score(X, **of_samples) == pytest.approx(by_share[best], rel=1e-5)
    if "missing" in known:
        return
    scores = evaluate(model, X, **of_samples)
    assert scores.log_likelihood == model.score(X, **of_samples)
    assert scores.background == best
    assert scores.n_counts == pytest.approx((weights * counts).sum())
    shares = np.where(seen, rates(model, counts, best, **of_samples)[1], 1.0)
    mean = (weights * counts * np.log(shares)).sum() / (weights * counts).sum()
    assert scores.perplexity == pytest.approx(np.exp(-mean), rel=1e-5)


def test_a_cell_does_not_predict_its_group() -> None:
    model = fit(dtype=np.float64)[1]
    counts = X.toarray().astype(float)
    more = counts.copy()
    more[3, 7] += 5
    before, after = (rates(model, x, 0.1)[0] for x in (counts, more))
    group = next(g for g in groups_of_features(m, 0) if 7 in g)
    np.testing.assert_array_equal(before[:, group], after[:, group])
    assert (np.delete(before[3], group) != np.delete(after[3], group)).any()


def test_sample_weights_count_samples_several_times() -> None:
    model = fit()[1]
    weights = np.arange(n) % 3
    repeated = sp.csr_array(sp.csr_array(X)[np.repeat(np.arange(n), weights)])
    assert model.score(X, sample_weight=weights) == pytest.approx(model.score(repeated), rel=1e-12)


def test_blocks_of_samples_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit(**{name: ALL[name] for name in ("exposure", "fixed_W")})[1]
    known = {name: ALL[name] for name in ("exposure", "fixed_W", "sample_weight")}
    whole = model.score(X, **known)
    monkeypatch.setattr(held_out, "ROWS_PER_SUM", 7)
    assert model.score(X, **known) == pytest.approx(whole, rel=1e-12)


def test_what_score_does_not_take_is_refused_by_name() -> None:
    model = fit()[1]
    with pytest.raises(TypeError, match=r"score does not take the argument 'feature_weight'.*KLN"):
        model.score(X, feature_weight=np.ones(m))
    with pytest.raises(TypeError, match="evaluate does not take the argument 'weights'"):
        evaluate(model, X, weights=np.ones(n))
    with pytest.raises(ValueError, match="evaluate does not take missing cells"):
        evaluate(model, X, missing=np.zeros((n, m), bool))
    with pytest.raises(ValueError, match=r"exposure must have one number for each sample"):
        model.score(X, exposure=np.ones(n + 1))


# ---- the background ------------------------------------------------------------------------------


def margins_of(model: Any, unit: float = 1.0) -> np.ndarray:
    return expected_margins([model.components_.T], model.W_sums_, unit)[0]


def test_the_margins_of_a_fit_are_those_of_its_data() -> None:
    sums = np.asarray(X.sum(axis=0)).ravel()
    model = fit(tol=1e-5, max_iter=500)[1]
    np.testing.assert_allclose(margins_of(model), sums, rtol=1e-3, atol=1e-3)
    weights = {name: ALL[name] for name in ("sample_weight", "exposure")}
    weighted = ALL["sample_weight"] @ X.toarray()
    model = fit(**weights, tol=1e-5, max_iter=500)[1]
    np.testing.assert_allclose(margins_of(model), weighted, rtol=1e-3, atol=1e-3)
    stream = MiniBatchKLNMF(RANK, random_state=0).fit(X)
    np.testing.assert_allclose(margins_of(stream), sums, rtol=1e-5)


def test_components_alone_occur_equally_often() -> None:
    components = np.array([[2.0, 2.0, 0.0], [0.0, 0.0, 5.0]])
    margins = margins_of(KLNMF.from_components(components), 2.0)
    np.testing.assert_allclose(margins, [1.5, 1.5, 3.0])
    with pytest.raises(ValueError, match="W_sums must be 2 nonnegative finite numbers"):
        KLNMF.from_components(components, W_sums=[1.0, -1.0])


def test_saved_models_carry_the_sums(tmp_path: Any) -> None:
    model = fit()[1]
    model.save(tmp_path / "m.klnmf")
    loaded = load_model(tmp_path / "m.klnmf").model
    np.testing.assert_array_equal(loaded.W_sums_, model.W_sums_)
    assert loaded.score(X) == model.score(X)
    bare = KLNMF.from_components(model.components_, tol=model.tol)
    assert bare.W_sums_ is None
    assert np.isfinite(bare.score(X))
    bare.save(tmp_path / "bare.klnmf")
    assert load_model(tmp_path / "bare.klnmf").model.W_sums_ is None


def test_the_order_of_models_does_not_depend_on_the_unit() -> None:
    """Scores differ by a constant; what is left of them is in proportion to the counts."""
    counts = planted(40, None, seed=3).astype(np.float64)
    gains = []
    for unit in (1.0, 4096.0, 1 / 4096):  # exact
        scaled = counts * unit
        scores = [
            KLNMF(r, random_state=0, n_threads=1).fit(scaled[:200]).score(scaled[200:])
            for r in (1, 4, 7, 12)
        ]
        gains.append(np.diff(scores) / unit)
    np.testing.assert_allclose(gains[1:], [gains[0]] * 2, rtol=1e-3)
    assert np.argmax(np.cumsum(gains[0])) == 1  # seven components


@pytest.mark.parametrize("n_features", [1, 2, 6])
def test_few_features_are_scored(n_features: int) -> None:
    few = X[:, :n_features]
    assert np.isfinite(KLNMF(1, random_state=0).fit(few).score(few))


# ---- searches ------------------------------------------------------------------------------------


def planted(words: int, size: float | None, seed: int) -> sp.csr_array:
    """Counts with seven components; negative binomial with this size, if there is one."""
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.full(7, 0.3), 300)
    means = words * shares @ generator.dirichlet(np.full(200, 0.1), 7)
    if size is not None:
        means = means * generator.gamma(size, 1 / size, means.shape)
    return sp.csr_array(generator.poisson(means).astype(np.float32))


@pytest.mark.parametrize(("words", "size"), [(15, None), (50, None), (300, None), (300, 3.0)])
def test_a_grid_search_finds_the_planted_rank(words: int, size: float | None) -> None:
    counts = planted(words, size, seed=1)
    model = KLNMF(random_state=0, n_threads=1)
    search = GridSearchCV(model, {"n_components": [1, 5, 6, 7, 8, 9, 12]}, cv=3).fit(counts)
    assert search.best_params_["n_components"] == 7


def test_more_variance_than_poisson_is_no_structure() -> None:
    """A count split in two has its excess in both halves, and ten components would score best."""
    generator = np.random.default_rng(0)
    means = np.outer(np.full(200, 300.0), generator.dirichlet(np.full(100, 0.3)))
    noise = generator.poisson(means * generator.gamma(1.0, 1.0, means.shape))
    scores = [
        KLNMF(r, random_state=0, n_threads=1).fit(noise[:130]).score(noise[130:])
        for r in (1, 2, 5, 10)
    ]
    assert scores == sorted(scores, reverse=True)
