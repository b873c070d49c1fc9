"""Everything that is known is checked before any work, with messages that name it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from constraint_cases import RANK, X, everything_known, fit
from klnmf import KLNMF, MiniBatchKLNMF

n, m = X.shape
ALL = everything_known()


def ones_but(size: int, value: float) -> np.ndarray:
    values = np.ones(size)
    values[2] = value
    return values


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"sample_weight": np.ones(n - 1)}, r"sample_weight must have one number for each sample"),
        ({"sample_weight": np.ones((n, 1))}, r"shape \(30,\); got \(30, 1\)"),
        ({"sample_weight": 2.0}, r"sample_weight must have one number for each sample"),
        ({"sample_weight": ones_but(n, -1)}, r"nonnegative, .* sample_weight\[2\] = -1"),
        ({"sample_weight": ones_but(n, np.nan)}, r"sample_weight\[2\] = nan"),
        ({"sample_weight": ones_but(n, 1e-200)}, r"sample_weight\[2\] = 1e-200"),
        ({"sample_weight": np.zeros(n)}, "sample_weight is 0 everywhere"),
        ({"feature_weight": np.ones(n)}, r"feature_weight must have one number for each feature"),
        ({"feature_weight": ones_but(m, np.inf)}, r"feature_weight\[2\] = inf"),
        ({"exposure": ones_but(n, 0)}, r"exposure must be finite and positive"),
        ({"missing": np.zeros((m, n))}, r"missing must have shape \(30, 20\), got \(20, 30\)"),
        ({"zero_W": np.zeros((n, 3))}, r"zero_W must have shape \(30, 4\), got \(30, 3\)"),
        ({"zero_components": np.zeros((m, RANK))}, r"zero_components must have shape \(4, 20\)"),
        ({"fixed_W": np.ones((n + 1, 2))}, r"fixed_W must have shape \(30, k\), got \(31, 2\)"),
        ({"fixed_W": -np.ones((n, 1))}, r"fixed_W\[0, 0\] = -1"),
        ({"fixed_W": np.ones((n, 5))}, r"0 fixed components and 5 fixed columns of W are 5"),
        ({"fixed_components": np.ones((2, n))}, r"shape \(k, 20\), got \(2, 30\)"),
        ({"fixed_components": np.full((1, m), np.nan)}, r"fixed_components\[0, 0\] = nan"),
        (
            {"fixed_components": np.ones((3, m)), "fixed_W": np.ones((n, 2))},
            r"3 fixed components and 2 fixed columns of W are 5 components, more than n_comp",
        ),
        (
            {"fixed_components": np.ones((1, m)), "zero_components": np.eye(RANK, m)},
            r"zero_components sets entry \(0, 0\) to 0, but fixed_components fixes it at 1",
        ),
        (
            {"fixed_W": np.ones((n, 1)), "zero_W": np.eye(n, RANK)},
            r"zero_W sets entry \(3, 3\) to 0, but fixed_W fixes",
        ),
        (
            {"fixed_W": np.full(n, 1e100), "exposure": np.full(n, 1e100)},
            r"fixed_W times weights and exposures has entries up to 1e\+200",
        ),
        ({"zero_W": np.ones((n, RANK))}, r"value in cell \[0, \d+\], but zero_W leave no"),
        (
            {"zero_components": np.ones((RANK, m))},
            r"value in cell \[0, \d+\], but zero_components leave",
        ),
        ({"l1_W": 1e139, "exposure": ones_but(n, 1e-9)}, r"l1_W is too large for weights"),
        ({"l2_W": 1e139, "sample_weight": ones_but(n, 1e-9)}, r"l2_W is too large for weights"),
    ],
)
def test_what_is_wrong_is_named(known: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(**known)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"sample_weight": ["a"] * n}, "sample_weight must hold real numbers"),
        ({"missing": np.full((n, m), "x")}, "missing must be True"),
        ({"fixed_W": np.full((n, 1), "x")}, "fixed_W must hold real numbers"),
        ({"weights": np.ones(n)}, r"argument 'weights'. Did you mean 'sample_weight'"),
    ],
)
def test_what_is_of_a_wrong_type_is_named(known: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fit(**known)


def test_a_cell_that_nothing_can_explain_is_named() -> None:
    """Neither its sample nor its feature is bare, but no component may be used by both."""
    counts = np.ones((3, 2))
    zero_W, zero_components = np.zeros((3, 2)), np.zeros((2, 2))
    zero_W[1, 0] = zero_components[1, 0] = 1
    known = {"zero_W": zero_W, "zero_components": zero_components}
    with pytest.raises(ValueError, match=r"cell \[1, 0\], but zero_W and zero_components leave no"):
        fit(counts, 2, **known)
    missing = np.zeros((3, 2))
    missing[1, 0] = 1
    assert np.isfinite(fit(counts, 2, missing=missing, **known)[1].divergence_)
    counts[1, 0] = 0  # nothing to explain
    assert np.isfinite(fit(counts, 2, **known)[1].divergence_)


@pytest.mark.parametrize("solver", ["srcd-paper", "ccd"])
@pytest.mark.parametrize(
    "name", ["missing", "fixed_W", "zero_W", "zero_components", "fixed_components"]
)
def test_solvers_that_cannot_say_so(solver: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"solver='{solver}' does not support {name}"):
        fit(solver=solver, **{name: ALL[name]})
    with pytest.raises(ValueError, match="exposure under penalties on backend='cpu'"):
        fit(solver=solver, exposure=ALL["exposure"], l1_W=0.1, l1_H=0.1)


def test_transform_takes_what_is_about_samples() -> None:
    model = fit(max_iter=2)[1]
    advice = r"transform does not take the argument 'sample_weight'\. Use fit\(X, "
    with pytest.raises(TypeError, match=advice):
        model.transform(X, sample_weight=np.ones(n))
    with pytest.raises(ValueError, match="exposure must have one number for each sample"):
        model.transform(X[:3], exposure=np.ones(n))


def test_a_model_for_streams_takes_weights_alone() -> None:
    with pytest.raises(TypeError, match="does not take 'missing': each update of H"):
        MiniBatchKLNMF(2).fit(X, missing=ALL["missing"])  # type: ignore[call-arg]
    model = MiniBatchKLNMF(2, random_state=0).fit(X)
    exposure = np.full(n, 2.0)  # but new samples can be seen as by any other model
    np.testing.assert_array_equal(model.transform(X, exposure=exposure), model.transform(X) / 2)
    with pytest.raises(ValueError, match="fixed_W had 0 columns in fit, and has 1"):
        model.transform(X, fixed_W=np.ones((n, 1)))


def test_patterns_may_be_anything_that_has_cells() -> None:
    missing = ALL["missing"]
    duplicated = sp.coo_array(
        (
            np.ones(2 * missing.nnz),
            tuple(np.concatenate([part, part]) for part in missing.tocoo().coords),
        ),
        shape=missing.shape,
    )
    with_explicit_zeros = sp.csr_array(missing.astype(float) + 0)
    with_explicit_zeros.data[:] = 1
    given = [
        missing,
        missing.toarray(),
        missing.astype(int).tocsc(),
        duplicated,
        with_explicit_zeros,
    ]
    models = [fit(missing=cells, max_iter=2)[1] for cells in given]
    assert len({model.divergence_ for model in models}) == 1
    before = missing.copy()
    fit(missing=missing, max_iter=1)
    assert (before != missing).nnz == 0


def test_parameters_are_checked_by_scikit_learn_too() -> None:
    with pytest.raises(ValueError, match="'fixed_components' parameter of KLNMF"):
        KLNMF(2, fixed_components=3).fit(X)


@pytest.mark.parametrize("name", ["fixed_components", "fixed_W"])
def test_fixed_values_that_have_no_digits_are_refused(name: str) -> None:
    shape = (1, m) if name == "fixed_components" else (n, 1)
    values = np.ones(shape)
    values.flat[3] = 1e-42
    with pytest.raises(
        ValueError, match=rf"{name} has positive entries down to 1e-42, but float32"
    ):
        fit(dtype=np.float32, **{name: values})
    fit(max_iter=1, **{name: values})  # float64 has them
    values.flat[3] = 1e-30
    weights = {"feature_weight": np.full(m, 1e-10), "sample_weight": np.full(n, 1e-10)}
    with pytest.raises(ValueError, match=rf"{name} times weights .* down to 1e-40.*Set these"):
        fit(X * 1e10, dtype=np.float32, **{name: values}, **weights)


@pytest.mark.parametrize("computed", [np.float32, np.float64])
@pytest.mark.parametrize("given", [int, bool, np.uint8, np.float16, np.float32])
def test_fixed_values_of_any_type_of_number(given: Any, computed: Any) -> None:
    for values in (np.eye(1, m, dtype=given), np.zeros((1, m), dtype=given)):
        model = fit(dtype=computed, max_iter=1, fixed_components=values)[1]
        np.testing.assert_array_equal(model.components_[:1], values.astype(computed))


@pytest.mark.parametrize("solver", ["srcd", "mu"])
def test_no_fit_has_converged_at_an_infinite_objective(solver: str) -> None:
    """The W that 100 = W Hᵀ asks for is beyond the largest number of the type."""
    with np.errstate(over="ignore"):
        known = {"fixed_components": [[2e-38]], "dtype": np.float32, "solver": solver}
        model = fit([[100.0]], 1, max_iter=2, **known)[1]
    assert not np.isfinite(model.divergence_)
    assert not model.converged_


def test_a_penalty_on_one_factor_is_no_trouble_where_the_other_is_known() -> None:
    model = KLNMF(1, fixed_components=np.ones((1, 2)), l1_W=2.0, n_threads=1)
    W = model.fit_transform([[3.0, 3.0]])  # warnings are errors: min 2 W - 6 log W + 2 W
    assert float(W[0, 0]) == pytest.approx(1.5, rel=1e-4)
    with pytest.warns(UserWarning, match="Only one of the factors is penalised"):
        fit(fixed_components=np.ones((1, m)), l1_W=2.0, max_iter=1)
    fit(rank=2, fixed_components=np.ones((1, m)), fixed_W=np.ones((n, 1)), l1_H=2.0, max_iter=1)


@pytest.mark.parametrize(
    "weights",
    [
        np.ma.masked_less(np.arange(30.0), 3),
        ["1"] * 30,
        np.array(["1"] * 30, dtype=object),
        np.full(30, "2"),
        [1.0] * 29 + ["3"],
        np.full(30, 1 + 0j),
        np.full(30, np.datetime64("2020-01-01")),
    ],
    ids=["masked", "strings", "objects", "array of strings", "one string", "complex", "dates"],
)
@pytest.mark.parametrize("name", ["sample_weight", "exposure"])
def test_weights_that_are_not_plain_numbers_are_refused(name: str, weights: Any) -> None:
    with pytest.raises(TypeError, match=rf"{name} (is a masked array|must hold real numbers)"):
        fit(max_iter=1, **{name: weights})
