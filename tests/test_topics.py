"""Leading features of components and their table."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from scipy import sparse

from klnmf.cli import topics as topics_command
from klnmf.topics import component_shares, format_topics, name_components, top_features
from klnmf.topics.features import RANKING, Ranking

RANKINGS = get_args(Ranking)

NAMES = ["sea", "ship", "field", "corn"]
COMPONENTS = np.array([[6.0, 2.0, 0.0, 0.0], [0.0, 1.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]])


def test_weights_are_shares_in_falling_order_without_zeros() -> None:
    assert top_features(COMPONENTS, NAMES, by="weight") == [
        [("sea", 0.75), ("ship", 0.25)],
        [("field", 0.5), ("ship", 0.25), ("corn", 0.25)],  # a tie keeps the order of features
        [],
    ]
    assert top_features(COMPONENTS, NAMES, n_top=1, by="weight")[1] == [("field", 0.5)]


def test_lift_follows_its_formula() -> None:
    [first, second, third] = top_features(COMPONENTS, NAMES, by="lift")
    # One over the effective numbers of features, exp(Σ p log p).
    floor, other = 0.75**0.75 * 0.25**0.25, 0.5**0.5 * 0.25**0.25 * 0.25**0.25
    # Mean shares over the two components that are not empty: 0.375, 0.25, 0.25, 0.125.
    assert [name for name, _ in first] == ["sea", "ship"]
    assert dict(first)["sea"] == pytest.approx((0.75 + floor) / (0.375 + floor))
    assert dict(first)["ship"] == pytest.approx(1.0)
    assert [name for name, _ in second] == ["field", "corn", "ship"]
    assert dict(second)["corn"] == pytest.approx((0.25 + other) / (0.125 + other))
    assert third == []


def test_telling_features_lead_over_common_and_over_rare_ones() -> None:
    components = np.full((2, 102), 1e-6)
    components[:, 0] = 10.0  # common to both
    components[0, 1] = 5.0  # tells the first from the second
    components[0, 2], components[1, 2] = 1e-3, 0.0  # in the first only, but hardly there
    names = ["common", "telling", "rare"] + [f"other{j}" for j in range(99)]
    assert top_features(components, names, n_top=1, by="weight")[0][0][0] == "common"
    assert top_features(components, names, n_top=1)[0][0][0] == "telling"  # lift


@pytest.mark.parametrize("by", RANKINGS)
def test_scale_of_a_component_does_not_matter(by: str) -> None:
    generator = np.random.default_rng(0)
    components = generator.gamma(0.3, size=(4, 30))
    rescaled = components * np.array([[4.0], [0.5], [16.0], [1.0]])  # powers of 2 are exact
    W = generator.gamma(0.5, size=(9, 4))
    expected = top_features(components, by=by, W=W)  # type: ignore[arg-type]
    inverse = np.array([0.25, 2.0, 0.0625, 1.0])
    assert top_features(rescaled, by=by, W=W * inverse) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("by", RANKINGS)
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
    assert top_features(untidy, ["a", "b", "c"], by="weight") == [[("a", 0.5), ("c", 0.5)]]
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
        "        1  66.7%  field, corn, ship",
        "        0  33.3%  sea, ship",
        "        2   0.0%  (empty)",
    ]
    wrapped = format_topics(COMPONENTS, [name * 8 for name in NAMES]).splitlines()
    first = f"        1  33.3%  {'field' * 8},"
    assert wrapped[2:4] == [first, f"{' ' * 18}{'corn' * 8}, {'ship' * 8}"]
    assert max(map(len, wrapped)) <= 88


def test_table_ranks_by_weight_too() -> None:
    assert "field, ship, corn" in format_topics(COMPONENTS, NAMES, by="weight")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"components": [1.0, 2.0]}, r"two dimensions .* got shape \(2,\)"),
        ({"components": np.zeros((2, 0))}, "at least one column"),
        ({"components": [[-1.0, 2.0]]}, "nonnegative and finite"),
        ({"components": [[np.nan, 2.0]]}, "nonnegative and finite"),
        ({"components": [[np.inf, 2.0]]}, "nonnegative and finite"),
        ({"feature_names": ["a"]}, "has 1 names for 4 features"),
        ({"n_top": 0}, "n_top must be a whole number of at least 1; got 0"),
        ({"by": "size"}, "by must be 'lift', 'weight', .* or 'kl'; got 'size'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"components": COMPONENTS} | arguments
    with pytest.raises(ValueError, match=message):
        top_features(**given)  # type: ignore[arg-type]


def test_relevance_is_between_plain_lift_and_weight() -> None:
    # Mean shares over the two components that are not empty: 0.375, 0.25, 0.25, 0.125.
    [first, second, _] = top_features(COMPONENTS, NAMES, by="relevance")
    assert dict(first)["sea"] == pytest.approx(0.6 * np.log(0.75) + 0.4 * np.log(2.0))
    assert dict(second)["ship"] == pytest.approx(0.6 * np.log(0.25))


def test_kl_scores_add_up_to_the_divergence_from_the_whole() -> None:
    generator = np.random.default_rng(5)
    components, W = generator.gamma(0.3, size=(3, 12)), generator.gamma(0.5, size=(20, 3))
    p = components / components.sum(axis=1, keepdims=True)
    for weights, given in ((np.full(3, 1 / 3), None), (component_shares(components, W), W)):
        whole = weights @ p
        for k, topic in enumerate(top_features(components, n_top=12, by="kl", W=given)):
            divergence = np.sum(p[k] * np.log(p[k] / whole))
            assert sum(score for _, score in topic) == pytest.approx(divergence)


def test_shares_of_the_samples_do_not_change_the_default_ranking() -> None:
    """Names of components know no W; they must be those of tables that do."""
    generator = np.random.default_rng(2)
    components, W = generator.gamma(0.3, size=(5, 40)), generator.gamma(0.1, size=(9, 5))
    assert top_features(components, W=W) == top_features(components)
    assert top_features(components, W=W, by="kl") != top_features(components, by="kl")


def test_the_command_line_knows_the_rankings() -> None:
    assert get_args(Ranking) == topics_command.RANKINGS
    assert topics_command.RANKINGS[0] == RANKING


def test_frex_is_the_harmonic_mean_of_two_ranks() -> None:
    components = [[4.0, 3.0, 2.0, 1.0, 0.0], [8.0, 1.0, 0.0, 0.0, 1.0]]
    # Shares of the first .4 .3 .2 .1; exclusivities 1/3, 3/4, 1, 1, the last two a tie.
    frequency, exclusivity = np.array([4, 3, 2, 1]) / 4, np.array([1, 2, 4, 4]) / 4
    topic = dict(top_features(components, by="frex")[0])
    found = [topic[f"feature {j}"] for j in range(4)]
    np.testing.assert_allclose(found, 2.0 / (1.0 / exclusivity + 1.0 / frequency))
    # Neither the most frequent (common to both) nor the rarest exclusive one.
    assert top_features(components, by="frex")[0][0][0] == "feature 2"


def test_words_of_a_component_without_use_are_infinitely_distinctive() -> None:
    components = [[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 3.0]]
    W = [[1.0, 0.0], [2.0, 0.0]]
    for by in ("relevance", "kl"):
        topic = top_features(components, NAMES, by=by, W=W)[1]  # type: ignore[arg-type]
        assert [name for name, _ in topic] == ["corn", "field", "ship"]
        assert [np.isinf(score) for _, score in topic] == [True, True, False]


def test_representation_must_have_one_column_per_component() -> None:
    with pytest.raises(ValueError, match=r"one column per component \(3\); got shape \(1, 2\)"):
        component_shares(COMPONENTS, np.ones((1, 2)))


def test_components_are_named_by_their_top_features() -> None:
    H = [[5, 3, 2, 1, 0], [4, 0, 0, 0, 4], [0, 0, 0, 0, 0], [4, 0, 0, 0, 4]]
    words = ["common", "sea", "s" * 30, "rare", "corn"]
    names = name_components(H, words)
    top = [[name for name, _ in features] for features in top_features(H, words, 3)]
    assert names[1] == ", ".join(top[1])
    assert names[0].split(", ") == [name.replace("s" * 30, "s" * 23 + "…") for name in top[0]]
    assert "…" in names[0]
    assert names[2:] == ["(empty)", f"{names[1]} (2)"]


def test_names_of_components_differ_even_from_numbered_ones() -> None:
    assert name_components([[1, 0], [0, 1], [1, 0]], ["a", "a (2)"]) == ["a", "a (2)", "a (3)"]
