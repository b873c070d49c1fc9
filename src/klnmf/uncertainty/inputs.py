"""Checks of the model, the counts and the names."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from klnmf.constraints.names import names_seen_in_fit
from klnmf.data.sparse_data import counts_checksum
from klnmf.estimators.base import FactorModel
from klnmf.estimators.completion import is_integer_valued
from klnmf.topics.checks import Names, checked_names


def checked_whole_counts(model: FactorModel, X: Any) -> sp.csr_array:
    """Return the counts in the type of the components; refuse other data and other models."""
    check_is_fitted(model, "components_")
    supported = {"fixed_components"}
    if not any(model._penalties().penalised_modes):
        supported.add("exposure")  # it scales rows of W and does not change shares
    others = [name for name in model.constraint_names_ if name not in supported]
    if others:
        raise ValueError(
            f"The model was fitted with {', '.join(others)}. bootstrap and differential_features "
            "do not support this. Fit a model without it. They do support fixed_components, and "
            "exposure without penalties."
        )
    counts = model._check(X, reset=False)
    if not is_integer_valued(counts):
        raise ValueError(
            "X has values that are not whole numbers. The results are valid for Poisson counts "
            "only, not for weighted or scaled data. Fit the model to the raw counts and pass those."
        )
    return counts.astype(model.components_.dtype, copy=False)


def check_is_data_of_fit(model: FactorModel, counts: sp.csr_array, way_out: str) -> None:
    """Refuse other data than those of the fit, if the model has their checksum.

    Models from older files, from streams and from components alone have none.
    """
    if model.data_checksum_ not in (None, counts_checksum(counts)):
        (n, m), total = counts.shape, float(counts.sum(dtype=np.float64))
        raise ValueError(
            f"X ({n:,} samples × {m:,} features, {total:,.0f} counts) is not the data that the "
            f"model was fitted to. {way_out}"
        )


def n_fixed_components(model: FactorModel) -> int:
    """Return how many components were fixed in the fit; they come first."""
    fixed: Any = model.get_params(deep=False).get("fixed_components")  # streams do not have it
    if fixed is None:
        return 0
    return 1 if np.ndim(fixed) == 1 else int(np.shape(fixed)[0])


def names_of_features(model: FactorModel, feature_names: Names | None) -> list[str] | None:
    """Names that were passed or that the model saw in fit; None if there are none."""
    names = names_seen_in_fit(model) if feature_names is None else feature_names
    return None if names is None else checked_names(names, model.components_.shape[1])
