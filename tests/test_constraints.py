"""What is known of a factorisation before it is fitted: what it means, and that it is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from constraint_cases import RANK, X, divergence, everything_known, fit, of_samples
from klnmf import KLNMF
from klnmf.evaluation import evaluate
from klnmf.objective import kkt_residual, kl_divergence
from klnmf.solvers import SOLVERS
from strategies import same_bits

Array = np.ndarray

ALL = everything_known()
SOLVERS_FOR_ALL = ("srcd", "mu", "bmme")
OF_CELLS = ("sample_weight", "feature_weight", "exposure", "missing")
PENALTIES = {"l1_W": 0.1, "l2_W": 0.02, "l1_H": 0.3, "l2_H": 0.01}
n, m = X.shape


def only(*names: str) -> dict[str, Any]:
    return {name: ALL[name] for name in names}


SINGLY = {name: only(name) for name in ALL}


# ---- the objective ------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [{}, PENALTIES], ids=["plain", "penalised"])
@pytest.mark.parametrize("solver", SOLVERS_FOR_ALL)
@pytest.mark.parametrize("known", [*SINGLY.values(), ALL], ids=[*SINGLY, "all"])
def test_the_divergence_is_that_of_the_formula(
    known: dict[str, Any], solver: str, weights: dict[str, float]
) -> None:
    W, model = fit(solver=solver, max_iter=6, **weights, **known)
    expected = divergence(X, W, model.components_, known)
    assert model.divergence_ == pytest.approx(expected, rel=1e-9)
    again = model.transform(X, **of_samples(known))
    found = divergence(X, again, model.components_, known)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in SOLVERS_FOR_ALL])
def test_weights_and_exposures_are_for_every_solver(solver: str) -> None:
    known = only("sample_weight", "feature_weight", "exposure")
    W, model = fit(solver=solver, max_iter=3, **known)
    expected = divergence(X, W, model.components_, known)
    assert model.divergence_ == pytest.approx(expected, rel=1e-9)


def test_the_history_is_of_the_same_objective_and_falls() -> None:
    _, model = fit(tol=1e-5, max_iter=400, **ALL)
    assert model.converged_
    objectives = [record["objective"] for record in model.history_]
    assert objectives == sorted(objectives, reverse=True)
    assert model.divergence_ <= model.history_[-1]["divergence"] + 1e-9


@pytest.mark.parametrize("name", ["exposure", "sample_weight", "feature_weight"])
def test_penalties_are_those_of_the_factors_returned(name: str) -> None:
    """Σ_i w_i (l1_W ‖W_i‖₁ + l2_W/2 ‖W_i‖²) + …: a weight counts for the penalty as well."""
    size = m if name == "feature_weight" else n
    known = {name: 0.5 + np.arange(size) / size}
    W, model = fit(max_iter=400, tol=1e-7, **PENALTIES, **known)
    H = model.components_
    weights = known.get("sample_weight"), known.get("feature_weight")

    def penalty(W: Array, H: Array) -> float:
        total = 0.0
        for letter, factor, of_rows in (("W", W, weights[0]), ("H", H.T, weights[1])):
            l1, l2 = PENALTIES[f"l1_{letter}"], PENALTIES[f"l2_{letter}"]
            rows = l1 * factor.sum(axis=1) + l2 / 2 * (factor**2).sum(axis=1)
            total += float((rows if of_rows is None else rows * of_rows).sum())
        return total

    before = divergence(X, W, H, known) + penalty(W, H)
    assert model.history_[-1]["objective"] == pytest.approx(before, rel=1e-6)
    generator = np.random.default_rng(0)
    for _ in range(20):  # nothing near is lower: the minimum of the formula, and of nothing else
        near_W, near_H = (
            factor * np.exp(1e-3 * generator.normal(size=factor.shape)) for factor in (W, H)
        )
        assert divergence(X, near_W, near_H, known) + penalty(near_W, near_H) > before


def test_a_sample_of_weight_2_is_two_samples_under_penalties() -> None:
    fixed = {"fixed_components": fit(max_iter=3)[1].components_}  # one minimum
    twice = sp.vstack([X, X[:5]], format="csr")
    weight = np.where(np.arange(n) < 5, 2.0, 1.0)
    W, model = fit(tol=1e-7, sample_weight=weight, **PENALTIES, **fixed)
    two = KLNMF(RANK, tol=1e-7, dtype=np.float64, random_state=0, **PENALTIES, **fixed)
    V = two.fit_transform(twice)
    np.testing.assert_allclose(V[:n], W, rtol=1e-5, atol=1e-8)
    assert two.divergence_ == pytest.approx(model.divergence_, rel=1e-6)
    np.testing.assert_allclose(model.transform(X), W, rtol=1e-5, atol=1e-8)


# ---- equivalences -------------------------------------------------------------------------------


def same_start(seed: int = 1) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {"W": 1 + generator.random((n, RANK)), "H": 1 + generator.random((RANK, m))}


def test_a_weight_of_two_is_a_sample_twice() -> None:
    start = same_start()
    weighted = fit(**start, sample_weight=np.where(np.arange(n) < 10, 2, 1))[1]
    twice = sp.vstack([X, X[:10]]).tocsr()
    W = np.concatenate([start["W"], start["W"][:10]])
    repeated = fit(twice, W=W, H=start["H"])[1]
    np.testing.assert_allclose(weighted.components_, repeated.components_, rtol=1e-6, atol=1e-9)
    assert weighted.divergence_ == pytest.approx(repeated.divergence_, rel=1e-9)


def test_a_weight_of_zero_is_no_sample() -> None:
    start, kept = same_start(), np.arange(n) % 3 > 0
    W, weighted = fit(**start, sample_weight=kept.astype(float))
    removed = fit(X[kept], W=start["W"][kept], H=start["H"])[1]
    np.testing.assert_allclose(weighted.components_, removed.components_, rtol=1e-9, atol=1e-12)
    # Its row of W is what transform says of it.
    assert same_bits(W[~kept], weighted.transform(X[~kept]))


def test_a_feature_weight_of_zero_is_no_feature() -> None:
    start, kept = same_start(), np.arange(m) % 4 > 0
    W, weighted = fit(**start, feature_weight=kept.astype(float))
    W_without, removed = fit(X[:, kept], W=start["W"], H=start["H"][:, kept])
    np.testing.assert_allclose(weighted.components_[:, kept], removed.components_, rtol=1e-9)
    np.testing.assert_allclose(W, W_without, rtol=1e-9)
    assert not weighted.components_[:, ~kept].any()
    changed = X.toarray()
    changed[:, ~kept] += 5  # nor in transform and score
    np.testing.assert_array_equal(weighted.transform(changed), weighted.transform(X))
    assert weighted.score(changed) == weighted.score(X)


@pytest.mark.parametrize("axis", [0, 1], ids=["rows", "columns"])
def test_missing_rows_and_columns_are_not_there(axis: int) -> None:
    start, kept = same_start(), np.arange(X.shape[axis]) % 4 > 0
    missing = np.zeros(X.shape, dtype=bool)
    missing[~kept if axis == 0 else (slice(None), ~kept)] = True
    W, model = fit(**start, missing=missing)
    if axis == 0:
        start["W"] = start["W"][kept]
        W_without, without = fit(X[kept], **start)
        assert not W[~kept].any()
        W = W[kept]
        np.testing.assert_allclose(model.components_, without.components_, rtol=1e-6, atol=1e-9)
    else:
        start["H"] = start["H"][:, kept]
        W_without, without = fit(X[:, kept], **start)
        assert not model.components_[:, ~kept].any()
        found = model.components_[:, kept]
        np.testing.assert_allclose(found, without.components_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(W, W_without, rtol=1e-3, atol=1e-4)  # each solved to a tolerance
    assert model.divergence_ == pytest.approx(without.divergence_, rel=1e-9)


def test_what_x_has_in_a_missing_cell_does_not_matter() -> None:
    missing = ALL["missing"]
    changed = sp.csr_array(X + 7 * missing.astype(float))
    one, other = (fit(data, missing=missing) for data in (X, changed))
    assert same_bits(one[0], other[0])
    assert same_bits(one[1].components_, other[1].components_)


def test_an_exposure_scales_w_and_nothing_else() -> None:
    exposure = 2.0 ** np.arange(-3, n - 3).clip(-3, 3)  # powers of 2: no rounding
    (W, plain), (per_unit, exposed) = fit(), fit(exposure=exposure)
    assert same_bits(plain.components_, exposed.components_)
    assert same_bits(per_unit * exposure[:, None], W)
    assert same_bits(
        exposed.transform(X, exposure=exposure), plain.transform(X) / exposure[:, None]
    )


def test_weights_of_one_change_no_bit() -> None:
    ones = {"sample_weight": np.ones(n), "feature_weight": np.ones(m), "exposure": np.ones(n)}
    nothing = {"missing": sp.csr_array(X.shape, dtype=bool), "zero_W": np.zeros((n, RANK), bool)}
    (W, plain), (weighted_W, weighted) = fit(), fit(**ones, **nothing)
    assert same_bits(W, weighted_W)
    assert same_bits(plain.components_, weighted.components_)


def test_with_all_components_fixed_a_fit_is_transform() -> None:
    components = fit()[1].components_
    W, model = fit(fixed_components=components, tol=1e-4)
    assert same_bits(model.components_, components)
    assert model.converged_
    np.testing.assert_allclose(W, model.transform(X), rtol=1e-3, atol=1e-4)
    assert kkt_residual(X, W, model.components_) > 1e-3  # of H: nobody asked it to move


# ---- what is known is kept ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weights", [{}, PENALTIES], ids=["plain", "penalised"])
@pytest.mark.parametrize("solver", SOLVERS_FOR_ALL)
def test_known_entries_are_kept_to_the_bit(
    solver: str, weights: dict[str, float], dtype: type
) -> None:
    W, model = fit(solver=solver, dtype=dtype, max_iter=8, **weights, **ALL)
    assert same_bits(model.components_[:1].copy(), ALL["fixed_components"].astype(dtype))
    assert same_bits(W[:, -1:].copy(), ALL["fixed_W"].astype(dtype))
    assert not W[ALL["zero_W"].toarray()].any()
    assert not model.components_[ALL["zero_components"].toarray()].any()
    assert model.n_fixed_W_ == 1
    # The rest is not 0 everywhere, and did move.
    assert W[:, :3].any(axis=0).all()
    assert model.components_[1:].any(axis=1).all()


@pytest.mark.parametrize("init", ["samples", "random", "nndsvd"])
@pytest.mark.parametrize("n_init", [1, 2])
def test_from_every_start(init: str, n_init: int) -> None:
    W, model = fit(init=init, n_init=n_init, max_iter=200, tol=1e-4, **ALL)
    assert model.converged_
    assert divergence(X, W, model.components_, ALL) < 0.2 * float(X.sum())


def test_starts_of_the_users_own_get_what_is_known() -> None:
    start = same_start()
    for given in (start, {"W": start["W"]}, {"H": start["H"]}):
        W, model = fit(**given, max_iter=1, **ALL)
        assert same_bits(model.components_[:1].copy(), ALL["fixed_components"])
        assert same_bits(W[:, -1:].copy(), ALL["fixed_W"])
        assert not W[ALL["zero_W"].toarray()].any()


@pytest.mark.parametrize("solver", ["srcd", "mu"])
def test_a_start_that_covers_nothing_is_filled_where_something_may_be(solver: str) -> None:
    start = {"W": np.zeros((1, 2)), "H": np.zeros((2, 2))}
    for known in (
        {"fixed_components": np.array([[0.0, 1.0]])},
        {"zero_components": np.array([[True, False], [False, False]])},
    ):
        model = fit([[3.0, 2.0]], 2, solver=solver, **start, **known)[1]
        assert all(np.isfinite(record["objective"]) for record in model.history_)
        assert model.divergence_ < 1e-3


def test_fixed_components_of_any_scale_are_no_worse() -> None:
    """The start fits the scale of what is known: the optimum is the same one."""
    signatures = fit()[1].components_[:2]
    ends = [
        fit(fixed_components=scale * signatures, max_iter=500, tol=1e-6)[1].divergence_
        for scale in (1e-6, 1.0, 1e6)
    ]
    assert max(ends) == pytest.approx(min(ends), rel=1e-3)


@pytest.mark.parametrize("solver", SOLVERS_FOR_ALL)
@pytest.mark.parametrize("counts", [0 * X, X], ids=["no counts", "no count seen"])
def test_nothing_to_learn_from(counts: Any, solver: str) -> None:
    missing = np.ones(X.shape, dtype=bool)
    missing[tuple(np.argwhere(X.toarray() == 0)[0])] = False
    known = only("fixed_W", "fixed_components")
    W, model = fit(counts, solver=solver, missing=missing, **known)
    assert model.divergence_ == 0
    assert not W[:, :-1].any()
    assert same_bits(W[:, -1:].copy(), ALL["fixed_W"])


def test_a_fit_that_knows_the_truth_finds_the_rest() -> None:
    """Two components planted, one given: the other one is found."""
    generator = np.random.default_rng(0)
    truth = generator.dirichlet(np.full(30, 0.3), size=2)
    counts = generator.poisson(50 * generator.gamma(1.0, size=(200, 2)) @ truth)
    model = fit(counts, 2, fixed_components=truth[:1], max_iter=200)[1]
    found = model.components_[1] / np.linalg.norm(model.components_[1])
    assert found @ truth[1] / np.linalg.norm(truth[1]) > 0.999


def test_a_data_frame_of_components_is_put_in_order() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"f{j}" for j in range(m)]
    frame = pandas.DataFrame(X.toarray(), columns=names)
    signature = np.random.default_rng(0).random(m)
    known = pandas.DataFrame([signature], columns=names)
    model = fit(frame, fixed_components=known[names[::-1]])[1]
    np.testing.assert_array_equal(model.components_[0], signature)
    with pytest.raises(ValueError, match=r"'f0'\] are in only one of them"):
        fit(frame, fixed_components=known[names[1:]])


def test_a_signature_with_tiny_entries_is_kept() -> None:
    """As catalogues of signatures have them in the place of 0."""
    signature = np.where(np.arange(m) % 2, 2.2e-16, 0.1)
    model = fit(dtype=np.float32, fixed_components=signature[None], max_iter=3)[1]
    np.testing.assert_array_equal(model.components_[0], signature.astype(np.float32))


def test_transform_needs_the_known_columns_of_new_samples() -> None:
    model = fit(fixed_W=ALL["fixed_W"], max_iter=3)[1]
    with pytest.raises(ValueError, match="fixed_W had 1 columns in fit, and has 0"):
        model.transform(X)
    with pytest.raises(ValueError, match="and has 2 for these samples"):
        model.transform(X, fixed_W=np.ones((n, 2)))
    for scored in (lambda: model.score(X), lambda: evaluate(model, X)):
        with pytest.raises(ValueError, match="fixed_W had 1 columns in fit, and has 0"):
            scored()
    W = model.transform(X[:3], fixed_W=ALL["fixed_W"][:3])
    assert same_bits(W[:, -1:].copy(), ALL["fixed_W"][:3])


def test_one_known_component_or_column_may_be_a_vector() -> None:
    W, model = fit(fixed_components=np.ones(m), fixed_W=np.ones(n), max_iter=2)
    assert (model.components_[0] == 1).all()
    assert (W[:, -1] == 1).all()
    assert model.transform(X[:2], fixed_W=np.ones(2)).shape == (2, RANK)


def test_sparse_output_and_clones() -> None:
    from sklearn.base import clone

    model = clone(KLNMF(3, fixed_components=ALL["fixed_components"], sparse_output=True))
    W = model.set_params(random_state=0, max_iter=3, tol=10).fit_transform(
        X, exposure=ALL["exposure"]
    )
    assert sp.issparse(W)
    assert same_bits(
        model.components_.toarray()[:1], ALL["fixed_components"].astype(model.components_.dtype)
    )


@pytest.mark.parametrize("names", [(name,) for name in OF_CELLS] + [OF_CELLS], ids=str)
def test_the_specification_has_the_same_divergence(names: tuple[str, ...]) -> None:
    generator = np.random.default_rng(0)
    W, H = generator.random((n, 3)), generator.random((m, 3))
    known = only(*names)
    found = kl_divergence(X, W, H.T, **known)
    assert found == pytest.approx(divergence(X, W, H.T, known), rel=1e-12)
