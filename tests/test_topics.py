"""Leading features of components and their table."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from klnmf.topics import component_shares, format_topics, top_features

NAMES = ["sea", "ship", "field", "corn"]
COMPONENTS = np.array([[6.0, 2.0, 0.0, 0.0], [0.0, 1.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]])


def test_weights_are_shares_in_falling_order_without_zeros() -> None:
    assert top_features(COMPONENTS, NAMES) == [
        [("sea", 0.75), ("ship", 0.25)],
        [("field", 0.5), ("ship", 0.25), ("corn", 0.25)],  # a tie keeps the order of features
        [],
    ]
    assert top_features(COMPONENTS, NAMES, n_top=1)[1] == [("field", 0.5)]


def test_lift_follows_its_formula() -> None:
    [first, second, third] = top_features(COMPONENTS, NAMES, by="lift")
    uniform = 0.25
    # Mean shares over the two components that are not empty: 0.375, 0.25, 0.25, 0.125.
    assert [name for name, _ in first] == ["sea", "ship"]
    assert dict(first)["sea"] == pytest.approx((0.75 + uniform) / (0.375 + uniform))
    assert dict(first)["ship"] == pytest.approx(1.0)
    assert [name for name, _ in second] == ["field", "corn", "ship"]
    assert dict(second)["corn"] == pytest.approx((0.25 + uniform) / (0.125 + uniform))
    assert third == []


def test_lift_prefers_telling_features_over_common_and_over_rare_ones() -> None:
    components = np.full((2, 102), 1e-6)
    components[:, 0] = 10.0  # common to both
    components[0, 1] = 5.0  # tells the first from the second
    components[0, 2], components[1, 2] = 1e-3, 0.0  # in the first only, but hardly there
    names = ["common", "telling", "rare"] + [f"other{j}" for j in range(99)]
    assert top_features(components, names, n_top=1)[0][0][0] == "common"
    assert top_features(components, names, n_top=1, by="lift")[0][0][0] == "telling"


@pytest.mark.parametrize("by", ["weight", "lift"])
def test_scale_of_a_component_does_not_matter(by: str) -> None:
    generator = np.random.default_rng(0)
    components = generator.gamma(0.3, size=(4, 30))
    rescaled = components * np.array([[4.0], [0.5], [16.0], [1.0]])  # powers of 2 are exact
    expected = top_features(components, by=by)  # type: ignore[arg-type]
    assert top_features(rescaled, by=by) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["weight", "lift"])
@pytest.mark.parametrize(
    "convert", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array, np.ndarray.tolist]
)
def test_sparse_components_give_the_same_as_dense(by: str, convert: object) -> None:
    generator = np.random.default_rng(1)
    components = generator.integers(0, 4, size=(5, 20)).astype(np.float32)
    components[3] = 0.0
    expected = top_features(components, by=by)  # type: ignore[arg-type]
    assert expected[3] == []
    assert top_features(convert(components), by=by) == expected  # type: ignore[arg-type,operator]


def test_untidy_sparse_input_is_understood_and_left_as_it_was() -> None:
    # Columns out of order, one stored twice, one stored zero.
    untidy = sparse.csr_matrix(
        (np.array([2.0, 0.0, 1.0, 1.0]), np.array([2, 1, 0, 0]), np.array([0, 4])), shape=(1, 3)
    )
    assert top_features(untidy, ["a", "b", "c"]) == [[("a", 0.5), ("c", 0.5)]]
    assert untidy.indices.tolist() == [2, 1, 0, 0]
    assert untidy.nnz == 4


def test_names_by_default_are_numbered() -> None:
    assert top_features([[0.0, 1.0]]) == [[("feature 1", 1.0)]]


def test_shares_use_both_factors() -> None:
    assert component_shares(COMPONENTS).tolist() == pytest.approx([8 / 12, 4 / 12, 0.0])
    W = np.array([[1.0, 3.0, 5.0], [0.0, 1.0, 0.0]])
    assert component_shares(COMPONENTS, W).tolist() == pytest.approx([8 / 24, 16 / 24, 0.0])
    assert component_shares(np.zeros((2, 3))).tolist() == [0.0, 0.0]


def test_table_is_sorted_by_share_and_wrapped() -> None:
    W = np.array([[1.0, 4.0, 1.0]])
    assert format_topics(COMPONENTS, NAMES, W=W).splitlines() == [
        "component  share  top features",
        "        1  66.7%  field, ship, corn",
        "        0  33.3%  sea, ship",
        "        2   0.0%  (empty)",
    ]
    wrapped = format_topics(COMPONENTS, NAMES, width=30).splitlines()
    assert wrapped[2:4] == ["        1  33.3%  field, ship,", "                  corn"]
    assert max(map(len, wrapped)) <= 30


def test_table_ranks_by_lift_too() -> None:
    assert "field, corn, ship" in format_topics(COMPONENTS, NAMES, by="lift")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"components": [1.0, 2.0]}, r"two dimensions .* got shape \(2,\)"),
        ({"components": np.zeros((2, 0))}, "at least one column"),
        ({"components": [[-1.0, 2.0]]}, "nonnegative and finite"),
        ({"components": [[np.nan, 2.0]]}, "nonnegative and finite"),
        ({"components": [[np.inf, 2.0]]}, "nonnegative and finite"),
        ({"feature_names": ["a"]}, "has 1 names for 4 features"),
        ({"n_top": 0}, "n_top must be at least 1; got 0"),
        ({"by": "size"}, "by must be .*or .kl.; got 'size'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"components": COMPONENTS} | arguments
    with pytest.raises(ValueError, match=message):
        top_features(**given)  # type: ignore[arg-type]


def test_representation_must_have_one_column_per_component() -> None:
    with pytest.raises(ValueError, match=r"one column per component \(3\); got shape \(1, 2\)"):
        component_shares(COMPONENTS, np.ones((1, 2)))
