"""Measures of a fitted model: probabilities, top features, coherence, similarity, distances."""

from klnmf.topics.co_occurrence import coherence
from klnmf.topics.distances import intertopic_coordinates
from klnmf.topics.features import format_topics, name_components, top_features
from klnmf.topics.matching import ComponentMatch, component_similarity, match_components
from klnmf.topics.mixture import (
    Probabilities,
    component_shares,
    plsi_probabilities,
)
from klnmf.topics.modes import format_components
from klnmf.topics.references import ReferenceMatch, match_reference
from klnmf.topics.shares_by_group import MeanShares, mean_shares

__all__ = [
    "ComponentMatch",
    "MeanShares",
    "Probabilities",
    "ReferenceMatch",
    "coherence",
    "component_shares",
    "component_similarity",
    "format_components",
    "format_topics",
    "intertopic_coordinates",
    "match_components",
    "match_reference",
    "mean_shares",
    "name_components",
    "plsi_probabilities",
    "top_features",
]
