"""Topics of texts: `klnmf.TopicModel` counts words, fits a `KLNMF`, and answers in tables."""

from klnmf.topic_model.model import TopicModel

__all__ = ["TopicModel"]
