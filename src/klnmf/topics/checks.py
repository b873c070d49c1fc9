"""Checks and sums of factors, dense or sparse."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from klnmf.data.canonical import canonical
from klnmf.data.matrix_checks import checked_matrix
from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described, listed

IndexArray = npt.NDArray[np.intp]
Names = Sequence[str] | npt.NDArray[np.str_]


def checked_components(components: Any) -> Any:
    """Return components as a float64 ndarray or canonical CSR array, without changing the input."""
    return _checked_factor(components, "components", "(n_components, n_features)", np.float64)


def checked_representation(W: Any, n_components: int) -> Any:
    """Return W as an ndarray or canonical CSR array of its float type."""
    checked = _checked_factor(W, "W", "(n_samples, n_components)", None)
    if checked.shape[1] != n_components:
        hint = " It looks transposed." if checked.shape[0] == n_components else ""
        raise ValueError(
            f"W must have one column per component ({n_components}); got shape "
            f"{checked.shape}.{hint}"
        )
    return checked


def checked_names(names: Names | None, n_expected: int, of_what: str = "feature") -> list[str]:
    """Names of features or samples as plain strings; numbered ones by default."""
    if names is None:
        return [f"{of_what} {j}" for j in range(n_expected)]
    strings = [str(name) for name in listed(names, f"{of_what}_names")]
    if len(strings) != n_expected:
        raise ValueError(f"{of_what}_names has {len(strings)} names for {n_expected} {of_what}s.")
    return strings


def checked_numbers(given: Any, name: str, n_components: int) -> list[int]:
    """Numbers of components, at least one, as they were given."""
    numbers = listed(given, name, "a list of numbers of components")
    is_one = [isinstance(k, Integral) and not isinstance(k, bool) for k in numbers]
    if not numbers or not all(is_one) or not 0 <= min(numbers) <= max(numbers) < n_components:
        raise ValueError(
            f"{name} must be a list of numbers from 0 to {n_components - 1}; got "
            f"{described(numbers)}."
        )
    return [int(k) for k in numbers]


def checked_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise ValueError(f"{name} must be {listed}; got {described(value)}.")


def checked_share(value: Any, name: str) -> None:
    """Refuse a number outside of [0, 1]."""
    if not isinstance(value, Real) or not 0.0 <= float(value) <= 1.0:
        raise ValueError(f"{name} must be between 0 and 1; got {described(value)}.")


def dense(matrix: Any) -> npt.NDArray[Any]:
    """Return a dense or sparse matrix as an ndarray."""
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def sums(matrix: Any, axis: int) -> FloatArray:
    """Row sums (axis 1) or column sums (axis 0) in float64, of a dense or sparse matrix."""
    return np.asarray(matrix.sum(axis=axis, dtype=np.float64)).ravel()


def rows_scaled_to_one(matrix: Any) -> Any:
    """Divide each row by its sum; rows of zeros stay. Sparse stays sparse."""
    return rows_divided(matrix, sums(matrix, axis=1))


def rows_divided(matrix: Any, divisors: FloatArray) -> Any:
    """Divide each row by its divisor, unless that is 0. Sparse stays sparse."""
    divisors = np.where(divisors > 0.0, divisors, 1.0)
    if isinstance(matrix, np.ndarray):
        return matrix / divisors[:, np.newaxis]
    data = matrix.data / np.repeat(divisors, np.diff(matrix.indptr))
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def scaled_to_one(values: FloatArray) -> FloatArray:
    """Divide values by their sum; zeros stay zeros."""
    total = float(values.sum())
    return values / total if total > 0.0 else np.zeros_like(values)


def _checked_factor(factor: Any, name: str, axes: str, dtype: Any) -> Any:
    """Return a nonnegative and finite ndarray or CSR array, sorted and without stored zeros."""
    factor = checked_matrix(factor, name)
    is_sparse = sp.issparse(factor)
    matrix: Any = factor if is_sparse else np.asarray(factor)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(
            f"{name} must have two dimensions {axes} and at least one column; "
            f"got shape {matrix.shape}."
        )
    if dtype is None:
        dtype = np.float32 if matrix.dtype == np.float32 else np.float64
    if is_sparse:
        matrix = canonical(matrix).astype(dtype)
        values = matrix.data
    else:
        matrix = values = matrix.astype(dtype, copy=False)
    # A NaN fails the comparison with its minimum, so it is refused too.
    if values.size and not (values.min() >= 0.0 and values.max() < np.inf):
        raise ValueError(f"{name} must be nonnegative and finite.")
    return matrix
