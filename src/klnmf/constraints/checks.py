"""Every check of the constraints and penalties of a fit, and their messages."""

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.constraints import BY_COMPONENTS, OF_MATRIX, ConstraintNames, Constraints
from klnmf.constraints.names import check_sample_order, feature_names_of, in_feature_order
from klnmf.constraints.penalties import NO_PENALTIES, Penalties, factor_name
from klnmf.data.canonical import canonical
from klnmf.data.cell_weights import shape_of
from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.validation import VALUE_RANGE, refuse_first, warn_caller
from klnmf.support.array_types import Array
from klnmf.support.option_names import option

# Constraints with a column, or an entry, for each feature.
OF_FEATURES = ("fixed_components", "feature_weight", "missing", "zero_components")


def check_constraints(
    given: dict[str, Any],
    shape: tuple[int, ...],
    n_components: int,
    dtype: np.dtype[Any],
    feature_names: Any = None,
    penalties: Penalties = NO_PENALTIES,
    called: ConstraintNames = OF_MATRIX,
) -> Constraints:
    """Return the constraints of a fit, or say what is wrong with them.

    ``given`` has constraints by the names that they are ``called``, as they were passed. Those on
    features are put in the order of ``feature_names``. Weights and exposures scale penalties.
    """
    given = {
        name: in_feature_order(value, name, feature_names) if name in OF_FEATURES else value
        for name, value in given.items()
    }
    fixed = tuple(
        _fixed(given.get(name), name, size, dtype, by_rows=name in BY_COMPONENTS)
        for name, size in zip(called.fixed, shape, strict=True)
    )
    of_first, *of_others = (0 if part is None else part.shape[1] for part in fixed)
    n_fixed = of_first + max(of_others)
    if n_fixed > n_components:
        raise ValueError(
            f"{max(of_others)} fixed components and {of_first} fixed columns of W are {n_fixed} "
            f"components, more than n_components={n_components}. Increase n_components."
        )
    missing = given.get("missing")
    if not isinstance(missing, SparseTensor):  # which was checked already
        missing = checked_pattern(missing, "missing", shape)
    constraints = Constraints(
        shape=shape,
        n_components=n_components,
        weights=tuple(
            checked_weights(given.get(name), name, size, dtype)
            for name, size in zip(called.weights, shape, strict=True)
        ),
        exposure=checked_weights(given.get("exposure"), "exposure", shape[0], dtype),
        missing=missing,
        fixed=fixed,
        penalties=penalties,
        called=called,
    )
    _check_scaled_values(constraints, dtype)
    zeros = tuple(
        _zeros(constraints, mode, given.get(name)) for mode, name in enumerate(called.zeros)
    )
    constraints = dataclasses.replace(constraints, zeros=zeros)
    _check_scaled_penalties(constraints, dtype)
    return constraints


# ---- weights and fixed entries -------------------------------------------------------------------


def checked_weights(given: Any, name: str, size: int, dtype: np.dtype[Any]) -> Array | None:
    """Return weights or exposures as float64; None if all of them are 1."""
    if given is None:
        return None
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose masked entries are not numbers. Pass "
            f"{name}.filled(0), or a plain array."
        )
    try:
        raw = np.asarray(given)
        objects = raw.ravel() if raw.dtype == object else ()
        if raw.dtype.kind in "SUcmM" or any(isinstance(x, str | bytes | complex) for x in objects):
            raise TypeError("it has strings, complex numbers or times")
        values = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must hold real numbers: {error}.") from error
    if values.shape != (size,):
        whose = {"feature_weight": "feature", "sample_weight": "sample", "exposure": "sample"}
        raise ValueError(
            f"{option(name)} must have one number for each {whose.get(name, 'row')}, shape "
            f"({size},); got {values.shape}."
        )
    low, high = VALUE_RANGE[dtype.name]
    is_exposure, name = name == "exposure", option(name)
    bad = ~np.isfinite(values) | (values < 0) | (is_exposure & (values == 0))
    bad |= ((values > 0) & (values < low)) | (values > high)
    sign, limits = "positive" if is_exposure else "nonnegative", f"between {low:g} and {high:g}"
    wanted = f"{name} must be finite and {sign}, and {limits} where it is not 0"
    refuse_first(bad, values, name, wanted)
    if not values.any():
        raise ValueError(f"{name} is 0 everywhere: nothing would be left to fit.")
    return None if (values == 1).all() else values


