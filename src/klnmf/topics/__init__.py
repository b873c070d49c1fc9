"""Measures of a fitted model: probabilities, top features, coherence, similarity, distances."""

from klnmf.topics.co_occurrence import coherence
from klnmf.topics.distances import intertopic_coordinates, jensen_shannon_distances
from klnmf.topics.features import format_topics, top_features
from klnmf.topics.matching import ComponentMatch, component_similarity, match_components
from klnmf.topics.mixture import (
    LabelProportions,
    Probabilities,
    component_shares,
    label_proportions,
    plsi_probabilities,
)

__all__ = [
    "ComponentMatch",
    "LabelProportions",
    "Probabilities",
    "coherence",
    "component_shares",
    "component_similarity",
    "format_topics",
    "intertopic_coordinates",
    "jensen_shannon_distances",
    "label_proportions",
    "match_components",
    "plsi_probabilities",
    "top_features",
]
