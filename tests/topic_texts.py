"""A small collection of texts about three things, drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from klnmf import TopicModel

THEMES = {
    "sea": ["ship", "sea", "sail", "wave", "harbour", "captain", "fish", "storm"],
    "farm": ["corn", "field", "rain", "plough", "farmer", "cow", "seed", "barn"],
    "law": ["judge", "court", "law", "crime", "witness", "trial", "jury", "prison"],
}
COMMON = ["day", "time", "people", "house"]


def texts_of_themes(n_documents: int = 90, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts, and the theme that each is mostly about."""
    generator = np.random.default_rng(seed)
    names = list(THEMES)
    texts, themes = [], []
    for i in range(n_documents):
        main, other = names[i % 3], names[(i + 1 + i // 3 % 2) % 3]
        pools = (THEMES[main], THEMES[other], COMMON)
        sizes = (20, 4, 4)
        drawn = [str(w) for p, n in zip(pools, sizes, strict=True) for w in generator.choice(p, n)]
        generator.shuffle(drawn)
        texts.append(" ".join(drawn))
        themes.append(main)
    return texts, themes


TEXTS, MAIN = texts_of_themes()


def model_of_themes(**parameters: Any) -> TopicModel:
    """A model of the texts with their themes and years as metadata."""
    metadata = {"theme": MAIN, "date": [f"{1900 + i // 30}-05-01" for i in range(len(TEXTS))]}
    settings: dict[str, Any] = {"n_topics": 3, "max_df": 1.0, "random_state": 0, "n_threads": 1}
    return TopicModel(**(settings | parameters)).fit(TEXTS, metadata=metadata)


def topic_about(model: TopicModel, theme: str) -> int:
    """Number of the topic that has most of a theme's words."""
    columns = np.flatnonzero(np.isin(model.words_, THEMES[theme]))
    return int(model.nmf_.components_[:, columns].sum(axis=1).argmax())
