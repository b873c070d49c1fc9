"""Names of features for results."""

from klnmf.constraints.names import names_seen_in_fit
from klnmf.estimators.base import FactorModel
from klnmf.topics.checks import Names, checked_names


def names_of_features(model: FactorModel, feature_names: Names | None) -> list[str] | None:
    """Names that were passed or that the model saw in fit; None if there are none."""
    names = names_seen_in_fit(model) if feature_names is None else feature_names
    return None if names is None else checked_names(names, model.components_.shape[1])
