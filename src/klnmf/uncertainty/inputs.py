"""What both kinds of answer take: a fitted model, whole counts, names."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from klnmf.data.sparse_data import counts_checksum
from klnmf.estimators.base import FactorModel
from klnmf.estimators.completion import is_integer_valued
from klnmf.topics.checks import Names, checked_names


def checked_whole_counts(model: FactorModel, X: Any) -> sp.csr_array:
    """Return the counts in the type of the components; what cannot be Poisson is refused."""
    check_is_fitted(model, "components_")
    _refuse_other_models(model)
    counts = model._check(X, reset=False)
    if not is_integer_valued(counts):
        raise ValueError(
            "X has values that are not whole numbers. Poisson counts vary as much as their mean; "
            "weighted or scaled data do not, and nothing said of them here would be true. Fit and "
            "pass the counts."
        )
    return counts.astype(model.components_.dtype, copy=False)


def check_is_data_of_fit(model: FactorModel, counts: sp.csr_array, way_out: str) -> None:
    """Refuse other data than those of the fit, where the model knows these.

    Models from files of older versions, from streams and from bare components do not.
    """
    of_fit = getattr(model, "data_checksum_", None)
    if of_fit is not None and of_fit != counts_checksum(counts):
        n, m = counts.shape
        total = float(counts.sum(dtype=np.float64))
        raise ValueError(
            f"X ({n:,} samples × {m:,} features, {total:,.0f} counts) is not the data that the "
            f"model was fitted to: its sums differ. {way_out}"
        )


def n_fixed_components(model: FactorModel) -> int:
    """How many of the first components were known before the fit."""
    fixed: Any = getattr(model, "fixed_components", None)
    if fixed is None:
        return 0
    return 1 if np.ndim(fixed) == 1 else int(np.shape(fixed)[0])


def _refuse_other_models(model: FactorModel) -> None:
    """Refuse a fit to something else than all counts, with the same weight, of free factors."""
    harmless = {"fixed_components"}
    if not any(model._penalties().penalised_modes):
        harmless.add("exposure")  # it scales rows of W, and shares are the same
    others = [name for name in getattr(model, "known_names_", []) if name not in harmless]
    if others:
        raise ValueError(
            f"The model was fitted with {', '.join(others)}, of which bootstrap and "
            "differential_features know nothing: what they say would be about another model. They "
            "are for models that were fitted without; exposures without penalties and "
            "fixed_components are welcome."
        )


def checked_level(level: Any) -> float:
    """Level of intervals, as a number between 0 and 1."""
    if not isinstance(level, Real) or not 0.0 < float(level) < 1.0:
        raise ValueError(f"level must be between 0 and 1, such as 0.95; got {level!r}.")
    return float(level)


def names_of_features(model: FactorModel, feature_names: Names | None) -> list[str] | None:
    """Names that were given, or that the model saw; None where there are none."""
    names = feature_names
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    return None if names is None else checked_names(names, model.components_.shape[1])
