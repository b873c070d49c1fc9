"""The way in for X: every estimator and function that takes counts checks them here.

`checked_counts` checks X and what is known about it. `CheckedCounts` is what a fit is made from;
`ConstrainedCounts` are counts in memory, of which parts can be taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from klnmf.backends import (
    Backend,
    backend_for,
    backend_named,
    data_on_device,
    lazy_kind,
    result_on_device,
)
from klnmf.backends.base import LazyInput
from klnmf.backends.cpu import effective_threads
from klnmf.constraints.checks import check_constraints, check_penalties, missing_cells
from klnmf.constraints.constraints import OF_MATRIX, ConstraintNames, Constraints
from klnmf.constraints.names import (
    check_sample_order,
    feature_names_of,
    names_seen_in_fit,
    sample_names_of,
)
from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.dominant_samples import warn_of_dominant_samples
from klnmf.data.matrix_checks import is_on_device, on_host
from klnmf.data.not_counts import warn_if_not_counts
from klnmf.data.on_disk.matrix import OnDiskMatrix
from klnmf.data.sparse_data import CountData, FitInput, InMemoryData, RowView, view_of
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_data import TensorData, data_in_memory, is_float32_enough
from klnmf.data.validation import (
    check_counts,
    check_values,
    warn_of_empty_samples,
    warn_of_many_components,
    working_dtype,
)
from klnmf.solvers.base import Problem
from klnmf.solvers.coordinate_descent import SparseCoordinateDescent
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described
from klnmf.support.option_names import option


@dataclass(frozen=True)
class CheckedCounts:
    """X, checked, with the constraints that came with it; a rank is needed to check these."""

    data: CountData | LazyInput  # X in memory, on disk, or not read yet
    given: dict[str, Any]  # constraints by their names, missing cells in the order of X
    feature_names: Any = None
    penalties: Penalties = NO_PENALTIES
    called: ConstraintNames = OF_MATRIX
    was_on_device: bool = False  # X, and so should be what is returned for it

    def beside_X(self, W: Any) -> Any:  # noqa: N802
        """Return W where X was."""
        return result_on_device(W) if self.was_on_device else W

    def constraints(
        self, shape: tuple[int, ...], n_components: int, dtype: np.dtype[Any]
    ) -> Constraints:
        """Return the constraints on X of this shape and type, or say what is wrong with them."""
        check_penalties(self.penalties, dtype)
        size, names = (shape, n_components, dtype), (self.feature_names, self.penalties)
        return check_constraints(self.given, *size, *names, self.called)

    def of_fit(
        self, n_components: int, check: Callable[[np.dtype[Any], Constraints], object]
    ) -> FitInput:
        """Return X as a fit sees it; ``check`` refuses a type and constraints that it cannot do."""

        def found(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Constraints:
            constraints = self.constraints(shape, n_components, dtype)
            check(dtype, constraints)
            return constraints

        return self.data.with_constraints(found)

    @property
    def X(self) -> Any:  # noqa: N802
        """X in memory: a CSR array or a `SparseTensor`."""
        if isinstance(self.data, TensorData):
            return self.data.X
        assert isinstance(self.data, InMemoryData)
        return self.data.view(0).as_csr()

    def in_memory(self, n_components: int) -> ConstrainedCounts:
        """Return X in memory with its constraints."""
        X = self.X
        constraints = self.constraints(X.shape, n_components, X.dtype)
        return ConstrainedCounts(X, constraints, self.penalties)


def checked_counts(
    X: Any,
    given: dict[str, Any],
    name: str,
    *,
    model: Any = None,
    reset: bool = True,
    dtype: Any = None,
    penalties: Penalties = NO_PENALTIES,
    n_threads: int | None = None,
    backends: tuple[str, ...] = (),
    takes_files: bool = False,
    takes_missing: bool = True,
    takes_tensors: bool = False,
    min_samples: int = 1,
    backend: str = "cpu",
) -> CheckedCounts:
    """Return X and its constraints, or say what is wrong with them.

    ``name`` is that of the estimator or function. With a ``model``, X must have its features, or
    sets them (``reset``, for a fit: then a warning says if X looks transformed). ``backends`` are
    those that may read a `LazyInput`; matrices on disk are taken if the caller ``takes_files``, and
    then those on a GPU stay there for the ``backend`` "cuda".
    """
    if isinstance(X, SparseTensor):
        if not takes_tensors:
            raise TypeError(
                f"X is a tensor, and {name} takes matrices: klnmf.PoissonCP fits tensors. "
                "X.flattened(0) makes a matrix of one."
            )
        return _checked_tensor(X, given, dtype, penalties, n_threads, is_new=reset)
    was_on_device, there = is_on_device(X), None
    given = {key: on_host(value) for key, value in given.items()}
    if was_on_device:
        if takes_files and given.get("missing") is None and backend_for(backend, X) == "cuda":
            there = data_on_device(X, dtype)
        X = X if there is not None else on_host(X)
    check_sample_order(given, X)
    lazy = lazy_kind(X)
    if lazy is not None and lazy.backend in backends:
        validate_data(model, X, reset=reset, skip_check_array=True)
        lazily, given = lazy.of(X, given, dtype, name)
        _check_observed(given, reset)
        return CheckedCounts(lazily, given, names_seen_in_fit(model), penalties)
    if lazy is not None:
        raise TypeError(lazy.refusal)
    missing = given.get("missing")
    if missing is not None:
        missing = missing_cells(X, missing, None if reset else names_seen_in_fit(model))
        given = given | {"missing": missing}
        _check_observed(given, reset)
    data: CountData
    if there is not None:
        validate_data(model, X, reset=reset, skip_check_array=True)
        data = there
        if reset:
            warn_if_not_counts(data.view(0))
    elif isinstance(X, OnDiskMatrix):
        if not takes_files:
            raise TypeError(
                f"{X!r} is on disk, but here the counts must be in memory. Pass "
                "klnmf.readers.read_counts(path).X, or a block of its row_blocks()."
            )
        validate_data(model, X, reset=reset, skip_check_array=True)
        data = _on_disk(X, dtype, reset)
    else:
        threads = effective_threads(n_threads)
        counts = check_counts(
            X,
            dtype=dtype,
            name=name,
            takes_missing=takes_missing,
            missing=missing,
            n_threads=threads,
            ensure_min_samples=min_samples,
            **({"estimator": name} if model is None else {"model": model, "reset": reset}),
        )
        if reset:
            warn_if_not_counts(view_of(counts))
        data = InMemoryData(counts, n_threads=threads)
    names = feature_names_of(X) if model is None else names_seen_in_fit(model)
    return CheckedCounts(data, given, names, penalties, was_on_device=was_on_device)


def by_mode(given: Any, name: str, n_modes: int) -> list[Any]:
    """Return the entries of a list with one for each mode; None is a list of these."""
    entries = [None] * n_modes if given is None else given
    if not isinstance(entries, list | tuple) or len(entries) != n_modes:
        got = f"{len(entries)} entries" if isinstance(entries, list | tuple) else described(given)
        raise ValueError(
            f"{name} must be a list with an entry for each of the {n_modes} modes, None where "
            f"there is nothing; got {got}."
        )
    return list(entries)


def _checked_tensor(
    X: SparseTensor,
    given: dict[str, Any],
    dtype: Any,
    penalties: Penalties,
    n_threads: int | None,
    is_new: bool,
) -> CheckedCounts:
    """Return a tensor with its constraints, whose lists by mode become single ones."""
    is_narrow_enough = is_float32_enough(X)
    if dtype is None and not is_narrow_enough:
        dtype = np.float64
    dtype = working_dtype(X.values, dtype)
    if dtype == np.float32 and not is_narrow_enough:
        raise ValueError(
            f"This tensor with {X.ndim} modes cannot be fitted in float32: products of the shares "
            f"of its smallest slices would become 0. Leave {option('dtype')} out, or pass float64."
        )
    if dtype != X.dtype:
        names = {"mode_names": X.mode_names, "labels": X.labels}
        X = SparseTensor(X.coords, X.values.astype(dtype), X.shape, **names)
    check_values(X.values)
    called, by_name = ConstraintNames.of_tensor(X.ndim), {}
    for name, value in given.items():
        if value is None or name not in ConstraintNames._fields:
            by_name[name] = value
            continue
        by_name |= dict(zip(getattr(called, name), by_mode(value, name, X.ndim), strict=True))
    missing = by_name.get("missing")
    if missing is not None:
        if not isinstance(missing, SparseTensor) or missing.shape != X.shape:
            raise ValueError(
                f"missing must be a SparseTensor of shape {X.shape}, whose nonzeros are the cells "
                f"that were not observed; got {described(missing)}."
            )
        _check_observed(by_name, is_new)
        by_name["missing"] = missing if missing.nnz else None
    if not any(penalties.penalised_modes):
        penalties = Penalties((0.0,) * X.ndim, (0.0,) * X.ndim)
    data = TensorData(X, n_threads=effective_threads(n_threads))
    if is_new:
        warn_if_not_counts(data.view(0))
    return CheckedCounts(data, by_name, penalties=penalties, called=called)


def _check_observed(given: dict[str, Any], is_fit: bool) -> None:
    missing = given.get("missing")
    if is_fit and missing is not None and missing.nnz == math.prod(missing.shape):
        raise ValueError("missing covers every cell of X: nothing would be left to fit.")


def _on_disk(X: OnDiskMatrix, dtype: Any, is_new: bool) -> CountData:
    """X as solvers see it: it was checked when it was prepared."""
    if dtype is not None and working_dtype(np.zeros(0), dtype) != X.dtype:
        raise ValueError(
            f"{X.path} was prepared in {X.dtype}, not with {option('dtype', dtype)}. Leave "
            f"{option('dtype')} out, or prepare the matrix again with that type."
        )
    X.check_unchanged()
    if is_new and not X.holds_whole_numbers:
        warn_if_not_counts(X.data.view(0))
    return X.data


def warn_of_data(X: Any, seen: RowView, n_components: int, constraints: Constraints) -> None:
    """Warn of data that a fit takes but few people want.

    ``seen`` is X as the solver sees it, with weights and without missing cells; X itself is for the
    names of its samples.
    """
    is_empty, names = np.diff(seen.indptr) == 0, sample_names_of(X)
    is_frozen = [constraints.is_frozen(mode) for mode in range(len(constraints.shape))]
    n_learned = int((~np.any(is_frozen, axis=0)).sum())
    if constraints.sample_weight is not None:
        is_empty &= constraints.sample_weight > 0
    if len(seen.sizes) == 1:  # of a tensor, more components may be needed than a mode has rows
        warn_of_many_components(n_learned, (seen.n_rows, seen.n_columns))
    warn_of_empty_samples(is_empty, names)
    if n_learned:
        weights = "sample_weight" if len(seen.sizes) == 1 else "weights"
        warn_of_dominant_samples(seen.row_sums, n_components, names, weights)


# ---- counts in memory ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ConstrainedCounts:
    """X, what is known about it and its factors, and the penalties.

    Unless components are fixed, the rank of ``constraints`` has no meaning.
    """

    X: Any  # CSR array or SparseTensor
    constraints: Constraints
    penalties: Penalties = NO_PENALTIES

    @property
    def n_fixed(self) -> int:
        """Number of components that are fixed in W or in H."""
        first, *others = (0 if part is None else part.shape[1] for part in self.constraints.fixed)
        return int(first + max(others))

    @property
    def is_plain(self) -> bool:
        """Whether a fit is one of weighted counts, without anything else."""
        has_others = self.n_fixed or self.constraints.missing is not None
        return not (has_others or any(self.penalties.penalised_modes))

    @property
    def sample_weights(self) -> Array:
        """Weight of each sample."""
        weights = self.constraints.sample_weight
        return np.ones(self.X.shape[0]) if weights is None else weights

    @property
    def equally_weighted(self) -> ConstrainedCounts:
        """The same with weight 1 for every sample, which changes no row of W but that of 0."""
        if self.constraints.sample_weight is None:
            return self
        return replace(self, constraints=self.constraints.with_sample_weight(None))

    def part(self, rows: Array) -> ConstrainedCounts:
        """Return some samples."""
        X = self.X.take(0, rows) if isinstance(self.X, SparseTensor) else self.X[rows]
        return replace(self, X=X, constraints=self.constraints.part(rows))

    def of_features(self, columns: Array) -> ConstrainedCounts:
        """Return some features, the rows of the second mode."""
        X = self.X.take(1, columns) if isinstance(self.X, SparseTensor) else self.X[:, columns]
        return replace(self, X=X, constraints=self.constraints.of_features(columns))

    @cached_property
    def data(self) -> CountData:
        """X as a fit sees it, with the rank of the constraints."""
        return data_in_memory(self.X).constrained(self.constraints)

    @cached_property
    def _backends(self) -> dict[tuple[str, int | None], Backend]:
        return {}

    def problem(self, n_components: int, n_threads: int | None, backend: str = "auto") -> Problem:
        """Return the problem of a fit with this many components, in this process.

        Problems of all ranks share their back-end, so that X is uploaded once, unless components
        are fixed: constraints belong to one rank then.
        """
        if self.n_fixed:
            data = self.of_rank(n_components).data
            return Problem(backend_named(backend).local(data, n_threads), self.penalties)
        key = (backend, n_threads)
        if key not in self._backends:
            self._backends[key] = backend_named(backend).local(self.data, n_threads)
        return Problem(self._backends[key], self.penalties)

    def check_backend(self, backend: str, n_components: int) -> None:
        """Refuse a back-end that cannot fit so many components, before any work starts."""
        known = (self.X.dtype, self.constraints)
        backend_named(backend, SparseCoordinateDescent().needs(n_components, *known))

    def of_rank(self, n_components: int) -> ConstrainedCounts:
        """Return the same for a fit with this many components: fixed ones have other places."""
        return replace(self, constraints=replace(self.constraints, n_components=n_components))
