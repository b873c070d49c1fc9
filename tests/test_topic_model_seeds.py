"""Seeded topics: they are about their words, and the other topics are free."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from klnmf import KLNMF, TopicModel
from klnmf.datasets import load_bible
from klnmf.simulate import simulate_counts
from klnmf.topic_model.fitting import fitted_nmf
from klnmf.topics import component_similarity, match_components, top_features
from topic_texts import THEMES, model_of_themes, topic_about

SEEDS = {"at sea": ["ship", "sea"], "in court": ["judge"]}


def test_seeded_topics_come_first_under_their_names() -> None:
    model = model_of_themes(seed_words=SEEDS)
    assert model.topic_names_[:2] == ["at sea", "in court"]
    for name, theme in (("at sea", "sea"), ("in court", "law")):
        assert {word for word, _ in model.topic_words(name, 8)} == set(THEMES[theme])
    assert topic_about(model, "farm") == 2
    assert model.nmf_.converged_
    assert "Seeded topics: 2" in model.summary()


def test_a_seed_word_is_in_its_topic_only() -> None:
    model = model_of_themes(seed_words=SEEDS)
    place = {word: j for j, word in enumerate(model.words_)}
    for topic, words in enumerate(SEEDS.values()):
        for word in words:
            weights = model.nmf_.components_[:, place[word]]
            assert weights[topic] > 0
            assert not np.delete(weights, topic).any()
            assert np.delete(model.nmf_.zero_components[:, place[word]], topic).all()


def test_lists_have_no_names_of_their_own() -> None:
    model = model_of_themes(seed_words=[["plough"]])
    assert topic_about(model, "farm") == 0
    assert model.topic_names_[0] == ", ".join(word for word, _ in model.topic_words(0, 3))


def test_planted_topics_are_found_by_a_few_of_their_words() -> None:
    words, cosines, others = [f"w{j}" for j in range(300)], [], []
    for seed in (0, 1, 2):
        planted = simulate_counts(400, 300, 8, counts_per_sample=150, random_state=seed)
        H = planted.H.T
        best = top_features(H, words, 4, by="frex")
        seeds = [[word for word, _ in best[k]] for k in (3, 5)]
        model = TopicModel(8, seed_words=seeds, random_state=0, n_threads=1)
        components = fitted_nmf(model, planted.X.tocsr(), words, words).nmf.components_
        cosines += np.diagonal(component_similarity(components[:2], H[[3, 5]])).tolist()
        others += match_components(components[2:], np.delete(H, (3, 5), axis=0)).similarity.tolist()
    assert min(cosines) > 0.97
    assert np.mean(others) > 0.97


def test_on_the_bible() -> None:
    bible = load_bible()
    seeds = {
        "sea": ["ship", "ships", "sea"],
        "food": ["bread", "eat", "drink"],
        "war": ["sword", "spear", "battle"],
    }
    model = TopicModel(20, seed_words=seeds, random_state=0, n_threads=1)
    found = fitted_nmf(model, bible.data, bible.feature_names, bible.sample_names)
    free = KLNMF(20, random_state=0, n_threads=1).fit(bible.data)
    top = top_features(found.nmf.components_, bible.feature_names, 12, by="relevance", W=found.W)
    related = [{"wind", "waters"}, {"eaten", "wine", "feast"}, {"slain", "fight", "slew", "smote"}]
    for k, (words, expected) in enumerate(zip(seeds.values(), related, strict=True)):
        leading = [word for word, _ in top[k]]
        assert len(set(leading) & set(words)) >= 2
        assert set(leading) & expected
        # Documents in which the topic is large do have its words.
        columns = np.flatnonzero(np.isin(bible.feature_names, words))
        typical = np.argsort(-found.nmf.proportions(found.W)[:, k])[:10]
        assert (bible.data[typical][:, columns].sum(axis=1) > 0).sum() >= 9
    # It costs little: the others describe the rest as well as before.
    assert found.nmf.divergence_ < 1.05 * free.divergence_


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ({"sea": ["ship", "boat"], "law": ["lawyer"]}, "words: 'boat', 'lawyer'. Leave them out"),
        ({"sea": "ship"}, "must be lists of words"),
        ({"sea": []}, "must be lists of words"),
        ([["ship"], ["ship"]], "'ship' is in two topics"),
        ([["ship"], ["corn"], ["judge"]], "n_topics=3 must be more than the 3 topics"),
    ],
)
def test_wrong_seeds_are_refused(seeds: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        model_of_themes(seed_words=seeds)


def test_not_with_other_constraints_on_the_words() -> None:
    with pytest.raises(ValueError, match="cannot be used with zero_components of nmf"):
        model_of_themes(seed_words=SEEDS, nmf=KLNMF(zero_components=np.zeros((3, 28), dtype=bool)))