def _fixed(
    given: Any, name: str, size: int, dtype: np.dtype[Any], by_rows: bool = False
) -> Array | None:
    """Return fixed entries as rows × components, in the type of the fit."""
    if given is None:
        return None
    wanted = ("k", size) if by_rows else (size, "k")
    given = checked_matrix(given, name)
    values = given.toarray() if sp.issparse(given) else _as_array(given, name, wanted)
    if values.ndim == 1:
        values = values.reshape((1, -1) if by_rows else (-1, 1))
    if values.ndim != 2 or values.shape[1 if by_rows else 0] != size:
        raise ValueError(f"{name} must have shape ({wanted[0]}, {wanted[1]}), got {values.shape}.")
    if values.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {values.dtype}.")
    _, high = VALUE_RANGE[dtype.name]
    bad = ~(values <= np.float64(high)) | (values < 0)  # NaN too
    refuse_first(bad, values, name, f"{name} must be finite, nonnegative and at most {high:g}")
    positive = values[values > 0]
    _check_smallest(f"{name} has", float(positive.min()) if positive.size else math.inf, dtype)
    columns = np.ascontiguousarray(values.T if by_rows else values, dtype=dtype)
    return columns if columns.shape[1] else None


def _check_scaled_values(constraints: Constraints, dtype: np.dtype[Any]) -> None:
    """Refuse weights and exposures that take fixed entries beyond what the arithmetic can hold."""
    _, high = VALUE_RANGE[dtype.name]
    for mode, name in enumerate(constraints.called.fixed):
        fixed, scales = constraints.fixed[mode], constraints.scales(mode)
        if fixed is None or scales is None:
            continue
        largest = float((fixed.max(axis=1, initial=0).astype(np.float64) * scales).max())
        if not largest <= high:
            raise ValueError(
                f"{name} times weights and exposures has entries up to {largest:g}; {dtype} "
                f"arithmetic is safe up to {high:g}. Scale these down."
            )
        least = fixed.min(axis=1, where=fixed > 0, initial=np.inf).astype(np.float64)
        smallest = float((least[scales > 0] * scales[scales > 0]).min(initial=np.inf))
        _check_smallest(f"{name} times weights and exposures has", smallest, dtype)


def _check_smallest(what_has: str, smallest: float, dtype: np.dtype[Any]) -> None:
    least = float(np.finfo(dtype).tiny)
    if smallest < least:
        wider = ", or pass dtype=numpy.float64" if dtype == np.float32 else ""
        raise ValueError(
            f"{what_has} positive entries down to {smallest:g}, but {dtype} loses digits below "
            f"{least:.2g}. Set these entries to 0{wider}."
        )


# ---- patterns of cells ---------------------------------------------------------------------------


def checked_pattern(given: Any, name: str, shape: tuple[int, ...]) -> sp.csr_array | None:
    """Return the nonzero cells of a matrix, dense or sparse, as a canonical CSR array of True."""
    if given is None:
        return None
    given = checked_matrix(given, name)
    if not sp.issparse(given):
        given = _as_array(given, name, shape)
    if given.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {given.shape}.")
    wanted = f"{name} must be True (or not 0) where a cell belongs to it"
    if given.dtype.kind not in "biuf":
        raise TypeError(f"{wanted}, got dtype {given.dtype}.")
    if np.isnan(given.data if sp.issparse(given) else given).any():
        advice = " To mark the cells with NaN as missing, pass numpy.isnan(X)."
        raise ValueError(f"{wanted}, but it has NaN.{advice if name == 'missing' else ''}")
    cells = canonical(given if sp.issparse(given) else sp.csr_array(given != 0))
    cells.data = np.ones(cells.nnz, dtype=bool)
    return cells if cells.nnz else None


def missing_cells(X: Any, missing: Any, feature_names: Any = None) -> sp.csr_array | None:
    """Return the missing cells of X in its order; an X that is no matrix is refused later."""
    check_sample_order({"missing": missing}, X)
    names = feature_names_of(X)
    ordered = in_feature_order(missing, "missing", feature_names if names is None else names)
    shape = shape_of(X)
    return checked_pattern(ordered, "missing", (shape[0], shape[1])) if len(shape) == 2 else None


