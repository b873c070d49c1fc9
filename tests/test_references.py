"""Components beside a table of known ones: nearest, second, and combinations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from klnmf import KLNMF, capped_weights
from klnmf.readers import CountTable
from klnmf.signatures import SBS96
from klnmf.topics import match_reference

KNOWN = np.random.default_rng(0).dirichlet(np.full(96, 0.2), size=6)
NAMES = [f"SBS{k}" for k in range(1, 7)]
OURS = np.array([KNOWN[3], 5 * KNOWN[0], 0.6 * KNOWN[1] + 0.4 * KNOWN[4], np.zeros(96)])


def tables() -> list[Any]:
    """The known signatures as people have them, with types in other orders."""
    frame = pd.DataFrame(KNOWN, index=NAMES, columns=SBS96)
    shuffled = frame[list(np.random.default_rng(1).permutation(SBS96))]
    return [frame, shuffled, shuffled.T, CountTable(shuffled.to_numpy(), NAMES, shuffled.columns)]


@pytest.mark.parametrize("number", range(4))
def test_the_nearest_ones_and_combinations(number: int) -> None:
    found = match_reference(OURS, tables()[number], SBS96)
    assert found.nearest[:3].tolist() == [3, 0, 1]
    np.testing.assert_allclose(found.similarity[[0, 1], [3, 0]], 1.0)
    unit = KNOWN / np.linalg.norm(KNOWN, axis=1, keepdims=True)
    cosines = unit @ OURS[2] / np.linalg.norm(OURS[2])
    np.testing.assert_allclose(found.similarity[2], cosines)
    assert found.second[2] == np.argsort(-cosines)[1]
    assert [list(parts) for parts in found.combinations] == [[3], [0], [1, 4], []]
    np.testing.assert_allclose(list(found.combinations[2].values()), [0.6, 0.4], atol=1e-6)
    np.testing.assert_allclose(found.combination_similarity, [1.0, 1.0, 1.0, 0.0])
    frame = found.to_frame()
    assert frame["nearest"].tolist()[:3] == ["SBS4", "SBS1", "SBS2"]
    assert frame["combination"].tolist() == ["100% SBS4", "100% SBS1", "60% SBS2 + 40% SBS5", ""]
    assert str(found).splitlines()[3].split()[:3] == ["component", "2", "SBS2"]


def test_a_term_must_gain_enough() -> None:
    slightly = KNOWN[0] / KNOWN[0].sum() + 0.02 * KNOWN[1] / KNOWN[1].sum()
    assert [list(parts) for parts in match_reference([slightly], KNOWN).combinations] == [[0]]


def test_a_combination_has_three_terms_at_most() -> None:
    equally = (KNOWN[:5] / KNOWN[:5].sum(axis=1, keepdims=True)).sum(axis=0)
    assert [len(parts) for parts in match_reference([equally], KNOWN).combinations] == [3]


def test_a_reference_of_one_has_no_second() -> None:
    found = match_reference(OURS, KNOWN[:1], component_names=list("abcd"))
    assert found.second.tolist() == [-1] * 4
    assert found.to_frame()["second"].tolist() == [""] * 4
    assert found.to_frame()["component"].tolist() == list("abcd")


def test_names_are_needed_on_both_sides() -> None:
    with pytest.raises(ValueError, match="feature names of both, components and reference"):
        match_reference(OURS, tables()[0])
    with pytest.raises(ValueError, match="no feature name in common"):
        match_reference(OURS, tables()[0], [f"gene {j}" for j in range(96)])
    with pytest.raises(ValueError, match="has 2 names for 96 features"):
        match_reference(OURS, tables()[0], ["a", "b"])
    with pytest.raises(ValueError, match="feature_names must be distinct; 'x' occurs more than"):
        match_reference(OURS, tables()[0], ["x"] * 96)


# ---- weights -------------------------------------------------------------------------------------


def test_capped_weights() -> None:
    totals = np.array([10, 20, 30, 4000, 0])
    X = np.stack([totals // 2, totals - totals // 2], axis=1)
    np.testing.assert_allclose(capped_weights(X, cap=40) * totals, np.minimum(totals, 40))
    limit = np.quantile(totals[:4], 0.5)
    np.testing.assert_allclose(capped_weights(X, quantile=0.5), [1, 1, limit / 30, limit / 4000, 1])
    for wrong in (np.nan, -1.0):
        with pytest.raises(ValueError, match=r"NaN|[Nn]egative"):
            capped_weights([[1.0, wrong]])
    assert capped_weights(np.zeros((2, 3))).tolist() == [1.0, 1.0]
    for wrong in ({"cap": 0}, {"quantile": 1.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            capped_weights(X, **wrong)


def test_a_hypermutator_does_not_get_a_component_of_its_own() -> None:
    generator = np.random.default_rng(0)
    W = generator.gamma(1.0, 100.0, size=(150, 3))
    counts = generator.poisson(W @ KNOWN[:3])
    # Its profile is its own; it has as many mutations as half of the other tumours together.
    counts[0] = generator.poisson(counts.sum() / 2 * generator.dirichlet(np.full(96, 0.2)))
    plain = KLNMF(3, random_state=0).fit(counts)
    capped = KLNMF(3, random_state=0).fit(counts, sample_weight=capped_weights(counts))
    worst = [
        match_reference(KNOWN[:3], model.components_).similarity.max(axis=1).min()
        for model in (plain, capped)
    ]
    assert worst[0] < 0.8
    assert worst[1] > 0.95
