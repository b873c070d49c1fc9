"""The counts, the constraints and the factors of a fit that has ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.constraints.constraints import ComponentConstraints, Constraints
from klnmf.constraints.names import names_seen_in_fit
from klnmf.constraints.penalties import NO_PENALTIES
from klnmf.data.sparse_data import InMemoryData
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_data import data_in_memory
from klnmf.data.validation import is_integer_valued
from klnmf.estimators.arguments import check_arguments
from klnmf.estimators.base import FIT_ARGUMENTS, TRANSFORM_ARGUMENTS, FactorModel, check_fitted
from klnmf.estimators.checked_counts import CheckedCounts
from klnmf.estimators.poisson_cp import PoissonCP
from klnmf.support.array_types import Array, FloatArray
from klnmf.support.descriptions import sizes_in_words
from klnmf.topics.checks import Names, checked_names
from klnmf.uncertainty.residual_moments import FittedRates


@dataclass(frozen=True)
class DataOfFit:
    """Whole counts of a fit, its constraints, and W and H in the user's units.

    Of a tensor, H are the factors of all modes but the first, one below the other.
    """

    counts: Any  # CSR array or SparseTensor, in the type of the components, 0 in missing cells
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
        others = range(1, len(self.counts.shape))
        is_known = [constraints.is_frozen(mode) | self.has_known_H for mode in others]
        return FittedRates(
            self.counts,
            W,
            H,
            weights=constraints.weights,
            is_free=(~constraints.is_frozen(0), *(~known for known in is_known)),
            missing=constraints.missing,
        )


def data_of_fit(
    model: FactorModel,
    X: Any,
    given: dict[str, Any],
    function: str,
    way_out: str = "Pass the complete X of the fit, or fit a model to this X.",
) -> DataOfFit:
    """Check X and the constraints on samples against those of the fit, and solve for W.

    A model does not keep the constraints on its samples, so that they must be passed again.
    """
    checked = _whole_counts(model, X, given, function, of_fit=True)
    data = checked.in_memory(model.n_components_)
    counts, constraints, H = data.X, data.constraints, np.concatenate(model._others())
    known, given_now = set(model.constraint_names_), set(constraints.names)
    added, lacking = sorted(given_now - known), sorted(known - given_now)
    if added or (lacking and isinstance(model, PoissonCP)):
        way = f"without {' and '.join(added)}" if added else f"with {' and '.join(lacking)}"
        raise ValueError(f"The model was fitted {way}. Fit it with the same constraints.")
    if model.data_checksum_ not in (None, data.data.sums_checksum):
        (n, *others), total = counts.shape, data_in_memory(counts).total
        names = [name for name in model._fit_arguments if given.get(name) is not None]
        with_these = f", with {' and '.join(names)}," if names else ""
        features = sizes_in_words(others) + (" features" if len(others) == 1 else "")
        raise ValueError(
            f"X ({n:,} samples × {features}, {total:,.0f} counts){with_these} is not the data "
            f"that the model was fitted to. {way_out}"
        )
    # The weight of a sample does not change its own row of W, except that 0 would hide it.
    W = model._solve_W(counts, data.equally_weighted.constraints)
    return DataOfFit(counts, constraints, W, H)


def data_of_any(model: FactorModel, X: Any, given: dict[str, Any], function: str) -> DataOfFit:
    """Check counts of the fit or of other samples, and solve for W as ``transform`` does.

    The components of a model count as estimated only if they were estimated from these counts.
    """
    check_matrix_model(model, X, function)
    checked = _whole_counts(model, X, given, function)
    data = checked.in_memory(model.n_components_)
    is_own = model.data_checksum_ == data.data.sums_checksum
    of_samples = {name: checked.given.get(name) for name in TRANSFORM_ARGUMENTS}
    by_row = model._constraints_on(of_samples, data.X.shape, data.X.dtype)
    W, H = model._solve_W(data.X, by_row), model._H()
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
    check_matrix_model(model, X, function)
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


def check_matrix_model(model: Any, X: Any, function: str) -> None:
    """Refuse what is not a fitted model, and models of tensors and tensors themselves."""
    check_fitted(model)
    if isinstance(model, PoissonCP) or isinstance(X, SparseTensor):
        what = "a PoissonCP" if isinstance(model, PoissonCP) else "a tensor"
        raise TypeError(
            f"{function} is for matrices and their models, KLNMF or MiniBatchKLNMF; got {what}. "
            "X.flattened(0) makes a matrix of a tensor; fit KLNMF to it and pass both."
        )


def names_of_features(model: FactorModel, feature_names: Names | None) -> list[str] | None:
    """Names that were passed or that the model saw in fit; None if there are none."""
    names = names_seen_in_fit(model) if feature_names is None else feature_names
    return None if names is None else checked_names(names, model.components_.shape[1])


def chosen_samples(samples: npt.ArrayLike | None, n_samples: int) -> npt.NDArray[np.intp]:
    """Row numbers of the samples that were asked for, by number or by a mask."""
    if samples is None:
        return np.arange(n_samples)
    given = np.asarray(samples)
    if given.size == 0:
        return np.empty(0, dtype=np.intp)
    if given.dtype == bool and given.shape == (n_samples,):
        return np.flatnonzero(given)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(
            f"samples must be row numbers or a mask of {n_samples} booleans; got an array of shape "
            f"{given.shape} and type {given.dtype}."
        )
    if given.min() < 0 or given.max() >= n_samples:
        raise ValueError(
            f"samples must be from 0 to {n_samples - 1}; got {given.min()} to {given.max()}."
        )
    return given.astype(np.intp)


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
    check_arguments(given, function, model._fit_arguments)
    # A list by mode is one argument.
    names = dict.fromkeys(name.partition("[")[0] for name in model.constraint_names_)
    needed = [name for name in names if name in model._fit_arguments]
    left_out = [name for name in needed if name not in given]
    if of_fit and left_out:
        again = ", ".join(f"{name}=..." for name in left_out)
        raise ValueError(
            f"The model was fitted with {' and '.join(left_out)}, which it does not keep. Pass the "
            f"same again: {function}(model, X, {again})."
        )
    if isinstance(model, PoissonCP):
        checked = model._checked(X, given, by_mode=True)
    else:
        parameters = model.get_params(deep=False)
        names_of_model = ComponentConstraints.__annotations__
        of_components = {name: parameters.get(name) for name in names_of_model}
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
    if isinstance(checked.X, SparseTensor):
        return checked
    counts = checked.X.astype(model.components_.dtype, copy=False)
    return replace(checked, data=InMemoryData(counts))
