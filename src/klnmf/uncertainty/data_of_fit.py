"""The counts, the constraints and the factors of a fit that has ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.checks import check_constraints
from klnmf.constraints.constraints import ComponentConstraints, Constraints, FitConstraints
from klnmf.constraints.names import check_sample_order, names_seen_in_fit
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.validation import is_integer_valued
from klnmf.estimators.arguments import check_arguments
from klnmf.estimators.base import FactorModel, check_fitted
from klnmf.support.array_types import Array, FloatArray
from klnmf.uncertainty.residual_moments import FittedRates

OF_SAMPLES = tuple(FitConstraints.__annotations__)


@dataclass(frozen=True)
class DataOfFit:
    """Whole counts of a fit, its constraints, and W and H in the user's units."""

    counts: sp.csr_array  # in the type of the components, 0 in missing cells
    constraints: Constraints | None
    W: Array
    H: Array
    has_known_H: bool = False  # noqa: N815, whether H was not estimated from these counts

    @property
    def rates(self) -> tuple[FloatArray, FloatArray]:
        """W and H in float64, with the exposures in W: expected counts are W Hᵀ."""
        W, H = (factor.astype(np.float64) for factor in (self.W, self.H))
        exposure = None if self.constraints is None else self.constraints.exposure
        return (W if exposure is None else W * exposure[:, np.newaxis]), H

    @property
    def fitted_rates(self) -> FittedRates:
        """What the residuals are compared with."""
        W, H = self.rates
        constraints = self.constraints or Constraints(self.counts.shape, H.shape[1])
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
    given = _checked_names(model, given, function)
    left_out = [
        name for name in model.constraint_names_ if name in OF_SAMPLES and name not in given
    ]
    if left_out:
        again = ", ".join(f"{name}=..." for name in left_out)
        raise ValueError(
            f"The model was fitted with {' and '.join(left_out)}, which it does not keep. Pass the "
            f"same again: {function}(model, X, {again})."
        )
    takes_missing = "missing" in model.constraint_names_
    counts, missing = _whole_counts(model, X, given, function, takes_missing)
    H = model._H()
    constraints = _constraints_in_fit(model, counts, {**given, "missing": missing})
    added = set() if constraints is None else set(constraints.names) - set(model.constraint_names_)
    if added:
        raise ValueError(
            f"The model was fitted without {' and '.join(sorted(added))}. Fit it with the same "
            "constraints."
        )
    if model.data_checksum_ not in (None, _checksum(counts, constraints)):
        (n, m), total = counts.shape, float(counts.sum(dtype=np.float64))
        with_these = f", with {' and '.join(given)}," if given else ""
        raise ValueError(
            f"X ({n:,} samples × {m:,} features, {total:,.0f} counts){with_these} is not the data "
            f"that the model was fitted to. {way_out}"
        )
    # The weight of a sample does not change its own row of W, except that 0 would hide it.
    by_row = None if constraints is None else replace(constraints, sample_weight=None)
    return DataOfFit(counts, constraints, model._solve_W(counts, H, by_row), H)


def data_of_any(model: FactorModel, X: Any, given: dict[str, Any], function: str) -> DataOfFit:
    """Check counts of the fit or of other samples, and solve for W as ``transform`` does.

    The components of a model count as estimated only if they were estimated from these counts.
    """
    given = _checked_names(model, given, function)
    counts, missing = _whole_counts(model, X, given, function, True)
    given["missing"] = missing
    in_fit = _constraints_in_fit(model, counts, given)
    is_own = model.data_checksum_ == _checksum(counts, in_fit)
    weight = given.pop("sample_weight", None)
    by_row = model._constraints_on(counts.shape, counts.dtype, given)
    H = model._H()
    data = DataOfFit(counts, by_row, model._solve_W(counts, H, by_row), H, has_known_H=not is_own)
    if weight is None:
        return data
    assert in_fit is not None
    by_row = by_row or Constraints(counts.shape, H.shape[1])
    return replace(data, constraints=replace(by_row, sample_weight=in_fit.sample_weight))


def _constraints_in_fit(
    model: FactorModel, counts: sp.csr_array, given: dict[str, Any]
) -> Constraints | None:
    """Constraints on these samples together with the model's on its components."""
    parameters = model.get_params(deep=False)
    of_components = {name: parameters.get(name) for name in ComponentConstraints.__annotations__}
    return check_constraints(
        {**given, **of_components},
        counts.shape,
        model.n_components_,
        counts.dtype,
        names_seen_in_fit(model),
        model._penalties(),
    )


def _checksum(counts: sp.csr_array, constraints: Constraints | None) -> int:
    return InMemoryData(counts).with_constraints(lambda *_: constraints).sums_checksum


def other_data(
    model: FactorModel, X: Any, given: dict[str, Any], function: str
) -> tuple[sp.csr_array, Constraints | None]:
    """Check counts that come with their W: of other samples, or of another part of the counts."""
    given = _checked_names(model, given, function)
    superfluous = [name for name in ("fixed_W", "zero_W") if name in given]
    if superfluous:
        raise ValueError(
            f"W is given, so there is nothing to solve for with {' and '.join(superfluous)}. Pass "
            "W alone."
        )
    if "exposure" in model.constraint_names_ and "exposure" not in given:
        raise ValueError(
            "The model was fitted with exposure. Pass exposure=... together with W, or "
            "numpy.ones(len(W)) if W is in counts, as from model.transform(X) without exposure."
        )
    counts, missing = _whole_counts(model, X, given, function, True)
    constraints = check_constraints(
        {**given, "missing": missing},
        counts.shape,
        model.n_components_,
        counts.dtype,
        names_seen_in_fit(model),
    )
    return counts, constraints


def _checked_names(model: FactorModel, given: dict[str, Any], function: str) -> dict[str, Any]:
    """Return the constraints on samples that were given; refuse other names."""
    check_fitted(model)
    given = {name: value for name, value in given.items() if value is not None}
    check_arguments(given, function, OF_SAMPLES)
    return given


def _whole_counts(
    model: FactorModel, X: Any, given: dict[str, Any], function: str, takes_missing: bool
) -> tuple[sp.csr_array, sp.csr_array | None]:
    """Return the counts, in the type of the components, and the missing cells."""
    check_sample_order(given, X)
    missing = model._missing_cells(X, given.get("missing"))
    counts = model._check(X, missing, reset=False, takes_missing=takes_missing)
    if not is_integer_valued(counts):
        raise ValueError(
            f"X has values that are not whole numbers. {function} is for counts, not for weighted "
            "or scaled data. Fit the model to the raw counts and pass those."
        )
    return counts.astype(model.components_.dtype, copy=False), missing