def _as_array(given: Any, name: str, shape: tuple[Any, ...]) -> Array:
    try:
        values = np.asarray(given)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name} must be an array of shape {shape}: {error}") from error
    if values.dtype == object and hasattr(given, "dtypes"):
        kinds = {getattr(dtype, "kind", "O") for dtype in np.atleast_1d(given.dtypes)}
        if kinds <= set("biuf"):  # the types of pandas that have NA
            return np.asarray(given.to_numpy(dtype=np.float64, na_value=np.nan))
    return values


def _zeros(constraints: Constraints, mode: int, given: Any) -> sp.csr_array | None:
    """Return the zeros of the components that are not fixed; fixed entries must agree with them."""
    name = constraints.called.zeros[mode]
    is_turned = name in BY_COMPONENTS
    shape = (constraints.shape[mode], constraints.n_components)
    cells = checked_pattern(given, name, shape[::-1] if is_turned else shape)
    if cells is not None and is_turned:
        cells = sp.csr_array(cells.T)
    if cells is None or constraints.fixed[mode] is None:
        return cells
    entries = cells.tocoo()
    is_fixed = constraints.is_frozen(mode)[entries.col]
    values = constraints.original(mode, np.zeros(shape))
    clash = is_fixed & (values[entries.row, entries.col] > 0)
    if clash.any():
        row, component = (int(part[clash][0]) for part in (entries.row, entries.col))
        place = (component, row) if is_turned else (row, component)
        raise ValueError(
            f"{name} sets entry {place} to 0, but {constraints.called.fixed[mode]} fixes it at "
            f"{values[row, component]:g}. Remove the entry from one of them."
        )
    free = sp.csr_array(
        (np.ones(int((~is_fixed).sum()), bool), (entries.row[~is_fixed], entries.col[~is_fixed])),
        shape=cells.shape,
    )
    return free if free.nnz else None


# ---- penalties -----------------------------------------------------------------------------------


def check_penalties(penalties: Penalties, dtype: np.dtype[Any]) -> None:
    """Refuse penalties that the arithmetic cannot hold."""
    _, high = VALUE_RANGE[dtype.name]
    for name, value in penalties.by_name.items():
        if not value <= high:
            raise ValueError(
                f"{option(name)} must be at most {high:g} when computing in {dtype}, got {value:g}."
            )


def _check_scaled_penalties(constraints: Constraints, dtype: np.dtype[Any]) -> None:
    """Refuse penalties that, in the units of a fit, the arithmetic cannot hold."""
    _, high = VALUE_RANGE[dtype.name]
    for mode in range(len(constraints.shape)):
        scales, shares = constraints.scales(mode), constraints.penalty_shares(mode)
        if scales is None or shares is None:
            continue
        least, (of_l1, of_l2) = float(scales[scales > 0].min()), shares.max(axis=0)
        for name, value in (
            (f"l1_{factor_name(mode)}", constraints.penalties.l1[mode] * of_l1),
            (f"l2_{factor_name(mode)}", constraints.penalties.l2[mode] * of_l2),
        ):
            if not value <= high:
                raise ValueError(
                    f"{name} is too large for weights and exposures as small as {least:g}: in the "
                    f"units of the fit it would be {value:g}, and {dtype} arithmetic is safe up to "
                    f"{high:g}."
                )


def warn_if_one_sided(penalties: Penalties) -> None:
    """Warn of penalties that have no effect in the end."""
    if penalties.is_one_sided and len(penalties.l1) > 2:
        warn_caller(
            "Only some of the factors are penalised. If they shrink while others grow, the penalty "
            "goes to 0 and the fit stays the same. Set a penalty for every mode.",
            UserWarning,
        )
    elif penalties.is_one_sided:
        warn_caller(
            "Only one of the factors is penalised. If it shrinks while the other grows, the "
            "penalty goes to 0 and the fit stays the same, so that there is no minimum to converge "
            "to. Set a penalty on the other factor too (for instance the same "
            f"{option('l1_W')} and {option('l1_H')}).",
            UserWarning,
        )
