"""The counts, the constraints and the factors of a fit that has ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.constraints import ComponentConstraints, Constraints
from klnmf.constraints.names import names_seen_in_fit
from klnmf.constraints.penalties import NO_PENALTIES
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import is_integer_valued
from klnmf.estimators.arguments import check_arguments
from klnmf.estimators.base import FIT_ARGUMENTS, TRANSFORM_ARGUMENTS, FactorModel, check_fitted
from klnmf.estimators.checked_counts import CheckedCounts
from klnmf.support.array_types import Array, FloatArray
from klnmf.topics.checks import Names, checked_names
from klnmf.uncertainty.residual_moments import FittedRates


@dataclass(frozen=True)
class DataOfFit:
    """Whole counts of a fit, its constraints, and W and H in the user's units."""

    counts: sp.csr_array  # in the type of the components, 0 in missing cells
    constraints: Constraints
    W: Array
    H: Array
    has_known_H: bool = False  # noqa: N815, whether H was not estimated from these counts

    @property
    def rates(self) -> tuple[FloatArray, FloatArray]:
        """W and H in float64, with the exposures in W: expected counts are W Hᵀ."""
        W, H = (factor.astype(np.float64) for factor in (self.W, self.H))
        exposure = self.constraints.exposure
        return (W if exposure is None else W * exposure[:, np.newaxis]), H

    @property
    def fitted_rates(self) -> FittedRates:
        """What the residuals are compared with."""
        (W, H), constraints = self.rates, self.constraints
        return FittedRates(
            self.counts,
            W,
            H,
            weights=(constraints.sample_weight, constraints.feature_weight),
            is_free=(~constraints.is_frozen(0), ~(constraints.is_frozen(1) | self.has_known_H)),
            missing=constraints.missing,
        )


def data_of_fit(
    model: FactorModel, X: Any, given: dict[str, Any], function: str, way_out: str
) -> DataOfFit:
    """Check X and the constraints on samples against those of the fit, and solve for W.

    A model does not keep the constraints on its samples, so that they must be passed again.
    """
    checked = _whole_counts(model, X, given, function, of_fit=True)
    data = checked.in_memory(model.n_components_)
    counts, constraints, H = data.X, data.constraints, model._H()
    added = set(constraints.names) - set(model.constraint_names_)
    if added:
        raise ValueError(
            f"The model was fitted without {' and '.join(sorted(added))}. Fit it with the same "
            "constraints."
        )
    if model.data_checksum_ not in (None, data.data.sums_checksum):
        (n, m), total = counts.shape, float(counts.sum(dtype=np.float64))
        names = [name for name in FIT_ARGUMENTS if given.get(name) is not None]
        with_these = f", with {' and '.join(names)}," if names else ""
        raise ValueError(
            f"X ({n:,} samples × {m:,} features, {total:,.0f} counts){with_these} is not the data "
            f"that the model was fitted to. {way_out}"
        )
    # The weight of a sample does not change its own row of W, except that 0 would hide it.
    W = model._solve_W(counts, H, data.equally_weighted.constraints)
    return DataOfFit(counts, constraints, W, H)


def data_of_any(model: FactorModel, X: Any, given: dict[str, Any], function: str) -> DataOfFit:
    """Check counts of the fit or of other samples, and solve for W as ``transform`` does.

    The components of a model count as estimated only if they were estimated from these counts.
    """
    checked = _whole_counts(model, X, given, function)
    data = checked.in_memory(model.n_components_)
    is_own = model.data_checksum_ == data.data.sums_checksum
    of_samples = {name: checked.given.get(name) for name in TRANSFORM_ARGUMENTS}
    by_row = model._constraints_on(of_samples, data.X.shape, data.X.dtype)
    W, H = model._solve_W(data.X, model._H(), by_row), model._H()
    found = DataOfFit(data.X, by_row, W, H, has_known_H=not is_own)
    if given.get("sample_weight") is None:
        return found
    return replace(found, constraints=by_row.with_sample_weight(data.sample_weights))


def other_data(
    model: FactorModel, X: Any, given: dict[str, Any], function: str
) -> tuple[sp.csr_array, Constraints]:
    """Check counts that come with their W: of other samples, or of another part of the counts."""
    superfluous = [name for name in ("fixed_W", "zero_W") if given.get(name) is not None]
    if superfluous:
        raise ValueError(
            f"W is given, so there is nothing to solve for with {' and '.join(superfluous)}. Pass "
            "W alone."
        )
    check_fitted(model)
    if "exposure" in model.constraint_names_ and given.get("exposure") is None:
        raise ValueError(
            "The model was fitted with exposure. Pass exposure=... together with W, or "
            "numpy.ones(len(W)) if W is in counts, as from model.transform(X) without exposure."
        )
    checked = _whole_counts(model, X, given, function)
    of_samples = {name: checked.given.get(name) for name in FIT_ARGUMENTS}
    plain = replace(checked, given=of_samples, penalties=NO_PENALTIES)
    counts = plain.in_memory(model.n_components_)
    return counts.X, counts.constraints


def names_of_features(model: FactorModel, feature_names: Names | None) -> list[str] | None:
    """Names that were passed or that the model saw in fit; None if there are none."""
    names = names_seen_in_fit(model) if feature_names is None else feature_names
    return None if names is None else checked_names(names, model.components_.shape[1])


def _whole_counts(
    model: FactorModel,
    X: Any,
    given: dict[str, Any],
    function: str,
    of_fit: bool = False,
) -> CheckedCounts:
    """Return the counts, in the type of the components, and the constraints of samples and model.

    Those ``of_fit`` must have the constraints that it had.
    """
    check_fitted(model)
    given = {name: value for name, value in given.items() if value is not None}
    check_arguments(given, function, FIT_ARGUMENTS)
    needed = [name for name in model.constraint_names_ if name in FIT_ARGUMENTS]
    left_out = [name for name in needed if name not in given]
    if of_fit and left_out:
        again = ", ".join(f"{name}=..." for name in left_out)
        raise ValueError(
            f"The model was fitted with {' and '.join(left_out)}, which it does not keep. Pass the "
            f"same again: {function}(model, X, {again})."
        )
    parameters = model.get_params(deep=False)
    of_components = {name: parameters.get(name) for name in ComponentConstraints.__annotations__}
    checked = model._checked(
        X,
        given | of_components,
        backends=(),
        takes_files=False,
        takes_missing=not of_fit or "missing" in needed,
    )
    if not is_integer_valued(checked.X):
        raise ValueError(
            f"X has values that are not whole numbers. {function} is for counts, not for weighted "
            "or scaled data. Fit the model to the raw counts and pass those."
        )
    counts = checked.X.astype(model.components_.dtype, copy=False)
    return replace(checked, data=InMemoryData(counts))
